package tools_test

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"io"
	"io/fs"
	"strings"
	"sync/atomic"
	"testing"
	"unicode"
	"unicode/utf8"

	"secbox/fault"
	"secbox/sandbox"
)

// liar is a user's machine that answers whatever a test wants. Package remote tests which answers
// get as far as here.
type liar struct {
	sandbox.Backend
	info    sandbox.FileInfo
	entries []sandbox.DirEntry
	content func(call int64) string
	size    int64 // that a read tells; 0: the true one
	result  sandbox.ExecResult
	calls   atomic.Int64
}

func (l *liar) Stat(context.Context, string, sandbox.User) (*sandbox.FileInfo, error) {
	l.calls.Add(1)
	info := l.info
	return &info, nil
}

func (l *liar) ReadDir(context.Context, string, sandbox.User) ([]sandbox.DirEntry, error) {
	l.calls.Add(1)
	return l.entries, nil
}

func (l *liar) ReadFileTo(_ context.Context, _ string, w io.Writer, _ sandbox.User) (int64, error) {
	n, err := io.WriteString(w, l.content(l.calls.Add(1)))
	if l.size != 0 {
		return l.size, err
	}
	return int64(n), err
}

func (l *liar) WriteFileFrom(_ context.Context, _ string, r io.Reader, _ fs.FileMode, _ sandbox.User) (int64, error) {
	l.calls.Add(1)
	_, err := io.Copy(io.Discard, r)
	return l.size, err
}

func (l *liar) ReplaceFile(ctx context.Context, path string, r io.Reader, _ string, user sandbox.User) (int64, error) {
	return l.WriteFileFrom(ctx, path, r, 0, user)
}

func (l *liar) MkdirAll(context.Context, string, fs.FileMode, sandbox.User) error {
	l.calls.Add(1)
	return nil
}

func (l *liar) Exec(context.Context, sandbox.ExecSpec) (*sandbox.ExecResult, error) {
	l.calls.Add(1)
	result := l.result
	return &result, nil
}

func (l *liar) ExecTo(ctx context.Context, spec sandbox.ExecSpec, stdout, stderr io.Writer) (*sandbox.ExecResult, error) {
	for _, w := range []io.Writer{stdout, stderr} {
		if _, err := io.WriteString(w, l.content(l.calls.Load())); err != nil {
			return nil, err
		}
	}
	return l.Exec(ctx, spec)
}

// TestEveryToolOnALyingMachine: no tool asks without end, answers without end, shows control bytes,
// or blames core-api.
func TestEveryToolOnALyingMachine(t *testing.T) {
	t.Parallel()
	text := func(int64) string { return "needle\n" }
	file := sandbox.FileInfo{Name: "f", Size: 7}
	dir := sandbox.FileInfo{Name: "d", IsDir: true, Mode: fs.ModeDir}
	many := make([]sandbox.DirEntry, 5000)
	for i := range many {
		many[i] = sandbox.DirEntry{Name: fmt.Sprint("d", i), IsDir: true, Mode: fs.ModeDir}
	}
	for name, l := range map[string]*liar{
		"directories without end": {info: dir, entries: many, content: text},
		"one directory in itself": {info: dir, entries: many[:1], content: text},
		"names that lead elsewhere": {info: dir, content: text, entries: []sandbox.DirEntry{
			{Name: "..", IsDir: true},
			{Name: "."},
			{Name: ""},
			{Name: "/etc", IsDir: true},
			{Name: "a/../../b"},
			{Name: "a\x00b"},
			{Name: "\x1b[2J\nx", IsDir: true},
		}},
		"names that lead elsewhere, of files": {info: file, content: text, entries: []sandbox.DirEntry{{Name: "../../etc/passwd"}, {Name: "..", IsDir: true}}},
		"the same name many times":            {info: dir, content: text, entries: make([]sandbox.DirEntry, 100_000)},
		"negative sizes": {
			info: sandbox.FileInfo{Size: -1 << 62}, entries: []sandbox.DirEntry{{Name: "f", Size: -1}}, content: text,
			size: -1,
		},
		"large sizes": {
			info: sandbox.FileInfo{Size: 1 << 62}, entries: []sandbox.DirEntry{{Name: "f", Size: 1 << 62}}, content: text,
			size: 1 << 62,
		},
		"an empty file with content": {
			info:    sandbox.FileInfo{Name: "f"},
			content: func(int64) string { return strings.Repeat("needle \x1b[2J", 1<<20) }, size: 1,
		},
		"a directory with content":  {info: dir, content: text},
		"a pipe with content":       {info: sandbox.FileInfo{Name: "f", Mode: fs.ModeNamedPipe}, content: text},
		"another content each time": {info: file, content: func(call int64) string { return fmt.Sprint("needle ", call) }},
		"an image without end":      {info: file, content: func(int64) string { return "GIF89a" + strings.Repeat("x", 20<<20) }},
		"a command's numbers": {info: dir, content: text, result: sandbox.ExecResult{
			Stdout: "\x1b[2J", ExitCode: -1 << 31, StdoutBytes: -5, StderrBytes: 1 << 62, TimedOut: true, Detail: strings.Repeat("\x1b[2J\n", 10_000),
		}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s, _ := allTools(t, l, sandbox.User{AgentID: "a", ID: "u"})
			for _, tool := range s.Tools() {
				arguments := map[string]string{
					"files.cd": `{"path": "d"}`, "files.read": `{"path": "f"}`, "files.write": `{"path": "f", "content": "x"}`,
					"files.edit": `{"path": "f", "edits": [{"old": "needle", "new": "x", "all": true}]}`, "files.glob": `{"pattern": "*"}`,
					"files.grep":     `{"pattern": "needle"}`,
					"files.download": `{"path": "f"}`, "files.upload": `{"path": "f", "data": "eA=="}`, "shell": `{"command": "true"}`,
					"skills.read": `{"name": "s"}`, "registry.list": `{}`, "offload.stale": `{}`,
					"feishu.download": `{"path": "f", "message_id": "om_1", "file_key": "file_1"}`, "feishu.upload": `{"path": "f"}`,
				}[tool.Name]
				if arguments == "" {
					continue // it opens no file; namesForgeNothing notices a tool that is missing here and does
				}
				before := l.calls.Load()
				r, err := tool.Call(t.Context(), s, json.RawMessage(arguments))
				shown := ""
				if err == nil {
					shown = r.Text
				} else {
					shown = fault.From(err).Message
				}
				bad := func(r rune) bool { return unicode.IsControl(r) && r != '\n' && r != '\t' }
				if !utf8.ValidString(shown) || strings.ContainsFunc(shown, bad) || len(shown) > 64<<10 || fault.CodeOf(err) == fault.Internal {
					t.Errorf("%s answers with %d bytes, %v: %.300q", tool.Name, len(shown), err, shown)
				}
				if r != nil && r.File != nil && (len(r.File.Content) > 1<<20 || fmt.Sprintf("%x", sha256.Sum256(r.File.Content)) != r.Meta["sha256"]) {
					t.Errorf("%s gives %d bytes with another digest", tool.Name, len(r.File.Content))
				}
				if r != nil && len(r.Image) > 5<<20 {
					t.Errorf("%s shows an image of %d bytes", tool.Name, len(r.Image))
				}
				if asked := l.calls.Load() - before; asked > 2100 { // the walk of a skill has the highest bound
					t.Errorf("%s asked %d times", tool.Name, asked)
				}
			}
		})
	}
}
