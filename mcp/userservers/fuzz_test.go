package userservers

import (
	"bufio"
	"context"
	"io"
	"log/slog"
	"strings"
	"testing"
	"time"

	"secbox/mcp/tools"
	"secbox/sandbox"
)

// says is a sandbox whose server lists one tool, answers the first call with some bytes, and ends.
type says struct {
	sandbox.Streamer
	answer []byte
}

func (s says) ExecTo(_ context.Context, spec sandbox.ExecSpec, stdout, _ io.Writer) (*sandbox.ExecResult, error) {
	lines := bufio.NewReader(spec.StdinFrom)
	for _, answer := range []string{
		`{"jsonrpc":"2.0","id":1,"result":` + initialized + `}`, "", `{"jsonrpc":"2.0","id":2,"result":` + oneTool + `}`,
		string(s.answer),
	} {
		if _, err := lines.ReadBytes('\n'); err != nil {
			return &sandbox.ExecResult{}, nil
		}
		if _, err := stdout.Write([]byte(answer + "\n")); err != nil {
			return &sandbox.ExecResult{}, nil
		}
	}
	return &sandbox.ExecResult{}, nil
}

// FuzzOutput: each answer of a server ends the call with a result or an error, and a result has no
// control characters.
func FuzzOutput(f *testing.F) {
	for _, seed := range []string{
		`{"jsonrpc":"2.0","id":3,"result":{"content":[{"type":"text","text":"a\u001b"}]}}`,
		`{"jsonrpc":"2.0","id":3,"result":{"content":[{"type":"image","data":"AA==","mimeType":"image/png"},{"type":"resource","resource":{"uri":"a:b","blob":"AA=="}}],"isError":true}}`,
		`{"jsonrpc":"2.0","id":3,"result":{"content":[null],"structuredContent":[[1e999]]}}`,
		`{"jsonrpc":"2.0","id":3,"error":{"code":-1,"message":"\u0000"}}`,
		`{"jsonrpc":"2.0","id":3,"result":{"resultType":"input_required","inputRequests":{}}}`,
		`[{"jsonrpc":"2.0","id":"a","method":"ping"},{"jsonrpc":"2.0","id":"a","method":"ping"}]`, `[]`, `null`, `{}`, `"`, "\xff",
		`{"jsonrpc":"2.0","method":"notifications/progress","params":null}`, `{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":{}}}`,
		"[INFO] a\n\xef\xbb\xbf{\"jsonrpc\":\"2.0\",\"id\":3,\"result\":{\"content\":[]}}\n{\"level\":1}", `{"jsonrpc":"2.0","id":1.5,"method":"roots/list"}`,
		`{"jsonrpc":"1.0","id":3,"result":{}}`,
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, answer []byte) {
		m := New(Config{
			Servers: []Server{{Agent: AllAgents, Name: "srv", StartTimeout: time.Minute, CallTimeout: time.Minute, Idle: time.Hour}},
			Sandbox: says{answer: answer}, NewID: func() string { return "x" },
			Bounds: func() (time.Duration, int64) { return time.Hour, 1 << 20 }, Log: slog.New(slog.DiscardHandler),
		})
		defer m.Close()
		m.Ensure(t.Context(), project, "tok")
		for _, one := range m.Offered(project) {
			if one.Name != "srv.t" {
				continue
			}
			r, err := one.Call(t.Context(), tools.NewSession(nil, sandbox.User{AgentID: "a1", ID: "ann"}, nil), nil)
			if err == nil && strings.ContainsAny(r.Text, "\x00\x1b\x7f") {
				t.Errorf("%q", r.Text)
			}
		}
	})
}
