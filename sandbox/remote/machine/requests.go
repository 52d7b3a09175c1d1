package machine

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"time"

	"secbox/admission"
	"secbox/fault"
	"secbox/sandbox/remote/wire"
)

// handle takes a message of core-api's. An error ends the link.
func (l *link) handle(ctx context.Context, data []byte) error {
	msg, err := wire.FromServer(data)
	if err != nil {
		return err
	}
	m := l.m
	switch msg.Type {
	case wire.TypePing:
		return l.say(ctx, msg.ID, wire.TypePong, nil)
	case wire.TypeAck:
		m.journal.acknowledge(msg.ID)
		return nil
	case wire.TypeCancel:
		m.journal.cancel(msg.ID)
		return nil
	case wire.TypeWelcome:
		return fmt.Errorf("%w: a second welcome came", wire.ErrProtocol)
	}
	return l.take(ctx, msg, data)
}

// take begins to carry a request out, or says why not.
func (l *link) take(ctx context.Context, msg wire.Message, data []byte) error {
	m := l.m
	giveBack, busy, err := m.hold(ctx, msg)
	if err != nil {
		return err
	}
	if busy != "" {
		return l.refuse(ctx, msg, wire.CodeBusy, busy)
	}
	r, v := m.journal.take(m.requests, msg, data)
	if v == takeIt {
		m.work.Go(func() {
			a, release := m.carryOut(r, msg)
			giveBack()
			m.journal.finish(r, a, release)
		})
		return nil
	}
	giveBack()
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

// hold takes memory for what a request carries. What is to be written is waited for, since writing ends by itself; a command's input is
// not, since nobody knows when its turn comes.
func (m *Machine) hold(ctx context.Context, msg wire.Message) (giveBack func(), busy string, err error) {
	switch body := msg.Body.(type) {
	case *wire.Path:
		n := int64(len(body.Data))
		if n == 0 {
			break
		}
		if err := m.writing.take(ctx, n); err != nil {
			return nil, "", err
		}
		return func() { m.writing.give(n) }, "", nil
	case *wire.Exec:
		n := int64(len(body.Stdin))
		if n == 0 {
			break
		}
		if !m.input.try(n) {
			return nil, "too much input for commands waits on the runner", nil
		}
		return func() { m.input.give(n) }, "", nil
	}
	return func() {}, "", nil
}

// refuse answers a request that was not taken. Should the answer be lost with the link, the request comes again.
func (l *link) refuse(ctx context.Context, msg wire.Message, code, why string) error {
	l.m.refusals.warn("refused", "id", msg.ID, "request", msg.Type, "why", why)
	return l.say(ctx, msg.ID, wire.TypeError, &wire.Error{Code: code, Message: why})
}

// carryOut does what a request asks. release gives back what the answer holds.
func (m *Machine) carryOut(r *request, msg wire.Message) (a answer, release func()) {
	if refusal := m.refusal(msg.Type); refusal != nil {
		m.refusals.warn("refused", "id", r.id, "request", msg.Type, "why", refusal.Message)
		return one{wire.TypeError, refusal}, func() {}
	}
	if body, ok := msg.Body.(*wire.Exec); ok {
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
	told := failureOf(r, err)
	if told.Code == wire.CodePermission {
		m.refusals.warn("refused", "id", r.id, "request", msg.Type, "path", brief(body.Path), "why", "it leads out of the workspace, or this user may not")
	}
	return one{wire.TypeError, told}, func() {}
}

// refusal is why this kind of request is not granted here; nil if it is.
func (m *Machine) refusal(t wire.Type) *wire.Error {
	needs, what := "", "files are not changed"
	switch t {
	case wire.TypeExec:
		needs, what = AllowExec, "commands are not run"
	case wire.TypeWriteFile, wire.TypeMkdirAll, wire.TypeRemove, wire.TypeRemoveAll:
		needs = AllowWrite
	}
	if needs == "" || slices.Contains(m.allow, needs) {
		return nil
	}
	return &wire.Error{
		Code:    wire.CodeNotAllowed,
		Message: fmt.Sprintf("%s on this machine: its runner %s was started without --allow %s", what, m.name, needs),
	}
}

// one is an answer of one message.
type one struct {
	t    wire.Type
	body any
}

func (o one) message(int, [2]int64) (wire.Type, any, bool) { return o.t, o.body, false }

// failure is an error that is a message already.
type failure struct {
	told  wire.Error
	cause error
}

func (f *failure) Error() string { return f.told.Message }
func (f *failure) Unwrap() error { return f.cause }

// broken is a transfer that cannot be completed.
func broken(cause error, format string, args ...any) error {
	return &failure{wire.Error{Code: wire.CodeTransfer, Message: wire.Cleaned(fmt.Sprintf(format, args...))}, cause}
}

// failureOf is what core-api is told of an error.
func failureOf(r *request, err error) *wire.Error {
	if r.ctx.Err() != nil && errors.Is(err, context.Canceled) {
		return &wire.Error{Code: wire.CodeCanceled, Message: context.Cause(r.ctx).Error()}
	}
	var own *failure
	if errors.As(err, &own) {
		return &own.told
	}
	told := wire.ErrorOf(err)
	return &told
}

// place waits until a request may begin.
func place(ctx context.Context, gate *admission.Gate) (leave func(), err error) {
	ticket := gate.Enter()
	if ticket == nil {
		return nil, fault.New(fault.SandboxBusy, "the runner has too many requests at once")
	}
	if err := ticket.Wait(ctx); err != nil {
		return nil, errors.Join(context.Canceled, err)
	}
	return ticket.Leave, nil
}

// brief is a stranger's word for a log.
func brief(s string) string {
	const most = 200
	if len(s) > most {
		return s[:most] + "…"
	}
	return s
}

// refusalsPerSecond is how many refusals are logged of those that come within a second.
const refusalsPerSecond = 50

// refusals logs what is not done: all of it, unless core-api asks for nothing else and would fill the user's disk with it.
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
			r.log.Warn("more was refused before", "times", r.dropped)
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
