package library

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"secbox/skills"
	"secbox/workspace"
)

// Bounds of a diff, in bytes.
const (
	maxDiffFile = 1 << 20 // of a file that is compared by lines
	maxDiff     = 8 << 20 // of the whole; the rest of the files are named only
)

// Diff compares the user's version of a skill with the baseline version that it is based on, or for a skill of the user's own with nothing, as a
// unified diff that patch -p1 takes. Files that are no text, or too long, are named only. The digest names the version that was compared;
// it is empty when that could not be a version.
func (l *Library) Diff(ctx context.Context, o Owner, skillID string) (diff, digest string, err error) {
	if err := forReading(o, skillID); err != nil {
		return "", "", err
	}
	if isGlobal(skillID) {
		digest, err := l.GlobalDigest()
		return "", digest, err
	}
	err = l.reading(ctx, o, skillID, func(mine *workspace.Tree) (err error) {
		for range tries {
			if diff, digest, err = l.diff(ctx, o, skillID, mine); !movedAway(ctx, err) {
				break
			}
		}
		return failed(err, "the skill "+skillID)
	})
	return diff, digest, err
}

func (l *Library) diff(ctx context.Context, o Owner, skillID string, mine *workspace.Tree) (diff, digest string, err error) {
	row, _, err := l.pointer(ctx, o, skillID)
	if err != nil {
		return "", "", err
	}
	now, err := l.contents(ctx, "", mine)
	if err != nil {
		return "", "", err
	}
	base, err := l.stored(ctx, o, skillID, row.BaseDigest)
	if err != nil || base.digest != "" && base.digest == now.digest {
		return "", now.digest, err
	}
	d := differ{}
	if row.BaseDigest != "" {
		if d.old, err = l.version(o, skillID, row.BaseDigest); err != nil {
			return "", "", err
		}
		defer d.old.Close()
	}
	d.now = mine
	if err := d.trees(ctx, base.byPath(), now.byPath()); err != nil {
		return "", "", err
	}
	if now.odd != "" {
		fmt.Fprintf(&d.out, "Not compared: %s\n", now.odd)
	}
	return d.out.String(), now.digest, nil
}

type differ struct {
	old, now *workspace.Tree
	out      strings.Builder
}

func (d *differ) trees(ctx context.Context, old, now map[string]skills.File) error {
	all := maps.Clone(old)
	maps.Copy(all, now)
	for _, name := range slices.Sorted(maps.Keys(all)) {
		if err := context.Cause(ctx); err != nil {
			return err
		}
		before, was := old[name]
		after, is := now[name]
		if was && is && before.SHA256 == after.SHA256 {
			continue
		}
		from, to := "/dev/null", "/dev/null"
		var a, b []byte
		comparable := d.out.Len() < maxDiff
		var err error
		if was {
			from = quotedPath("a/" + name)
			if a, err = diffable(d.old, before, &comparable); err != nil {
				return err
			}
		}
		if is {
			to = quotedPath("b/" + name)
			if b, err = diffable(d.now, after, &comparable); err != nil {
				return err
			}
		}
		switch {
		case !comparable:
			fmt.Fprintf(&d.out, "Binary files %s and %s differ\n", from, to)
		case len(a)+len(b) == 0:
			fmt.Fprintf(&d.out, "--- %s\n+++ %s\n", from, to) // an empty file came or went
		default:
			fmt.Fprintf(&d.out, "--- %s\n+++ %s\n", from, to)
			unified(&d.out, splitLines(a), splitLines(b))
		}
	}
	return nil
}

// quotedPath keeps a path with control characters from forging lines.
func quotedPath(path string) string {
	if quoted := strconv.QuoteToGraphic(path); quoted != `"`+path+`"` {
		return quoted
	}
	return path
}

// diffable reads a file, unless it is not for comparing. workspace.ErrChanged when it is not what its digest says any more.
func diffable(t *workspace.Tree, file skills.File, comparable *bool) ([]byte, error) {
	if !*comparable || file.Size > maxDiffFile {
		*comparable = false
		return nil, nil
	}
	content, _, err := readFile(t, file.Path)
	if err != nil {
		return nil, err
	}
	if sum := sha256.Sum256(content); hex.EncodeToString(sum[:]) != file.SHA256 {
		return nil, workspace.ErrChanged
	}
	if !utf8.Valid(content) || bytes.IndexByte(content, 0) >= 0 || len(content) > maxDiffFile {
		*comparable = false
	}
	return content, nil
}

// splitLines keeps the line breaks, so that a last line without one is another line.
func splitLines(text []byte) []string { return slices.Collect(strings.Lines(string(text))) }

// edit is a run of lines: old[a0:a1] became now[b0:b1].
type edit struct{ a0, a1, b0, b1 int }

// around is how many lines of context surround a change.
const around = 3

// unified writes the changes in hunks.
func unified(out *strings.Builder, old, now []string) {
	edits := changes(old, now)
	for len(edits) > 0 {
		n := 1
		for n < len(edits) && edits[n].a0-edits[n-1].a1 <= 2*around {
			n++
		}
		hunk := edits[:n]
		edits = edits[n:]
		before := min(around, hunk[0].a0)
		after := min(around, len(old)-hunk[n-1].a1)
		a0, a1 := hunk[0].a0-before, hunk[n-1].a1+after
		b0, b1 := hunk[0].b0-before, hunk[n-1].b1+after
		fmt.Fprintf(out, "@@ -%s +%s @@\n", span(a0, a1), span(b0, b1))
		at := a0
		for _, e := range hunk {
			put(out, ' ', old[at:e.a0])
			put(out, '-', old[e.a0:e.a1])
			put(out, '+', now[e.b0:e.b1])
			at = e.a1
		}
		put(out, ' ', old[at:a1])
	}
}

// span writes a range of lines as diff does: an empty one is behind the line before it.
func span(from, to int) string {
	switch to - from {
	case 0:
		return fmt.Sprintf("%d,0", from)
	case 1:
		return strconv.Itoa(from + 1)
	}
	return fmt.Sprintf("%d,%d", from+1, to-from)
}

func put(out *strings.Builder, mark byte, lines []string) {
	for _, line := range lines {
		out.WriteByte(mark)
		out.WriteString(line)
		if !strings.HasSuffix(line, "\n") {
			out.WriteString("\n\\ No newline at end of file\n")
		}
	}
}

// maxEdits is how many lines may come or go before a search for the shortest diff is given up, as its cost grows with the square.
const maxEdits = 1000

var errTooManyEdits = errors.New("more changes than are searched for")

// changes finds what has changed, by Myers' algorithm between what both have at their beginning and their end.
func changes(old, now []string) []edit {
	head := 0
	for head < len(old) && head < len(now) && old[head] == now[head] {
		head++
	}
	tail := 0
	for tail < len(old)-head && tail < len(now)-head && old[len(old)-1-tail] == now[len(now)-1-tail] {
		tail++
	}
	a, b := old[head:len(old)-tail], now[head:len(now)-tail]
	if len(a)+len(b) == 0 {
		return nil
	}
	edits, err := shortest(a, b)
	if err != nil {
		edits = []edit{{0, len(a), 0, len(b)}}
	}
	for n := range edits {
		e := &edits[n]
		e.a0, e.a1, e.b0, e.b1 = e.a0+head, e.a1+head, e.b0+head, e.b1+head
	}
	return edits
}

// diagonals says, for each diagonal k = x-y from -n to n, how far it was followed: the furthest x.
type diagonals struct {
	x []int32
	n int
}

func newDiagonals(n int) diagonals { return diagonals{make([]int32, 2*n+1), n} }

func (r diagonals) at(k int) int     { return int(r.x[k+r.n]) }
func (r diagonals) set(k int, x int) { r.x[k+r.n] = int32(x) }

// upTo copies the diagonals from -n to n.
func (r diagonals) upTo(n int) diagonals { return diagonals{slices.Clone(r.x[r.n-n : r.n+n+1]), n} }

// from is the diagonal from which k is entered in round d: the one above, by a line that comes, or the one below, by a line that goes.
func (r diagonals) from(k, d int) int {
	if k == -d || k != d && r.at(k-1) < r.at(k+1) {
		return k + 1
	}
	return k - 1
}

// shortest searches, for d = 0, 1, 2, … lines that come or go, how far each diagonal can be followed, and then walks back.
func shortest(a, b []string) ([]edit, error) {
	most := min(len(a)+len(b), maxEdits)
	reach := newDiagonals(most + 1)
	var rounds []diagonals
	for d := range most + 1 {
		rounds = append(rounds, reach.upTo(d+1))
		for k := -d; k <= d; k += 2 {
			from := reach.from(k, d)
			x := reach.at(from)
			if from == k-1 {
				x++
			}
			for x < len(a) && x-k < len(b) && x-k >= 0 && a[x] == b[x-k] {
				x++
			}
			reach.set(k, x)
			if x >= len(a) && x-k >= len(b) {
				return walkBack(rounds, len(a), len(b)), nil
			}
		}
	}
	return nil, errTooManyEdits
}

// walkBack finds the edits from the end to the beginning and joins those that touch.
func walkBack(rounds []diagonals, x, y int) []edit {
	var edits []edit
	for d := len(rounds) - 1; d > 0; d-- {
		k := x - y
		from := rounds[d].from(k, d)
		px := rounds[d].at(from)
		py := px - from
		e := edit{px, px, py, py + 1}
		if from == k-1 {
			e = edit{px, px + 1, py, py}
		}
		if n := len(edits); n > 0 && edits[n-1].a0 == e.a1 && edits[n-1].b0 == e.b1 {
			edits[n-1].a0, edits[n-1].b0 = e.a0, e.b0
		} else {
			edits = append(edits, e)
		}
		x, y = px, py
	}
	slices.Reverse(edits)
	return edits
}
