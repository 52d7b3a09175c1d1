package e2e

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/coder/websocket"

	"secbox/access/tokens"
	"secbox/sandbox/remote/wire"
)

// shortRunner dials in as a user's machine whose answers have no field beyond those that every
// program of this kind sends. It has a directory src with the file main.go.
func (s *testServer) shortRunner(user string) {
	s.t.Helper()
	_, secret := s.newToken(tokens.Spec{Role: tokens.Runner, UserID: user})
	conn, resp, err := websocket.Dial(s.t.Context(), s.url+wire.LinkPath,
		&websocket.DialOptions{HTTPHeader: http.Header{"Authorization": {"Bearer " + secret}}})
	if err != nil {
		s.t.Fatal(err)
	}
	if resp.Body != nil {
		resp.Body.Close()
	}
	say := func(frame string) error { return conn.Write(s.t.Context(), websocket.MessageText, []byte(frame)) }
	hello := `{"type":"hello","protocol":1,"session":"0123456789abcdef0123456789abcdef","name":"short","version":"1","os":"linux","arch":"amd64","shell":"/bin/sh","allow":["exec","write"]}`
	if err := say(hello); err != nil {
		s.t.Fatal(err)
	}
	ended := make(chan struct{})
	s.t.Cleanup(func() { _ = conn.CloseNow(); <-ended })
	go func() {
		defer close(ended)
		for {
			_, data, err := conn.Read(s.t.Context())
			if err != nil {
				return
			}
			var m struct{ ID, Type, Path string }
			if err := json.Unmarshal(data, &m); err != nil {
				s.t.Errorf("%s: %v", data, err)
				return
			}
			answer := map[string]string{
				"exec":       `"exec_result","stdout":"` + strings.Repeat("out\\n", 300_000) + `","stderr":"err\n","exit_code":0,"timed_out":false`,
				"read_file":  `"file_content","data":"cGFja2FnZSBtYWluCg=="`,
				"write_file": `"ok"`,
				"mkdir_all":  `"ok"`,
				"stat":       `"file_info","name":"main.go","size":13,"mode":420,"mod_time":"2026-03-26T00:00:00Z","is_dir":false`,
				"read_dir":   `"dir_entries","entries":[{"name":"src","is_dir":true,"size":4096}]`,
				"ping":       `"pong"`,
			}[m.Type]
			switch {
			case strings.HasSuffix(m.Path, "/src") && m.Type == "read_dir":
				answer = `"dir_entries","entries":[{"name":"main.go","is_dir":false,"size":13}]`
			case strings.HasSuffix(m.Path, "/none"):
				answer = `"error","message":"file not found","code":"ENOENT"`
			}
			if answer == "" { // nothing is to be said
				continue
			}
			if err := say(fmt.Sprintf(`{"id":%q,"type":%s}`, m.ID, answer)); err != nil {
				return
			}
		}
	}()
	eventually(s.t, "the short runner is connected", func() bool { return strings.Contains(strings.Join(s.connected(), " "), user+"/short") })
}

// usesAShortRunner has a user work on such a machine.
func (s *testServer) usesAShortRunner(t *testing.T) {
	const u = "/v1/sandbox/short/ag"
	s.worksIn("short", object{"backend": "remote"})
	s.shortRunner("short")
	ran := s.runs(u+"/execute?command=ls", "-la")
	if out := ran.str("stdout"); ran.str("stderror") != "err\n" || ran.num("exit_code") != 0 || len(out) != 1<<20 || !strings.HasPrefix(out, "out\nout\n") {
		t.Errorf("%d bytes of output, and %q, %v", len(out), ran.str("stderror"), ran.at("exit_code"))
	}
	s.get("/sandbox/execs/"+ran.str("exec_id")).wants(t, object{"status": "succeeded", "stdout_bytes": 1_200_000.0, "stdout_truncated": true})
	if got := s.content(u, "src/main.go"); got != "package main\n" {
		t.Errorf("read %q", got)
	}
	s.send(http.MethodGet, u+"/content?path=none", nil).refuses(t, 404, "unknown_file")
	if got := strings.Join(s.files(u), " "); got != "src/main.go" {
		t.Errorf("files %q", got)
	}
	s.send(http.MethodPut, u+"/edit?path=src/main.go&start=1&end=1", "package other").done(t)
	s.runs(u+"/execute?command=ls").wants(t, object{"exit_code": 0}) // the link is whole
}
