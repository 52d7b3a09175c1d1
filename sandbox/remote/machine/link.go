package machine

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"runtime"
	"sync"
	"sync/atomic"
	"time"

	"github.com/coder/websocket"

	"secbox/fault"
	"secbox/sandbox/remote/wire"
)

// How long a step may take until the link is given up.
const (
	dialTimeout    = 10 * time.Second // for the connection, and again for TLS, and again for the answer
	welcomeTimeout = 15 * time.Second
	lastWords      = 3 * time.Second // for the results of what was killed at the end, and for the closing of a link
)

// silentAfter is how many heartbeats may fail to come.
const silentAfter = 3

// Bounds of the heartbeat that core-api asks for.
const (
	fastestHeartbeat = 10 * time.Millisecond
	slowestHeartbeat = time.Minute
)

// ended is why there is no link any more, or never was.
type ended struct {
	err      error // with a fault code when it is final
	final    bool  // dialling again would end in the same way
	welcomed bool
	lasted   time.Duration // since the welcome
}

func (e ended) word() string {
	if e.welcomed {
		return "the link is lost"
	}
	return "core-api cannot be reached"
}

// pulse is a connection that knows when something was last heard, and does not write to somebody who takes nothing.
type pulse struct {
	net.Conn
	start    time.Time
	heard    atomic.Int64 // since start
	patience atomic.Int64 // for one write, of a few KiB
}

func newPulse(c net.Conn, patience time.Duration) *pulse {
	p := &pulse{Conn: c, start: time.Now()}
	p.patience.Store(int64(patience))
	return p
}

func (p *pulse) Read(b []byte) (int, error) {
	n, err := p.Conn.Read(b)
	if n > 0 {
		p.beat()
	}
	return n, err
}

func (p *pulse) Write(b []byte) (int, error) {
	if err := p.SetWriteDeadline(time.Now().Add(time.Duration(p.patience.Load()))); err != nil {
		return 0, err
	}
	return p.Conn.Write(b)
}

func (p *pulse) beat() { p.heard.Store(int64(time.Since(p.start))) }

func (p *pulse) silence() time.Duration { return time.Since(p.start) - time.Duration(p.heard.Load()) }

// link is one WebSocket.
type link struct {
	m       *Machine
	conn    *websocket.Conn
	pulse   *pulse
	idle    atomic.Bool // the reader waits for core-api, not for us
	control chan []byte // what is not in the journal: answers to pings, refusals
}

// link dials, and serves until the link ends. again: there was one before.
func (m *Machine) link(ctx context.Context, again bool) ended {
	l := &link{m: m, control: make(chan []byte, 16)}
	if e := l.dial(ctx, again); e.err != nil {
		return e
	}
	defer func() { _ = l.conn.CloseNow() }()
	welcome, err := l.greet(ctx)
	if err != nil {
		return l.failed(err, again)
	}
	heartbeat := min(max(time.Duration(welcome.HeartbeatMS)*time.Millisecond, fastestHeartbeat), slowestHeartbeat)
	l.pulse.patience.Store(int64(silentAfter * heartbeat))
	resumed, unexpected := m.journal.attach(welcome.Expects)
	m.log.Info("connected", "server", address(m.server), "server_version", welcome.Version, "user", welcome.UserID, "runner", m.name,
		"allowed", granted(m.allow))
	if resumed+unexpected > 0 {
		m.log.Info("requests of the former link", "go_on", resumed, "given_up_by_core_api", unexpected)
	}
	since := time.Now()
	err = l.serve(ctx, heartbeat)
	e := l.failed(err, true)
	e.welcomed, e.lasted = true, time.Since(since)
	return e
}

// serve reads, writes and watches until one of them fails or ctx ends; then it says what is left to say.
func (l *link) serve(ctx context.Context, heartbeat time.Duration) error {
	// Reads must not end with ctx: the results of what is killed are acknowledged.
	linked, give := context.WithCancelCause(context.WithoutCancel(ctx))
	defer give(nil)
	l.m.present.begin(linked)
	defer l.m.present.end()
	var all sync.WaitGroup
	all.Go(func() { give(l.read(linked)) })
	all.Go(func() { give(l.write(linked)) })
	all.Go(func() { give(l.watch(linked, heartbeat)) })
	select {
	case <-linked.Done():
	case <-ctx.Done():
		l.m.log.Info("stopping: commands that still run are killed")
		l.m.journal.stop()
		last := time.NewTimer(lastWords)
		select {
		case <-l.m.journal.settled:
		case <-last.C:
		case <-linked.Done():
		}
		last.Stop()
		l.close(websocket.StatusGoingAway, "the runner was stopped")
		give(ctx.Err())
	}
	err := context.Cause(linked)
	if errors.Is(err, wire.ErrProtocol) {
		// The writer may be at work still; what it writes is whole messages.
		l.close(wire.StatusProtocol, err.Error())
	}
	l.pulse.Close()
	all.Wait()
	return err
}

// close says why and does not wait long for the other side to have understood.
func (l *link) close(status websocket.StatusCode, why string) {
	if len(why) > 120 {
		why = why[:120]
	}
	abandon := time.AfterFunc(lastWords, func() { l.pulse.Close() })
	defer abandon.Stop()
	_ = l.conn.Close(status, wire.Cleaned(why))
}

// errSilent is a link on which nothing was heard for too long.
var errSilent = errors.New("core-api is silent")

func (l *link) watch(ctx context.Context, heartbeat time.Duration) error {
	tick := time.NewTicker(heartbeat / 2)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-tick.C:
			if silence := l.pulse.silence(); l.idle.Load() && silence > silentAfter*heartbeat {
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

// next reads a message into buf, which it does not let grow for ever.
func (l *link) next(ctx context.Context, buf *bytes.Buffer) ([]byte, error) {
	if buf.Cap() > 1<<20 {
		*buf = bytes.Buffer{}
	}
	buf.Reset()
	l.pulse.beat() // what was not read before was our own fault
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

// say sends something that is not in the journal, after what was said so before.
func (l *link) say(ctx context.Context, id string, t wire.Type, body any) error {
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
		select {
		case data := <-l.control:
			if err := l.conn.Write(ctx, websocket.MessageText, data); err != nil {
				return err
			}
			continue
		default:
		}
		if f := l.m.journal.pop(); f != nil {
			data, err := wire.Encode(f.id, f.typ, f.body)
			if err != nil {
				l.m.log.Error("a result cannot be put into a message", "id", f.id, "error", err)
				data, err = wire.Encode(f.id, wire.TypeError, &wire.Error{Code: wire.CodeFailed, Message: "the result cannot be put into a message"})
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

// greet says hello and waits for the welcome.
func (l *link) greet(ctx context.Context) (*wire.Welcome, error) {
	ctx, cancel := context.WithTimeout(ctx, welcomeTimeout)
	defer cancel()
	m := l.m
	hello, err := wire.Encode("", wire.TypeHello, &wire.Hello{
		Protocol: wire.Version, Session: m.session, Name: m.name, Version: m.version, OS: runtime.GOOS, Arch: runtime.GOARCH,
		Shell: m.shell, Allow: m.allow, Held: m.journal.ids(),
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
		l.close(wire.StatusProtocol, err.Error())
		return nil, err
	}
	welcome, ok := msg.Body.(*wire.Welcome)
	if !ok {
		err := fmt.Errorf("%w: %s came before the welcome", wire.ErrProtocol, msg.Type)
		l.close(wire.StatusProtocol, err.Error())
		return nil, err
	}
	if welcome.Protocol != wire.Version {
		err := otherVersion{welcome.Protocol}
		l.close(wire.StatusVersion, err.Error())
		return nil, err
	}
	return welcome, nil
}

// otherVersion is a core-api that speaks another version of the protocol.
type otherVersion struct{ theirs int }

func (o otherVersion) Error() string {
	if o.theirs > wire.Version {
		return fmt.Sprintf("core-api speaks version %d of the runners' protocol, this secbox version %d: update secbox on this machine", o.theirs, wire.Version)
	}
	return fmt.Sprintf("core-api speaks version %d of the runners' protocol, this secbox version %d: have core-api updated, or use an older secbox", o.theirs, wire.Version)
}

// dial opens the WebSocket.
func (l *link) dial(ctx context.Context, again bool) ended {
	m := l.m
	transport := &http.Transport{
		Proxy: http.ProxyFromEnvironment,
		DialContext: func(ctx context.Context, network, addr string) (net.Conn, error) {
			c, err := (&net.Dialer{Timeout: dialTimeout, KeepAlive: 15 * time.Second}).DialContext(ctx, network, addr)
			if err != nil {
				return nil, err
			}
			l.pulse = newPulse(c, dialTimeout)
			return l.pulse, nil
		},
		TLSHandshakeTimeout:   dialTimeout,
		ResponseHeaderTimeout: dialTimeout,
		TLSClientConfig:       &tls.Config{MinVersion: tls.VersionTLS12},
		DisableKeepAlives:     true,
	}
	conn, resp, err := websocket.Dial(ctx, m.server.String()+wire.LinkPath, &websocket.DialOptions{
		HTTPClient: &http.Client{
			Transport:     transport,
			CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }, // the token is for this server only
		},
		HTTPHeader:      http.Header{"Authorization": {"Bearer " + m.token}, "User-Agent": {"secbox/" + m.version}},
		CompressionMode: websocket.CompressionDisabled,
	})
	if err == nil {
		conn.SetReadLimit(wire.MaxMessage)
		l.conn = conn
		return ended{}
	}
	if resp != nil {
		defer resp.Body.Close()
		return m.refused(resp, again)
	}
	return m.unreachable(err, again)
}

// unreachable is what it means that there was no answer.
func (m *Machine) unreachable(err error, again bool) ended {
	var unknown x509.UnknownAuthorityError
	var host x509.HostnameError
	var invalid x509.CertificateInvalidError
	var record tls.RecordHeaderError
	at := address(m.server)
	switch {
	case errors.As(err, &unknown), errors.As(err, &host), errors.As(err, &invalid):
		err = fault.Wrap(fault.RunnerOffline, err, "the certificate of %s is not trusted here (%s); have it signed by an authority that this machine trusts, or %s", at, inner(err), trust())
		return ended{err: shown{err}, final: !again}
	case errors.As(err, &record):
		err = fault.Wrap(fault.RunnerOffline, err, "%s does not speak TLS; is it ws:// instead of wss://?", at)
		return ended{err: shown{err}, final: !again}
	}
	return ended{err: fmt.Errorf("%s does not answer: %w", at, inner(err))}
}

// trust is how a machine comes to trust an authority of one's own.
func trust() string {
	if runtime.GOOS == "linux" {
		return "name the file with that one's certificate in the variable SSL_CERT_FILE"
	}
	return "add that one's certificate to those that the system trusts"
}

// inner is the cause of a failed request without the words around it, which repeat the address.
func inner(err error) error {
	var op *net.OpError
	if errors.As(err, &op) {
		return op
	}
	for {
		next := errors.Unwrap(err)
		if next == nil {
			return err
		}
		err = next
	}
}

// refused is what it means that core-api, or whoever it is, does not take the link.
func (m *Machine) refused(resp *http.Response, again bool) ended {
	var problem struct {
		Code   fault.Code `json:"code"`
		Detail string     `json:"detail"`
	}
	body, _ := io.ReadAll(io.LimitReader(resp.Body, 4<<10)) // the library gives no more than the first KiB
	_ = json.Unmarshal(body, &problem)
	detail := wire.Cleaned(problem.Detail)
	if detail == "" {
		detail = http.StatusText(resp.StatusCode)
	}
	at, status := address(m.server), resp.StatusCode
	end := func(code fault.Code, format string, args ...any) ended {
		return ended{err: shown{fault.New(code, format, args...)}, final: true}
	}
	switch {
	case status == http.StatusUnauthorized && problem.Code == fault.TokenRevoked:
		return end(fault.TokenRevoked, "core-api at %s: %s", at, detail)
	case status == http.StatusUnauthorized:
		return end(fault.Unauthenticated, "core-api at %s: %s; core-api makes a token with: core-api token create --role runner --user NAME", at, detail)
	case status == http.StatusForbidden:
		return end(fault.Forbidden, "core-api at %s: %s", at, detail)
	case status == http.StatusTooManyRequests || status == http.StatusRequestTimeout || status >= 500 || again:
		return ended{err: fmt.Errorf("core-api at %s answered %d: %s", at, status, detail)}
	case status >= 300 && status < 400:
		return end(fault.RunnerOffline, "%s sends elsewhere (%d), and the token is not sent after it; give the address of core-api itself with --server", at, status)
	}
	return end(fault.RunnerOffline, "%s is no core-api that takes runners: it answered %d %s; give the address of core-api with --server", at, status, detail)
}

// failed is what the end of a link that was opened means.
func (l *link) failed(err error, again bool) ended {
	var closed websocket.CloseError
	var version otherVersion
	at := address(l.m.server)
	end := func(code fault.Code, format string, args ...any) ended {
		return ended{err: shown{fault.New(code, format, args...)}, final: true}
	}
	if errors.As(err, &version) {
		return end(fault.RunnerProtocol, "%s", version)
	}
	if !errors.As(err, &closed) {
		if errors.Is(err, io.EOF) || errors.Is(err, net.ErrClosed) {
			err = errors.New("the connection was closed")
		}
		return ended{err: err}
	}
	why := wire.Cleaned(closed.Reason)
	switch closed.Code {
	case wire.StatusRevoked:
		return end(fault.TokenRevoked, "core-api at %s has taken the token back, or changed what it may do (%s); ask for a new one", at, why)
	case wire.StatusVersion:
		return end(fault.RunnerProtocol, "core-api at %s speaks another version of the runners' protocol than this secbox, which speaks %d: %s", at, wire.Version, why)
	case wire.StatusNameInUse:
		e := end(fault.RunnerNameInUse, "another runner of this user is connected as %s; give this one another --name, or end that one (%s)", l.m.name, why)
		e.final = !again // our own former link may still be thought alive
		return e
	case wire.StatusProtocol:
		e := end(fault.RunnerProtocol, "core-api at %s does not understand this secbox: %s; are both of the same version?", at, why)
		e.final = !again
		return e
	case wire.StatusReplaced:
		return ended{err: errors.New("core-api has a newer link of this runner")}
	case websocket.StatusGoingAway:
		return ended{err: fmt.Errorf("core-api is going away (%s)", why)}
	}
	return ended{err: fmt.Errorf("core-api closed the link: %d %s", closed.Code, why)}
}

// shown is a fault whose text in a log is what the user is told, without the code.
type shown struct{ error }

func (s shown) Error() string {
	var f *fault.Error
	if errors.As(s.error, &f) {
		return f.Message
	}
	return s.error.Error()
}

func (s shown) Unwrap() error { return s.error }
