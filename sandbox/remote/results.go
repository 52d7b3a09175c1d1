package remote

import (
	"fmt"

	"secbox/fault"
	"secbox/sandbox"
	"secbox/sandbox/remote/wire"
)

// handle handles a message. An error ends the link.
func (l *link) handle(m wire.Message) error {
	flush, err := l.handleLocked(m)
	if flush == nil || err != nil {
		return err
	}
	// Output is passed on without the lock, because it may go to a file. The sink has no other
	// writer: a link has one reader, which starts only after its predecessor's has ended.
	if err := flush(); err != nil {
		return err
	}
	if r, ok := m.Body.(*wire.ExecResult); ok {
		l.hub.mu.Lock()
		defer l.hub.mu.Unlock()
		req := l.machine.pending[m.ID]
		if req == nil { // its caller has left
			return l.lateResult(m)
		}
		l.hub.finish(req, r, nil)
		l.ack(m.ID)
	}
	return nil
}

func (l *link) handleLocked(m wire.Message) (flush func() error, err error) {
	l.hub.mu.Lock()
	defer l.hub.mu.Unlock()
	if l.machine.link != l {
		return nil, errEnded
	}
	req := l.machine.pending[m.ID]
	switch body := m.Body.(type) {
	case *wire.Hello:
		return nil, protocolError("a second hello")
	case *wire.Output:
		return l.output(m.ID, body)
	case *wire.InputAck:
		return nil, l.inputAck(m.ID, body)
	case *wire.ExecResult:
		if req != nil && req.exec != nil && req.sent {
			return req.exec.end(body)
		}
	}
	if m.Type == wire.TypePong {
		l.pong(m.ID)
		return nil, nil
	}
	if req == nil {
		return nil, l.lateResult(m)
	}
	return nil, l.result(req, m)
}

// errEnded is the reader's error when this side ended the link.
var errEnded = fmt.Errorf("the link was closed")

func protocolError(format string, args ...any) error {
	return fmt.Errorf("%w: %s", wire.ErrProtocol, fmt.Sprintf(format, args...))
}

// output takes a piece of a command's output.
func (l *link) output(id string, o *wire.Output) (flush func() error, err error) {
	req := l.machine.pending[id]
	switch {
	case req == nil && l.machine.hasID(id):
		return nil, nil // its caller has left
	case req == nil || req.exec == nil || !req.sent:
		return nil, protocolError("output of an unknown command")
	}
	req.began = true
	s := &req.exec.stdout
	if o.Stream == wire.Stderr {
		s = &req.exec.stderr
	}
	skip, err := s.take(o.Offset, int64(len(o.Data)))
	if err != nil {
		return nil, err
	}
	return func() error {
		_, err := s.sink.Write(o.Data[skip:])
		return err
	}, nil
}

// result takes the answer to any request but exec.
func (l *link) result(req *request, m wire.Message) error {
	if !req.sent || m.Type != wire.TypeError && m.Type != req.op.Result() {
		return protocolError("%s does not answer the request", m.Type)
	}
	var answer any
	var err error
	switch body := m.Body.(type) {
	case *wire.Error:
		if answer, err = nil, body.Err(string(req.op), req.path); body.Code == wire.CodeCanceled {
			err = fault.Wrap(fault.RunnerOffline, errCanceled, "%s gave this up: %s", l.machine.title(), wire.Cleaned(body.Message))
		}
	case *wire.DirEntries:
		req.began = true
		if len(req.entries)+len(body.Entries) > sandbox.MaxDirEntries {
			l.hub.finish(req, nil, fault.New(fault.TreeTooLarge, "the directory has more than %d entries", sandbox.MaxDirEntries))
			return protocolError("a directory has too many entries")
		}
		req.entries = append(req.entries, body.Entries...)
		if body.More {
			return nil
		}
	default:
		answer = m.Body
	}
	l.hub.finish(req, answer, err)
	l.ack(m.ID)
	return nil
}

// ack acknowledges a result.
func (l *link) ack(id string) { l.sendBody(id, wire.TypeAck, nil) }

// lateResult takes the answer to a request whose caller has left. A command's result is
// acknowledged after it is recorded.
func (l *link) lateResult(m wire.Message) error {
	if !l.machine.hasID(m.ID) {
		return protocolError("%s for an unknown request", m.Type)
	}
	if list, ok := m.Body.(*wire.DirEntries); ok && list.More {
		return nil
	}
	if r, ok := m.Body.(*wire.ExecResult); ok {
		if !l.late.put(lateResult{m.ID, r}) {
			return nil // the runner keeps it and lists it in its next hello
		}
	} else {
		l.ack(m.ID)
	}
	if n, ok := l.machine.abandoned[m.ID]; ok {
		delete(l.machine.abandoned, m.ID)
		l.machine.permits.Release(n)
	}
	delete(l.machine.late, m.ID)
	return nil
}
