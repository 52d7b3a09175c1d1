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
	helloWithin  = 10 * time.Second // after the handshake of the WebSocket
	closeWithin  = time.Second      // for the runner to answer that the link is closed
	maxReason    = 123              // bytes of a close frame's reason
	keptBuffer   = 1 << 20          // of the buffer that messages are read into; what a larger one needed is given back
	slowestBytes = 128 << 10        // per second: a link that is slower may be given up while a long message goes out
	longFrame    = 64 << 10         // bytes from which a message is a long one
)

// link is one WebSocket of a runner. One goroutine reads it (serve), one writes it, one sends pings, one asks after the token.
type link struct {
	hub    *Hub
	caller Caller
	conn   *websocket.Conn
	tcp    net.Conn        // below conn
	ctx    context.Context // ends with the link; cutting the connection is all that it does
	cut    context.CancelFunc
	gone   chan struct{} // closed when the reader has ended: no message of this link is handled after that
	told   chan struct{} // closed when the runner was told why the link ends, if this side ended it
	heard  atomic.Int64  // when the last byte came, in nanoseconds since started
	busy   atomic.Int64  // until when a long message may keep the link from being answered; 0: it has arrived
	start  time.Time     // by the monotonic clock
	late   *lateQueue

	// Guarded by Hub.mu.
	machine *machine
	since   time.Time
	latency time.Duration
	ending  *closing // why it was ended by this side
	out     []item
	wake    chan struct{}     // has one element when out has
	ping    uint64            // the last one's number
	behind  uint64            // that of the first ping after the last long message: its pong says that the message has arrived
	pingAt  time.Time         // when it was written; zero: its pong has come
	asked   []chan<- struct{} // of those who wait for the next pong
}

// closing is why a link is ended, as the runner is told.
type closing struct {
	status websocket.StatusCode
	reason string
}

var goingAway = &closing{wire.StatusGoingAway, "the server is shutting down; dial again"}

// item is one frame to be written.
type item struct {
	frame []byte
	req   *request // whose request it is: not written any more when nobody waits
	ping  uint64   // the number of a ping: its time is taken when it is written
}

// ServeLink answers GET /ws: it takes the connection over as a runner of the caller's user, and returns when the link has ended.
func (h *Hub) ServeLink(w http.ResponseWriter, r *http.Request, caller Caller) {
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
	taken := &taken{ResponseWriter: w}
	conn, err := websocket.Accept(taken, r, nil) // answers itself what is no WebSocket's handshake
	if err != nil {
		h.cfg.Log.Info("a runner's connection was refused", "user", caller.UserID, "remote", r.RemoteAddr, "err", wire.Cleaned(err.Error()))
		return
	}
	conn.SetReadLimit(wire.MaxHello) // there may be any number of those that have said none
	ctx, cut := context.WithCancel(context.Background())
	defer cut()
	l := &link{
		hub: h, caller: caller, conn: conn, tcp: taken.conn, ctx: ctx, cut: cut, gone: make(chan struct{}), told: make(chan struct{}),
		start: time.Now(), wake: make(chan struct{}, 1), late: newLateQueue(),
	}
	l.serve(r.RemoteAddr)
}

// taken keeps the connection that was taken over. Closing it ends whatever waits for the runner, a closing handshake included, which waits
// for the rest of a frame that was begun for as long as it does not come.
type taken struct {
	http.ResponseWriter
	conn net.Conn
}

// Hijack implements http.Hijacker.
func (t *taken) Hijack() (net.Conn, *bufio.ReadWriter, error) {
	conn, rw, err := http.NewResponseController(t.ResponseWriter).Hijack()
	t.conn = conn
	return conn, rw, err
}

// serve is the link's life, from hello to its end.
func (l *link) serve(remote string) {
	h, log := l.hub, l.hub.cfg.Log.With("user", l.caller.UserID, "remote", remote)
	hello, refusal := l.greet()
	for refusal == nil {
		var former *link
		if former, refusal = h.attach(l, hello); former == nil {
			break
		}
		why := closing{wire.StatusReplaced, "this runner has dialled again"}
		if refusal != nil { // another life of a runner has this name, if it is still there: a crashed machine does not hang up
			if former.answers() {
				break
			}
			if h.life.Err() != nil { // nobody has waited for the answer
				refusal = goingAway
				break
			}
			refusal, why = nil, closing{websocket.StatusGoingAway, "it did not answer when another runner of its name came"}
		}
		h.mu.Lock()
		former.end(why.status, why.reason)
		h.mu.Unlock()
		<-former.gone
	}
	if refusal != nil {
		close(l.gone)
		log.Info("a runner was refused", "status", int(refusal.status), "reason", refusal.reason)
		l.close(*refusal)
		return
	}
	l.conn.SetReadLimit(wire.MaxMessage)
	log = log.With("runner", hello.Name)
	log.Info("a runner is connected", "version", hello.Version, "os", hello.OS, "arch", hello.Arch, "allow", hello.Allow, "held", len(hello.Held))
	for _, run := range []func(){l.write, l.beat, l.watchToken, l.recordLate} {
		h.work.Go(run)
	}
	err := l.read()
	close(l.gone)

	h.mu.Lock()
	if errors.Is(err, wire.ErrProtocol) {
		l.end(wire.StatusProtocol, err.Error())
	}
	h.detach(l)
	ending := l.ending
	h.mu.Unlock()
	if ending == nil {
		log.Info("a runner's link has ended", "reason", reasonOf(err))
	} else {
		log.Info("a runner's link was closed", "status", int(ending.status), "reason", ending.reason)
		<-l.told
	}
	l.cut()
	_ = l.conn.CloseNow()
}

// isGone reports whether the reader has ended. One of a link that was ended may be at work for a moment more.
func (l *link) isGone() bool {
	select {
	case <-l.gone:
		return true
	default:
		return false
	}
}

// greet reads the hello.
func (l *link) greet() (*wire.Hello, *closing) {
	ctx, stop := context.WithTimeout(l.ctx, helloWithin)
	defer stop()
	defer context.AfterFunc(l.hub.life, stop)()
	var buf bytes.Buffer
	if err := l.next(ctx, &buf); err != nil {
		if l.hub.life.Err() != nil {
			return nil, goingAway
		}
		return nil, &closing{wire.StatusProtocol, "no hello has come: " + reasonOf(err)}
	}
	m, err := wire.FromRunner(buf.Bytes())
	if err != nil {
		return nil, &closing{wire.StatusProtocol, err.Error()}
	}
	hello, ok := m.Body.(*wire.Hello)
	switch {
	case !ok:
		return nil, &closing{wire.StatusProtocol, "the first message must be hello"}
	case hello.Protocol < wire.Version:
		return nil, &closing{wire.StatusVersion, fmt.Sprintf("update secbox on this machine: it speaks protocol %d, the server %d",
			hello.Protocol, wire.Version)}
	case hello.Protocol > wire.Version:
		return nil, &closing{wire.StatusVersion, fmt.Sprintf("update core-api: it speaks protocol %d, this runner %d", wire.Version, hello.Protocol)}
	}
	if err := l.hub.cfg.Valid(ctx, l.caller.TokenID); isRevoked(err) { // it may have been taken back since the request was let in
		return nil, &closing{wire.StatusRevoked, "the runner's token was revoked"}
	}
	return hello, nil
}

// read handles what comes until the link ends.
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

// next reads one message. Every byte of it counts as heard.
func (l *link) next(ctx context.Context, into *bytes.Buffer) error {
	kind, r, err := l.conn.Reader(ctx)
	if err != nil {
		return err
	}
	l.hear()
	if kind != websocket.MessageText {
		return fmt.Errorf("%w: messages are text frames", wire.ErrProtocol)
	}
	_, err = into.ReadFrom(heardReader{r, l})
	return err
}

// heardReader notes that bytes come.
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

// send queues a frame. Called with Hub.mu held.
func (l *link) send(it item) {
	l.out = append(l.out, it)
	select {
	case l.wake <- struct{}{}:
	default:
	}
}

// withdraw takes a request out of the queue: a runner that reads nothing would have its frame kept for as long as it likes. Called with
// Hub.mu held.
func (l *link) withdraw(req *request) {
	l.out = slices.DeleteFunc(l.out, func(it item) bool { return it.req == req })
}

// sendBody queues a message that always fits.
func (l *link) sendBody(id string, t wire.Type, body any) {
	frame, err := wire.Encode(id, t, body)
	if err != nil {
		l.hub.cfg.Log.Error("a message could not be made", "type", string(t), "err", err)
		l.end(websocket.StatusInternalError, "an internal error")
		return
	}
	l.send(item{frame: frame})
}

// write writes what is queued until the link ends.
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
		if long { // a ping that the kernel takes is no sign of life
			l.awaitArrival(len(it.frame))
		}
		if err := l.conn.Write(l.ctx, websocket.MessageText, it.frame); err != nil {
			l.cut() // the reader sees it and ends the link
			return
		}
		if long {
			l.sendPing()
		}
	}
}

// pop takes the next frame to be written; a request counts as sent from here on.
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

// end closes the link for a reason. The machine is without it at once. Called with Hub.mu held.
func (l *link) end(status websocket.StatusCode, reason string) {
	if l.ending != nil {
		return
	}
	l.ending = &closing{status, reason}
	l.hub.detach(l)
	l.hub.work.Go(func() {
		defer close(l.told)
		l.close(*l.ending)
	})
}

// close tells the runner why, and does not wait long for its answer.
func (l *link) close(c closing) {
	timer := time.AfterFunc(closeWithin, func() {
		l.cut()
		_ = l.tcp.Close()
	})
	defer timer.Stop()
	_ = l.conn.Close(c.status, shortened(c.reason))
	l.cut()
}

// shortened is a sentence as a close frame takes it.
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

// reasonOf is why a link ended, for a line of the log.
func reasonOf(err error) string {
	var c websocket.CloseError
	switch {
	case errors.As(err, &c):
		return fmt.Sprintf("closed by the runner: %d %s", int(c.Code), wire.Cleaned(c.Reason))
	case errors.Is(err, io.EOF):
		return "the connection was closed"
	case errors.Is(err, context.DeadlineExceeded):
		return "it took too long"
	}
	return wire.Cleaned(err.Error())
}

// isRevoked reports whether an error of Config.Valid means that the token will not be valid again.
func isRevoked(err error) bool {
	switch fault.CodeOf(err) {
	case fault.TokenRevoked, fault.Unauthenticated, fault.UnknownToken, fault.Forbidden:
		return true
	}
	return false
}
