package skills_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"secbox/fault"
	"secbox/policy"
	"secbox/skills"
)

// An agent worker that lists its tools and calls one.
func ExampleSkillsProvider() {
	// Really, this is a running core-api, with a token from `core-api token create --role worker`.
	api := httptest.NewServer(http.HandlerFunc(cannedAPI))
	defer api.Close()

	provider, err := skills.NewProvider(api.URL, "a-worker's-token")
	if err != nil {
		fmt.Println(err)
		return
	}
	tools, err := provider.ListTools(context.Background())
	if err != nil {
		fmt.Println(err)
		return
	}
	for _, tool := range tools {
		fmt.Println(tool.Name, "-", tool.Title)
	}
	result, err := provider.Invoke(context.Background(), "skill.shell.run", map[string]any{"script": "echo hi"}, skills.ToolCall{
		ProjectID: "demo", TaskID: "t1", IdempotencyKey: "t1-step-3",
	})
	if err != nil {
		fmt.Println(err) // nothing ran: err says why
		return
	}
	fmt.Println(result.Status, string(result.Outputs))
	// Output:
	// skill.shell.run - Run a shell script
	// succeeded {"exit_code":0}
}

const listed = `{"items":[{"schema_version":"1","id":"shell.run","name":"Run a shell script","description":"Runs it.","tool":"skill.shell.run",` +
	`"source":"built-in","digest":"5feceb66","read_only":false,"interface":{"inputs":{"type":"object"},"outputs":{"type":"object"}}}]}`

func cannedAPI(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Content-Type", "application/json")
	switch r.Method + " " + r.URL.Path {
	case "GET /skills":
		w.Header().Set("ETag", `"1"`)
		if r.Header.Get("If-None-Match") == `"1"` {
			w.WriteHeader(http.StatusNotModified)
			return
		}
		_, _ = io.WriteString(w, listed)
	case "POST /skills/shell.run/invoke":
		_, _ = io.WriteString(w, `{"exec":{"exec_id":"019a","status":"succeeded","exit_code":0,"artifacts":[]},"outputs":{"exit_code":0}}`)
	default:
		http.NotFound(w, r)
	}
}

// server starts a server with one handler and returns a provider for it.
func server(t *testing.T, h http.HandlerFunc) *skills.SkillsProvider {
	t.Helper()
	s := httptest.NewServer(h)
	t.Cleanup(s.Close)
	p, err := skills.NewProvider(s.URL+"/", "secret")
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func TestTokenOverPlainHTTP(t *testing.T) {
	t.Parallel()
	for url, good := range map[string]bool{
		"http://127.0.0.1:8003": true, "http://[::1]:8003": true, "http://localhost:8003/": true, "https://core.example": true,
		"https://core.example/secbox/": true, "http://core.example": false, "http://10.0.0.5:8003": false, "http://localhost.example": false,
		"http://127.0.0.1.example": false, "ftp://127.0.0.1": false, "127.0.0.1:8003": false, "": false, "http://": false, "http:127.0.0.1": false,
		"https://user:password@core.example": false, "https://core.example?token=x": false, "https://core.example#x": false, "http://[::1": false,
	} {
		_, err := skills.NewProvider(url, "secret")
		if good != (err == nil) || err != nil && !fault.Is(err, fault.InvalidSettings) {
			t.Errorf("%q: %v", url, err)
		}
		if err != nil && (strings.Contains(err.Error(), "secret") || strings.Contains(err.Error(), "password")) {
			t.Errorf("%q: the error tells a secret: %v", url, err)
		}
	}
	for name, try := range map[string]func() error{
		"without a token": func() error { _, err := skills.NewProvider("http://core.example", ""); return err },
		"when told so": func() error {
			_, err := skills.NewProvider("http://core.example", "x", skills.OverPlainHTTP())
			return err
		},
	} {
		if err := try(); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// TestRedirectGetsNoToken checks that a server cannot redirect its clients elsewhere.
func TestRedirectGetsNoToken(t *testing.T) {
	t.Parallel()
	elsewhere := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		t.Errorf("was asked for %s with %q", r.URL, r.Header.Get("Authorization"))
	}))
	t.Cleanup(elsewhere.Close)
	p := server(t, func(w http.ResponseWriter, r *http.Request) {
		http.Redirect(w, r, elsewhere.URL, http.StatusTemporaryRedirect)
	})
	if _, err := p.ListTools(t.Context()); !fault.Is(err, fault.Internal) {
		t.Error(err)
	}
	if _, err := p.Invoke(t.Context(), "skill.shell.run", nil, skills.ToolCall{}); !fault.Is(err, fault.Internal) {
		t.Error(err)
	}
}

func TestToolsAreCached(t *testing.T) {
	t.Parallel()
	var sent, unchanged int
	p := server(t, func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Authorization") != "Bearer secret" {
			t.Errorf("sent %q", r.Header.Get("Authorization"))
		}
		if sent++; r.Header.Get("If-None-Match") == `"1"` {
			unchanged++
		}
		cannedAPI(w, r)
	})
	for range 3 {
		list, err := p.ListTools(t.Context())
		if err != nil || len(list) != 1 || list[0].Name != "skill.shell.run" || list[0].SkillID != "shell.run" || list[0].ReadOnly ||
			string(list[0].InputSchema) != `{"type":"object"}` {
			t.Fatalf("%+v %v", list, err)
		}
		list[0].Name = "spoiled" // the next caller has its own list
	}
	if sent != 3 || unchanged != 2 {
		t.Errorf("asked %d times, %d of them answered from the cache", sent, unchanged)
	}
}

// TestInvokeRequest checks the request body: unset fields are missing, set ones are sent as given.
func TestInvokeRequest(t *testing.T) {
	t.Parallel()
	var got string
	p := server(t, func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		got = r.URL.Path + " " + r.Header.Get("Idempotency-Key") + " " + string(body)
		cannedAPI(w, r)
	})
	for _, c := range []struct {
		tool string
		args any
		call skills.ToolCall
		want string
	}{
		{"skill.shell.run", nil, skills.ToolCall{}, `/skills/shell.run/invoke  {"policy_overrides":{}}`},
		{"skill_shell_run", json.RawMessage(nil), skills.ToolCall{ProjectID: "p"}, `/skills/shell.run/invoke  {"project_id":"p","policy_overrides":{}}`},
		{
			"skill.shell.run", json.RawMessage(`{"n": 9007199254740993, "none": null}`),
			skills.ToolCall{
				ConversationID: "c", UserID: "u", TaskID: "t", IdempotencyKey: "k",
				Files:  []skills.ToolFile{{Path: "a", Content: []byte("\xffx")}, {Path: "b"}},
				Policy: policy.Layer{Limits: policy.Limits{MemoryMB: new(int64(64))}, FSWrite: []string{}},
			},
			`/skills/shell.run/invoke k {"conversation_id":"c","user_id":"u","inputs":{"n":9007199254740993,"none":null},"files":[{"path":"a","content":"/3g=","encoding":"base64"},` +
				`{"path":"b","content":"","encoding":"base64"}],"policy_overrides":{"memory_mb":64,"fs.write":[]},"task_ref":{"task_id":"t"}}`,
		},
	} {
		if _, err := p.Invoke(t.Context(), c.tool, c.args, c.call); err != nil || got != c.want {
			t.Errorf("%v\n got %s\nwant %s", err, got, c.want)
		}
	}
}

// TestForUser checks that the provider lists the user's packages and calls them in the user's
// workspace by default.
func TestForUser(t *testing.T) {
	t.Parallel()
	var mu sync.Mutex
	var seen []string
	api := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		var call struct {
			ProjectID      string `json:"project_id"`
			ConversationID string `json:"conversation_id"`
		}
		_ = json.Unmarshal(body, &call)
		mu.Lock()
		seen = append(seen, r.URL.RequestURI()+" "+call.ProjectID+call.ConversationID)
		mu.Unlock()
		cannedAPI(w, r)
	}))
	t.Cleanup(api.Close)
	provider, err := skills.NewProvider(api.URL, "", skills.ForUser("ag", "a&b"))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := provider.ListTools(t.Context()); err != nil {
		t.Fatal(err)
	}
	for _, call := range []skills.ToolCall{{}, {ProjectID: "demo"}, {ConversationID: "c1"}} {
		if _, err := provider.Invoke(t.Context(), "skill.shell.run", nil, call); err != nil {
			t.Fatal(err)
		}
	}
	want := []string{
		"/skills?agent_id=ag&user_id=a%26b ", "/skills/shell.run/invoke ag~a&b", "/skills/shell.run/invoke demo", "/skills/shell.run/invoke c1",
	}
	if !slices.Equal(seen, want) {
		t.Errorf("%q, want %q", seen, want)
	}
}

func TestUnknownToolNames(t *testing.T) {
	t.Parallel()
	p := server(t, func(_ http.ResponseWriter, r *http.Request) { t.Errorf("asked for %s", r.URL) })
	for _, tool := range []string{
		"", "skill.", "shell.run", "skill...", "skill.../..", "skill.a/b", "skill.%2e%2e", "skill.a.b?x=1", "skill.A.b", "skill_",
		"Read",
	} {
		if _, err := p.Invoke(t.Context(), tool, nil, skills.ToolCall{}); !fault.Is(err, fault.UnknownSkill) {
			t.Errorf("%q: %v", tool, err)
		}
	}
	for name, args := range map[string]any{"half": json.RawMessage(`{"a":`), "a function": func() {}, "a channel": map[string]any{"c": make(chan int)}} {
		if _, err := p.Invoke(t.Context(), "skill.shell.run", args, skills.ToolCall{}); !fault.Is(err, fault.InvalidInputs) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// TestProblemsBecomeFaults checks that error responses of core-api are kept unchanged.
func TestProblemsBecomeFaults(t *testing.T) {
	t.Parallel()
	p := server(t, func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/problem+json")
		w.Header().Set("Retry-After", "7")
		w.WriteHeader(http.StatusForbidden)
		_, _ = io.WriteString(w, `{"type":"/docs#code-policy_denied","title":"t","status":403,"detail":"memory_mb: too much","code":"policy_denied",`+
			`"errors":[{"field":"memory_mb","reason":"is above the ceiling","asked":16384,"ceiling":8192,"layer":"request"}],"exec_id":"019a"}`)
	})
	_, err := p.Invoke(t.Context(), "skill.shell.run", nil, skills.ToolCall{})
	var e *fault.Error
	if !errors.As(err, &e) || e.Code != fault.PolicyDenied || e.ExecID != "019a" || e.Message != "memory_mb: too much" || e.RetryAfter != 7*time.Second ||
		len(e.Fields) != 1 || e.Fields[0].Field != "memory_mb" || e.Fields[0].Layer != "request" {
		t.Errorf("%#v", err)
	}
}

// TestForeignServers has servers at the address that are not core-api and may be hostile.
func TestForeignServers(t *testing.T) {
	t.Parallel()
	text := func(status int, media, body string) http.HandlerFunc {
		return func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", media)
			w.WriteHeader(status)
			_, _ = io.WriteString(w, body)
		}
	}
	for name, h := range map[string]http.HandlerFunc{
		"a page":              text(200, "text/html", "<p>hello"),
		"a gateway's error":   text(502, "text/html", "<p>bad gateway"),
		"no JSON":             text(200, "application/json", "{"),
		"another JSON":        text(200, "application/json", `[1]`),
		"a problem of theirs": text(500, "application/problem+json", `{"title":"x"}`),
		"a broken problem":    text(500, "application/problem+json", `{"code":`),
		"not modified":        text(304, "", ""),
		"no content":          text(204, "", ""),
		"without an end": func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Content-Type", "application/json")
			piece := []byte(`"` + strings.Repeat(" ", 1<<20))
			for r.Context().Err() == nil {
				if _, err := w.Write(piece); err != nil {
					return
				}
			}
		},
		"cut off": func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Length", "100")
			_, _ = io.WriteString(w, "{")
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := server(t, h)
			if list, err := p.ListTools(t.Context()); list != nil || !fault.Is(err, fault.Internal) {
				t.Errorf("list: %v %v", list, err)
			}
			if _, err := p.Invoke(t.Context(), "skill.shell.run", nil, skills.ToolCall{}); !fault.Is(err, fault.Internal) ||
				strings.Contains(err.Error(), "secret") {
				t.Errorf("invoke: %v", err)
			}
		})
	}
}

func TestContextEndsCall(t *testing.T) {
	t.Parallel()
	began := make(chan struct{})
	p := server(t, func(_ http.ResponseWriter, r *http.Request) {
		close(began)
		_, _ = io.Copy(io.Discard, r.Body) // the end of the connection is seen once the body is read
		<-r.Context().Done()
	})
	ctx, cancel := context.WithCancel(t.Context())
	go func() {
		<-began
		cancel()
	}()
	if _, err := p.Invoke(ctx, "skill.shell.run", nil, skills.ToolCall{}); !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
	gone := httptest.NewServer(nil)
	gone.Close()
	p, err := skills.NewProvider(gone.URL, "")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := p.ListTools(t.Context()); err == nil || !strings.Contains(fault.From(err).Message, "does not respond at") {
		t.Error(err)
	}
}
