package mcpserver

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"sync"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"secbox/fault"
	"secbox/policy"
	"secbox/runner"
	"secbox/skills/invoke"
)

// toolHandler handles calls of one skill's tool. added are the arguments that are not inputs of the
// skill.
func (s *Server) toolHandler(skillID string, inputSchema json.RawMessage, added []string) mcp.ToolHandler {
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
		r, err := s.invokeRequest(ctx, who, skillID, inputSchema, added, req)
		if err != nil {
			refused := runner.Request{ProjectID: r.ProjectID, SkillID: r.SkillID, RequestedBy: r.RequestedBy}
			return s.failure(ctx, s.cfg.Runner.Refuse(ctx, refused, err)), nil
		}
		return s.watched(ctx, req, func(ctx context.Context, onOpen func(execID string)) (*mcp.CallToolResult, error) {
			r.OnOpen = onOpen
			result, err := s.cfg.Invoker.Invoke(ctx, r)
			if err != nil {
				return nil, s.elsewhere(ctx, r.SessionID, err)
			}
			return s.success(ctx, result), nil
		}), nil
	}
}

// watched runs the exec of a call, which ends with the call and its session, and reports its
// progress.
func (s *Server) watched(ctx context.Context, req *mcp.CallToolRequest,
	run func(ctx context.Context, onOpen func(execID string)) (*mcp.CallToolResult, error),
) *mcp.CallToolResult {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	c := &call{server: s, cancel: cancel, opened: make(chan struct{}), ended: make(chan struct{})}
	defer s.sessions.begin(req.Session.ID(), c)()
	stopWatching := context.AfterFunc(ctx, func() { c.kill(context.WithoutCancel(ctx)) })
	defer stopWatching()

	var reporting sync.WaitGroup
	if token := req.Params.GetProgressToken(); token != nil {
		reporting.Go(func() { c.report(ctx, req.Session, token) })
	}
	result, err := run(ctx, func(execID string) { c.open(ctx, execID) })
	close(c.ended)
	reporting.Wait() // no progress after the result
	if err != nil {
		return s.failure(ctx, err)
	}
	return result
}

func (s *Server) invokeRequest(ctx context.Context, who caller, skillID string, inputSchema json.RawMessage, added []string,
	req *mcp.CallToolRequest,
) (invoke.Request, error) {
	options, inputs, err := splitArguments(meantBy(req.Params.Arguments, inputSchema), added)
	if err != nil {
		return invoke.Request{}, err
	}
	if options.session != "" {
		in, err := s.sandboxSession(ctx, who, options.session)
		if err != nil {
			return invoke.Request{}, err
		}
		if options.project = cmp.Or(options.project, in.ProjectID); options.project != in.ProjectID {
			return invoke.Request{}, notTheProject(in)
		}
	}
	project, err := who.projectOf(options.project)
	if err != nil {
		return invoke.Request{SkillID: skillID, ProjectID: project, RequestedBy: who.token.ID}, err
	}
	sum := sha256.New()
	fmt.Fprintf(sum, "%q %q ", skillID, project)
	if options.timeoutMS != nil {
		fmt.Fprintf(sum, "%d ", *options.timeoutMS)
	}
	if options.session != "" {
		fmt.Fprintf(sum, "session %q ", options.session)
	}
	sum.Write(inputs)
	return invoke.Request{
		SkillID: skillID, ProjectID: project, SessionID: options.session, Inputs: inputs,
		Overrides:   policy.Layer{Limits: policy.Limits{TimeoutMS: options.timeoutMS}},
		RequestedBy: who.token.ID, Digest: hex.EncodeToString(sum.Sum(nil)),
	}, nil
}

// call is a tools/call in progress.
type call struct {
	server *Server
	cancel context.CancelFunc // as a client's notification does
	opened chan struct{}      // closed when execID is first set
	ended  chan struct{}      // closed when the exec has ended or will not start

	mu     sync.Mutex
	execID string
}

// open sets the exec's id, and ends the exec if the call was canceled before. It is called again if
// the skill's files changed before the first exec ran.
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

// kill ends the exec, if it has started.
func (c *call) kill(ctx context.Context) {
	execID := c.id()
	if execID == "" {
		return
	}
	select {
	case <-c.ended:
		return // ctx ended with the call
	default:
	}
	if err := c.server.cfg.Runner.Cancel(ctx, execID); err != nil && !fault.Is(err, fault.ExecEnded) {
		c.server.cfg.Logger.Warn("cannot end the exec of a canceled call", "exec_id", execID, "error", err)
	}
}

func (c *call) id() string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.execID
}
