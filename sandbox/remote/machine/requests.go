package machine

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"time"

	"secbox/fault"
	"secbox/internal/admission"
	"secbox/sandbox/remote/wire"
	"secbox/sandbox/search"
)

// handle handles a message of core-api. An error ends the link.
func (l *link) handle(ctx context.Context, data []byte) error {
	msg, err := wire.FromServer(data)
	if err != nil {
		return err
	}
	m := l.m
	switch msg.Type {
	case wire.TypePing:
		return l.sendControl(ctx, msg.ID, wire.TypePong, nil)
	case wire.TypeAck:
		m.journal.acknowledge(msg.ID)
		return nil
	case wire.TypeCancel:
		m.journal.cancel(msg.ID)
		return nil
	case wire.TypeStdin, wire.TypeSignal:
		return m.journal.input(msg)
	case wire.TypeWelcome:
		return fmt.Errorf("%w: a second welcome came", wire.ErrProtocol)
	}
	return l.take(ctx, msg, data)
}

// take starts a request, or refuses it.
func (l *link) take(ctx context.Context, msg wire.Message, data []byte) error {
	m := l.m
	release, busy, err := m.reserve(ctx, msg)
	if err != nil {
		return err
	}
	if busy != "" {
		return l.refuse(ctx, msg, wire.CodeBusy, busy)
	}
	r, v := m.journal.take(m.requests, msg, data)
	if v == accepted {
		m.work.Go(func() {
			a, free := m.perform(r, msg)
			release()
			m.journal.finish(r, a, free)
		})
		return nil
	}
	release()
	switch v {
	case reused:
		return l.refuse(ctx, msg, wire.CodeIDReused, "a request with this id was taken before")
	case tooMany:
		return l.refuse(ctx, msg, wire.CodeBusy, "the runner has too many requests at once")
	case closing:
		return l.refuse(ctx, msg, wire.CodeBusy, "the runner is being stopped")
	}
	return nil
}

// reserve reserves memory for a request's content. Content to write waits for memory, because
// writes end by themselves; a command's input does not, because commands may take long.
func (m *Machine) reserve(ctx context.Context, msg wire.Message) (release func(), busy string, err error) {
	switch body := msg.Body.(type) {
	case *wire.Path:
		n := int64(len(body.Data))
		if n == 0 {
			break
		}
		if err := m.writing.Acquire(ctx, n); err != nil {
			return nil, "", err
		}
		return func() { m.writing.Release(n) }, "", nil
	case *wire.Exec:
		n := int64(len(body.Stdin))
		if body.Input {
			n = wire.StdinWindow
		}
		if !m.input.TryAcquire(n) {
			return nil, "too much input for commands waits on the runner", nil
		}
		return func() { m.input.Release(n) }, "", nil
	}
	return func() {}, "", nil
}

// refuse answers a request that was not taken. If the answer is lost with the link, the request
// comes again.
func (l *link) refuse(ctx context.Context, msg wire.Message, code, why string) error {
	l.m.refusals.warn("refused", "id", msg.ID, "request", msg.Type, "why", why)
	return l.sendControl(ctx, msg.ID, wire.TypeError, &wire.Error{Code: code, Message: why})
}

// perform handles a request. release frees the memory of the answer.
func (m *Machine) perform(r *request, msg wire.Message) (a answer, release func()) {
	if refusal := m.notAllowed(msg); refusal != nil {
		m.refusals.warn("refused", "id", r.id, "request", msg.Type, "why", refusal.Message)
		return singleMessage{wire.TypeError, refusal}, func() {}
	}
	if body, ok := msg.Body.(*wire.Exec); ok {
		if isSearch(body) {
			body.Env = nil // variables could change what this program does
		}
		return m.exec(r, body)
	}
	body := msg.Body.(*wire.Path)
	a, release, err := m.file(r, msg.Type, body)
	if release == nil {
		release = func() {}
	}
	if err == nil {
		return a, release
	}
	release()
	reply := wireError(r, err)
	if reply.Code == wire.CodePermission {
		m.refusals.warn("refused", "id", r.id, "request", msg.Type, "path", shorten(body.Path), "why",
			"it leads out of the workspace, or this user lacks the permission")
	}
	return singleMessage{wire.TypeError, reply}, func() {}
}

// notAllowed returns the error for a request that is not allowed here; nil if it is.
func (m *Machine) notAllowed(msg wire.Message) *wire.Error {
	needs, what := msg.Type.Needs(), "files are not changed"
	if needs == "" || slices.Contains(m.allow, needs) || isSearch(msg.Body) {
		return nil
	}
	if needs == AllowExec {
		what = "commands are not run"
	}
	return &wire.Error{
		Code:    wire.CodeNotAllowed,
		Message: fmt.Sprintf("%s on this machine: its runner %s was started without --allow %s", what, m.name, needs),
	}
}

// isSearch reports whether a request only searches files, which is reading: the command is this
// program, and gets nothing but what to search for.
func isSearch(body any) bool {
	spec, ok := body.(*wire.Exec)
	return ok && spec.Command == search.Command && !spec.Shell && len(spec.Args) == 1 && spec.Stdin == "" && !spec.Input
}

// singleMessage is an answer of one message.
type singleMessage struct {
	t    wire.Type
	body any
}

func (o singleMessage) message(int, [2]int64) (wire.Type, any, bool) { return o.t, o.body, false }

// finalError is an error with its message for core-api. It is not worth a retry.
type finalError struct {
	reply wire.Error
	cause error
}

func (f *finalError) Error() string { return f.reply.Message }
func (f *finalError) Unwrap() error { return f.cause }

// transferError is the error of a transfer that cannot be completed.
func transferError(cause error, format string, args ...any) error {
	return &finalError{wire.Error{Code: wire.CodeTransfer, Message: wire.Cleaned(fmt.Sprintf(format, args...))}, cause}
}

// wireError returns the message for an error.
func wireError(r *request, err error) *wire.Error {
	if r.ctx.Err() != nil && errors.Is(err, context.Canceled) {
		return &wire.Error{Code: wire.CodeCanceled, Message: context.Cause(r.ctx).Error()}
	}
	if own, ok := errors.AsType[*finalError](err); ok {
		return &own.reply
	}
	reply := wire.ErrorOf(err)
	return &reply
}

// admit waits until a request may start.
func admit(ctx context.Context, gate *admission.Gate) (leave func(), err error) {
	ticket := gate.Enter()
	if ticket == nil {
		return nil, fault.New(fault.SandboxBusy, "the runner has too many requests at once")
	}
	if err := ticket.Wait(ctx); err != nil {
		return nil, errors.Join(context.Canceled, err)
	}
	return ticket.Leave, nil
}

// shorten cuts text from core-api for the log.
func shorten(s string) string {
	const most = 200
	if len(s) > most {
		return s[:most] + "…"
	}
	return s
}

// refusalsPerSecond is how many refusals are logged per second.
const refusalsPerSecond = 50

// refusals logs refused requests, up to a rate, so that core-api cannot fill the user's disk with
// them.
type refusals struct {
	log *slog.Logger

	mu      sync.Mutex
	since   time.Time
	logged  int // since then
	dropped int
}

func (r *refusals) warn(what string, args ...any) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if now := time.Now(); now.Sub(r.since) >= time.Second {
		if r.dropped > 0 {
			r.log.Warn("more requests were refused", "times", r.dropped)
		}
		r.since, r.logged, r.dropped = now, 0, 0
	}
	if r.logged == refusalsPerSecond {
		r.dropped++
		return
	}
	r.logged++
	r.log.Warn(what, args...)
}
