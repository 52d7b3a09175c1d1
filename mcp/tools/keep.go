package tools

import (
	"context"
	"fmt"
	"strings"

	"secbox/mcp/offload"
)

// keptTools are offered in sessions with WithResults, and work only there.
var keptTools = []*Tool{
	define("offload.read", "Read a long result", readKeptDescription, true, (*Session).ReadKept),
	define("offload.stale", "Find outdated reads", staleDescription, true, (*Session).Stale),
}

// keep replaces the text of a long result by its beginning and end, and keeps the whole.
func (s *Session) keep(tool string, r *Result) {
	if s.kept == nil {
		return
	}
	var read offload.File
	read.Path, _ = r.Meta["path"].(string)
	read.SHA256, _ = r.Meta["sha256"].(string)
	out, long := s.kept.MaybeOffload(tool, r.Text, read)
	if !long {
		return
	}
	if r.Meta == nil {
		r.Meta = map[string]any{}
	}
	r.Text = out.Text
	r.Meta["offload_id"], r.Meta["offload_bytes"] = out.ID, out.Bytes
}

const readKeptDescription = `Reads a part of a long result of another tool, of which only the beginning and the end were shown. Results are kept until this session ends, or until newer ones take their place.`

// ReadKeptParams are the arguments of ReadKept.
type ReadKeptParams struct {
	ID     string `json:"id" jsonschema:"the id that the note in the shown result names"`
	Offset int64  `json:"offset,omitempty" jsonschema:"the byte of the result to begin at; the first is 0"`
	Limit  int64  `json:"limit,omitempty" jsonschema:"how many bytes to read; at most 24576, which is the default"`
}

// ReadKept shows a part of a kept result, and says whether the file that it shows has changed
// since. Its Meta has from and to, the bytes that it shows, and offload_bytes.
func (s *Session) ReadKept(ctx context.Context, p ReadKeptParams) (*Result, error) {
	part, err := s.kept.Read(ctx, p.ID, p.Offset, p.Limit, s.sandbox)
	if err != nil {
		return nil, err
	}
	text := part.Text
	if !strings.HasSuffix(text, "\n") {
		text += "\n"
	}
	text += fmt.Sprintf("(bytes %d to %d of %d", part.From, part.To, part.Bytes)
	if part.To < part.Bytes {
		text += fmt.Sprintf("; go on with offset %d", part.To)
	}
	text += ")\n"
	for says, paths := range map[string][]string{
		"has changed since it was read": part.Stale.Changed, "was removed since it was read": part.Stale.Removed,
		"cannot be compared with what was read; perhaps it has changed": part.Stale.Unknown,
	} {
		for _, full := range paths {
			text += fmt.Sprintf("(%s %s)\n", quote(full), says)
		}
	}
	return &Result{Text: text, Meta: map[string]any{"tool": part.Tool, "from": part.From, "to": part.To, "offload_bytes": part.Bytes}}, nil
}

const staleDescription = `Tells which of the files that were read or written in this session have other content now, changed by a command or the user, were removed, or cannot be checked. Read those again before you rely on them.`

// StaleParams are the arguments of Stale: none.
type StaleParams struct{}

// Stale names the files that have changed since the session read or wrote them. Its Meta has the
// lists changed, removed and unknown.
func (s *Session) Stale(ctx context.Context, _ StaleParams) (*Result, error) {
	found, err := s.InvalidateStaleReads(ctx)
	if err != nil {
		return nil, err
	}
	var b strings.Builder
	meta := map[string]any{}
	for _, list := range []struct {
		name, title string
		paths       []string
	}{
		{"changed", "changed since they were read:", found.Changed},
		{"removed", "removed:", found.Removed},
		{"unknown", "cannot be read now, perhaps changed, perhaps not:", found.Unknown},
	} {
		if len(list.paths) == 0 {
			continue
		}
		meta[list.name] = list.paths
		b.WriteString(list.title + "\n")
		for _, full := range list.paths {
			b.WriteString("  " + quote(full) + "\n")
		}
	}
	if b.Len() == 0 {
		b.WriteString("none of the files that were read has changed\n")
	}
	return &Result{Text: b.String(), Meta: meta}, nil
}

// InvalidateStaleReads compares the files that a session with WithResults has read or written with
// what the sandbox has now; see offload.
func (s *Session) InvalidateStaleReads(ctx context.Context) (offload.Stale, error) {
	return s.kept.InvalidateStaleReads(ctx, s.seenFiles(), s.sandbox)
}
