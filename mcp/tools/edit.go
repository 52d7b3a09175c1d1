package tools

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"strings"

	"secbox/fault"
	"secbox/internal/admission"
	"secbox/packages/lines"
)

const (
	maxEditBytes = 10 << 20 // of a file that is edited
	maxEdits     = 100
)

const editDescription = `Changes parts of a text file of the user's workspace: replaces each text "old" by "new", exactly as it is in the file, with its indentation and ` +
	`without line numbers. Each old text must occur once, unless "all" is set. All edits are made, one after the other, or none. With "create" it makes a new file instead. ` +
	`If a text is not found, the answer shows the lines that are most like it.`

// EditParams are the arguments of Edit.
type EditParams struct {
	Path   string        `json:"path" jsonschema:"the file: relative to the current directory, or absolute below /workspace"`
	Edits  []Replacement `json:"edits,omitempty" jsonschema:"what to replace, in this order; an edit sees the result of those before it"`
	Create *string       `json:"create,omitempty" jsonschema:"the content of a new file, instead of edits; the file must not exist"`
}

// Replacement is one edit.
type Replacement struct {
	Old string `json:"old" jsonschema:"the text to replace, exactly as in the file"`
	New string `json:"new" jsonschema:"the text to put there; empty to remove the old one"`
	All bool   `json:"all,omitempty" jsonschema:"replace every occurrence, not exactly one"`
}

// Edit changes a file. Its Meta has sha256 and sha256_before.
func (s *Session) Edit(ctx context.Context, p EditParams) (*Result, error) {
	full := s.resolve(p.Path)
	if p.Create != nil {
		return s.editNew(ctx, full, p)
	}
	switch n := len(p.Edits); {
	case n == 0:
		return nil, badArgument("edits", "is missing; give at least one edit, or create with the content of a new file")
	case n > maxEdits:
		return nil, badArgument("edits", "has %d edits; make at most %d at once", n, maxEdits)
	}
	info, err := s.sandbox.Stat(ctx, full, s.user)
	if err != nil {
		return nil, s.explain(ctx, full, err)
	}
	content := &limited{most: int(min(max(info.Size, 0), maxEditBytes))}
	reserved := content.most
	if err := callerOf(ctx).reserve(4 * int64(reserved)); err != nil { // the old text, the new one, and copies of both
		return nil, err
	}
	content.most += 64 << 10 // it may have grown a little
	_, err = s.sandbox.ReadFileTo(ctx, full, content, s.user)
	if content.full && info.Size < maxEditBytes {
		return nil, fault.New(fault.FileChanged, "%s grows while it is read; nothing was changed", quote(full))
	}
	if content.full {
		return nil, fault.New(fault.FileTooLarge, "%s has more than %d bytes; change it with a command", quote(full), maxEditBytes)
	}
	if err != nil {
		return nil, s.explain(ctx, full, err)
	}
	work, release := callerOf(ctx).present(ctx)
	defer release()
	text, before, replaced, err := edited(work, content.data, p.Edits, quote(full), reserved)
	if err != nil {
		return nil, err
	}
	return s.replace(ctx, editTool, full, text, before, fmt.Sprintf("edited %s; replacements: %d", quote(full), replaced))
}

// edited makes all edits of a text, in turns with the work of other clients. It returns the new
// text, the digest of the old one, and how many replacements were made. Four times the reserved
// bytes are counted as memory already.
func edited(ctx context.Context, text []byte, edits []Replacement, file string, reserved int) (_ []byte, before string, replaced int,
	err error,
) {
	turn, err := admission.Begin(ctx)
	if err != nil {
		return nil, "", 0, err
	}
	defer turn.End()
	before = digestOf(text)
	var spare []byte
	for n, e := range edits {
		if err := turn.Next(); err != nil {
			return nil, "", 0, err
		}
		e, times, err := e.match(text, fmt.Sprintf("edits[%d]", n), file)
		if err != nil {
			return nil, "", 0, err
		}
		size := len(text) + times*(len(e.New)-len(e.Old))
		if size > maxEditBytes {
			return nil, "", 0, fault.New(fault.FileTooLarge, "%s would have more than %d bytes; nothing was changed", file, maxEditBytes)
		}
		if more := size - reserved; more > 0 {
			if err := callerOf(ctx).reserve(4 * int64(more)); err != nil {
				return nil, "", 0, err
			}
			reserved = size
		}
		text, spare = e.apply(slices.Grow(spare[:0], size), text, times), text
		replaced += times
	}
	return text, before, replaced, nil
}

// apply appends a text to another text, with the first times occurrences replaced.
func (e Replacement) apply(to, text []byte, times int) []byte {
	old := []byte(e.Old)
	for range times {
		at := bytes.Index(text, old)
		to = append(append(to, text[:at]...), e.New...)
		text = text[at+len(old):]
	}
	return append(to, text...)
}

func (s *Session) editNew(ctx context.Context, full string, p EditParams) (*Result, error) {
	if len(p.Edits) > 0 {
		return nil, badArgument("create", "makes a new file; leave edits out")
	}
	_, err := s.sandbox.Stat(ctx, full, s.user)
	switch {
	case err == nil:
		return nil, fault.New(fault.InputConflict, "%s exists; change it with edits, or use another path", quote(full))
	case !errors.Is(err, fs.ErrNotExist):
		return nil, s.explain(ctx, full, err)
	}
	return s.create(ctx, editTool, full, []byte(*p.Create))
}

// match returns the edit with the ends of lines that the text has, and how often the old text
// occurs.
func (e Replacement) match(text []byte, field, file string) (Replacement, int, error) {
	if e.Old == "" {
		return e, 0, badArgument(field+".old", "is empty; give the text to replace, or use create for a new file")
	}
	if e.Old == e.New {
		return e, 0, badArgument(field+".new", "is the same as old; leave this edit out")
	}
	tries := []Replacement{e}
	if !strings.Contains(e.Old, "\r") && bytes.Contains(text, []byte("\r\n")) { // files.read shows such lines without their \r
		tries = append(tries, Replacement{Old: withCRLF(e.Old), New: withCRLF(e.New), All: e.All})
		if lines.Break(text) == "\r\n" {
			slices.Reverse(tries)
		}
	}
	times := 0
	for i := 0; i < len(tries) && times == 0; i++ {
		e = tries[i]
		times = bytes.Count(text, []byte(e.Old))
	}
	switch {
	case times == 0:
		return e, 0, badArgument(field+".old", "is not in %s; nothing was changed. %s", file, nearest(string(text), e.Old))
	case times > 1 && !e.All:
		return e, 0,
			badArgument(field+".old",
				"occurs %d times in %s, at lines %s; nothing was changed. Give more of the text around it, or set all", times, file,
				linesOf(string(text), e.Old))
	}
	return e, times, nil
}

// withCRLF returns a text whose lines all end with \r\n.
func withCRLF(text string) string {
	return strings.ReplaceAll(strings.ReplaceAll(text, "\r\n", "\n"), "\n", "\r\n")
}

// linesOf lists the lines where a text begins; the first ten.
func linesOf(text, part string) string {
	var numbers []string
	line := 1
	for len(numbers) < 10 {
		before, after, ok := strings.Cut(text, part)
		if !ok {
			return strings.Join(numbers, ", ")
		}
		line += strings.Count(before, "\n")
		numbers = append(numbers, fmt.Sprint(line))
		line += strings.Count(part, "\n")
		text = after
	}
	return strings.Join(numbers, ", ") + ", …"
}

const (
	nearLines = 3       // that nearest shows
	nearBytes = 1 << 10 // of a line that it compares
)

// nearest shows the lines of text that are most like the first line of old that has more than
// space.
func nearest(text, old string) string {
	wanted := ""
	for line := range strings.Lines(old) {
		if wanted = strings.TrimSpace(line); wanted != "" {
			break
		}
	}
	type near struct {
		number, score int
		line          string
	}
	var best []near // the best first
	number := 0
	for line := range strings.Lines(text) {
		number++
		line = strings.TrimRight(line, "\r\n")
		score := likeness(strings.TrimSpace(line), wanted)
		if score == 0 || len(best) == nearLines && score <= best[nearLines-1].score {
			continue
		}
		at := len(best)
		for at > 0 && best[at-1].score < score {
			at--
		}
		best = append(best[:at], append([]near{{number, score, line}}, best[at:]...)...)
		best = best[:min(len(best), nearLines)]
	}
	if len(best) == 0 {
		return "No line is like it; read the file (files_read)."
	}
	var b strings.Builder
	b.WriteString("The lines most like it:")
	for _, n := range best {
		fmt.Fprintf(&b, "\n%6d\t%s", n.number, cutLine([]byte(n.line[:min(len(n.line), maxLineBytes)]), len(n.line)))
	}
	return b.String()
}

// likeness tells how alike two lines are: the length of their common beginning and end, in
// thousandths of the longer one; 0 below a third.
func likeness(a, b string) int {
	a, b = a[:min(len(a), nearBytes)], b[:min(len(b), nearBytes)]
	if a == "" || b == "" {
		return 0
	}
	short, long := min(len(a), len(b)), max(len(a), len(b))
	head := 0
	for head < short && a[head] == b[head] {
		head++
	}
	tail := 0
	for tail < short-head && a[len(a)-1-tail] == b[len(b)-1-tail] {
		tail++
	}
	score := 1000 * (head + tail) / long
	if score < 333 {
		return 0
	}
	return score
}

// limited keeps what is written to it, up to most bytes.
type limited struct {
	most int
	data []byte
	full bool
}

var errFull = errors.New("tools: more bytes than wanted")

// Write implements io.Writer.
func (l *limited) Write(p []byte) (int, error) {
	if l.full = l.full || len(l.data)+len(p) > l.most; l.full {
		return 0, errFull
	}
	if l.data == nil {
		l.data = make([]byte, 0, max(len(p), bytes.MinRead))
	}
	l.data = append(l.data, p...)
	return len(p), nil
}
