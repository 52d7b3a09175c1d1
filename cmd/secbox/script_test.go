package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"
)

// speak runs secbox with lines on its standard input, like a script.
func speak(t *testing.T, token, input string, args ...string) (answers []map[string]any, stderr string, code int) {
	t.Helper()
	var out, words bytes.Buffer
	code = run(t.Context(), append([]string{"mcp"}, args...), environment(envToken, token), strings.NewReader(input), &out, &words)
	for line := range strings.Lines(out.String()) {
		var answer map[string]any
		if err := json.Unmarshal([]byte(line), &answer); err != nil {
			t.Errorf("%q: %v", line, err)
		}
		answers = append(answers, answer)
	}
	return answers, words.String(), code
}

const hello = `{"jsonrpc":"2.0","id":"h","method":"initialize","params":{"protocolVersion":"2025-06-18","capabilities":{},"clientInfo":{"name":"script","version":"1"}}}` + "\n" +
	`{"jsonrpc":"2.0","method":"notifications/initialized"}` + "\n"

func TestScript(t *testing.T) {
	t.Parallel()
	r := newRemote(t)
	answers, stderr, code := speak(t, "right", hello+"\n  \n"+
		`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"echo","arguments":{}}}`+"\r\n"+
		`{"jsonrpc":"2.0","id":2,"method":"no/such"}`+"\n"+
		"this is no message\n"+
		`{"jsonrpc":"2.0","id":3,"method":"ping"}`, // no newline
		"--server", "http://"+r.addr)
	byID := map[string]map[string]any{}
	for _, a := range answers {
		byID[fmt.Sprint(a["id"])] = a
	}
	if code != 0 || len(answers) != 5 || byID["h"]["result"] == nil || byID["1"]["result"] == nil || byID["3"]["result"] == nil ||
		byID["2"]["error"] == nil || byID["<nil>"]["error"] == nil {
		t.Errorf("code %d, %v\n%s", code, answers, stderr)
	}
}

// unanswered is the address of a server that does not answer: port 1 (tcpmux) has no server.
const unanswered = "http://127.0.0.1:1"

func TestUnreachable(t *testing.T) {
	t.Parallel()
	r := newRemote(t)
	page := &http.Server{ReadHeaderTimeout: time.Minute, Handler: http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		if strings.HasPrefix(req.URL.Path, "/moved") {
			http.Redirect(w, req, "http://"+r.addr+"/mcp", http.StatusTemporaryRedirect)
			return
		}
		fmt.Fprint(w, "<html>hello</html>")
	})}
	listener, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	go func() { _ = page.Serve(listener) }()
	t.Cleanup(func() { _ = page.Close() })

	for name, c := range map[string]struct {
		server, token string
		says          []string
	}{
		"no server":     {unanswered, "right", []string{"does not answer at " + unanswered, "core-api serve", "--server"}},
		"a wrong token": {"http://" + r.addr, "wrong", []string{"the token is not known", envToken, "--token-file"}},
		"no token":      {"http://" + r.addr, "", []string{"the token is not known"}},
		"a page":        {"http://" + listener.Addr().String(), "right", []string{"is not a core-api", "--server"}},
		"elsewhere":     {"http://" + listener.Addr().String() + "/moved", "right", []string{"is not a core-api", "307", "--server"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			answers, stderr, code := speak(t, c.token, hello, "--server", c.server)
			if code != 0 || len(answers) != 1 || answers[0]["id"] != "h" {
				t.Fatalf("code %d, %v\n%s", code, answers, stderr)
			}
			message, _ := answers[0]["error"].(map[string]any)["message"].(string)
			for _, want := range c.says {
				if !strings.Contains(message, want) || !strings.Contains(stderr, want) {
					t.Errorf("no %q in %q, or in\n%s", want, message, stderr)
				}
			}
			if c.token != "" && strings.Contains(stderr+message, "Bearer") {
				t.Errorf("the token is shown: %s %s", message, stderr)
			}
		})
	}
}
