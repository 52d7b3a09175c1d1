package offload

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"unicode/utf8"

	"secbox/fault"
	"secbox/sandbox"
)

// Bounds of what a model reads, in bytes.
const (
	MaxInline = 32 << 10 // of a result that stays as it is, as for skills
	headBytes = 16 << 10
	tailBytes = 8 << 10

	// MaxRead is how much of a kept result Read returns at once.
	MaxRead = 24 << 10
)

// Session has the kept results of one session of a user. An id is known in its own session only.
// Safe for concurrent use.
type Session struct {
	store  *Store
	user   sandbox.User
	closed bool // under store.mu
}

// Close removes the session's results. Nothing is kept after it. Safe to call twice.
func (s *Session) Close() {
	s.store.mu.Lock()
	defer s.store.mu.Unlock()
	s.closed = true
	s.store.evict(Bounds{}, s.owns)
}

func (s *Session) owns(e *entry) bool { return e.session == s }

// OffloadedResult is what a model gets of a long result.
type OffloadedResult struct {
	Text  string // the beginning, a note, and the end
	ID    string // empty: the whole could not be kept
	Bytes int64  // of the whole
}

// MaybeOffload keeps a tool's result that has more than MaxInline bytes; false: the result is
// short. read is the file that the result shows, or the zero File. Its digest is the digest of the
// bytes that the tool has read: to read it again here could hash another content.
func (s *Session) MaybeOffload(toolName, result string, read File) (OffloadedResult, bool) {
	if len(result) <= MaxInline {
		return OffloadedResult{}, false
	}
	head, tail := cutBack(result, headBytes), cutBack(result, len(result)-tailBytes)
	out := OffloadedResult{ID: rand.Text(), Bytes: int64(len(result))}
	rest := fmt.Sprintf("the whole result is kept: read it with offload_read, id %s, from offset %d", out.ID, head)
	if err := s.store.add(&entry{id: out.ID, session: s, bytes: out.Bytes, tool: toolName, read: read}, result); err != nil {
		out.ID, rest = "", "they could not be kept; ask for less at once"
	}
	out.Text = fmt.Sprintf("%s\n… (%d of %d bytes left out; %s) …\n%s", result[:head], tail-head, len(result), rest, result[tail:])
	return out, true
}

// cutBack returns where to cut text so that at most n bytes are before, and no character is cut.
func cutBack(text string, n int) int {
	for back := range utf8.UTFMax {
		if n >= back && n-back < len(text) && utf8.RuneStart(text[n-back]) {
			return n - back
		}
	}
	return min(max(n, 0), len(text))
}

// Part is a part of a kept result.
type Part struct {
	Text     string
	From, To int64 // the bytes of the result that Text has
	Bytes    int64 // of the whole
	Tool     string
	Stale    Stale // the file that the result shows, in one of the lists unless it is as it was read
}

// Read returns up to limit bytes of a kept result, at most MaxRead and at least one character, from
// the byte offset on, and compares the file that the result shows with what the sandbox has now. An
// unknown id, also of another session, is fault.UnknownFile.
func (s *Session) Read(ctx context.Context, id string, offset, limit int64, from Files) (Part, error) {
	part, shows, err := s.read(id, offset, limit)
	if err == nil && shows.SHA256 != "" {
		part.Stale, err = s.InvalidateStaleReads(ctx, []File{shows}, from)
	}
	return part, err
}

// read also returns the file that the result shows; the zero File: none.
func (s *Session) read(id string, offset, limit int64) (part Part, shows File, err error) {
	s.store.mu.Lock()
	at := slices.IndexFunc(s.store.entries, func(e *entry) bool { return s.owns(e) && e.id == id })
	if at < 0 {
		s.store.mu.Unlock()
		return Part{}, File{}, unknown()
	}
	e := s.store.entries[at]
	part, shows = Part{Bytes: e.bytes, Tool: e.tool}, e.read
	f, err := s.store.root.Open(e.id)
	s.store.mu.Unlock()
	if err != nil {
		return Part{}, File{}, err
	}
	defer f.Close()
	if offset < 0 || offset > e.bytes {
		return Part{}, File{}, fault.New(fault.InvalidInputs, "offset: must be from 0 to %d, the length of the result", e.bytes)
	}
	if limit <= 0 || limit > MaxRead {
		limit = MaxRead
	}
	content := make([]byte, min(limit+2*utf8.UTFMax, e.bytes-offset))
	n, err := f.ReadAt(content, offset)
	if err != nil && !errors.Is(err, io.EOF) {
		return Part{}, File{}, err
	}
	// Begin and end between characters. An offset within one begins after it.
	text := string(content[:n])
	start := 0
	for start < len(text) && start < utf8.UTFMax && offset > 0 && !utf8.RuneStart(text[start]) {
		start++
	}
	end := len(text)
	if int64(end-start) > limit {
		if end = cutBack(text, start+int(limit)); end <= start {
			_, wide := utf8.DecodeRuneInString(text[start:])
			end = start + wide
		}
	}
	part.Text = strings.ToValidUTF8(text[start:end], "\uFFFD")
	part.From, part.To = offset+int64(start), offset+int64(end)
	return part, shows, nil
}

func unknown() error {
	return fault.New(fault.UnknownFile,
		"no result is kept under this id: it belongs to another session, or newer ones have taken its place; call the tool again")
}
