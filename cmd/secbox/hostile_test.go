package main

import (
	"bytes"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestHostileAnswersOnATerminal: no command shows a character that a terminal would obey, except
// in the output of an exec.
func TestHostileAnswersOnATerminal(t *testing.T) {
	t.Parallel()
	const evil = `\u001b]0;x\u0007 \u009b2J \u202e\u2066\r`
	record := `{"exec_id": "` + evil + `", "status": "` + evil + `", "error_reason": "` + evil + `", "project_id": "` + evil + `",` + "\n" +
		`"cmd": "` + evil + `", "raw": "` + "\u009b\u202e\x7f" + `", "policy_snapshot": {"fields": {"` + evil + `": {"value": 1, "layer": "` + evil + `"}}}}`
	session := `{"session_id": "` + evil + `", "status": "` + evil + `", "name": "` + evil + `"}`
	mux := http.NewServeMux()
	answer := func(path, kind string, status int, body string) {
		mux.HandleFunc(path, func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", kind)
			w.WriteHeader(status)
			fmt.Fprint(w, body)
		})
	}
	answer("GET /sandbox/execs", "application/json", 200, `{"items": [`+record+`]}`)
	answer("GET /sandbox/execs/{id}", "application/json", 200, record)
	answer("GET /sandbox/execs/{id}/wait", "application/json", 200, record)
	answer("GET /sandbox/execs/{id}/artifacts", "application/json", 200, `{"items": [{"path": "`+evil+`", "sha256": "`+evil+`"}]}`)
	answer("GET /sandbox/sessions", "application/json", 200, `{"items": [`+session+`]}`)
	answer("POST /sandbox/sessions", "application/json", 200, session)
	answer("GET /sandbox/sessions/{id}", "application/json", 200, session)
	answer("POST /sandbox/policy/resolve", "application/json", 200, `{"x": "`+"\u009b"+`", "fields": {"`+evil+`": {"value": 1}}}`)
	answer("GET /skills", "application/json", 200, `{"items": [{"id": "`+evil+`"}]}`)
	answer("GET /skills/{id}", "application/json", 200, `{"id": "`+"\u009b\u202e"+`"}`)
	answer("POST /sandbox/execs", "application/problem+json", 400, `{"code": "invalid_request", "detail": "`+evil+`"}`)
	answer("POST /sandbox/execs/{id}/cancel", "application/problem+json", 409, `{"code": "exec_ended", "detail": "`+evil+`"}`)
	server := httptest.NewServer(mux)
	t.Cleanup(server.Close)

	for _, args := range []string{
		"ls", "ls --json", "show x", "show x --json", "wait x", "artifacts x", "artifacts x --json", "session ls", "session start", "session show x",
		"policy", "policy --json", "skills list", "skills show x", "exec -n -- true", "exec -n -d -- true", "cancel x",
	} {
		var stdout, stderr bytes.Buffer
		words := strings.Fields(args)
		for i, w := range words {
			if w == "--" {
				words = append(words[:i:i], append([]string{"--server", server.URL}, words[i:]...)...)
				break
			}
		}
		if len(words) == len(strings.Fields(args)) {
			words = append(words, "--server", server.URL)
		}
		run(t.Context(), words, environment(envConfig, "/nonexistent"), strings.NewReader(""), &stdout, &stderr)
		all := stdout.String() + stderr.String()
		if i := strings.IndexFunc(all, commands); i >= 0 || len(all) < 5 {
			t.Errorf("%s: %q", args, all)
		}
		if strings.HasSuffix(args, "--json") && strings.Count(stdout.String(), "\n") != 1 {
			t.Errorf("%s has not one line: %q", args, stdout.String())
		}
	}
}

// TestTerminalFollowsNoRedirect: the token is for one server only.
func TestTerminalFollowsNoRedirect(t *testing.T) {
	t.Parallel()
	other := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		t.Errorf("the other server was sent %s with %q", r.URL, r.Header.Get("Authorization"))
	}))
	t.Cleanup(other.Close)
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		http.Redirect(w, r, other.URL, http.StatusTemporaryRedirect)
	}))
	t.Cleanup(server.Close)
	o := execOptions{connection: connection{getenv: environment(envToken, "sbx_secret", envConfig, "/nonexistent"), server: server.URL}}
	out, err := os.Create(filepath.Join(t.TempDir(), "out"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { out.Close() })
	if err := o.connect(t.Context(), "x", strings.NewReader(""), out); err == nil {
		t.Error("no error")
	}
}

// TestExitCodeOfAFailedExec: no answer makes the exit code of a success of a failure.
func TestExitCodeOfAFailedExec(t *testing.T) {
	t.Parallel()
	for sent, want := range map[string]int{"1": 1, "255": 255, "0": exitBroken, "256": exitBroken, "-256": exitBroken, "null": exitBroken} {
		server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", "application/json")
			fmt.Fprintf(w, `{"exec_id": "x", "status": "failed", "exit_code": %s}`, sent)
		}))
		t.Cleanup(server.Close)
		var out bytes.Buffer
		args := []string{"wait", "x", "--server", server.URL}
		if code := run(t.Context(), args, environment(envConfig, "/nonexistent"), strings.NewReader(""), &out, &out); code != want {
			t.Errorf("%s: %d", sent, code)
		}
	}
}

// TestAnswersToInstallAreBounded: a server that answers without an end takes little memory.
func TestAnswersToInstallAreBounded(t *testing.T) {
	t.Parallel()
	var answers boundedBuffer
	piece := make([]byte, maxMessage/4)
	for n := range 6 {
		if got, err := answers.Write(piece); (err == nil) != (n < 4) || (got == len(piece)) != (n < 4) {
			t.Errorf("%d: %d, %v", n, got, err)
		}
	}
}
