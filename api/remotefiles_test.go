package api_test

import (
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"secbox/api/wire"
	"secbox/fault"
	"secbox/packages/library"
)

// onTheirMachine is a server whose user u has chosen a runner.
func onTheirMachine(t *testing.T) *fixture {
	t.Helper()
	f := start(t)
	data[wire.V1Backend](t, f.do(request{method: "PUT", path: whereU, body: `{"backend": "remote"}`}))
	return f
}

func (f *fixture) edit(path, text string) reply {
	f.t.Helper()
	return f.do(request{method: "PUT", path: "/v1/sandbox/u/ag/edit?path=" + path, body: text})
}

func TestRemoteFiles(t *testing.T) {
	t.Parallel()
	f := onTheirMachine(t)
	read := func(query string) any {
		t.Helper()
		return data[wire.V1Content](t, f.get("/v1/sandbox/u/ag/content?path="+query)).Content
	}
	data[string](t, f.edit("deep/down/a.txt", "one\r\ntwo\r\nthree\r\n")) // makes the directories
	data[string](t, f.edit("deep/down/a.txt&start=2&end=2", "2"))
	if got, err := os.ReadFile(filepath.Join(f.sandboxes.machine, "deep/down/a.txt")); err != nil || string(got) != "one\r\n2\r\nthree\r\n" {
		t.Errorf("on the machine: %q, %v", got, err)
	}
	if got := read("deep/down/a.txt"); got != "one\r\n2\r\nthree\r\n" {
		t.Errorf("read %q", got)
	}
	if got := read("deep/down/a.txt&start=2&end=9"); !reflect.DeepEqual(got, []any{"2", "three"}) {
		t.Errorf("lines %v", got)
	}
	if _, err := os.Stat(filepath.Join(f.root, "projects", "ag~u")); err == nil {
		t.Error("something was made on the server's side")
	}
	if err := os.Symlink("deep", filepath.Join(f.sandboxes.machine, "link")); err != nil {
		t.Fatal(err)
	}
	data[string](t, f.edit("SKILL.md", "theirs"))
	if files := data[[]string](t, f.get("/v1/sandbox/u/ag/files")); !reflect.DeepEqual(files, []string{"SKILL.md", "deep/down/a.txt"}) {
		t.Errorf("files %v", files)
	}
}

// TestEditStaysOnOneMachine: an edit is not written to another machine that was chosen meanwhile.
func TestEditStaysOnOneMachine(t *testing.T) {
	t.Parallel()
	f := onTheirMachine(t)
	data[string](t, f.edit("notes.txt", "one\ntwo\n"))
	f.sandboxes.reading = func() {
		data[wire.V1Backend](t, f.do(request{method: "PUT", path: whereU, body: `{"backend": "none"}`}))
	}
	if r := f.edit("notes.txt&start=1&end=1", "1"); r.StatusCode == 200 {
		if got, err := os.ReadFile(filepath.Join(f.sandboxes.machine, "notes.txt")); err != nil || string(got) != "1\ntwo\n" {
			t.Errorf("on the machine: %q, %v", got, err)
		}
	}
	if _, err := os.Stat(filepath.Join(f.root, "projects", "ag~u", "work", "notes.txt")); err == nil {
		t.Error("it was written where the user works now, and was read elsewhere")
	}
}

// TestRemoteLinksAreConfined: no link leads out of the machine's directory.
func TestRemoteLinksAreConfined(t *testing.T) {
	t.Parallel()
	f := onTheirMachine(t)
	outside := filepath.Join(t.TempDir(), "secret")
	if err := os.WriteFile(outside, []byte("hunter2"), 0o600); err != nil {
		t.Fatal(err)
	}
	for name, target := range map[string]string{"out": outside, "up": ".."} {
		if err := os.Symlink(target, filepath.Join(f.sandboxes.machine, name)); err != nil {
			t.Fatal(err)
		}
	}
	for _, path := range []string{"out", "up/x"} {
		r := f.get("/v1/sandbox/u/ag/content?path=" + path)
		r.refused(t, fault.PathRefused, "path")
		if strings.Contains(string(r.body), "hunter2") || strings.Contains(string(r.body), f.sandboxes.machine) {
			t.Errorf("%s: %s", path, r.body)
		}
		f.edit(path, "x").refused(t, fault.PathRefused, "path")
	}
}

// TestRemotePaths checks the errors of this server and of the machine.
func TestRemotePaths(t *testing.T) {
	t.Parallel()
	f := onTheirMachine(t)
	if err := os.MkdirAll(filepath.Join(f.sandboxes.machine, "dir"), 0o755); err != nil {
		t.Fatal(err)
	}
	data[string](t, f.edit("file", "x"))
	for path, code := range map[string]fault.Code{
		"/etc/passwd": fault.PathRefused, "/workspace/file": fault.PathRefused, "../x": fault.PathRefused, "a/../../x": fault.PathRefused,
		"..": fault.PathRefused,
		".":  fault.PathRefused, "dir/": fault.PathRefused, "a%5Cb": fault.PathRefused, "a%00b": fault.PathRefused,
		"dir": fault.InvalidRequest, strings.Repeat("x", 300): fault.InvalidRequest, strings.Repeat("x/", 2500) + "x": fault.InvalidRequest,
		"nothing": fault.UnknownFile, "no/such/file": fault.UnknownFile,
	} {
		r := f.get("/v1/sandbox/u/ag/content?path=" + path)
		if code == fault.UnknownFile {
			r.refused(t, code)
		} else {
			r.refused(t, code, "path")
		}
		if strings.Contains(string(r.body), f.sandboxes.machine) {
			t.Errorf("%.20s: %s", path, r.body)
		}
		if code == fault.PathRefused {
			f.edit(path, "x").refused(t, code, "path")
		}
	}
	f.edit("dir", "x").refused(t, fault.InvalidRequest, "path")
	if r := f.edit("file/below", "x"); r.StatusCode != 409 && r.StatusCode != 400 && r.StatusCode != 404 {
		t.Errorf("below a file: %d %s", r.StatusCode, r.body)
	}
	f.edit("nothing&start=1&end=1", "x").refused(t, fault.UnknownFile)
	f.edit("file", strings.Repeat("x", library.MaxFileBytes+1)).refused(t, fault.FileTooLarge)
	if err := os.WriteFile(filepath.Join(f.sandboxes.machine, "large"), make([]byte, library.MaxFileBytes+1), 0o600); err != nil {
		t.Fatal(err)
	}
	f.get("/v1/sandbox/u/ag/content?path=large").refused(t, fault.FileTooLarge)

	// Commands: on their machine no absolute path means anything.
	for args, field := range map[string]string{
		`["/workspace/file"]`: "args[0]", `["-n", "--x=/workspace/file"]`: "args[1]",
		`["/opt/skill-creator/SKILL.md"]`: "args[0]", `["/etc/passwd"]`: "args[0]",
	} {
		message := f.post(inSandbox+"cat", args).refused(t, fault.PathRefused, field)
		if !strings.Contains(message, "relative") {
			t.Errorf("%q does not say what to write instead", message)
		}
	}
	if rows := decodeAs[wire.ExecList](t, f.get("/sandbox/execs?backend=remote"), 200); len(rows.Items) != 0 {
		t.Errorf("ran %+v", rows.Items)
	}

	// A machine full of files is not listed without end.
	many := filepath.Join(f.sandboxes.machine, "many")
	if err := os.MkdirAll(filepath.Join(many, strings.Repeat("d/", 70)), 0o755); err != nil {
		t.Fatal(err)
	}
	f.get("/v1/sandbox/u/ag/files").refused(t, fault.TreeTooLarge)
}
