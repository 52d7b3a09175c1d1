package e2e

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/coder/websocket"

	"secbox/access/tokens"
)

// screen is a client of an exec's terminal.
type screen struct {
	t    *testing.T
	conn *websocket.Conn
	at   int    // bytes shown
	seen string // since the last awaits
}

func (s *testServer) openTerminal(t *testing.T, execID string, at int, secret string) *screen {
	t.Helper()
	return openTerminal(t, s.url, execID, at, secret)
}

// openTerminal attaches to an exec's terminal.
func openTerminal(t *testing.T, url, execID string, at int, secret string) *screen {
	t.Helper()
	header := http.Header{}
	if secret != "" {
		header.Set("Authorization", "Bearer "+secret)
	}
	conn, _, err := websocket.Dial(t.Context(), fmt.Sprintf("%s/sandbox/execs/%s/tty?offset=%d", url, execID, at),
		&websocket.DialOptions{HTTPHeader: header})
	if err != nil {
		t.Fatal(err)
	}
	conn.SetReadLimit(1 << 20)
	t.Cleanup(func() { _ = conn.CloseNow() })
	x := &screen{t: t, conn: conn, at: at}
	if m := x.next(); m.str("type") != "attached" || m["offset"] != float64(at) {
		t.Errorf("%v", m)
	}
	return x
}

// next reads a message, and returns it if it is a text.
func (x *screen) next() (m object) {
	x.t.Helper()
	ctx, cancel := context.WithTimeout(x.t.Context(), time.Minute)
	defer cancel()
	kind, content, err := x.conn.Read(ctx)
	if err != nil {
		x.t.Fatalf("%v; shown is %q", err, x.seen)
	}
	if kind == websocket.MessageBinary {
		x.at += len(content)
		x.seen += string(content)
		return nil
	}
	if err := json.Unmarshal(content, &m); err != nil {
		x.t.Fatal(err)
	}
	return m
}

// awaits reads until a text is shown, and returns what is shown until then.
func (x *screen) awaits(text string) string {
	x.t.Helper()
	for !strings.Contains(x.seen, text) {
		if m := x.next(); m.str("type") == "end" {
			x.t.Fatalf("%v, before %q; shown is %q", m, text, x.seen)
		}
	}
	before, after, _ := strings.Cut(x.seen, text)
	x.seen = after
	return before
}

func (x *screen) enter(text string) {
	x.t.Helper()
	if err := x.conn.Write(x.t.Context(), websocket.MessageBinary, []byte(text)); err != nil {
		x.t.Fatal(err)
	}
}

// command enters a line at the prompt: what is typed before it may be dropped with a signal.
func (x *screen) command(line string) {
	x.t.Helper()
	x.awaits("> ")
	x.enter(line)
}

func (x *screen) tell(m object) {
	x.t.Helper()
	text, err := json.Marshal(m)
	if err != nil {
		x.t.Fatal(err)
	}
	if err := x.conn.Write(x.t.Context(), websocket.MessageText, text); err != nil {
		x.t.Fatal(err)
	}
}

// ends reads to the end, and returns the exec.
func (x *screen) ends() object {
	x.t.Helper()
	for {
		if m := x.next(); m.str("type") == "end" {
			exec, _ := m["exec"].(map[string]any)
			return exec
		}
	}
}

// TestTerminal is the life of a terminal in a session: it outlives its clients, and is on record.
func TestTerminal(t *testing.T) {
	t.Parallel()
	s := shared(t).startSession("terminals")
	a := s.try(object{"script": "PS1='> ' exec bash --norc --noediting -i", "tty": object{"cols": 80, "rows": 24}}, "background", true)
	if a.Code != http.StatusAccepted {
		t.Fatalf("%d %s", a.Code, a.Body)
	}
	id := a.json(t).str("exec_id")
	one := s.openTerminal(t, id, 0, "")
	one.command("stty size; echo $TERM; tty\r")
	one.awaits("24 80\r\n")
	one.awaits("xterm-256color\r\n/dev/pts/")
	one.tell(object{"type": "resize", "cols": 132, "rows": 43})
	one.command("stty size\r")
	one.awaits("43 132\r\n")
	for _, key := range []string{"^C", "signal", "^Z"} { // cat echoes a line when it reads
		one.command("cat\r")
		one.awaits("cat\r\n")
		one.enter("a line\r")
		one.awaits("a line\r\na line\r\n")
		switch key {
		case "^C":
			one.enter("\x03")
		case "signal":
			one.tell(object{"type": "signal", "signal": "SIGINT"})
		default:
			one.enter("\x1a")
		}
		one.command("echo $?=\r")
		one.awaits(map[string]string{"^C": "130=", "signal": "130=", "^Z": "148="}[key])
	}
	one.command(`printf '\033[?1049h\033[2J\033[H\346\227\245~\r\n\033[?1049l\033]0;title\a\033P1$r0m\033\\\377'; echo o"k"` + "\r")
	if shown := one.awaits("ok\r\n"); !strings.HasSuffix(shown, "\x1b[?1049h\x1b[2J\x1b[H日~\r\r\n\x1b[?1049l\x1b]0;title\a\x1bP1$r0m\x1b\\\xff") {
		t.Errorf("%q", shown)
	}
	one.command("stty -echo; read -r secret; stty echo; echo $secret | tr a-z A-Z\r")
	one.enter("hush\r")
	one.awaits("HUSH\r\n")

	// The job goes on without a client. One that comes again has all, also beside another one.
	one.command("while [ ! -e go ]; do sleep 0.01; done; echo con''tinued\r")
	one.awaits("tinued\r\n") // its echo
	at := one.at
	_ = one.conn.Close(websocket.StatusNormalClosure, "")
	s.says("touch go", "")
	again, whole := s.openTerminal(t, id, at-len(one.seen), ""), s.openTerminal(t, id, 0, "")
	again.awaits("continued\r\n")
	if shown := whole.awaits("continued\r\n"); !strings.HasPrefix(shown, "> ") || !strings.Contains(shown, "HUSH") {
		t.Errorf("%q", shown)
	}
	again.command("exit 5\r")
	again.command("exit 5\r") // the first time, it warns of the stopped job
	for _, x := range []*screen{again, whole} {
		x.ends().wants(t, object{"exec_id": id, "status": "failed", "exit_code": 5.0})
	}
	s.get("/sandbox/execs/"+id).wants(t, object{"status": "failed", "exit_code": 5.0, "tty_record": "all", "session_id": s.id})
	s.send(http.MethodGet, "/sandbox/execs/"+id+"/tty", nil).json(t).wants(t, object{"code": "exec_ended"})
	cast := string(s.send(http.MethodGet, "/sandbox/execs/"+id+"/cast", nil).Body)
	for _, part := range []string{
		`{"version":2,"width":80,"height":24,`, `, "i", "stty size; echo $TERM; tty\r"]`, `, "r", "132x43"]`, `, "i", "\u0003"]`, `, "m", "signal: interrupt"]`,
		`, "i", "hush\r"]`, "日~", `\ufffd`,
	} {
		if !strings.Contains(cast, part) {
			t.Errorf("the recording lacks %s:\n%s", part, cast)
		}
	}
	if m := s.send(http.MethodGet, "/sandbox/execs/"+id+"/manifest", nil); !strings.Contains(string(m.Body), `"path": "terminal.cast"`) {
		t.Errorf("%s", m.Body)
	}
	s.says("pgrep cat; ls /dev/pts", "ptmx\n") // the stopped cat is gone, and so is the terminal
	s.end()
}

// TestTerminalInFreshContainer: what was typed is left out, other tokens see nothing, and the shell
// ends at its timeout.
func TestTerminalInFreshContainer(t *testing.T) {
	t.Parallel()
	s := tidy(t, noPool)
	_, secret := s.newToken(tokens.Spec{Role: tokens.Worker})
	_, other := s.newToken(tokens.Spec{Role: tokens.Worker})
	mine := s.as(secret)
	a := mine.send(http.MethodPost, "/sandbox/execs", object{
		"project_id": "terminals-fresh", "policy_overrides": object{"timeout_ms": 3000, "kill_grace_ms": 1500},
		"exec": object{
			"script": "echo mine > /workspace/artifacts/terminal.cast; echo ready; read -rs x; echo read; exec bash --norc -i",
			"tty":    object{"cols": 40, "rows": 10}, "tty_record": "output",
		},
	})
	if a.Code != http.StatusAccepted {
		t.Fatalf("%d %s", a.Code, a.Body)
	}
	id := a.json(t).str("exec_id")
	if got := s.as(other).send(http.MethodGet, "/sandbox/execs/"+id+"/tty", nil); got.Code != http.StatusNotFound {
		t.Errorf("%d %s", got.Code, got.Body)
	}
	x := mine.openTerminal(t, id, 0, secret)
	x.awaits("ready\r\n")
	x.enter("password\r")
	x.awaits("read\r\n")
	x.ends().wants(t, object{"status": "timeout", "error_reason": "timeout"})
	if got := mine.get("/sandbox/execs/" + id); got.str("tty_record") != "output" || !strings.Contains(got.str("detail"), "ended after its SIGTERM") {
		t.Errorf("%v", got)
	}
	cast := string(mine.send(http.MethodGet, "/sandbox/execs/"+id+"/cast", nil).Body)
	if strings.Contains(cast, "password") || !strings.Contains(cast, `, "o", "ready\r\n"]`) {
		t.Errorf("%s", cast)
	}
	if own := mine.artifact(id, "terminal.cast"); string(own.Body) != "mine\n" {
		t.Errorf("the job's own file: %s", own.Body)
	}
	if got := mine.send(http.MethodPost, "/sandbox/execs/"+id+"/replay", object{}); got.json(t).str("code") != "not_replayable" {
		t.Errorf("%d %s", got.Code, got.Body)
	}
}
