package userservers

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"time"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	"github.com/modelcontextprotocol/go-sdk/mcp"

	"secbox/fault"
	"secbox/mcp/tools"
	"secbox/sandbox"
	"secbox/skills"
)

// callPrice is how many bytes of memory a call takes: the message of the server, its parts, and the
// result before it is shortened.
const callPrice = 4 * maxMessage

// Outcomes of a call, for Config.Observe.
const (
	Answered = "answered"
	Failed   = "failed"  // the server answered that the call failed
	Refused  = "refused" // there was no process for it
	Canceled = "canceled"
	Lost     = "lost" // the server did not answer
)

// call calls a tool of a server.
func (m *Manager) call(ctx context.Context, def *Server, user sandbox.User, tool string, arguments []byte,
	report func(string),
) (*tools.Result, error) {
	began := m.cfg.Now()
	result, execID, err := m.ask(ctx, def, user, tool, arguments, report)
	outcome := Answered
	switch {
	case err == nil && result.Failed:
		outcome = Failed
	case err == nil:
	case ctx.Err() != nil:
		outcome = Canceled
	case fault.Is(err, fault.OutcomeUnknown):
		outcome = Lost
	default:
		outcome = Refused
	}
	took := m.cfg.Now().Sub(began)
	m.cfg.Observe(def.Name, outcome, took)
	m.cfg.Log.InfoContext(ctx, "a tool of an MCP server was called", "server", def.Name, "tool", tool, "user", user.ProjectID(), "token",
		sandbox.RequestOf(ctx).RequestedBy,
		"exec_id", execID, "outcome", outcome, "duration_ms", took.Milliseconds())
	return result, err
}

func (m *Manager) ask(ctx context.Context, def *Server, user sandbox.User, tool string, arguments []byte,
	report func(string),
) (_ *tools.Result, execID string, err error) {
	if err := tools.Reserve(ctx, callPrice); err != nil {
		return nil, "", err
	}
	s := m.slot(def, user)
	for again := true; ; again = false {
		p, err := s.acquire(ctx, sandbox.RequestOf(ctx).RequestedBy)
		if err != nil {
			return nil, "", err
		}
		result, err := p.call(ctx, m, tool, arguments, report)
		s.release(p, err == nil)
		if errors.Is(err, errUnsent) { // it has ended meanwhile
			if again {
				continue
			}
			err = def.failed(err, "ended before the call; try again")
		}
		return result, p.execID, err
	}
}

// call calls a tool, and explains what went wrong.
func (p *process) call(ctx context.Context, m *Manager, tool string, arguments []byte, report func(string)) (*tools.Result, error) {
	lifetime, _ := m.cfg.Bounds()
	timeout := p.def.callTimeout(lifetime)
	timed, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	sent := new(atomic.Bool)
	timed = context.WithValue(timed, sentKey{}, sent)
	params := &mcp.CallToolParams{Name: tool, Arguments: json.RawMessage(arguments)}
	if report != nil {
		token := fmt.Sprint(p.asked.Add(1))
		p.reports.Store(token, report)
		defer p.reports.Delete(token)
		params.SetProgressToken(token)
	}
	result, err := p.session.CallTool(timed, params)
	if err == nil {
		return resultOf(result, p.execID), nil
	}
	var refusal *jsonrpc.Error
	switch {
	case timed.Err() != nil:
		if p.checking.CompareAndSwap(false, true) {
			m.spawn(func() { p.checkAlive(m.cfg.patience) })
		}
		if ctx.Err() != nil {
			return nil, ctx.Err()
		}
		return nil,
			p.lost(err,
				fmt.Sprintf("did not answer within %s; check the effects of the call before you try again, or raise call_timeout_seconds",
					timeout))
	case p.broke.Load() != nil, p.transport.over.Load(), errors.Is(err, mcp.ErrConnectionClosed), !sent.Load():
		p.end() // nothing more can be sent
		if !p.awaitEnd(ctx) {
			return nil, ctx.Err()
		}
		switch {
		case sent.Load():
		case p.broke.Load() == nil:
			return nil, errUnsent
		default:
			return nil, p.why
		}
		if fault.Is(p.why, fault.UpstreamFailed) {
			e := *fault.From(p.why)
			e.Code, e.ExecID = fault.OutcomeUnknown, p.execID
			e.Message = strings.Replace(e.Message, "the MCP server "+p.def.Name+" ", "during the call, the MCP server "+p.def.Name+" ", 1)
			return nil, &e
		}
		return nil, p.lost(p.why, "was ended during the call, with the user's sandbox or the token that had started it; check the "+
			"effects of the call before you try again")
	case errors.As(err, &refusal):
		return &tools.Result{
			Text:   fmt.Sprintf("the MCP server %s refused the call: %s (code %d)\n", p.def.Name, shown(refusal.Message), refusal.Code),
			Failed: true,
			Meta:   map[string]any{"exec_id": p.execID},
		}, nil
	}
	return nil, p.lost(err, "answered with something that is not a result: "+shown(err.Error()))
}

// errUnsent is the error of a call that the server cannot have read to its end.
var errUnsent = errors.New("the process ended before it was sent the call")

// lost is the error of a call that may have had effects.
func (p *process) lost(err error, text string) error {
	e := p.def.failed(err, "%s", text)
	e.Code, e.ExecID = fault.OutcomeUnknown, p.execID
	return e
}

// checkAlive ends a process that does not answer a ping.
func (p *process) checkAlive(patience time.Duration) {
	defer p.checking.Store(false)
	ctx, cancel := context.WithTimeout(p.stay, patience)
	defer cancel()
	if err := p.session.Ping(ctx, nil); err != nil && errors.Is(ctx.Err(), context.DeadlineExceeded) {
		p.transport.broken(errSilent)
	}
}

// awaitEnd waits for the end of the process, which may take as long as the lost link of a user's
// machine; false when ctx ends first.
func (p *process) awaitEnd(ctx context.Context) bool {
	select {
	case <-p.ended:
		return true
	case <-ctx.Done():
		return false
	}
}

// over reports whether the process has ended.
func (p *process) over() bool {
	select {
	case <-p.ended:
		return true
	default:
		return false
	}
}

// unknown is the status of a server whose tools are not known; why is empty before the first start
// has failed.
func (m *Manager) unknown(def *Server, user sandbox.User, why string) *tools.Tool {
	text := "The MCP server " + def.Name + " has not started yet, and its tools are not known."
	if why != "" {
		text = "The tools of the MCP server " + def.Name + " are not known: " + why
	}
	return m.status(def, user, text)
}

// statusNote ends the description of a status.
const statusNote = "\nA call starts it, and lists its tools or the error."

// status is a tool that tells a text about a server's tools, and starts the server.
func (m *Manager) status(def *Server, user sandbox.User, text string) *tools.Tool {
	t := tools.Tool{
		Name: def.Name + ".status", Title: "Start the MCP server " + def.Name, Description: shortText(text, maxDescription) + statusNote,
		Schema: json.RawMessage(`{"type":"object","additionalProperties":false}`), OpenWorld: true,
	}
	return tools.External(t, func(ctx context.Context, _ []byte, _ func(string)) (*tools.Result, error) {
		s := m.slot(def, user)
		p, err := s.acquire(ctx, sandbox.RequestOf(ctx).RequestedBy)
		if err != nil {
			return nil, err
		}
		defer s.release(p, false)
		var names []string
		text := ""
		for _, one := range s.offered() {
			if one.Name == t.Name {
				text = strings.TrimSuffix(one.Description, statusNote)
				continue
			}
			names = append(names, skills.PlainName(one.Name))
		}
		text = "It runs. Its tools: " + strings.Join(names, ", ") + "\n" + text
		return &tools.Result{Text: text, Meta: map[string]any{"exec_id": p.execID}}, nil
	})
}
