package machine

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"runtime"
	"sync"
	"sync/atomic"
	"time"

	"github.com/coder/websocket"

	"secbox/sandbox/remote/wire"
)

// Timeouts of the steps of a link.
const (
	dialTimeout    = 10 * time.Second // for the connection, for TLS, and for the answer, each
	welcomeTimeout = 15 * time.Second
	endTimeout     = 3 * time.Second // to deliver the results of killed commands at the end, and to close a link
)

// silentAfter is how many heartbeats may be missed.
const silentAfter = 3

// Bounds of the heartbeat that core-api asks for.
const (
	fastestHeartbeat = 10 * time.Millisecond
	slowestHeartbeat = time.Minute
)

// monitoredConn is a connection that records when it last received bytes, and whose writes time
// out.
type monitoredConn struct {
	net.Conn
	start        time.Time
	heard        atomic.Int64 // in nanoseconds since start
	writeTimeout atomic.Int64 // of one write of a few KiB, in nanoseconds
}

func newMonitoredConn(c net.Conn, writeTimeout time.Duration) *monitoredConn {
	p := &monitoredConn{Conn: c, start: time.Now()}
	p.writeTimeout.Store(int64(writeTimeout))
	return p
}

func (p *monitoredConn) Read(b []byte) (int, error) {
	n, err := p.Conn.Read(b)
	if n > 0 {
		p.beat()
	}
	return n, err
}

func (p *monitoredConn) Write(b []byte) (int, error) {
	if err := p.SetWriteDeadline(time.Now().Add(time.Duration(p.writeTimeout.Load()))); err != nil {
		return 0, err
	}
	return p.Conn.Write(b)
}

func (p *monitoredConn) beat() { p.heard.Store(int64(time.Since(p.start))) }

func (p *monitoredConn) silence() time.Duration {
	return time.Since(p.start) - time.Duration(p.heard.Load())
}

// link is one WebSocket.
type link struct {
	m       *Machine
	conn    *websocket.Conn
	tcp     *monitoredConn
	idle    atomic.Bool // the reader waits for core-api, not for us
	control chan []byte // messages outside of the journal: pongs, refusals
}

// link dials, and serves until the link ends. again: there was a link before.
func (m *Machine) link(ctx context.Context, again bool) linkEnd {
	l := &link{m: m, control: make(chan []byte, 16)}
	if e := l.dial(ctx, again); e.err != nil {
		return e
	}
	defer func() { _ = l.conn.CloseNow() }()
	welcome, err := l.handshake(ctx)
	if err != nil {
		l.closeFor(err)
		return l.endOnClose(err, again)
	}
	heartbeat := min(max(time.Duration(welcome.HeartbeatMS)*time.Millisecond, fastestHeartbeat), slowestHeartbeat)
	l.tcp.writeTimeout.Store(int64(silentAfter * heartbeat))
	resumed, unexpected := m.journal.attach(welcome.Expects)
	m.log.Info("connected", "server", m.server, "server_version", welcome.Version, "user", welcome.UserID, "runner", m.name,
		"allowed", describeAllowed(m.allow))
	if resumed+unexpected > 0 {
		m.log.Info("requests of the former link", "go_on", resumed, "given_up_by_core_api", unexpected)
	}
	since := time.Now()
	err = l.serve(ctx, heartbeat)
	e := l.endOnClose(err, true)
	e.welcomed, e.lasted = true, time.Since(since)
	return e
}

// serve reads, writes and watches until one of them fails or ctx ends; then it delivers the last
// results.
func (l *link) serve(ctx context.Context, heartbeat time.Duration) error {
	// Reads must outlive ctx: the results of killed commands are acknowledged.
	linked, give := context.WithCancelCause(context.WithoutCancel(ctx))
	defer give(nil)
	l.m.status.begin(linked)
	defer l.m.status.end()
	var all sync.WaitGroup
	all.Go(func() { give(l.read(linked)) })
	all.Go(func() { give(l.write(linked)) })
	all.Go(func() { give(l.watch(linked, heartbeat)) })
	select {
	case <-linked.Done():
	case <-ctx.Done():
		l.m.log.Info("stopping: killing the commands that still run")
		l.m.journal.stop()
		select {
		case <-l.m.journal.settled:
		case <-time.After(endTimeout):
		case <-linked.Done():
		}
		l.close(websocket.StatusGoingAway, "the runner was stopped")
		give(ctx.Err())
	}
	err := context.Cause(linked)
	l.closeFor(err) // the writer may still run; it writes whole messages
	l.tcp.Close()
	all.Wait()
	return err
}

// close sends a close frame, and waits only briefly for the answer.
func (l *link) close(status websocket.StatusCode, why string) {
	if len(why) > 120 {
		why = why[:120]
	}
	abandon := time.AfterFunc(endTimeout, func() { l.tcp.Close() })
	defer abandon.Stop()
	_ = l.conn.Close(status, wire.Cleaned(why))
}

// closeFor closes the link after an error that core-api has caused.
func (l *link) closeFor(err error) {
	if version, ok := errors.AsType[versionError](err); ok {
		l.close(wire.StatusVersion, version.Error())
	} else if errors.Is(err, wire.ErrProtocol) {
		l.close(wire.StatusProtocol, err.Error())
	}
}

// errSilent is the end of a link on which nothing was heard for too long.
var errSilent = errors.New("core-api is silent")

func (l *link) watch(ctx context.Context, heartbeat time.Duration) error {
	tick := time.Tick(heartbeat / 2)
	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-tick:
			if silence := l.tcp.silence(); l.idle.Load() && silence > silentAfter*heartbeat {
				return fmt.Errorf("%w: nothing was heard for %s", errSilent, silence.Round(10*time.Millisecond))
			}
		}
	}
}

func (l *link) read(ctx context.Context) error {
	var buf bytes.Buffer
	for {
		data, err := l.next(ctx, &buf)
		if err != nil {
			return err
		}
		if err := l.handle(ctx, data); err != nil {
			return err
		}
	}
}

// next reads a message into buf, which is replaced when it has grown large.
func (l *link) next(ctx context.Context, buf *bytes.Buffer) ([]byte, error) {
	if buf.Cap() > 1<<20 {
		*buf = bytes.Buffer{}
	}
	buf.Reset()
	l.tcp.beat() // time spent handling messages is not silence
	l.idle.Store(true)
	defer l.idle.Store(false)
	kind, r, err := l.conn.Reader(ctx)
	if err != nil {
		return nil, err
	}
	if kind != websocket.MessageText {
		return nil, fmt.Errorf("%w: it came in a binary frame", wire.ErrProtocol)
	}
	if _, err := buf.ReadFrom(r); err != nil {
		return nil, err
	}
	return buf.Bytes(), nil
}

// sendControl queues a message outside of the journal.
func (l *link) sendControl(ctx context.Context, id string, t wire.Type, body any) error {
	data, err := wire.Encode(id, t, body)
	if err != nil {
		return err
	}
	select {
	case l.control <- data:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (l *link) write(ctx context.Context) error {
	for {
		var f *frame
		if len(l.control) == 0 {
			f = l.m.journal.pop()
		}
		if f != nil {
			data, err := wire.Encode(f.id, f.typ, f.body)
			if err != nil {
				l.m.log.Error("a result cannot be put into a message", "id", f.id, "error", err)
				data, err = wire.Encode(f.id, wire.TypeError,
					&wire.Error{Code: wire.CodeFailed, Message: "the result cannot be put into a message"})
			}
			if err == nil {
				err = l.conn.Write(ctx, websocket.MessageText, data)
			}
			if err != nil {
				return err
			}
			continue
		}
		select {
		case data := <-l.control:
			if err := l.conn.Write(ctx, websocket.MessageText, data); err != nil {
				return err
			}
		case <-l.m.journal.wake:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// handshake sends the hello and waits for the welcome.
func (l *link) handshake(ctx context.Context) (*wire.Welcome, error) {
	ctx, cancel := context.WithTimeout(ctx, welcomeTimeout)
	defer cancel()
	m := l.m
	hello, err := wire.Encode("", wire.TypeHello, &wire.Hello{
		Protocol: wire.Version, Session: m.session, Name: m.name, Version: m.version, OS: runtime.GOOS, Arch: runtime.GOARCH,
		Shell: m.shell, Allow: m.allow, Held: m.journal.heldIDs(),
		Can: []string{wire.CanCompare, wire.CanCreate, wire.CanInput, wire.CanGMAC},
	})
	if err != nil {
		return nil, err
	}
	if err := l.conn.Write(ctx, websocket.MessageText, hello); err != nil {
		return nil, err
	}
	var buf bytes.Buffer
	data, err := l.next(ctx, &buf)
	if err != nil {
		return nil, err
	}
	msg, err := wire.FromServer(data)
	if err != nil {
		return nil, err
	}
	welcome, ok := msg.Body.(*wire.Welcome)
	switch {
	case !ok:
		return nil, fmt.Errorf("%w: %s came before the welcome", wire.ErrProtocol, msg.Type)
	case welcome.Protocol != wire.Version:
		return nil, versionError{welcome.Protocol}
	}
	return welcome, nil
}
