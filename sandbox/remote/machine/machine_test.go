package machine_test

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/coder/websocket"

	"secbox/sandbox/remote/wire"
	"secbox/sandbox/search"
)

func TestRunnerServes(t *testing.T) {
	t.Parallel()
	_, r, l := both(t)
	h := l.hello
	if h.Protocol != wire.Version || h.Name != "laptop" || h.Version != "1.2.3" || h.Shell == "" || strings.Join(h.Allow, ",") != "exec,write" ||
		len(h.Held) > 0 {
		t.Errorf("%+v", h)
	}
	r.write("a.txt", "hello")
	l.send("1", wire.TypeReadFile, &wire.Path{Path: "/workspace/a.txt"})
	if c, ok := l.result("1").body.(*wire.FileContent); !ok || string(c.Data) != "hello" || c.Size != 5 {
		t.Errorf("%+v", c)
	}
	l.send("2", wire.TypeWriteFile, &wire.Path{Path: "/workspace/b.bin", Data: []byte{0, 255, 10}, Perm: 0o600})
	if o := l.result("2"); o.typ != wire.TypeOK || !bytes.Equal([]byte(r.read("b.bin")), []byte{0, 255, 10}) {
		t.Errorf("%+v", o)
	}
	l.send("3", wire.TypeStat, &wire.Path{Path: "/workspace"})
	if i, ok := l.result("3").body.(*wire.FileInfo); !ok || i.Name != "workspace" || !i.IsDir {
		t.Errorf("%+v", i)
	}
	l.send("4", wire.TypeReadDir, &wire.Path{Path: "/workspace/"})
	if e := l.result("4").entries; len(e) != 2 || e[0].Name != "a.txt" || e[0].Size != 5 {
		t.Errorf("%+v", e)
	}
	for i, step := range []struct {
		typ  wire.Type
		path string
		want string
	}{
		{wire.TypeMkdirAll, "/workspace/d/e/f", ""},
		{wire.TypeRemove, "/workspace/d", wire.CodeExist},
		{wire.TypeRemove, "/workspace/a.txt", ""},
		{wire.TypeRemove, "/workspace/a.txt", wire.CodeNotExist},
		{wire.TypeRemoveAll, "/workspace/d", ""},
		{wire.TypeRemoveAll, "/workspace", wire.CodePermission},
		{wire.TypeReadFile, "/workspace/nothing", wire.CodeNotExist},
		{wire.TypeReadFile, "/workspace", wire.CodeInvalid},
	} {
		id := fmt.Sprint("step", i)
		p := &wire.Path{Path: step.path}
		if step.typ == wire.TypeMkdirAll {
			p.Perm = 0o755
		}
		l.send(id, step.typ, p)
		if o := l.result(id); o.code() != step.want {
			t.Errorf("%s %s: %+v", step.typ, step.path, o.body)
		}
	}
	l.send("p", wire.TypePing, nil)
	if m := l.receive(); m.Type != wire.TypePong || m.ID != "p" {
		t.Errorf("%+v", m)
	}
	r.stop()
	if l.closed() != websocket.StatusGoingAway {
		t.Error("the link was not closed as it should be")
	}
	if err := r.ended(); err != nil {
		t.Error(err)
	}
}

func TestLongListInParts(t *testing.T) {
	t.Parallel()
	_, r, l := both(t)
	const names = 4000
	long := strings.Repeat("\u2028n", 40) // JSON needs six bytes for some of them
	for i := range names {
		if err := os.Mkdir(fmt.Sprintf("%s/%s%05d", r.dir, long, i), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	l.send("1", wire.TypeReadDir, &wire.Path{Path: "/workspace"})
	o := outcome{}
	l.finish("1", &o)
	if len(o.entries) != names || o.entries[names-1].Name != fmt.Sprintf("%s%05d", long, names-1) || !o.entries[0].IsDir {
		t.Errorf("%d names", len(o.entries))
	}
	l.send("1", wire.TypeReadDir, &wire.Path{Path: "/workspace"}) // a repeated request is answered again
	if o := l.result("1"); len(o.entries) != names {
		t.Errorf("%d names", len(o.entries))
	}
}

func TestPathsAreConfined(t *testing.T) {
	t.Parallel()
	_, r, l := both(t)
	outside := t.TempDir()
	if err := os.WriteFile(outside+"/secret", []byte("secret"), 0o600); err != nil {
		t.Fatal(err)
	}
	ask := asker(l)
	outsideIs := wire.CodePermission
	if !strings.HasPrefix(outside, "/") { // as on Windows
		outsideIs = wire.CodeInvalid
	}
	if o := ask(wire.TypeReadFile, "/etc/passwd"); o.code() != wire.CodePermission || !strings.Contains(r.log.String(), "/etc/passwd") {
		t.Errorf("%+v, or the log does not tell of it", o.body)
	}
	for path, want := range map[string]string{
		"/etc/passwd":              wire.CodePermission,
		"/":                        wire.CodePermission,
		"/workspace/../etc/passwd": wire.CodePermission,
		"/workspace/..":            wire.CodePermission,
		"/workspaces":              wire.CodePermission,
		outside + "/secret":        outsideIs,
		"workspace/a":              wire.CodeInvalid,
		"a":                        wire.CodeInvalid,
		"":                         wire.CodeInvalid,
		"/workspace/a\x00b":        wire.CodeInvalid,
		"/workspace/" + strings.Repeat("a/", 2500): wire.CodeInvalid,
		"/workspace/" + strings.Repeat("a", 300):   wire.CodeInvalid,
	} {
		for _, typ := range fileRequests {
			if o := ask(typ, path); o.code() != want {
				t.Errorf("%s %.80q: %v %+v", typ, path, o.typ, o.body)
			}
		}
	}
	if content, err := os.ReadFile(outside + "/secret"); err != nil || string(content) != "secret" {
		t.Errorf("%q, %v", content, err)
	}
}

// TestLinksAreConfined: no link leads out of the workspace.
func TestLinksAreConfined(t *testing.T) {
	t.Parallel()
	_, r, l := both(t)
	outside := t.TempDir()
	if err := os.WriteFile(outside+"/secret", []byte("secret"), 0o600); err != nil {
		t.Fatal(err)
	}
	for name, target := range map[string]string{"out": outside, "file": outside + "/secret", "up": "..", "loop": "loop"} {
		if err := os.Symlink(target, filepath.Join(r.dir, name)); err != nil {
			t.Fatal(err)
		}
	}
	ask := asker(l)
	for _, path := range []string{"/workspace/out/secret", "/workspace/up/x"} {
		for _, typ := range fileRequests {
			if o := ask(typ, path); o.code() != wire.CodePermission {
				t.Errorf("%s %q: %v %+v", typ, path, o.typ, o.body)
			}
		}
	}
	for _, typ := range []wire.Type{wire.TypeReadFile, wire.TypeStat, wire.TypeWriteFile} {
		for _, path := range []string{"/workspace/file", "/workspace/loop"} {
			if o := ask(typ, path); o.code() == "" {
				t.Errorf("%s %s: %+v", typ, path, o.body)
			}
		}
	}
	if content, err := os.ReadFile(outside + "/secret"); err != nil || string(content) != "secret" {
		t.Errorf("%q, %v", content, err)
	}
	l.send("dir", wire.TypeExec, &wire.Exec{Command: "pwd", Shell: true, Dir: "/workspace/out"})
	if o := l.result("dir"); o.code() != wire.CodePermission {
		t.Errorf("%+v", o.body)
	}
}

var fileRequests = []wire.Type{
	wire.TypeReadFile, wire.TypeStat, wire.TypeReadDir, wire.TypeWriteFile, wire.TypeMkdirAll, wire.TypeRemove, wire.TypeRemoveAll,
}

// asker returns a function that asks for a file and waits for the answer.
func asker(l *serverLink) func(wire.Type, string) outcome {
	n := 0
	return func(typ wire.Type, path string) outcome {
		n++
		id := fmt.Sprint(n)
		p := &wire.Path{Path: path}
		if typ == wire.TypeWriteFile {
			p.Data = []byte("x")
		}
		l.send(id, typ, p)
		return l.result(id)
	}
}

// TestWindowsNames: names that are special on Windows are refused.
func TestWindowsNames(t *testing.T) {
	t.Parallel()
	s := newServer(t)
	cfg := config(t, s)
	cfg.Windows = true
	start(t, cfg)
	l := s.welcome()
	for i, name := range []string{"CON", "con.txt", "d/LPT1", "a:b", "x.", "x ", "a\\b", "..\\x", "C:", "a?", "a\x01"} {
		for _, typ := range []wire.Type{wire.TypeWriteFile, wire.TypeReadFile, wire.TypeMkdirAll, wire.TypeRemoveAll} {
			id := fmt.Sprint(typ, i)
			p := &wire.Path{Path: "/workspace/" + name}
			if typ == wire.TypeWriteFile {
				p.Data = []byte("x")
			}
			l.send(id, typ, p)
			if o := l.result(id); o.code() != wire.CodeInvalid {
				t.Errorf("%s %q: %+v", typ, name, o.body)
			}
		}
	}
	l.send("good", wire.TypeMkdirAll, &wire.Path{Path: "/workspace/console/a b", Perm: 0o755})
	if o := l.result("good"); o.typ != wire.TypeOK {
		t.Errorf("%+v", o.body)
	}
}

// TestLinkSwappedDuringCall exchanges a directory and a link out all the time, while files are read
// and written through it.
func TestLinkSwappedDuringCall(t *testing.T) {
	t.Parallel()
	_, r, l := both(t)
	outside := t.TempDir()
	for dir, content := range map[string]string{outside: "outside", filepath.Join(r.dir, "inside"): "inside"} {
		if err := os.MkdirAll(dir, 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, "f"), []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	stop, stopped := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(stopped)
		at := filepath.Join(r.dir, "d")
		for i := 0; ; i++ {
			select {
			case <-stop:
				return
			case <-time.After(20 * time.Microsecond): // else the swapper has a core to itself
			}
			_ = os.Remove(at + "~")
			_ = os.Symlink([]string{"inside", outside}[i%2], at+"~")
			_ = os.Rename(at+"~", at)
		}
	}()
	for i := range 400 {
		id := fmt.Sprint(i)
		if i%2 == 0 {
			l.send(id, wire.TypeReadFile, &wire.Path{Path: "/workspace/d/f"})
		} else {
			l.send(id, wire.TypeWriteFile, &wire.Path{Path: "/workspace/d/f", Data: []byte("inside")})
		}
		switch body := l.result(id).body.(type) {
		case *wire.FileContent:
			if string(body.Data) != "inside" {
				t.Errorf("%q was read", body.Data)
			}
		case *wire.Error:
			if body.Code != wire.CodePermission && body.Code != wire.CodeNotExist {
				t.Errorf("%+v", body)
			}
		}
	}
	close(stop)
	<-stopped
	if content, err := os.ReadFile(outside + "/f"); err != nil || string(content) != "outside" {
		t.Errorf("%q, %v", content, err)
	}
}

func TestNotAllowed(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		allow   []string
		granted map[wire.Type]bool
	}{
		{nil, map[wire.Type]bool{}},
		{[]string{"exec"}, map[wire.Type]bool{wire.TypeExec: true}},
		{[]string{"write"}, map[wire.Type]bool{wire.TypeWriteFile: true, wire.TypeMkdirAll: true, wire.TypeRemove: true, wire.TypeRemoveAll: true}},
	} {
		t.Run(strings.Join(c.allow, ","), func(t *testing.T) {
			t.Parallel()
			s := newServer(t)
			cfg := config(t, s)
			cfg.Allow = c.allow
			r := start(t, cfg)
			l := s.welcome()
			r.write("f", "content")
			for _, typ := range []wire.Type{wire.TypeExec, wire.TypeMkdirAll, wire.TypeWriteFile, wire.TypeRemove, wire.TypeRemoveAll} {
				switch typ {
				case wire.TypeExec:
					l.send(string(typ), typ, shell("true"))
				case wire.TypeWriteFile:
					l.send(string(typ), typ, &wire.Path{Path: "/workspace/f", Data: []byte("changed")})
				default:
					l.send(string(typ), typ, &wire.Path{Path: "/workspace/f"})
				}
				o := l.result(string(typ))
				if refused := o.code() == wire.CodeNotAllowed; refused == c.granted[typ] {
					t.Errorf("%s: %+v", typ, o.body)
				}
				if e, ok := o.body.(*wire.Error); ok && !c.granted[typ] && !strings.Contains(e.Message, "--allow ") {
					t.Errorf("%s: %q names no flag", typ, e.Message)
				}
			}
			if !c.granted[wire.TypeWriteFile] && r.read("f") != "content" {
				t.Error("the file was changed")
			}
			l.send("read", wire.TypeStat, &wire.Path{Path: "/workspace"})
			if o := l.result("read"); o.typ != wire.TypeFileInfo {
				t.Errorf("%+v", o)
			}
			searching := func(change func(*wire.Exec)) *wire.Exec {
				spec := &wire.Exec{
					Command: search.Command, Args: []string{`{"path":".","pattern":"c","glob":"sought","limit":1,"timeout_ms":60000}`}, Dir: "/workspace",
					Env: []string{"TRACEPARENT=x"}, Timeout: 60, MaxStdout: 1 << 20, MaxStderr: 1 << 20,
				}
				change(spec)
				return spec
			}
			r.write("sought", "content")
			l.send("search", wire.TypeExec, searching(func(*wire.Exec) {}))
			if o := l.result("search"); !strings.Contains(fmt.Sprintf("%+v %s", o.body, o.stdout), `"files":1`) {
				t.Errorf("%+v", o.body)
			}
			if c.granted[wire.TypeExec] {
				return
			}
			for name, change := range map[string]func(*wire.Exec){
				"in-a-shell": func(e *wire.Exec) { e.Shell = true }, "with-input": func(e *wire.Exec) { e.Stdin = "x" },
				"with-more-arguments": func(e *wire.Exec) { e.Args = append(e.Args, "x") }, "by-its-path": func(e *wire.Exec) { e.Command = "/" + e.Command },
			} {
				l.send(name, wire.TypeExec, searching(change))
				if o := l.result(name); o.code() != wire.CodeNotAllowed {
					t.Errorf("a search %s: %+v", name, o.body)
				}
			}
		})
	}
}
