package userservers

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	"github.com/modelcontextprotocol/go-sdk/mcp"

	"secbox/fault"
	"secbox/mcp/tools"
	"secbox/sandbox"
)

// protocolVersion is the requested version. Servers of later versions know it, too, and it begins
// with initialize, which every server understands.
const protocolVersion = "2025-11-25"

// process is a server that runs.
type process struct {
	def    *Server
	token  string // that started it
	execID string // of its row
	began  time.Time

	transport *transport
	session   *mcp.ClientSession
	end       context.CancelFunc // kills it
	stay      context.Context    // ends when it is to be closed
	leave     context.CancelFunc // ends stay
	ended     chan struct{}      // closed when no process is left
	why       error              // why it ended; set before ended is closed
	tail      tail

	broke    atomic.Pointer[error] // the first error of its connection
	asked    atomic.Int64          // of progress tokens
	checking atomic.Bool           // whether it is alive
	reports  sync.Map              // progress token to func(string)
	changed  chan struct{}         // its tools have changed

	freed chan struct{} // closed when its place is free

	// Guarded by slot.mu:
	calls    int  // in progress
	retired  bool // no new calls
	wanted   bool // its end was asked for
	endNoted bool // its end was noted
}

// launch starts a process, connects to it and lists its tools.
func (m *Manager) launch(def *Server, user sandbox.User, token string) (p *process, listed []*tools.Tool, err error) {
	lifetime, output := m.cfg.Bounds()
	running, end := context.WithCancel(sandbox.WithRequest(m.ended, sandbox.Request{RequestedBy: token, TaskID: "mcp_server." + def.Name}))
	p = &process{
		def: def, token: token, execID: m.cfg.NewID(), began: m.cfg.Now(), end: end, ended: make(chan struct{}), freed: make(chan struct{}),
		changed: make(chan struct{}, 1),
	}
	p.stay, p.leave = context.WithCancel(m.ended)
	pipes := sandbox.Start(running, m.cfg.Sandbox, sandbox.ExecSpec{
		Command: def.Command, Args: def.Args, Env: def.Env, User: user, Timeout: lifetime, MaxStdout: output, ExecID: p.execID,
	})
	var streams sync.WaitGroup
	streams.Go(func() { _, _ = io.Copy(&p.tail, pipes.Stderr) })
	p.transport = newTransport(pipes, output, m.cfg.patience, func(reason error) {
		p.broke.CompareAndSwap(nil, &reason)
		end()
	})
	go func() {
		result, err := pipes.Wait()
		streams.Wait()
		_ = pipes.Stdout.Close() // releases the reader
		p.why = p.reason(result, err)
		end()
		p.leave()
		close(p.ended)
	}()

	ctx, stop := context.WithTimeout(m.open, def.StartTimeout)
	defer stop()
	stopKilling := context.AfterFunc(ctx, end) // a write to a server that does not read would not end
	if p.session, err = p.connect(ctx, m.cfg.Version); err == nil {
		listed, err = m.list(ctx, p, user)
	}
	if stopKilling() && err == nil {
		return p, listed, nil
	}
	end()
	<-p.ended
	if p.session != nil {
		_ = p.session.Close()
	}
	why := p.why
	var refusal *jsonrpc.Error
	switch {
	case m.open.Err() != nil:
		why = shuttingDown()
	case errors.Is(ctx.Err(), context.DeadlineExceeded):
		why = def.failed(err, "did not answer within %s, and was ended; check its command in the sandbox, or raise start_timeout_seconds%s",
			def.StartTimeout, p.notes())
	case errors.As(err, &refusal):
		why = def.failed(err, "refused to begin: %s", shown(refusal.Message))
	// the SDK could not use an answer
	case p.broke.Load() == nil && (errors.Is(why, context.Canceled) || fault.Is(why, fault.UpstreamFailed) && !isClosed(err)):
		why = def.failed(err, "sent an answer that this client does not understand: %s", shown(err.Error()))
	}
	return nil, nil, why
}

// isClosed reports whether an error of the SDK is about a connection that has ended, and not about
// an answer.
func isClosed(err error) bool {
	return errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) || errors.Is(err, io.ErrClosedPipe) ||
		errors.Is(err, mcp.ErrConnectionClosed)
}

func (p *process) connect(ctx context.Context, version string) (*mcp.ClientSession, error) {
	client := mcp.NewClient(&mcp.Implementation{Name: "secbox", Title: "secbox", Version: version}, &mcp.ClientOptions{
		Capabilities:   &mcp.ClientCapabilities{},
		MultiRoundTrip: &mcp.MultiRoundTripOptions{Disabled: true},
		ToolListChangedHandler: func(context.Context, *mcp.ToolListChangedRequest) {
			select {
			case p.changed <- struct{}{}:
			default:
			}
		},
		ProgressNotificationHandler: func(_ context.Context, req *mcp.ProgressNotificationClientRequest) { p.progress(req.Params) },
	})
	client.AddReceivingMiddleware(p.transport.refuse)
	return client.Connect(ctx, p.transport, &mcp.ClientSessionOptions{ProtocolVersion: protocolVersion})
}

func (p *process) progress(params *mcp.ProgressNotificationParams) {
	token, _ := params.ProgressToken.(string)
	report, ok := p.reports.Load(token)
	if !ok {
		return
	}
	line := fmt.Sprintf("%g", params.Progress)
	if params.Total > 0 {
		line += fmt.Sprintf(" of %g", params.Total)
	}
	if params.Message != "" {
		line = params.Message + " (" + line + ")"
	}
	report.(func(string))(line)
}

// expired reports whether the process may not have the time, or the output, that another call
// needs.
func (p *process) expired(now time.Time, lifetime time.Duration) bool {
	return now.Sub(p.began)+p.def.callTimeout(lifetime) > lifetime || p.transport.read.Load() > p.transport.output/2
}

// callTimeout leaves a process time for more than one call.
func (d *Server) callTimeout(lifetime time.Duration) time.Duration {
	return min(d.CallTimeout, lifetime/2)
}

// close ends the process: it closes its standard input, and kills it if that does not end it.
func (p *process) close() {
	_ = p.transport.process.Stdin.Close()
	patience := time.AfterFunc(endWait, p.end)
	<-p.ended
	patience.Stop()
	_ = p.session.Close()
}

// reason describes the end of the process.
func (p *process) reason(result *sandbox.ExecResult, err error) error {
	if broken := p.broke.Load(); broken != nil {
		switch {
		case errors.Is(*broken, errOutput), errors.Is(*broken, errRequests), errors.Is(*broken, errStuck), errors.Is(*broken, errSilent):
			return p.def.failed(nil, "%s, and was ended%s", *broken, p.notes())
		}
		return p.def.failed(*broken, "wrote something other than messages of at most %d MiB to its standard output, and was ended: %s; "+
			"it must write its log to standard error%s",
			maxMessage>>20, shown((*broken).Error()), p.notes())
	}
	if err == nil && p.stay.Err() != nil { // it may have ended by itself when its input did
		err = p.stay.Err()
	}
	if err != nil {
		return err
	}
	how := fmt.Sprintf("exit code %d", result.ExitCode)
	switch {
	case result.TimedOut:
		how = "it ran as long as the policy allows"
	case result.Detail != "":
		how += ", " + result.Detail
	}
	return p.def.failed(nil, "ended (%s)%s", shown(how), p.notes())
}

// shown returns the beginning of a text that a server or a library has written, for an error.
func shown(text string) string {
	return tools.Printable(strings.ToValidUTF8(text[:min(len(text), maxShown)], ""))
}

const maxShown = 300 // bytes

// tail keeps the end of a stream.
type tail struct {
	mu   sync.Mutex
	kept []byte
}

const (
	maxTail  = 4 << 10     // bytes of standard error that are kept
	maxNote  = maxTail / 2 // bytes of them in an error: a value that begins before the kept bytes is not shown in part
	minValue = 4           // bytes of a value that is left out of an error
)

// Write implements io.Writer.
func (t *tail) Write(p []byte) (int, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.kept = append(t.kept, p[max(0, len(p)-maxTail):]...); len(t.kept) > maxTail {
		t.kept = append(t.kept[:0], t.kept[len(t.kept)-maxTail:]...)
	}
	return len(p), nil
}

// notes returns the ends of what the server has written beside messages, for an error.
func (p *process) notes() string {
	return p.tail.note(p.def, "the end of its standard error") + p.transport.noise.note(p.def,
		"it also wrote to its standard output, which is for messages only")
}

// note returns the end of a stream under a title, without the values of the server's variables.
func (t *tail) note(def *Server, title string) string {
	t.mu.Lock()
	text := strings.ToValidUTF8(string(t.kept), "\uFFFD")
	t.mu.Unlock()
	for _, kv := range def.Env {
		if name, value, _ := strings.Cut(kv, "="); len(value) >= minValue {
			text = strings.ReplaceAll(text, value, "("+name+")")
		}
	}
	text = strings.ToValidUTF8(text[max(0, len(text)-maxNote):], "")
	if text = strings.TrimSpace(text); text == "" {
		return ""
	}
	return "; " + title + ":\n" + tools.Printable(text)
}
