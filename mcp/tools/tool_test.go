package tools

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"runtime"
	"slices"
	"strings"
	"testing"

	"secbox/fault"
	"secbox/sandbox"
	"secbox/sandbox/search"
)

// TestSchemas: every argument has a description, and others are refused.
func TestSchemas(t *testing.T) {
	t.Parallel()
	for _, tool := range All {
		var s struct {
			Type                 string
			AdditionalProperties any
			Properties           map[string]struct{ Description string }
		}
		if err := json.Unmarshal(tool.Schema, &s); err != nil || s.Type != "object" || len(tool.Description) < 100 || tool.Title == "" {
			t.Errorf("%s: %s %v", tool.Name, tool.Schema, err)
		}
		if !strings.Contains(string(tool.Schema), `"description":"`+"An optional argument may be null") || strings.Contains(string(tool.Schema), `"type":[`) {
			t.Errorf("%s has no rule for what is meant, or a list of types: %s", tool.Name, tool.Schema)
		}
		for name, p := range s.Properties {
			if p.Description == "" {
				t.Errorf("%s has no description of %s", tool.Name, name)
			}
		}
		for _, bad := range []string{`{"no_such": 1}`, `[]`, `{`, `"x"`, `{"path": 1, "path": 2}`, `{"path": {}, "name": [], "pattern": 0, "command": null}`} {
			if _, err := tool.Call(t.Context(), nil, json.RawMessage(bad)); !fault.Is(err, fault.InvalidInputs) || len(fault.From(err).Fields) == 0 {
				t.Errorf("%s %s: %v", tool.Name, bad, err)
			}
		}
	}
}

// fake is a sandbox. A test sets the methods that it needs.
type fake struct {
	sandbox.Backend
	exec func(sandbox.ExecSpec) (*sandbox.ExecResult, error)
	file string
	size int64 // that Stat tells
	was  []string
}

func (f *fake) Stat(context.Context, string, sandbox.User) (*sandbox.FileInfo, error) {
	return &sandbox.FileInfo{Name: "f", Size: f.size}, nil
}

func (f *fake) ReadFileTo(_ context.Context, _ string, w io.Writer, _ sandbox.User) (int64, error) {
	n, err := io.WriteString(w, f.file)
	return int64(n), err
}

// ReplaceFile behaves as an older runner's.
func (f *fake) ReplaceFile(_ context.Context, _ string, _ io.Reader, was string, _ sandbox.User) (int64, error) {
	f.was = append(f.was, was)
	return 0, fault.New(fault.Unsupported, "this runner cannot compare")
}

func (f *fake) WriteFile(_ context.Context, _ string, data []byte, _ fs.FileMode, _ sandbox.User) error {
	f.file = string(data)
	return nil
}

func (f *fake) Exec(_ context.Context, spec sandbox.ExecSpec) (*sandbox.ExecResult, error) {
	return f.exec(spec)
}

// TestRunnerThatLies: an answer of a user's machine forges nothing, and is bounded.
func TestRunnerThatLies(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("x", 100_000)
	file := func(path string, lines ...search.Line) string {
		text, err := json.Marshal(search.Message{File: &search.File{Path: []byte(path), Lines: lines, Count: 1}})
		if err != nil {
			t.Fatal(err)
		}
		return string(text) + "\n"
	}
	const end = `{"summary": {"files": 1}}` + "\n"
	for _, c := range []struct {
		stdout string
		code   fault.Code
		most   int
	}{
		{"", fault.Unsupported, 0},
		{"garbage", fault.Unsupported, 0},
		{`{"summary": {"error": "\u001b[2J` + long + `"}}`, fault.InvalidInputs, 0},
		{`[]` + end, fault.Unsupported, 0},
		{file("a"), fault.Unsupported, 0},
		{strings.Repeat(file("a\n\x1b[2J"), 5000) + end, "", 300 << 10},
		{file("a", search.Line{Number: -1, Text: []byte("\x1b[2J\n" + long), Cut: -5, More: -5}) + end, "", 10 << 10},
		{strings.Repeat(file(long), 20) + end, "", 400 << 10},
	} {
		s := NewSession(&fake{exec: func(sandbox.ExecSpec) (*sandbox.ExecResult, error) { return &sandbox.ExecResult{Stdout: c.stdout}, nil }}, sandbox.User{},
			nil)
		r, err := s.Grep(t.Context(), GrepParams{Pattern: "x", OutputMode: "content"})
		if fault.CodeOf(err) != c.code {
			t.Errorf("%.50q: %v", c.stdout, err)
		}
		text := fmt.Sprint(err)
		if err == nil {
			text = r.Text
		}
		if strings.ContainsRune(text, 0x1b) || c.most > 0 && len(text) > c.most {
			t.Errorf("%.50q: %d bytes, %.200q", c.stdout, len(text), text)
		}
	}
}

func FuzzReadAnswer(f *testing.F) {
	f.Add(`{"file":{"path":"YQ==","lines":[{"number":1,"text":"eA=="}]}}` + "\n" + `{"summary":{"files":1}}`)
	f.Add(`{"summary":{"error":"x"}}`)
	f.Fuzz(func(t *testing.T, stdout string) {
		found, summary, err := readAnswer(&sandbox.ExecResult{Stdout: stdout})
		if err != nil {
			return
		}
		s := NewSession(nil, sandbox.User{}, nil)
		for _, mode := range []string{search.Files, search.Count, search.Content} {
			for line := range strings.Lines(s.listFound(sandbox.Root, search.Request{Mode: mode}, found, summary)) {
				if !plain(strings.TrimSuffix(line, "\n")) {
					t.Fatalf("%q is shown", line)
				}
			}
		}
	})
}

// TestOlderRunner compares on this side when the runner cannot.
func TestOlderRunner(t *testing.T) {
	t.Parallel()
	f := &fake{file: "one two\n", size: 8}
	s := NewSession(f, sandbox.User{}, nil)
	edit := func(from, to string) error {
		_, err := s.Edit(t.Context(), EditParams{Path: "f", Edits: []Replacement{{Old: from, New: to}}})
		return err
	}
	if err := edit("one", "1"); err != nil || f.file != "1 two\n" || f.was[0] != digestOf([]byte("one two\n")) {
		t.Errorf("%q %q %v", f.file, f.was, err)
	}
	if err := s.compareAndWrite(t.Context(), "f", nil, digestOf([]byte("other")), sandbox.User{}); !fault.Is(err, fault.FileChanged) || f.file != "1 two\n" {
		t.Errorf("%q %v", f.file, err)
	}
}

// TestEditReservesMemory: before it reads, and no more than the size that the machine told.
func TestEditReservesMemory(t *testing.T) {
	t.Parallel()
	full := errors.New("no memory")
	var asked int64
	ctx := WithCaller(t.Context(), Caller{Reserve: func(n int64) error { asked = n; return full }})
	s := NewSession(&fake{size: 1000}, sandbox.User{}, nil)
	if _, err := s.Edit(ctx, EditParams{Path: "f", Edits: []Replacement{{Old: "a", New: "b"}}}); !errors.Is(err, full) || asked != 4000 {
		t.Errorf("%d %v", asked, err)
	}
	s = NewSession(&fake{size: 1, file: strings.Repeat("x", 1<<20)}, sandbox.User{}, nil)
	if _, err := s.Edit(t.Context(), EditParams{Path: "f", Edits: []Replacement{{Old: "a", New: "b"}}}); !fault.Is(err, fault.FileChanged) {
		t.Error(err)
	}
	s = NewSession(&fake{size: maxEditBytes + 1, file: strings.Repeat("x", maxEditBytes+1<<20)}, sandbox.User{}, nil)
	if _, err := s.Edit(t.Context(), EditParams{Path: "f", Edits: []Replacement{{Old: "a", New: "b"}}}); !fault.Is(err, fault.FileTooLarge) {
		t.Error(err)
	}
	s = NewSession(&fake{file: "GIF89a"}, sandbox.User{}, nil)
	if _, err := s.Read(ctx, ReadParams{Path: "f"}); !errors.Is(err, full) {
		t.Error(err)
	}
}

// TestHugePath: an argument that cannot be a path, such as the content of a file, is not repeated.
func TestHugePath(t *testing.T) {
	t.Parallel()
	s := NewSession(noPath{}, sandbox.User{}, nil)
	huge := strings.Repeat("x", 100<<10)
	for _, c := range []struct{ tool, argument, more string }{
		{"files.read", "path", ""},
		{"files.write", "path", `, "content": ""`},
		{"files.edit", "path", `, "edits": [{"old": "a", "new": "b"}]`},
		{"files.cd", "path", ""},
		{"files.glob", "path", `, "pattern": "*"`},
		{"skills.read", "name", ""},
	} {
		at := slices.IndexFunc(All, func(tool *Tool) bool { return tool.Name == c.tool })
		_, err := All[at].Call(t.Context(), s, json.RawMessage(fmt.Sprintf(`{%q: %q%s}`, c.argument, huge, c.more)))
		if text := fault.From(err).Message; err == nil || !strings.Contains(text, "bytes)") || len(text) > 1<<10 {
			t.Errorf("%s: %d bytes, %.200s", c.tool, len(text), text)
		}
	}
}

// TestHugePattern: a search with a pattern that no system takes as an argument is not started.
func TestHugePattern(t *testing.T) {
	t.Parallel()
	s := NewSession(hugeDir{}, sandbox.User{}, nil) // without Exec
	if _, err := s.Grep(t.Context(), GrepParams{Pattern: strings.Repeat("x", 200<<10)}); !fault.Is(err, fault.InvalidInputs) ||
		!strings.Contains(err.Error(), "204800 bytes") {
		t.Error(err)
	}
}

// noPath is a sandbox in which no path is valid.
type noPath struct{ sandbox.Backend }

func (noPath) Stat(_ context.Context, path string, _ sandbox.User) (*sandbox.FileInfo, error) {
	return nil, sandbox.Invalid("stat", path)
}

func (noPath) ReadFileTo(_ context.Context, path string, _ io.Writer, _ sandbox.User) (int64, error) {
	return 0, sandbox.Invalid("read", path)
}

// TestHugeDirectory: it is entered though it cannot be listed.
func TestHugeDirectory(t *testing.T) {
	t.Parallel()
	s := NewSession(hugeDir{}, sandbox.User{}, nil)
	r, err := s.Cd(t.Context(), CdParams{Path: "huge"})
	if err != nil || s.Dir() != "/workspace/huge" || !strings.Contains(r.Text, "more than 100000 entries") {
		t.Errorf("%v %v", r, err)
	}
}

type hugeDir struct{ sandbox.Backend }

func (hugeDir) Stat(context.Context, string, sandbox.User) (*sandbox.FileInfo, error) {
	return &sandbox.FileInfo{IsDir: true}, nil
}

func (hugeDir) ReadDir(context.Context, string, sandbox.User) ([]sandbox.DirEntry, error) {
	return nil, fault.New(fault.TreeTooLarge, "the directory has more than 100000 entries")
}

// TestSessionIsBounded: it forgets the files that were read first.
func TestSessionIsBounded(t *testing.T) {
	t.Parallel()
	s := NewSession(nil, sandbox.User{}, nil)
	for n := range 3 * maxFilesRead {
		s.sawFile(fmt.Sprint("/workspace/", n), "digest")
	}
	if len(s.read) != maxFilesRead || len(s.order) != maxFilesRead || s.seenFile("/workspace/0") != "" ||
		s.seenFile(fmt.Sprint("/workspace/", 3*maxFilesRead-1)) != "digest" {
		t.Errorf("%d %d", len(s.read), len(s.order))
	}
}

// TestEditRefusesGrowth: before the memory is used. A second edit of a text that has grown reserves
// more.
func TestEditRefusesGrowth(t *testing.T) { // not parallel: it measures memory
	f := &fake{file: strings.Repeat("x", 100_000), size: 100_000}
	s := NewSession(f, sandbox.User{}, nil)
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	_, err := s.Edit(t.Context(), EditParams{Path: "f", Edits: []Replacement{{Old: "x", New: strings.Repeat("y", 1000), All: true}}})
	runtime.ReadMemStats(&after)
	if used := after.TotalAlloc - before.TotalAlloc; !fault.Is(err, fault.FileTooLarge) || used > 10<<20 {
		t.Errorf("%v, with %d bytes", err, used)
	}
	var asked []int64
	ctx := WithCaller(t.Context(), Caller{Reserve: func(n int64) error { asked = append(asked, n); return nil }})
	r, err := s.Edit(ctx, EditParams{Path: "f", Edits: []Replacement{
		{Old: "x", New: "yy", All: true},
		{Old: "yy", New: "y", All: true},
		{Old: "y", New: "abc", All: true},
	}})
	if err != nil || f.file != strings.Repeat("abc", 100_000) || !slices.Equal(asked, []int64{400_000, 400_000, 400_000}) {
		t.Errorf("%v %v, reserved %d", r, err, asked)
	}
}

// TestImageWithoutMemory: an image that was refused memory is not shown in part when there is
// memory again.
func TestImageWithoutMemory(t *testing.T) {
	t.Parallel()
	full := errors.New("no memory")
	calls := 0
	v := &view{sum: sha256.New(), reserve: func(int64) error {
		if calls++; calls == 1 {
			return full
		}
		return nil
	}}
	for range 3 {
		_, _ = v.Write(append([]byte("GIF89a"), make([]byte, sniffBytes)...))
	}
	if v.end(); !errors.Is(v.refused, full) || v.content != nil || calls != 1 {
		t.Errorf("%v, %d bytes, %d calls", v.refused, len(v.content), calls)
	}
}
