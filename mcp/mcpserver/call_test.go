package mcpserver

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"reflect"
	"strings"
	"sync"
	"testing"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	"github.com/modelcontextprotocol/go-sdk/mcp"

	"secbox/access/tokens"
	"secbox/skills/schema"
)

func TestCall(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	session := f.connect("worker", "", nil)
	result := f.call(session, "skill.test.echo", map[string]any{"text": "hi"})
	if result.IsError {
		t.Fatalf("%s", textOf(result))
	}
	structured, _ := json.Marshal(result.StructuredContent)
	if want := `{"project":"mcp-tok-worker","text":"hi"}`; string(structured) != want || result.Content[0].(*mcp.TextContent).Text != want {
		t.Errorf("got %s and %q, want %s", structured, textOf(result), want)
	}
	if text := textOf(result); !strings.Contains(text, "stdout:\nsaid hi") {
		t.Errorf("no stdout in %q", text)
	}
	execID, _ := result.Meta[metaExecID].(string)
	if execID == "" || result.Meta[metaStatus] != "succeeded" || result.Meta[metaExitCode] != 0.0 || result.Meta[metaDurationMS] != 7.0 {
		t.Errorf("_meta: %v", result.Meta)
	}
	var links []string
	for _, c := range result.Content {
		if link, ok := c.(*mcp.ResourceLink); ok {
			links = append(links, link.URI)
		}
	}
	if len(links) != 1 || links[0] != "exec://"+execID+"/a%20b/%C3%BC.txt" {
		t.Errorf("links: %v", links)
	}
	read, err := session.ReadResource(t.Context(), &mcp.ReadResourceParams{URI: links[0]})
	if err != nil {
		t.Fatal(err)
	}
	if c := read.Contents[0]; c.Text != "text of hi" || c.MIMEType != "text/plain" || c.URI != links[0] {
		t.Errorf("read: %+v", c)
	}
	request := f.execs.requests()[0]
	if request.RequestedBy != "tok-worker" || request.SkillID != workerSkill || string(request.Inputs) != `{"text":"hi"}` || len(request.Digest) != 64 {
		t.Errorf("invoked with %+v", request)
	}
}

// TestLongResultIsShortened: to 32 KiB in total, with the head and tail of each output.
func TestLongResultIsShortened(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	session := f.connect("worker", "", nil)
	text := "HEAD" + strings.Repeat("x", 200_000) + "TAIL"
	result := f.call(session, "skill.test.echo", map[string]any{"text": text, "timeout_ms": 2500})
	structured, _ := json.Marshal(result.StructuredContent)
	all, _ := json.Marshal(result)
	for what, got := range map[string]string{"outputs": string(structured), "stdout": textOf(result)} {
		if strings.Count(got, "HEAD") != 1 || strings.Count(got, "TAIL") != 1 || !strings.Contains(got, "bytes left out") {
			t.Errorf("%s: %.200s", what, got)
		}
	}
	if len(all) > 32<<10 || !strings.Contains(textOf(result), "/skill_output.json") || !strings.Contains(textOf(result), "/stdout.txt") {
		t.Errorf("%d bytes: %.300s", len(all), textOf(result))
	}
	if request := f.execs.requests()[0]; request.Overrides.TimeoutMS == nil || *request.Overrides.TimeoutMS != 2500 ||
		strings.Contains(string(request.Inputs), "timeout_ms") {
		t.Errorf("overrides %+v", request.Overrides)
	}
	for _, wrong := range []any{0, -1, 1.5, "an hour", true} {
		if result := f.call(session, "skill.test.echo", map[string]any{"text": "x", "timeout_ms": wrong}); !result.IsError ||
			!strings.Contains(textOf(result), "timeout_ms") {
			t.Errorf("%v: %s", wrong, textOf(result))
		}
	}
}

// TestArgumentsAreTakenAsMeant: by the rule that the tool's schema states.
func TestArgumentsAreTakenAsMeant(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	f.addSkill("test.counts", `{"type":"object","description":"What to count.","properties":{"n":{"type":"integer"},"text":{"type":"string"},"list":{"type":"array","items":{"type":"integer"}},"data":{}},
		"additionalProperties":false}`)
	f.catalog.Reload()
	f.server.syncTools()
	session := f.connect("worker", "", nil)
	text, _ := json.Marshal(toolsOf(t, session)["skill_test_counts"].InputSchema)
	var rule struct{ Description string }
	if err := json.Unmarshal(text, &rule); err != nil || rule.Description != "What to count. "+schema.MeantRule {
		t.Errorf("%v: %s", err, text)
	}
	call := func(arguments string) *mcp.CallToolResult {
		return f.call(session, "skill_test_counts", json.RawMessage(arguments))
	}
	for n, c := range []struct {
		arguments, inputs string
		timeoutMS         int64
	}{
		{`{"n": 5000.0, "timeout_ms": 5000.0}`, `{"n":5000}`, 5000},
		{`{"n": "5", "timeout_ms": "5e3"}`, `{"n":5}`, 5000},
		{`{"n": null, "timeout_ms": null, "project_id": null}`, `{}`, 0},
		{`{"list": "[1, 2.0]", "description": "counts"}`, `{"list":[1,2]}`, 0},
		{`{"n": 5}`, `{"n": 5}`, 0},
	} {
		if result := call(c.arguments); result.IsError {
			t.Errorf("%s: %s", c.arguments, textOf(result))
			continue
		}
		request := f.execs.requests()[n]
		var got, want any
		if json.Unmarshal(request.Inputs, &got) != nil || json.Unmarshal([]byte(c.inputs), &want) != nil || !reflect.DeepEqual(got, want) ||
			strings.Contains(string(request.Inputs), ".0") {
			t.Errorf("%s: inputs %s", c.arguments, request.Inputs)
		}
		if given := request.Overrides.TimeoutMS; (given == nil) != (c.timeoutMS == 0) || given != nil && *given != c.timeoutMS {
			t.Errorf("%s: %v", c.arguments, given)
		}
	}
	if result := call(`{"data":{"z":1,"a":2},"n":null, "timeout_ms": "5000"}`); result.IsError {
		t.Error(textOf(result))
	} else if requests := f.execs.requests(); !strings.Contains(string(requests[len(requests)-1].Inputs), `{"z":1,"a":2}`) {
		t.Errorf("the order of an input's names was changed: %s", requests[len(requests)-1].Inputs)
	}
	for _, wrong := range []string{`{"n": "five"}`, `{"n": 5.5}`, `{"n": "5.5"}`, `{"explanation": "counts"}`, `{"n": 1, "n": 2}`} {
		if result := call(wrong); !result.IsError || !strings.Contains(textOf(result), "invalid_inputs") {
			t.Errorf("%s: %s", wrong, textOf(result))
		}
	}
}

func TestToolErrors(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	session := f.connect("worker", "", nil)
	for name, c := range map[string]struct {
		arguments any
		want      []string
	}{
		"a failed exec": {
			map[string]any{"text": "fail"},
			[]string{"ended as failed", "reason nonzero_exit", "exit code 3", "the command exited with 3"},
		},
		"a time-out":           {map[string]any{"text": "slow"}, []string{"ended as timeout", "raise timeout_ms"}},
		"denied by policy":     {map[string]any{"text": "denied"}, []string{"policy_denied", "memory_mb", "ceiling", "denied-exec"}},
		"a fault of ours":      {map[string]any{"text": "broken"}, []string{"internal"}},
		"an unknown argument":  {map[string]any{"text": "x", "nope": 1}, []string{"invalid_inputs", "nope"}},
		"a missing argument":   {map[string]any{}, []string{"invalid_inputs", "text"}},
		"no arguments":         {nil, []string{"invalid_inputs", "text"}},
		"a wrong type":         {map[string]any{"text": 1}, []string{"invalid_inputs", "text"}},
		"a list":               {[]int{1}, []string{"invalid_inputs", "object"}},
		"a project by number":  {map[string]any{"text": "x", "project_id": 5}, []string{"invalid_inputs", "project_id", "string"}},
		"a project that is no": {map[string]any{"text": "x", "project_id": ""}, []string{"invalid_inputs", "project_id", "empty"}},
	} {
		t.Run(name, func(t *testing.T) {
			result, err := session.CallTool(t.Context(), &mcp.CallToolParams{Name: "skill.test.echo", Arguments: c.arguments})
			if err != nil {
				t.Fatal(err)
			}
			if !result.IsError || result.StructuredContent != nil {
				t.Errorf("isError %v, structured %v", result.IsError, result.StructuredContent)
			}
			text := textOf(result)
			for _, want := range c.want {
				if !strings.Contains(text, want) {
					t.Errorf("no %q in %q", want, text)
				}
			}
			if strings.Contains(text, "secret cause") {
				t.Errorf("the cause is shown: %q", text)
			}
		})
	}
}

func TestUnknownTool(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	_, err := f.connect("worker", "", nil).CallTool(t.Context(), &mcp.CallToolParams{Name: "skill.no.such"})
	if wire := new(jsonrpc.Error); !asError(err, &wire) || wire.Code != jsonrpc.CodeInvalidParams {
		t.Errorf("got %v", err)
	}
}

func TestProjectOfACall(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	f.tokens["loopback"] = tokens.Token{ID: "loopback", Role: tokens.Admin}
	for name, c := range map[string]struct {
		token, query, argument, want, wrong string
	}{
		"none, no scope":               {token: "worker", want: "mcp-tok-worker"},
		"none, loopback":               {token: "loopback", want: "mcp-loopback"},
		"the address":                  {token: "worker", query: "?project_id=here", want: "here"},
		"the argument wins":            {token: "worker", query: "?project_id=here", argument: "there", want: "there"},
		"the token's only one":         {token: "project", want: "only"},
		"the token's only one, said":   {token: "project", argument: "only", want: "only"},
		"another than the token's":     {token: "project", argument: "foreign", wrong: "forbidden"},
		"another, by the address":      {token: "project", query: "?project_id=foreign", wrong: "forbidden"},
		"two to choose from":           {token: "two", wrong: "project_id"},
		"two to choose from, one said": {token: "two", argument: "two", want: "two"},
		"an agent's token":             {token: "agent", wrong: "project_id"},
		"an agent's workspace":         {token: "agent", argument: "a1~u1", want: "a1~u1"},
		"another agent's workspace":    {token: "agent", argument: "a2~u1", wrong: "forbidden"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			arguments := map[string]any{"text": "x"}
			if c.argument != "" {
				arguments["project_id"] = c.argument
			}
			result, err := f.connect(c.token, c.query, nil).CallTool(t.Context(), &mcp.CallToolParams{Name: "skill.test.echo", Arguments: arguments})
			if err != nil {
				t.Fatal(err)
			}
			text := textOf(result)
			if c.wrong != "" {
				if !result.IsError || !strings.Contains(text, c.wrong) || !strings.Contains(text, "project_id") {
					t.Errorf("got %q", text)
				}
				return
			}
			if result.IsError || !strings.Contains(text, `"project":"`+c.want+`"`) {
				t.Errorf("got %q, want the project %s", text, c.want)
			}
		})
	}
}

func TestProgressIsReported(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	var mu sync.Mutex
	var heard []mcp.ProgressNotificationParams
	session := f.connect("worker", "", &mcp.ClientOptions{
		ProgressNotificationHandler: func(_ context.Context, req *mcp.ProgressNotificationClientRequest) {
			mu.Lock()
			defer mu.Unlock()
			heard = append(heard, *req.Params)
		},
	})
	reports := func() []mcp.ProgressNotificationParams {
		mu.Lock()
		defer mu.Unlock()
		return heard
	}
	params := &mcp.CallToolParams{Name: "skill.test.echo", Arguments: map[string]any{"text": "wait"}}
	params.SetProgressToken("token-1")
	done := make(chan *mcp.CallToolResult, 1)
	go func() {
		result, err := session.CallTool(context.WithoutCancel(t.Context()), params)
		if err != nil {
			t.Error(err)
		}
		done <- result
	}()
	eventually(t, "two reports", func() bool { return len(reports()) >= 2 })
	ids := f.execs.running()
	if len(ids) != 1 {
		t.Fatalf("running: %v", ids)
	}
	_ = f.execs.Cancel(t.Context(), ids[0])
	if result := <-done; !result.IsError || result.Meta[metaStatus] != "canceled" {
		t.Errorf("result: %+v", result)
	}
	last := 0.0
	for _, p := range reports() {
		if p.ProgressToken != "token-1" || p.Progress <= last || !strings.Contains(p.Message, ids[0]) {
			t.Errorf("after %v: %+v", last, p)
		}
		last = p.Progress
	}
	if message := reports()[1].Message; !strings.Contains(message, "is running") || !strings.Contains(message, "stdout: 20 bytes, last line: stdout so far") {
		t.Errorf("message: %s", message)
	}
}

func TestCancelBeforeTheExecHasARecord(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	session := f.connect("worker", "", nil)
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() {
		defer close(done)
		_, _ = session.CallTool(ctx, &mcp.CallToolParams{Name: "skill.test.echo", Arguments: map[string]any{"text": "late"}})
	}()
	eventually(t, "the call has arrived", func() bool {
		f.server.sessions.mu.Lock()
		defer f.server.sessions.mu.Unlock()
		return len(f.server.sessions.byID[session.ID()].calls) == 1
	})
	cancel()
	<-done
	// On a slow machine the cancellation may come before the exec is requested.
	eventually(t, "the call has ended, and its exec with it", func() bool {
		f.server.sessions.mu.Lock()
		defer f.server.sessions.mu.Unlock()
		return len(f.server.sessions.byID[session.ID()].calls) == 0 && len(f.execs.running()) == 0
	})
}

func TestCancelEndsTheExec(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	session := f.connect("worker", "", nil)
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() {
		_, err := session.CallTool(ctx, &mcp.CallToolParams{Name: "skill.test.echo", Arguments: map[string]any{"text": "wait"}})
		done <- err
	}()
	eventually(t, "it runs", func() bool { return len(f.execs.running()) == 1 })
	cancel()
	if err := <-done; err == nil {
		t.Error("the canceled call has a result")
	}
	eventually(t, "it has ended", func() bool { return len(f.execs.running()) == 0 })
	// The session lives on.
	if result := f.call(session, "skill.test.echo", map[string]any{"text": "hi"}); result.IsError {
		t.Errorf("%s", textOf(result))
	}
}

// By the protocol, a broken connection is not a cancellation, but the end of the session is.
func TestExecContinuesWithoutItsClient(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	session := f.open("worker")
	ctx, cancel := context.WithCancel(t.Context())
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, f.url, strings.NewReader(
		`{"jsonrpc":"2.0","id":2,"method":"tools/call","params":{"name":"skill.test.echo","arguments":{"text":"wait"}}}`))
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Authorization", "Bearer worker")
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("Accept", "application/json, text/event-stream")
	req.Header.Set(sessionHeader, session)
	gone := make(chan struct{})
	go func() {
		defer close(gone)
		client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
		if resp, err := client.Do(req); err == nil {
			resp.Body.Close()
		}
	}()
	eventually(t, "it runs", func() bool { return len(f.execs.running()) == 1 })
	cancel()
	<-gone
	if resp, body := f.post("worker", session, `{"jsonrpc":"2.0","id":3,"method":"ping"}`); resp.StatusCode != http.StatusOK {
		t.Errorf("ping: %d %s", resp.StatusCode, body)
	}
	if n := len(f.execs.running()); n != 1 {
		t.Errorf("%d execs run", n)
	}
	if resp, body := f.send(http.MethodDelete, "worker", session, ""); resp.StatusCode != http.StatusNoContent {
		t.Errorf("delete: %d %s", resp.StatusCode, body)
	}
	eventually(t, "it has ended", func() bool { return len(f.execs.running()) == 0 })
}

func TestFiftyCallsAtOnceInOneSession(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	session := f.connect("worker", "", nil)
	var calls sync.WaitGroup
	for n := range 50 {
		calls.Go(func() {
			want := fmt.Sprintf("text %d", n)
			result, err := session.CallTool(t.Context(), &mcp.CallToolParams{Name: "skill.test.echo", Arguments: map[string]any{"text": want}})
			if err != nil {
				t.Error(err)
				return
			}
			if structured, ok := result.StructuredContent.(map[string]any); !ok || structured["text"] != want {
				t.Errorf("got %v, want %s", result.StructuredContent, want)
			}
		})
	}
	calls.Wait()
}
