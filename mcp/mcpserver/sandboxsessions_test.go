package mcpserver

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"regexp"
	"strings"
	"sync"
	"testing"

	"github.com/google/uuid"
	"github.com/modelcontextprotocol/go-sdk/mcp"

	"secbox/access/tokens"
	"secbox/audit"
	"secbox/fault"
	"secbox/runner"
	runnersession "secbox/runner/session"
)

// fakeSessions keeps the rows of sessions, and answers a command with what it is.
type fakeSessions struct {
	*fakeRunner

	mu      sync.Mutex
	started []runner.SessionRequest
	ran     []runner.Request
	next    runner.Result // of the next command
}

func (s *fakeSessions) StartSession(_ context.Context, req runner.SessionRequest) (audit.Record, bool, error) {
	if req.Idle < 0 {
		return audit.Record{}, false, fault.BadField("idle_ms", "must be from 1000")
	}
	s.mu.Lock()
	s.started = append(s.started, req)
	s.mu.Unlock()
	rec := audit.Record{ExecID: uuid.NewString(), ProjectID: req.ProjectID, RequestedBy: req.RequestedBy, Status: audit.Running, Args: req.Command.Args}
	rec.SessionID = rec.ExecID
	s.put(rec)
	return rec, false, nil
}

func (s *fakeSessions) put(rec audit.Record) {
	s.fakeRunner.mu.Lock()
	defer s.fakeRunner.mu.Unlock()
	s.records[rec.ExecID] = rec
}

// Cancel ends a session, as the runner does a moment later.
func (s *fakeSessions) Cancel(ctx context.Context, execID string) error {
	if rec, err := s.Get(ctx, execID); err == nil && rec.IsSession() {
		rec.Status, rec.ErrorReason, rec.Detail = audit.Canceled, audit.ReasonCanceled, "canceled by request"
		s.put(rec)
	}
	return s.fakeRunner.Cancel(ctx, execID)
}

func (s *fakeSessions) Run(ctx context.Context, req runner.Request) (runner.Result, error) {
	if in, err := s.Get(ctx, req.SessionID); err != nil || in.Status.Final() || in.NodeID != "" {
		return runner.Result{}, runnersession.Ended(req.SessionID)
	}
	text := req.Command.Args[1]
	if text == "too long" {
		return runner.Result{}, fault.BadField("exec.args[1]", "has 999999 bytes")
	}
	s.mu.Lock()
	s.ran = append(s.ran, req)
	res := s.next
	s.next = runner.Result{}
	s.mu.Unlock()
	rec := audit.Record{
		ExecID: uuid.NewString(), ProjectID: req.ProjectID, RequestedBy: req.RequestedBy, Status: audit.Running, SessionID: req.SessionID,
		Context: req.Command.Context, SessionSeq: 1,
	}
	stop := make(chan struct{})
	s.fakeRunner.mu.Lock()
	s.records[rec.ExecID], s.canceled[rec.ExecID] = rec, stop
	s.fakeRunner.mu.Unlock()
	req.OnOpen(rec.ExecID)
	rec.Status = audit.Succeeded
	if text == "wait" {
		<-stop
		rec.Status = audit.Canceled
	}
	s.put(rec)
	res.Record, res.Stdout = rec, []byte("said "+text)
	return res, nil
}

func (s *fakeSessions) seen() ([]runner.SessionRequest, []runner.Request) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return append([]runner.SessionRequest{}, s.started...), append([]runner.Request{}, s.ran...)
}

func sessionsFixture(t *testing.T) (*fixture, *fakeSessions) {
	t.Helper()
	boxes := &fakeSessions{}
	f := newFixture(t, func(c *Config) {
		boxes.fakeRunner = c.Runner.(*fakeRunner)
		c.Runner, c.Sandboxes = boxes, boxes
	})
	return f, boxes
}

// TestCallsShareASession: the first call starts it, and it ends with the MCP session.
func TestCallsShareASession(t *testing.T) {
	t.Parallel()
	f, boxes := sessionsFixture(t)
	one, two := f.connect("worker", "?project_id=p", nil), f.connect("worker", "?names=dotted", nil)
	if text := one.InitializeResult().Instructions; !strings.Contains(text, "session_run") {
		t.Errorf("%q", text)
	}
	first := f.call(one, "session_run", map[string]any{"command": "echo\r\n", "cwd": "/tmp", "timeout_ms": "500", "description": "says"})
	f.call(one, "session_run", map[string]any{"command": "in a shell", "context": "sh"})
	f.call(one, "session.python", map[string]any{"code": "1"})
	other := f.call(two, "session.python", map[string]any{"code": "2", "context": "c"})
	started, ran := boxes.seen()
	if len(started) != 2 || started[0].ProjectID != "p" || started[1].ProjectID != "mcp-tok-worker" || started[0].Name != "mcp" || len(ran) != 4 {
		t.Fatalf("started %+v, ran %d", started, len(ran))
	}
	if id := first.Meta[metaSession]; id != ran[0].SessionID || id != ran[2].SessionID || id == other.Meta[metaSession] || first.IsError ||
		!strings.Contains(textOf(first), "said echo\n") || first.Meta[metaExecID] == "" {
		t.Errorf("%s %v", textOf(first), first.Meta)
	}
	for i, want := range []runner.Command{
		{Kind: "shell", Name: "bash", Args: []string{"-lc", "echo\n"}, Cwd: "/tmp"},
		{Kind: "shell", Name: "bash", Args: []string{"-lc", "in a shell"}, Context: "sh"},
		{Kind: "python", Name: "python", Args: []string{runner.CodeFile, "1"}, Context: "main"},
		{Kind: "python", Name: "python", Args: []string{runner.CodeFile, "2"}, Context: "c"},
	} {
		got, _ := json.Marshal(ran[i].Command)
		if wanted, _ := json.Marshal(want); string(got) != string(wanted) || ran[i].Digest == "" || ran[i].RequestedBy != "tok-worker" {
			t.Errorf("%d: %s, want %s", i, got, wanted)
		}
	}
	if ran[0].Overrides.TimeoutMS == nil || *ran[0].Overrides.TimeoutMS != 500 {
		t.Errorf("%+v", ran[0].Overrides)
	}
	if err := one.Close(); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the session has ended", func() bool {
		rec, err := boxes.Get(t.Context(), ran[0].SessionID)
		return err == nil && rec.Status.Final()
	})
	if rec, _ := boxes.Get(t.Context(), ran[3].SessionID); rec.Status.Final() {
		t.Error("the session of the other MCP session has ended")
	}
}

// TestStartedSessionStays: session.start's session is used from then on, and by its id in another
// MCP session.
func TestStartedSessionStays(t *testing.T) {
	t.Parallel()
	f, boxes := sessionsFixture(t)
	one := f.connect("worker", "", nil)
	f.call(one, "session_run", map[string]any{"command": "a"})
	r := f.call(one, "session_start", map[string]any{"project_id": "q", "name": "n", "idle_ms": 5000, "ttl_ms": 7000, "env": map[string]any{"A": "1"}})
	structured, _ := r.StructuredContent.(map[string]any)
	id, _ := structured["session_id"].(string)
	if r.IsError || id == "" || structured["idle_ms"] != 5000.0 || !strings.Contains(textOf(r), "after 5s without") {
		t.Fatalf("%s %v", textOf(r), r.StructuredContent)
	}
	if got := f.call(one, "session_run", map[string]any{"command": "b"}).Meta[metaSession]; got != id {
		t.Errorf("ran in %v, want %s", got, id)
	}
	if err := one.Close(); err != nil {
		t.Fatal(err)
	}
	_, ran := boxes.seen()
	eventually(t, "the session of the first call has ended", func() bool {
		rec, err := boxes.Get(t.Context(), ran[0].SessionID)
		return err == nil && rec.Status.Final()
	})
	two := f.connect("worker", "", nil)
	if r := f.call(two, "session_run", map[string]any{"command": "c", "session_id": id, "project_id": "q"}); r.IsError || r.Meta[metaSession] != id {
		t.Errorf("%s", textOf(r))
	}
	if r := f.call(two, "session_end", map[string]any{"session_id": id}); r.IsError {
		t.Errorf("%s", textOf(r))
	}
	for name, arguments := range map[string]map[string]any{
		"session_end": {"session_id": id}, "session_run": {"session_id": id, "command": "d"},
	} {
		if r := f.call(two, name, arguments); !r.IsError || r.Meta[metaCode] != "session_ended" {
			t.Errorf("%s: %s", name, textOf(r))
		}
	}
}

// TestAnotherSessionIsNamed: a call whose session has ended runs in another one, and says so.
func TestAnotherSessionIsNamed(t *testing.T) {
	t.Parallel()
	f, boxes := sessionsFixture(t)
	one := f.connect("worker", "", nil)
	if r := f.call(one, "session_end", nil); !r.IsError || !strings.Contains(textOf(r), "session_id") {
		t.Errorf("%s", textOf(r))
	}
	first, _ := f.call(one, "session_run", map[string]any{"command": "a"}).Meta[metaSession].(string)
	rec, err := boxes.Get(t.Context(), first)
	if err != nil {
		t.Fatal(err)
	}
	rec.Status, rec.ErrorReason, rec.Detail = audit.Canceled, audit.SessionIdle, "ended because it had no exec"
	boxes.put(rec)
	r := f.call(one, "session_run", map[string]any{"command": "b"})
	if r.IsError || r.Meta[metaSession] == first || !strings.Contains(textOf(r), first+" has ended (ended because it had no exec), and its state is gone") {
		t.Errorf("%s", textOf(r))
	}
	if r := f.call(one, "session_run", map[string]any{"command": "c"}); strings.Contains(textOf(r), "has ended (") {
		t.Errorf("%s", textOf(r))
	}
	f.call(one, "session_end", nil)
	r = f.call(one, "session_run", map[string]any{"command": "d"})
	if r.IsError || !strings.Contains(textOf(r), "was ended, and its state is gone: this ran in another one") {
		t.Errorf("%s", textOf(r))
	}

	// Without an id, the one that a call has started ends after the one that was asked for.
	own := r.Meta[metaSession]
	f.call(one, "session_start", nil)
	f.call(one, "session_end", nil)
	if r := f.call(one, "session_run", map[string]any{"command": "e"}); r.Meta[metaSession] != own {
		t.Errorf("%s", textOf(r))
	}
	if r := f.call(one, "session_end", nil); r.IsError || r.Meta[metaSession] != own {
		t.Errorf("%s", textOf(r))
	}
	if r := f.call(one, "session_end", nil); !r.IsError || !strings.Contains(textOf(r), "no session of this conversation runs") {
		t.Errorf("%s", textOf(r))
	}
}

func TestSessionToolsRefuse(t *testing.T) {
	t.Parallel()
	f, boxes := sessionsFixture(t)
	f.tokens["narrow"] = tokens.Token{ID: "tok-two", Role: tokens.Worker, Projects: []string{"one"}}
	two, narrow, other, admin := f.connect("two", "", nil), f.connect("narrow", "", nil), f.connect("other", "", nil), f.connect("admin", "", nil)
	id, _ := f.call(two, "session_start", map[string]any{"project_id": "two"}).Meta[metaSession].(string)
	exec := audit.Record{ExecID: uuid.NewString(), RequestedBy: "tok-two", Status: audit.Running}
	away := audit.Record{ExecID: uuid.NewString(), RequestedBy: "tok-two", Status: audit.Running, NodeID: "far", ProjectID: "two"}
	away.SessionID = away.ExecID
	boxes.put(exec)
	boxes.put(away)
	for _, c := range []struct {
		as        *mcp.ClientSession
		tool      string
		arguments map[string]any
		want      string
	}{
		{other, "session_run", map[string]any{"session_id": id, "command": "x"}, "no session that you may see"},
		{other, "session_end", map[string]any{"session_id": id}, "no session that you may see"},
		{two, "session_run", map[string]any{"session_id": exec.ExecID, "command": "x"}, "no session that you may see"},
		{two, "session_run", map[string]any{"session_id": "nothing", "command": "x"}, "no session that you may see"},
		{two, "session_run", map[string]any{"session_id": id, "command": "x", "project_id": "one"}, "is not the project of session"},
		{two, "session_run", map[string]any{"session_id": away.ExecID, "command": "x"}, "runs on the node far"},
		{two, "session_run", map[string]any{"session_id": id, "command": "too long"}, "invalid_request: command: has 999999 bytes"},
		{two, "session_python", map[string]any{"session_id": id, "code": "too long"}, "invalid_request: code: has 999999 bytes"},
		{two, "session_run", map[string]any{"command": "x", "context": 5}, "context: must be"},
		{two, "session_run", map[string]any{"code": "x"}, "command"},
		{two, "session_start", map[string]any{"project_id": "one", "idle_ms": -1 << 62}, "idle_ms: must be"},
		{two, "session_start", map[string]any{}, "allows more than one project"},
		{two, "session_start", map[string]any{"project_id": "three"}, "forbidden"},
		{narrow, "session_run", map[string]any{"session_id": id, "command": "x"}, "forbidden"},
		{admin, "session_run", map[string]any{"session_id": id, "command": "x"}, ""},
	} {
		r := f.call(c.as, c.tool, c.arguments)
		if r.IsError != (c.want != "") || !strings.Contains(textOf(r), c.want) {
			t.Errorf("%s %v: %s", c.tool, c.arguments, textOf(r))
		}
	}
}

func TestCanceledCallEndsItsExecInTheSession(t *testing.T) {
	t.Parallel()
	f, boxes := sessionsFixture(t)
	session := f.connect("worker", "", nil)
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() {
		_, err := session.CallTool(ctx, &mcp.CallToolParams{Name: "session_run", Arguments: map[string]any{"command": "wait"}})
		ended <- err
	}()
	eventually(t, "the command runs", func() bool { _, ran := boxes.seen(); return len(ran) == 1 })
	cancel()
	if err := <-ended; err == nil {
		t.Error("the canceled call has a result")
	}
	eventually(t, "the command has ended", func() bool { return len(boxes.running()) == 1 }) // the session
}

// TestResultsOfCells: a result is an image or a text, within bounds, whatever a job writes.
func TestResultsOfCells(t *testing.T) {
	t.Parallel()
	f, boxes := sessionsFixture(t)
	session := f.connect("worker", "", nil)
	png := "\x89PNG\r\n\x1a\n and more"
	inline, _ := json.Marshal(base64.StdEncoding.EncodeToString([]byte(png)))
	long, _ := json.Marshal(strings.Repeat("x", 1<<20))
	show := func(results string) (texts []string, images int) {
		t.Helper()
		boxes.mu.Lock()
		boxes.next = runner.Result{Results: []byte(results), Artifacts: []runner.Artifact{{Path: runnersession.ResultsFile, Size: 9}}}
		boxes.mu.Unlock()
		for _, c := range f.call(session, "session_python", map[string]any{"code": "x"}).Content {
			switch c := c.(type) {
			case *mcp.ImageContent:
				if string(c.Data) != png || c.MIMEType != "image/png" {
					t.Errorf("image %q %s", c.Data, c.MIMEType)
				}
				images++
			case *mcp.TextContent:
				if c.Meta[metaStream] == "results" {
					texts = append(texts, c.Text)
				}
			default:
				t.Errorf("%T", c)
			}
		}
		return texts, images
	}
	for _, c := range []struct {
		results string
		texts   []string
		images  int
	}{
		{`[{"data": {"text/plain": "12"}}]`, []string{"12"}, 0},
		{`[{"data": {"text/html": "<b>", "text/plain": "b"}}, {"data": {"application/json": {"a": [1]}}}]`, []string{"b\n(its text/html is in the resource URI)", `{"a": [1]}`}, 0},
		{`[{"data": {"image/png": ` + string(inline) + `, "text/plain": "figure 1"}}]`, nil, 1},
		{`[{"data": {"image/png": "bm8gaW1hZ2U=", "text/plain": "no image"}}]`, []string{"no image"}, 0},
		{`[{"data": {"image/png": 5, "text/plain": "no image"}}]`, []string{"no image"}, 0},
		{`[{"data": {"image/png": "%", "text/plain": ["a"]}}]`, []string{`["a"]`}, 0},
		{`[{"files": {"image/png": "../../etc/passwd"}}]`, nil, 0},
		{`[5]`, nil, 0},
		{`[{}]`, []string{""}, 0},
	} {
		texts, images := show(c.results)
		if strings.Contains(c.results, "passwd") {
			if len(texts) != 1 || !strings.Contains(texts[0], "the image is the resource exec://") {
				t.Errorf("%q", texts)
			}
			continue
		}
		if resource.ReplaceAllString(strings.Join(texts, "|"), "URI") != strings.Join(c.texts, "|") || images != c.images {
			t.Errorf("%s: %q and %d images", c.results, texts, images)
		}
	}
	texts, _ := show(`[{"data": {"text/plain": ` + string(long) + `}}, {"data": {"text/plain": "b"}}]`)
	if len(texts) != 1 || len(texts[0]) > maxShown+500 || !strings.Contains(texts[0], "(results from 1 on, of 2, are cut; the resource exec://") {
		t.Errorf("%d texts, %.200q", len(texts), texts)
	}
	if texts, _ := show("[" + strings.Repeat("{},", 10000) + "{}]"); len(texts) > maxShown/resultOverhead+1 {
		t.Errorf("%d texts", len(texts))
	}
	if _, images := show("[" + strings.Repeat(`{"data": {"image/png": `+string(inline)+`}},`, 20) + "{}]"); images != 20 {
		t.Errorf("%d images", images)
	}
}

var resource = regexp.MustCompile(`exec://[^/]+/results\.json`)
