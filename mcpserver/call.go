package mcpserver

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"sync"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"secbox/fault"
	"secbox/policy"
	"secbox/runner"
	"secbox/skills/invoke"
)

// toolHandler serves the calls of one skill's tool. ours are the arguments that are not inputs of the skill.
func (s *Server) toolHandler(skillID string, ours []string) mcp.ToolHandler {
	return func(ctx context.Context, req *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
		who, err := callerOf(req.Extra)
		if err != nil {
			return s.failure(ctx, err), nil
		}
		release, err := who.hold(0)
		if err != nil {
			return s.failure(ctx, err), nil
		}
		defer release()
		r, err := invokeRequest(who, skillID, ours, req)
		if err != nil {
			refused := runner.Request{ProjectID: r.ProjectID, SkillID: r.SkillID, RequestedBy: r.RequestedBy}
			return s.failure(ctx, s.cfg.Runner.Refuse(ctx, refused, err)), nil
		}
		ctx, cancel := context.WithCancel(ctx)
		defer cancel()
		c := &call{server: s, cancel: cancel, opened: make(chan struct{}), ended: make(chan struct{})}
		defer s.sessions.begin(req.Session.ID(), c)()
		stopWatching := context.AfterFunc(ctx, func() { c.kill(context.WithoutCancel(ctx)) })
		defer stopWatching()
		r.OnOpen = func(execID string) { c.open(ctx, execID) }

		var reporting sync.WaitGroup
		if token := req.Params.GetProgressToken(); token != nil {
			reporting.Go(func() { c.report(ctx, req.Session, token) })
		}
		result, err := s.cfg.Invoker.Invoke(ctx, r)
		close(c.ended)
		reporting.Wait() // progress must not come after the result
		if err != nil {
			return s.failure(ctx, err), nil
		}
		return s.success(ctx, result), nil
	}
}

func invokeRequest(who caller, skillID string, ours []string, req *mcp.CallToolRequest) (invoke.Request, error) {
	given, inputs, err := splitArguments(req.Params.Arguments, ours)
	if err != nil {
		return invoke.Request{}, err
	}
	project, err := who.projectOf(given.project)
	if err != nil {
		return invoke.Request{SkillID: skillID, ProjectID: project, RequestedBy: who.token.ID}, err
	}
	sum := sha256.New()
	fmt.Fprintf(sum, "%q %q ", skillID, project)
	if given.timeoutMS != nil {
		fmt.Fprintf(sum, "%d ", *given.timeoutMS)
	}
	sum.Write(inputs)
	return invoke.Request{
		SkillID: skillID, ProjectID: project, Inputs: inputs, Overrides: policy.Layer{Limits: policy.Limits{TimeoutMS: given.timeoutMS}},
		RequestedBy: who.token.ID, Digest: hex.EncodeToString(sum.Sum(nil)),
	}, nil
}

// call is one tools/call while it runs.
type call struct {
	server *Server
	cancel context.CancelFunc // as the client's notification does
	opened chan struct{}      // closed when execID is set first
	ended  chan struct{}      // closed when the exec has ended, or will never begin

	mu     sync.Mutex
	execID string
}

// open learns the exec's id. A call that was canceled before ends here: its exec has a row, so it must not run on unseen. It is told of
// a second exec when the skill's files changed under the first before anything ran.
func (c *call) open(ctx context.Context, execID string) {
	c.mu.Lock()
	first := c.execID == ""
	c.execID = execID
	c.mu.Unlock()
	if first {
		close(c.opened)
	}
	if ctx.Err() != nil {
		c.kill(context.WithoutCancel(ctx))
	}
}

// kill ends the exec, if there is one yet.
func (c *call) kill(ctx context.Context) {
	execID := c.id()
	if execID == "" {
		return
	}
	select {
	case <-c.ended:
		return // the end of the call, not of the caller's patience
	default:
	}
	if err := c.server.cfg.Runner.Cancel(ctx, execID); err != nil && !fault.Is(err, fault.ExecEnded) {
		c.server.cfg.Logger.Warn("a canceled call's exec could not be ended", "exec_id", execID, "error", err)
	}
}

func (c *call) id() string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.execID
}
