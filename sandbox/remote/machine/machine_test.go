package machine_test

import (
	"bytes"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/coder/websocket"

	"secbox/fault"
	"secbox/sandbox/remote/machine"
	"secbox/sandbox/remote/wire"
)

func TestARunnerServes(t *testing.T) {
	t.Parallel()
	_, r, l := both(t)
	h := l.hello
	if h.Protocol != wire.Version || h.Name != "laptop" || h.Version != "1.2.3" || h.Shell == "" || strings.Join(h.Allow, ",") != "exec,write" || len(h.Held) > 0 {
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

func TestManyNamesComeInParts(t *testing.T) {
	t.Parallel()
	_, r, l := both(t)
	const names = 4000
	long := strings.Repeat("\x01n", 40) // JSON needs six bytes for some of them
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
	l.send("1", wire.TypeReadDir, &wire.Path{Path: "/workspace"}) // the same request again is answered again
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
	for name, target := range map[string]string{"out": outside, "file": outside + "/secret", "up": "..", "loop": "loop"} {
		if err := os.Symlink(target, filepath.Join(r.dir, name)); err != nil {
			t.Fatal(err)
		}
	}
	n := 0
	ask := func(typ wire.Type, path string) outcome {
		n++
		id := fmt.Sprint(n)
		p := &wire.Path{Path: path}
		if typ == wire.TypeWriteFile {
			p.Data = []byte("x")
		}
		l.send(id, typ, p)
		return l.result(id)
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
		"/workspace/out/secret":    wire.CodePermission,
		"/workspace/up/x":          wire.CodePermission,
		outside + "/secret":        wire.CodePermission,
		"workspace/a":              wire.CodeInvalid,
		"a":                        wire.CodeInvalid,
		"":                         wire.CodeInvalid,
		"/workspace/a\x00b":        wire.CodeInvalid,
		"/workspace/" + strings.Repeat("a/", 2500): wire.CodeInvalid,
		"/workspace/" + strings.Repeat("a", 300):   wire.CodeInvalid,
	} {
		for _, typ := range []wire.Type{
			wire.TypeReadFile, wire.TypeStat, wire.TypeReadDir, wire.TypeWriteFile, wire.TypeMkdirAll, wire.TypeRemove, wire.TypeRemoveAll,
		} {
			if o := ask(typ, path); o.code() != want {
				t.Errorf("%s %.80q: %v %+v", typ, path, o.typ, o.body)
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

// TestWindowsNames are refused by a machine on which they mean something else than themselves.
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

// TestALinkSwappedDuringTheCall lets a directory be exchanged for a link out, again and again, while files are read and written through it.
func TestALinkSwappedDuringTheCall(t *testing.T) {
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
			default:
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

func TestWhatIsNotGranted(t *testing.T) {
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
		})
	}
}

// TestGarbageEndsTheLink is about what is no message, or no message of core-api's: the link ends with a word, and the runner dials again.
func TestGarbageEndsTheLink(t *testing.T) {
	t.Parallel()
	for name, send := range map[string]func(l *serverLink){
		"no JSON":          func(l *serverLink) { l.raw("\x00\x01garbage") },
		"an array":         func(l *serverLink) { l.raw("[]") },
		"an unknown type":  func(l *serverLink) { l.raw(`{"id":"1","type":"format_disk"}`) },
		"an unknown field": func(l *serverLink) { l.raw(`{"id":"1","type":"stat","path":"/workspace","user_id":"","root":true}`) },
		"a runner's type":  func(l *serverLink) { l.raw(`{"id":"1","type":"ok"}`) },
		"no id":            func(l *serverLink) { l.raw(`{"type":"stat","path":"/workspace"}`) },
		"no base64": func(l *serverLink) {
			l.raw(`{"id":"1","type":"write_file","path":"/workspace/f","user_id":"","data":"%%%"}`)
		},
		"no base64 of input": func(l *serverLink) {
			l.raw(`{"id":"1","type":"exec","command":"true","args":[],"shell":true,"dir":"","env":[],"stdin":"%","encoding":"base64","timeout":0,"max_stdout":0,"max_stderr":0,"user_id":""}`)
		},
		"a second welcome": func(l *serverLink) { l.greet() },
		"a binary frame":   func(l *serverLink) { _ = l.conn.Write(l.t.Context(), websocket.MessageBinary, []byte("{}")) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s, _, l := both(t)
			send(l)
			if status := l.closed(); status != wire.StatusProtocol {
				t.Errorf("closed with %d", status)
			}
			l = s.welcome()
			l.send("1", wire.TypeStat, &wire.Path{Path: "/workspace"})
			if o := l.result("1"); o.typ != wire.TypeFileInfo {
				t.Errorf("%+v", o)
			}
		})
	}
}

func TestAFrameOverTheLimit(t *testing.T) {
	t.Parallel()
	s, _, l := both(t)
	written := make(chan struct{})
	go func() { // the runner does not read it to its end
		defer close(written)
		_ = l.conn.Write(t.Context(), websocket.MessageText, bytes.Repeat([]byte(" "), wire.MaxMessage+2))
	}()
	l.closed()
	<-written
	l = s.welcome()
	l.send("1", wire.TypeStat, &wire.Path{Path: "/workspace"})
	if o := l.result("1"); o.typ != wire.TypeFileInfo {
		t.Errorf("%+v", o)
	}
}

func TestBeforeTheWelcome(t *testing.T) {
	t.Parallel()
	s := newServer(t)
	r := start(t, config(t, s))
	l := s.accept()
	l.send("1", wire.TypeRemoveAll, &wire.Path{Path: "/workspace/f"})
	if status := l.closed(); status != wire.StatusProtocol {
		t.Errorf("closed with %d", status)
	}
	s.welcome()
	until(t, "not connected", func() bool { return strings.Contains(r.log.String(), "msg=connected") })
}

// TestWhatEndsARunner is about answers after which dialling again makes no sense.
func TestWhatEndsARunner(t *testing.T) {
	t.Parallel()
	problem := func(status int, code fault.Code, detail string) func(*server) {
		return func(s *server) {
			s.setDoor(func(w http.ResponseWriter, _ *http.Request) {
				w.Header().Set("Content-Type", "application/problem+json")
				w.WriteHeader(status)
				fmt.Fprintf(w, `{"code":%q,"detail":%q}`, code, detail)
			})
		}
	}
	closing := func(status websocket.StatusCode, why string) func(*server) {
		return func(s *server) {
			go func() {
				l := <-s.links
				_, _, _ = l.conn.Read(s.t.Context())
				_ = l.conn.Close(status, why)
				l.cut()
			}()
		}
	}
	for name, c := range map[string]struct {
		prepare func(s *server)
		code    fault.Code
		says    string
	}{
		"unknown token": {problem(401, fault.Unauthenticated, "the token is not known"), fault.Unauthenticated, "the token is not known; core-api makes"},
		"revoked token": {problem(401, fault.TokenRevoked, "the token was revoked"), fault.TokenRevoked, "revoked"},
		"wrong role":    {problem(403, fault.Forbidden, "the role worker may not"), fault.Forbidden, "the role worker may not"},
		"a page": {func(s *server) {
			s.setDoor(func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, "hello") })
		}, fault.RunnerOffline, "is no core-api"},
		"no such route": {func(s *server) { s.setDoor(http.NotFound) }, fault.RunnerOffline, "is no core-api"},
		"a redirect": {func(s *server) {
			s.setDoor(http.RedirectHandler("http://127.0.0.1:1/", http.StatusTemporaryRedirect).ServeHTTP)
		}, fault.RunnerOffline, "sends elsewhere"},
		"name in use":     {closing(wire.StatusNameInUse, "laptop"), fault.RunnerNameInUse, "--name"},
		"revoked":         {closing(wire.StatusRevoked, "revoked"), fault.TokenRevoked, "taken the token back"},
		"another version": {closing(wire.StatusVersion, "update secbox"), fault.RunnerProtocol, "update secbox"},
		"newer welcome": {func(s *server) {
			go func() {
				l := <-s.links
				_, _, _ = l.conn.Read(s.t.Context())
				_ = l.conn.Write(s.t.Context(), websocket.MessageText, fmt.Appendf(nil, `{"type":"welcome","protocol":%d,"anything":"else"}`, wire.Version+1))
				_, _, _ = l.conn.Read(s.t.Context())
				l.cut()
			}()
		}, fault.RunnerProtocol, "update secbox on this machine"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newServer(t)
			c.prepare(s)
			r := start(t, config(t, s))
			err := r.ended()
			if fault.CodeOf(err) != c.code || !strings.Contains(fault.From(err).Message, c.says) {
				t.Errorf("%v", err)
			}
		})
	}
}

// TestWhatDoesNotEndARunner is about answers after which it dials again.
func TestWhatDoesNotEndARunner(t *testing.T) {
	t.Parallel()
	s, r, l := both(t)
	for _, status := range []websocket.StatusCode{
		wire.StatusNameInUse, wire.StatusReplaced, websocket.StatusGoingAway, wire.StatusProtocol, websocket.StatusInternalError,
	} {
		_ = l.conn.Close(status, "a reason")
		l.cut()
		l = s.welcome()
	}
	answers := make(chan int, 3)
	answers <- http.StatusNotFound
	answers <- http.StatusServiceUnavailable
	answers <- http.StatusTooManyRequests
	s.setDoor(func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(<-answers)
		if len(answers) == 0 {
			s.setDoor(nil)
		}
	})
	l.cut()
	s.welcome()
	r.stop()
	if err := r.ended(); err != nil {
		t.Error(err)
	}
}

func TestASilentServerIsGivenUp(t *testing.T) {
	t.Parallel()
	s := newServer(t)
	r := start(t, config(t, s))
	l := s.accept()
	l.send("", wire.TypeWelcome, &wire.Welcome{Protocol: wire.Version, UserID: "ann", Version: "test", HeartbeatMS: 20})
	// Nothing more is said, and the connection is not closed.
	s.welcome()
	if log := r.log.String(); !strings.Contains(log, "core-api is silent") || !strings.Contains(log, "retry_in") {
		t.Error(log)
	}
}

func TestNobodyIsThere(t *testing.T) {
	t.Parallel()
	s := newServer(t)
	cfg := config(t, s)
	s.http.Close()
	r := start(t, cfg)
	until(t, "nothing is said", func() bool { return strings.Contains(r.log.String(), "cannot be reached") })
	r.stop()
	if err := r.ended(); err != nil {
		t.Error(err)
	}
}

func TestConfig(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		change func(*machine.Config)
		code   fault.Code
		says   string
	}{
		"no address":       {func(c *machine.Config) { c.Server = "core-api" }, fault.InvalidRequest, "--server"},
		"another scheme":   {func(c *machine.Config) { c.Server = "ftp://127.0.0.1" }, fault.InvalidRequest, "wss://"},
		"a user in it":     {func(c *machine.Config) { c.Server = "wss://a:b@127.0.0.1" }, fault.InvalidRequest, "without user"},
		"plain http":       {func(c *machine.Config) { c.Server = "ws://core-api.example.com" }, fault.Forbidden, "--insecure"},
		"no token":         {func(c *machine.Config) { c.Token = "" }, fault.Unauthenticated, "core-api token create --role runner"},
		"a token of lines": {func(c *machine.Config) { c.Token = "a\nb" }, fault.InvalidRequest, "one word"},
		"a name":           {func(c *machine.Config) { c.Name = "my laptop" }, fault.InvalidRequest, "--name"},
		"a long name":      {func(c *machine.Config) { c.Name = strings.Repeat("a", wire.MaxName+1) }, fault.InvalidRequest, "--name"},
		"a grant":          {func(c *machine.Config) { c.Allow = []string{"everything"} }, fault.InvalidRequest, "--allow"},
		"no workspace":     {func(c *machine.Config) { c.Workspace = "" }, fault.InvalidRequest, "--workspace"},
		"not there":        {func(c *machine.Config) { c.Workspace += "/nothing" }, fault.InvalidRequest, "mkdir -p"},
		"a file":           {func(c *machine.Config) { c.Workspace = file }, fault.InvalidRequest, "no directory"},
		"the root":         {func(c *machine.Config) { c.Workspace = "/" }, fault.InvalidRequest, "all of this machine"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			cfg := machine.Config{Server: "ws://127.0.0.1:1", Token: goodToken, Workspace: t.TempDir(), Name: "laptop"}
			c.change(&cfg)
			_, err := machine.New(cfg)
			if fault.CodeOf(err) != c.code || !strings.Contains(fault.From(err).Message, c.says) {
				t.Errorf("%v", err)
			}
		})
	}
}

func TestNameOf(t *testing.T) {
	t.Parallel()
	for host, want := range map[string]string{
		"laptop": "laptop", "ann-pc.example.com": "ann-pc", "Ann's MacBook": "Ann-s-MacBook", "": "machine", "--": "machine", "机器": "machine",
		strings.Repeat("a", 100): strings.Repeat("a", wire.MaxName),
	} {
		if got := machine.NameOf(host); got != want {
			t.Errorf("%q: %q", host, got)
		}
	}
}
