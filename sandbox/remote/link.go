package remote

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"slices"
	"sync/atomic"
	"time"
	"unicode/utf8"

	"github.com/coder/websocket"

	"secbox/fault"
	"secbox/sandbox/remote/wire"
)

const (
	helloTimeout = 10 * time.Second // after the WebSocket handshake
	closeTimeout = time.Second      // for the runner to answer a close frame
	maxReason    = 123              // bytes of the reason in a close frame
	keptBuffer   = 1 << 20          // bytes of a reader's buffer; larger ones are freed after use
	slowestBytes = 128 << 10        // per second: a slower link may be closed while a long message goes out
	longFrame    = 64 << 10         // bytes; a larger frame counts as long
)

// link is one WebSocket of a runner. It has four goroutines: one reads (serve), one writes, one
// sends pings, one checks the token.
type link struct {
	hub       *Hub
	caller    Caller
	conn      *websocket.Conn
	tcp       net.Conn        // under conn
	ctx       context.Context // ends with the link; canceling it only cuts the connection
	cut       context.CancelFunc
	readDone  chan struct{} // closed when the reader has ended: no message of this link is handled afterwards
	closeSent chan struct{} // closed when the close frame was sent, if this side ended the link
	heard     atomic.Int64  // when the last byte arrived, in nanoseconds since start
	busy      atomic.Int64  // until when a long outgoing message may delay answers, in the same unit; 0: no such message
	start     time.Time     // for the monotonic clock
	late      *lateQueue

	// Guarded by Hub.mu.
	machine  *machine
	since    time.Time
	latency  time.Duration
	ending   *closing // why this side ended the link; nil: it did not
	out      []item
	wake     chan struct{}     // has an element if out has one
	ping     uint64            // number of the last ping
	longPing uint64            // number of the first ping after the last long message: its pong shows that the message has arrived
	pingAt   time.Time         // when the ping was written; zero: its pong has arrived
	echoes   []chan<- struct{} // closed at the next pong
}

// closing is the close frame of a link.
type closing struct {
	status websocket.StatusCode
	reason string
}

var goingAway = &closing{wire.StatusGoingAway, "the server is shutting down; dial again"}

// item is one frame to be written.
type item struct {
	frame []byte
	req   *request // the request that the frame has, or has input of; nothing is written of a request that is over
	ping  uint64   // number of the ping in the frame
}

// ServeLink answers GET /ws: it hijacks the connection for a runner of the caller's user, and
// returns when the link has ended.
func (h *Hub) ServeLink(w http.ResponseWriter, r *http.Request, caller Caller) {
	h.serveLink(w, r, caller, false)
}

// ServeRelayed is ServeLink for a link that comes through another node.
func (h *Hub) ServeRelayed(w http.ResponseWriter, r *http.Request, caller Caller) {
	h.serveLink(w, r, caller, true)
}

func (h *Hub) serveLink(w http.ResponseWriter, r *http.Request, caller Caller, relayed bool) {
	h.mu.Lock()
	closed := h.closed
	if !closed {
		h.work.Add(1)
	}
	h.mu.Unlock()
	if closed {
		http.Error(w, "the server is shutting down; dial again", http.StatusServiceUnavailable)
		return
	}
	defer h.work.Done()
	hijacked := &hijacked{ResponseWriter: w}
	conn, err := websocket.Accept(hijacked, r, nil) // answers bad handshakes itself
	if err != nil {
		h.cfg.Log.Info("refused a runner's connection", "user", caller.UserID, "remote", r.RemoteAddr, "err", wire.Cleaned(err.Error()))
		return
	}
	conn.SetReadLimit(wire.MaxHello) // small, because unidentified connections are not limited in number
	ctx, cut := context.WithCancel(context.Background())
	defer cut()
	l := &link{
		hub: h, caller: caller, conn: conn, tcp: hijacked.conn, ctx: ctx, cut: cut, readDone: make(chan struct{}),
		closeSent: make(chan struct{}),
		start:     time.Now(), wake: make(chan struct{}, 1), late: &lateQueue{results: make(chan lateResult, maxLate)},
	}
	l.serve(r.RemoteAddr, relayed)
}

// hijacked remembers the hijacked connection. Closing it also ends a closing handshake, which
// otherwise waits for the rest of a frame that was begun.
type hijacked struct {
	http.ResponseWriter
	conn net.Conn
}

// Hijack implements http.Hijacker.
func (t *hijacked) Hijack() (net.Conn, *bufio.ReadWriter, error) {
	conn, rw, err := http.NewResponseController(t.ResponseWriter).Hijack()
	t.conn = conn
	return conn, rw, err
}

// serve runs the link from the hello to its end.
func (l *link) serve(remote string, relayed bool) {
	h, log := l.hub, l.hub.cfg.Log.With("user", l.caller.UserID, "remote", remote)
	hello, raw, refusal := l.greet()
	if refusal == nil && !relayed && !h.has(key{l.caller.UserID, hello.Name}) {
		if home := h.cfg.Elsewhere(l.ctx, l.caller, hello.Name); home != nil {
			log.Info("a runner's link is relayed to the node that has its machine", "runner", hello.Name)
			l.relay(home, raw)
			return
		}
	}
	for refusal == nil {
		var former *link
		if former, refusal = h.attach(l, hello); former == nil {
			break
		}
		why := closing{wire.StatusReplaced, "this runner has dialled again"}
		if refusal != nil { // another session has this name, and may be dead: a crashed machine does not hang up
			if former.isAlive() {
				break
			}
			if h.ctx.Err() != nil { // isAlive returned without an answer
				refusal = goingAway
				break
			}
			refusal, why = nil, closing{websocket.StatusGoingAway, "it did not answer when another runner of its name connected"}
		}
		h.mu.Lock()
		former.end(why.status, why.reason)
		h.mu.Unlock()
		<-former.readDone
	}
	if refusal != nil {
		close(l.readDone)
		log.Info("refused a runner", "status", int(refusal.status), "reason", refusal.reason)
		l.close(*refusal)
		return
	}
	l.conn.SetReadLimit(wire.MaxMessage)
	log = log.With("runner", hello.Name)
	log.Info("runner connected", "version", hello.Version, "os", hello.OS, "arch", hello.Arch, "allow", hello.Allow, "held",
		len(hello.Held))
	for _, run := range []func(){l.write, l.beat, l.watchToken, l.recordLate} {
		h.work.Go(run)
	}
	err := l.read()
	close(l.readDone)

	h.mu.Lock()
	if errors.Is(err, wire.ErrProtocol) {
		l.end(wire.StatusProtocol, err.Error())
	}
	h.detach(l)
	ending := l.ending
	h.mu.Unlock()
	if ending == nil {
		log.Info("runner's link ended", "reason", reasonOf(err))
	} else {
		log.Info("closed a runner's link", "status", int(ending.status), "reason", ending.reason)
		<-l.closeSent
	}
	l.cut()
	_ = l.conn.CloseNow()
}

// isReadDone reports whether the reader has ended. After end it may run for a moment more.
func (l *link) isReadDone() bool {
	select {
	case <-l.readDone:
		return true
	default:
		return false
	}
}

// greet reads the hello, and returns its frame too.
func (l *link) greet() (*wire.Hello, []byte, *closing) {
	ctx, stop := context.WithTimeout(l.ctx, helloTimeout)
	defer stop()
	defer context.AfterFunc(l.hub.ctx, stop)()
	var buf bytes.Buffer
	if err := l.next(ctx, &buf); err != nil {
		if l.hub.ctx.Err() != nil {
			return nil, nil, goingAway
		}
		return nil, nil, &closing{wire.StatusProtocol, "no hello: " + reasonOf(err)}
	}
	m, err := wire.FromRunner(buf.Bytes())
	if err != nil {
		return nil, nil, &closing{wire.StatusProtocol, err.Error()}
	}
	hello, ok := m.Body.(*wire.Hello)
	switch {
	case !ok:
		return nil, nil, &closing{wire.StatusProtocol, "the first message must be hello"}
	case hello.Protocol < wire.Version:
		return nil, nil, &closing{wire.StatusVersion, fmt.Sprintf("update secbox on this machine: it speaks protocol %d, the server %d",
			hello.Protocol, wire.Version)}
	case hello.Protocol > wire.Version:
		return nil, nil, &closing{
			wire.StatusVersion,
			fmt.Sprintf("update core-api: it speaks protocol %d, this runner %d", wire.Version, hello.Protocol),
		}
	}
	if err := l.hub.cfg.Valid(ctx, l.caller.TokenID); isRevoked(err) { // it may have been revoked since the request was authenticated
		return nil, nil, &closing{wire.StatusRevoked, "the runner's token was revoked"}
	}
	return hello, buf.Bytes(), nil
}

// read handles messages until the link ends.
func (l *link) read() error {
	var buf bytes.Buffer
	for {
		buf.Reset()
		if err := l.next(l.ctx, &buf); err != nil {
			return err
		}
		m, err := wire.FromRunner(buf.Bytes())
		if err != nil {
			return err
		}
		if buf.Cap() > keptBuffer {
			buf = bytes.Buffer{}
		}
		if err := l.handle(m); err != nil {
			return err
		}
	}
}

// next reads one message. Every byte counts as a sign of life.
func (l *link) next(ctx context.Context, into *bytes.Buffer) error {
	kind, r, err := l.conn.Reader(ctx)
	if err != nil {
		return err
	}
	l.hear()
	if kind != websocket.MessageText {
		return fmt.Errorf("%w: messages must be text frames", wire.ErrProtocol)
	}
	_, err = into.ReadFrom(heardReader{r, l})
	return err
}

// heardReader records when bytes arrive.
type heardReader struct {
	r io.Reader
	l *link
}

func (h heardReader) Read(p []byte) (int, error) {
	n, err := h.r.Read(p)
	h.l.hear()
	return n, err
}

func (l *link) hear() { l.heard.Store(int64(time.Since(l.start))) }

// send queues a frame. Hub.mu is held.
func (l *link) send(it item) {
	l.out = append(l.out, it)
	select {
	case l.wake <- struct{}{}:
	default:
	}
}

// withdraw removes a request and its input from the queue, so that a runner that reads nothing does
// not keep them in memory. Hub.mu is held.
func (l *link) withdraw(req *request) {
	l.out = slices.DeleteFunc(l.out, func(it item) bool { return it.req == req })
}

// sendBody queues a message that always fits. Hub.mu is held.
func (l *link) sendBody(id string, t wire.Type, body any) { l.encode(id, t, body, nil) }

// sendInput queues input of a request, to be written until the request is over. Hub.mu is held.
func (l *link) sendInput(req *request, t wire.Type, body any) { l.encode(req.id, t, body, req) }

func (l *link) encode(id string, t wire.Type, body any, req *request) {
	frame, err := wire.Encode(id, t, body)
	if err != nil {
		l.hub.cfg.Log.Error("encode a message", "type", string(t), "err", err)
		l.end(websocket.StatusInternalError, "internal error")
		return
	}
	l.send(item{frame: frame, req: req})
}

// write writes queued frames until the link ends.
func (l *link) write() {
	for {
		it, ok := l.pop()
		if !ok {
			select {
			case <-l.wake:
				continue
			case <-l.ctx.Done():
				return
			}
		}
		long := len(it.frame) > longFrame
		if long { // being written to the kernel's buffer does not mean received
			l.awaitArrival(len(it.frame))
		}
		if err := l.conn.Write(l.ctx, websocket.MessageText, it.frame); err != nil {
			l.cut() // the reader notices and ends the link
			return
		}
		if long {
			l.sendPing()
		}
	}
}

// pop takes the next frame to write. A request counts as sent from then on.
func (l *link) pop() (item, bool) {
	l.hub.mu.Lock()
	defer l.hub.mu.Unlock()
	for len(l.out) > 0 {
		it := l.out[0]
		l.out[0] = item{}
		l.out = l.out[1:]
		switch {
		case l.ending != nil:
			continue
		case it.req != nil && it.req.over:
			continue
		case it.req != nil:
			it.req.sent = true
		case it.ping != 0:
			l.pingAt = time.Now()
		}
		return it, true
	}
	l.out = nil
	return item{}, false
}

// end closes the link for a reason. The machine is without a link at once. Hub.mu is held.
func (l *link) end(status websocket.StatusCode, reason string) {
	if l.ending != nil {
		return
	}
	l.ending = &closing{status, reason}
	l.hub.detach(l)
	l.hub.work.Go(func() {
		defer close(l.closeSent)
		l.close(*l.ending)
	})
}

// close sends a close frame, and waits only briefly for the answer.
func (l *link) close(c closing) {
	timer := time.AfterFunc(closeTimeout, func() {
		l.cut()
		_ = l.tcp.Close()
	})
	defer timer.Stop()
	_ = l.conn.Close(c.status, shortened(c.reason))
	l.cut()
}

// shortened cuts a sentence to fit into a close frame.
func shortened(s string) string {
	if len(s) <= maxReason {
		return s
	}
	s = s[:maxReason-len("…")]
	for !utf8.ValidString(s) {
		s = s[:len(s)-1]
	}
	return s + "…"
}

// reasonOf describes why a link ended, for the log.
func reasonOf(err error) string {
	var c websocket.CloseError
	switch {
	case errors.As(err, &c):
		return fmt.Sprintf("closed by the runner: %d %s", int(c.Code), wire.Cleaned(c.Reason))
	case errors.Is(err, io.EOF):
		return "the connection was closed"
	case errors.Is(err, context.DeadlineExceeded):
		return "timeout"
	}
	return wire.Cleaned(err.Error())
}

// isRevoked reports whether an error of Config.Valid is permanent.
func isRevoked(err error) bool {
	switch fault.CodeOf(err) {
	case fault.TokenRevoked, fault.Unauthenticated, fault.UnknownToken, fault.Forbidden:
		return true
	}
	return false
}
