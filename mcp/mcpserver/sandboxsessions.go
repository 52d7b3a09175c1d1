package mcpserver

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"secbox/api/problem"
	"secbox/audit"
	"secbox/fault"
	"secbox/mcp/tools"
	"secbox/packages/lines"
	"secbox/policy"
	"secbox/runner"
	runnersession "secbox/runner/session"
	"secbox/skills/invoke"
)

// SandboxSessions starts sessions of the sandbox and runs execs in them; see runner.Runner.
type SandboxSessions interface {
	StartSession(ctx context.Context, req runner.SessionRequest) (rec audit.Record, replayed bool, err error)
	Run(ctx context.Context, req runner.Request) (runner.Result, error)
}

const (
	mainContext = "main" // of session.python, unless it names another one
	ownName     = "mcp"  // of a session that the first call starts
)

const metaSession = "secbox/session_id"

// held are the sandbox sessions that the calls of an MCP session use if they name none.
type held struct {
	mu      sync.Mutex
	current string // the latest that a call has started; empty: none
	own     string // started by a call without a session; it ends with the MCP session; empty: none
	ended   string // by session.end, which the next call is told if it starts another one
	over    bool   // the MCP session has ended
}

type sessionStart struct {
	ProjectID string            `json:"project_id,omitempty" jsonschema:"the project whose files it works on; leave it out for your usual one"`
	Name      string            `json:"name,omitempty" jsonschema:"a name for people"`
	Image     string            `json:"image,omitempty" jsonschema:"the image of its container; leave it out for the usual one"`
	Env       map[string]string `json:"env,omitempty" jsonschema:"environment variables of all its commands"`
	TimeoutMS *int64            `json:"timeout_ms,omitempty" jsonschema:"milliseconds that a command or cell may take; leave it out for the usual limit"`
	MemoryMB  *int64            `json:"memory_mb,omitempty" jsonschema:"MiB of memory for all it runs; leave it out for the usual limit"`
	IdleMS    int64             `json:"idle_ms,omitempty" jsonschema:"milliseconds without a command after which it ends; ten minutes if left out"`
	TTLMS     int64             `json:"ttl_ms,omitempty" jsonschema:"milliseconds after which it ends; an hour if left out"`
}

type sessionRun struct {
	Command   string `json:"command" jsonschema:"what bash runs"`
	SessionID string `json:"session_id,omitempty" jsonschema:"leave it out for the latest one of this conversation; it is started if there is none"`
	ProjectID string `json:"project_id,omitempty" jsonschema:"the project of a session that is started; leave it out for your usual one"`
	Context   string `json:"context,omitempty" jsonschema:"the name of a shell that stays, with its directory, variables and functions"`
	Cwd       string `json:"cwd,omitempty" jsonschema:"the directory to run in; /workspace/work if left out; not with context"`
	TimeoutMS *int64 `json:"timeout_ms,omitempty" jsonschema:"milliseconds until the command is killed; leave it out for the usual limit"`
}

type sessionPython struct {
	Code      string `json:"code" jsonschema:"the cell"`
	SessionID string `json:"session_id,omitempty" jsonschema:"leave it out for the latest one of this conversation; it is started if there is none"`
	ProjectID string `json:"project_id,omitempty" jsonschema:"the project of a session that is started; leave it out for your usual one"`
	Context   string `json:"context,omitempty" jsonschema:"the name of the Python that runs the cell; main if left out"`
	TimeoutMS *int64 `json:"timeout_ms,omitempty" jsonschema:"milliseconds until the cell is interrupted; leave it out for the usual limit"`
}

type sessionEnd struct {
	SessionID string `json:"session_id,omitempty" jsonschema:"leave it out for the latest one of this conversation"`
}

// sessionTool is a tool of sandbox sessions.
type sessionTool struct {
	mcp.Tool
	call func(s *Server, ctx context.Context, who caller, req *mcp.CallToolRequest) (*mcp.CallToolResult, error)
}

var sessionTools = []sessionTool{
	defineSessionTool("session.start", "Start a session", "Starts a session: a container that stays, in which session_run and session_python share files, "+
		"processes and variables. They start one by themselves; start one for other limits, another image or project, or for more than one. It "+
		"stays when this conversation ends, until session_end, idle_ms or ttl_ms.", (*Server).startSession),
	defineSessionTool("session.run", "Run a command in a session", "Runs a command of bash in a session, without a network. Files, also in /tmp, stay "+
		"for the next call. A program that is to go on gets a context: in a shell that stays, `server >log 2>&1 &` keeps running. Files for you go to "+
		"$SECBOX_ARTIFACTS.", (*Server).runInSession),
	defineSessionTool("session.python", "Run a cell of Python",
		"Runs a cell in a Python that stays: variables and imports are there for the next cell. Shows what is printed, the value of "+
			"the last expression, what is given to display(), and figures of matplotlib. There are no magics and no network, and "+
			"input() fails. Files for you go to os.environ[\"SECBOX_ARTIFACTS\"].",
		(*Server).pythonInSession),
	defineSessionTool("session.end", "End a session",
		"Ends a session with all its processes. What is in the project's /workspace/work stays.", (*Server).endSession),
}

func defineSessionTool[P any](name, title, description string,
	call func(s *Server, ctx context.Context, who caller, req *mcp.CallToolRequest, p P) (*mcp.CallToolResult, error),
) sessionTool {
	params := tools.ParamsOf[P](name)
	destructive, openWorld := true, false
	return sessionTool{
		mcp.Tool{
			Name: name, Title: title, Description: description, InputSchema: params.Schema,
			Annotations: &mcp.ToolAnnotations{Title: title, DestructiveHint: &destructive, OpenWorldHint: &openWorld},
		},
		func(s *Server, ctx context.Context, who caller, req *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
			p, err := params.Read(ctx, req.Params.Arguments)
			if err != nil {
				return nil, err
			}
			return call(s, ctx, who, req, p)
		},
	}
}

// addSessionTools offers the tools of sandbox sessions, if there are any.
func (s *Server) addSessionTools(to *toolSet) {
	if s.cfg.Sandboxes == nil {
		return
	}
	for _, tool := range sessionTools {
		to.offer(&tool.Tool, func(ctx context.Context, req *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
			who, err := callerOf(req.Extra)
			if err != nil {
				return s.failure(ctx, err), nil
			}
			release, err := who.hold(0)
			if err != nil {
				return s.failure(ctx, err), nil
			}
			defer release()
			result, err := tool.call(s, ctx, who, req)
			if err != nil {
				return s.failure(ctx, err), nil
			}
			return result, nil
		})
	}
}

func (s *Server) startSession(ctx context.Context, who caller, req *mcp.CallToolRequest, p sessionStart) (*mcp.CallToolResult, error) {
	rec, err := s.start(ctx, who, p)
	if err != nil {
		return nil, err
	}
	h := s.sessions.heldBy(req.Session.ID())
	h.mu.Lock()
	h.current = rec.ExecID
	h.mu.Unlock()
	terms := runner.TermsOf(rec)
	return &mcp.CallToolResult{
		Content: []mcp.Content{&mcp.TextContent{Text: fmt.Sprintf("session %s of the project %s has started; "+
			"session_run and session_python use it from now on. It ends after %s without a call, and in %s", rec.ExecID, rec.ProjectID, terms.Idle, terms.TTL)}},
		StructuredContent: map[string]any{
			"session_id": rec.ExecID, "project_id": rec.ProjectID, "idle_ms": terms.Idle.Milliseconds(), "ttl_ms": terms.TTL.Milliseconds(),
		},
		Meta: mcp.Meta{metaSession: rec.ExecID},
	}, nil
}

// start starts a session.
func (s *Server) start(ctx context.Context, who caller, p sessionStart) (audit.Record, error) {
	of := runner.SessionRequest{
		Request: runner.Request{
			Image: p.Image, Command: runner.Command{Kind: runner.KindArgv, Name: runner.SessionCommand, Env: p.Env},
			Overrides: policy.Layer{Limits: policy.Limits{TimeoutMS: p.TimeoutMS, MemoryMB: p.MemoryMB}}, RequestedBy: who.token.ID,
		},
		SessionTerms: runner.SessionTerms{Name: p.Name, Idle: milliseconds(p.IdleMS), TTL: milliseconds(p.TTLMS)},
	}
	var err error
	of.ProjectID, err = who.projectOf(p.ProjectID)
	of.Command.Args = of.Arguments()
	of.Digest = digestOf(p, of.ProjectID)
	if err != nil {
		return audit.Record{}, s.cfg.Runner.Refuse(ctx, of.Request, err)
	}
	rec, _, err := s.cfg.Sandboxes.StartSession(ctx, of)
	if err != nil {
		return audit.Record{}, inWordsOf(err, "")
	}
	return rec, nil
}

// milliseconds is a time of a request; the runner refuses one that is too short or too long.
func milliseconds(n int64) time.Duration {
	const most = 1 << 40 // thirty years
	return time.Duration(max(-1, min(n, most))) * time.Millisecond
}

// digestOf identifies what a call asks for.
func digestOf(asked ...any) string {
	text, err := json.Marshal(asked) // sorts the names of variables
	if err != nil {
		panic(err) // strings and numbers that were decoded from JSON
	}
	sum := sha256.Sum256(text)
	return hex.EncodeToString(sum[:])
}

// inWordsOf names the fields of an exec in an error as the arguments of a tool, whose command is
// called text.
func inWordsOf(err error, text string) error {
	e := *fault.From(err)
	words := strings.NewReplacer("exec.args[1]", text, "exec.", "", "policy_overrides.", "")
	e.Message, e.Fields = words.Replace(e.Message), slices.Clone(e.Fields)
	for i := range e.Fields {
		e.Fields[i].Field = words.Replace(e.Fields[i].Field)
	}
	return &e
}

func (s *Server) runInSession(ctx context.Context, who caller, req *mcp.CallToolRequest, p sessionRun) (*mcp.CallToolResult, error) {
	return s.inSession(ctx, who, req, target{p.SessionID, p.ProjectID, p.TimeoutMS, "command"}, runner.Command{
		Kind: runner.KindShell, Name: "bash", Args: []string{"-lc", lines.Unix(p.Command)}, Cwd: p.Cwd, Context: p.Context,
	})
}

func (s *Server) pythonInSession(ctx context.Context, who caller, req *mcp.CallToolRequest, p sessionPython) (*mcp.CallToolResult, error) {
	return s.inSession(ctx, who, req, target{p.SessionID, p.ProjectID, p.TimeoutMS, "code"}, runner.Command{
		Kind: runner.KindPython, Name: "python", Args: []string{runner.CodeFile, lines.Unix(p.Code)},
		Context: cmp.Or(p.Context, mainContext),
	})
}

// target is where a call runs its command, and for how long.
type target struct {
	session   string // empty: what the MCP session holds
	project   string // empty: the session's
	timeoutMS *int64
	argument  string // the name of the tool's argument with the command
}

// inSession runs a command in a session.
func (s *Server) inSession(ctx context.Context, who caller, req *mcp.CallToolRequest, t target, command runner.Command,
) (*mcp.CallToolResult, error) {
	var in audit.Record
	var note string
	var err error
	if t.session != "" {
		in, err = s.sandboxSession(ctx, who, t.session)
	} else {
		in, note, err = s.heldSession(ctx, who, req.Session.ID(), t.project)
	}
	if err != nil {
		return nil, err
	}
	of := runner.Request{
		ProjectID: in.ProjectID, SessionID: in.ExecID, Command: command, RequestedBy: who.token.ID,
		Overrides: policy.Layer{Limits: policy.Limits{TimeoutMS: t.timeoutMS}}, Digest: digestOf(in.ExecID, command, t.timeoutMS),
	}
	switch project, err := who.projectOf(cmp.Or(t.project, in.ProjectID)); {
	case err != nil:
		return nil, s.cfg.Runner.Refuse(ctx, of, err)
	case project != in.ProjectID:
		return nil, notTheProject(in)
	}
	return s.watched(ctx, req, func(ctx context.Context, onOpen func(execID string)) (*mcp.CallToolResult, error) {
		of.OnOpen = onOpen
		res, err := s.cfg.Sandboxes.Run(ctx, of)
		if err != nil {
			return nil, inWordsOf(s.elsewhere(ctx, in.ExecID, err), t.argument)
		}
		result := s.success(ctx, invoke.Result{Exec: res})
		if note != "" {
			result.Content = append([]mcp.Content{&mcp.TextContent{Text: note}}, result.Content...)
		}
		result.Meta[metaSession] = in.ExecID
		if res.Results != nil {
			result.Content = append(result.Content, s.shownResults(ctx, who, res)...)
		}
		return result, nil
	}), nil
}

func notTheProject(in audit.Record) error {
	return fault.BadField("project_id", "is not the project of session %s, which is %s; leave it out, or start another session",
		in.ExecID, in.ProjectID)
}

// elsewhere says that a session runs on another node, if that is why it seems to have ended.
func (s *Server) elsewhere(ctx context.Context, sessionID string, err error) error {
	if !fault.Is(err, fault.SessionEnded) && !fault.Is(err, fault.ExecEnded) || fault.From(err).ExecID != "" {
		return err
	}
	in, unread := s.cfg.History.Get(ctx, sessionID)
	if unread != nil || in.Status.Final() || in.NodeID == s.cfg.NodeID {
		return err
	}
	return fault.Wrap(fault.SessionEnded, err, "session %s runs on the node %s, and this conversation is with another node; start another session, "+
		"or use that one by POST /sandbox/execs", in.ExecID, in.NodeID)
}

// sandboxSession returns the record of a session that the caller may see.
func (s *Server) sandboxSession(ctx context.Context, who caller, id string) (audit.Record, error) {
	rec, err := s.cfg.History.Get(ctx, id)
	if fault.Is(err, fault.UnknownExec) || err == nil && (!rec.IsSession() || !who.maySee(rec)) {
		return rec, fault.BadField("session_id", "%s is no session that you may see; leave it out, or start one with session_start", problem.Clip(id))
	}
	return rec, err
}

// heldSession returns the session that the MCP session holds, and starts one if none runs. note
// tells the client if that is another one than before.
func (s *Server) heldSession(ctx context.Context, who caller, mcpSession, project string) (rec audit.Record, note string, err error) {
	h := s.sessions.heldBy(mcpSession)
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.over {
		return rec, "", unknownSession()
	}
	for _, id := range []string{h.current, h.own} {
		if id == "" {
			continue
		}
		if rec, err = s.sandboxSession(ctx, who, id); err != nil {
			return rec, "", err
		}
		if !rec.Status.Final() {
			h.current = id
			return rec, note, nil
		}
		note = fmt.Sprintf("the session %s has ended (%s), and its state is gone: this ran in another one", id, cmp.Or(rec.Detail, string(rec.ErrorReason)))
	}
	if h.ended != "" && note == "" {
		note = fmt.Sprintf("the session %s was ended, and its state is gone: this ran in another one", h.ended)
	}
	h.ended = ""
	rec, err = s.start(ctx, who, sessionStart{ProjectID: project, Name: ownName})
	h.current, h.own = rec.ExecID, rec.ExecID
	return rec, note, err
}

func (s *Server) endSession(ctx context.Context, who caller, req *mcp.CallToolRequest, p sessionEnd) (*mcp.CallToolResult, error) {
	h := s.sessions.heldBy(req.Session.ID())
	h.mu.Lock()
	defer h.mu.Unlock()
	id := cmp.Or(p.SessionID, h.current, h.own)
	if id == "" {
		return nil, fault.BadField("session_id", "is missing, and no session of this conversation runs; give the id of one")
	}
	rec, err := s.sandboxSession(ctx, who, id)
	switch {
	case err != nil:
		return nil, err
	case rec.Status.Final():
		return nil, runnersession.Ended(id)
	}
	if err := s.cfg.Runner.Cancel(ctx, id); err != nil {
		return nil, s.elsewhere(ctx, id, err)
	}
	if id == h.current || id == h.own {
		h.ended = id
	}
	if id == h.current {
		h.current = ""
	}
	if id == h.own {
		h.own = ""
	}
	return &mcp.CallToolResult{
		Content: []mcp.Content{&mcp.TextContent{Text: "session " + id + " is ending"}}, Meta: mcp.Meta{metaSession: id},
	}, nil
}

// release ends the session that calls of an MCP session have started without naming one. It waits
// for a start in progress.
func (s *Server) release(h *held) {
	if h == nil {
		return
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	h.over = true
	if h.own == "" {
		return
	}
	if err := s.cfg.Runner.Cancel(context.Background(), h.own); err != nil && !fault.Is(err, fault.ExecEnded) {
		s.cfg.Logger.Warn("cannot end the sandbox session of an MCP session; it ends when it is idle", "session_id", h.own, "error", err)
	}
}
