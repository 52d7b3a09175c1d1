package machine

import (
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"runtime"
	"time"

	"github.com/coder/websocket"

	"secbox/fault"
	"secbox/sandbox/remote/wire"
)

// linkEnd is why a link ended, or was never opened.
type linkEnd struct {
	err      error // with a fault code if final
	final    bool  // another attempt would end in the same way
	welcomed bool
	lasted   time.Duration // since the welcome
}

// finalEnd returns an end that no other attempt would avoid.
func finalEnd(code fault.Code, format string, args ...any) linkEnd {
	return linkEnd{err: plainError{fault.New(code, format, args...)}, final: true}
}

func (e linkEnd) summary() string {
	if e.welcomed {
		return "the link is lost"
	}
	return "core-api cannot be reached"
}

// versionError is the error for a core-api with another version of the protocol.
type versionError struct{ theirs int }

func (o versionError) Error() string {
	if o.theirs > wire.Version {
		return fmt.Sprintf("core-api speaks version %d of the runners' protocol, this secbox version %d: update secbox on this machine",
			o.theirs, wire.Version)
	}
	return fmt.Sprintf("core-api speaks version %d of the runners' protocol, this secbox version %d: update core-api, or use an older secbox", o.theirs, wire.Version)
}

// dial opens the WebSocket.
func (l *link) dial(ctx context.Context, again bool) linkEnd {
	m := l.m
	client := newClient(func(c net.Conn) net.Conn {
		l.tcp = newMonitoredConn(c, dialTimeout)
		return l.tcp
	}, &http.Transport{ResponseHeaderTimeout: dialTimeout, DisableKeepAlives: true})
	conn, resp, err := websocket.Dial(ctx, m.server.String()+wire.LinkPath, &websocket.DialOptions{
		HTTPClient:      client,
		HTTPHeader:      http.Header{"Authorization": {"Bearer " + m.token}, "User-Agent": {"secbox/" + m.version}},
		CompressionMode: websocket.CompressionDisabled,
	})
	if err == nil {
		conn.SetReadLimit(wire.MaxMessage)
		l.conn = conn
		return linkEnd{}
	}
	if resp != nil {
		defer resp.Body.Close()
		return m.endOnStatus(resp, again)
	}
	return m.endOnDialError(err, again)
}

// newClient returns an HTTP client that wraps its connections. It follows no redirects, because the
// token is for one server only.
func newClient(wrap func(net.Conn) net.Conn, transport *http.Transport) *http.Client {
	transport.Proxy = http.ProxyFromEnvironment
	transport.TLSHandshakeTimeout = dialTimeout
	transport.TLSClientConfig = &tls.Config{MinVersion: tls.VersionTLS12}
	transport.DialContext = func(ctx context.Context, network, addr string) (net.Conn, error) {
		c, err := (&net.Dialer{Timeout: dialTimeout, KeepAlive: 15 * time.Second}).DialContext(ctx, network, addr)
		if err != nil {
			return nil, err
		}
		return wrap(c), nil
	}
	return &http.Client{
		Transport:     transport,
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
}

// endOnDialError is the end after an attempt without an answer.
func (m *Machine) endOnDialError(err error, again bool) linkEnd {
	var untrusted *tls.CertificateVerificationError // whatever the system's own verifier says, as on Windows
	var record tls.RecordHeaderError
	at := m.server
	switch {
	case errors.As(err, &untrusted):
		err = fault.Wrap(fault.RunnerOffline, err,
			"the certificate of %s is not trusted here (%s); have it signed by an authority that this machine trusts, or %s",
			at, wire.Cleaned(rootCause(err).Error()), trustAdvice()) // the certificate is untrusted text
		return linkEnd{err: plainError{err}, final: !again}
	case errors.As(err, &record):
		err = fault.Wrap(fault.RunnerOffline, err, "%s does not speak TLS; is it ws:// instead of wss://?", at)
		return linkEnd{err: plainError{err}, final: !again}
	}
	return linkEnd{err: fmt.Errorf("%s does not answer: %w", at, rootCause(err))}
}

// trustAdvice tells how to trust a private authority.
func trustAdvice() string {
	if runtime.GOOS == "linux" {
		return "name the file with the authority's certificate in the variable SSL_CERT_FILE"
	}
	return "add the authority's certificate to those that the system trusts"
}

// rootCause returns the cause of a failed request, without the wrapping that repeats the address.
func rootCause(err error) error {
	if op, ok := errors.AsType[*net.OpError](err); ok {
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

// endOnStatus is the end after an HTTP response that refuses the link.
func (m *Machine) endOnStatus(resp *http.Response, again bool) linkEnd {
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
	at, status := m.server, resp.StatusCode
	switch {
	case status == http.StatusUnauthorized && problem.Code == fault.TokenRevoked:
		return finalEnd(fault.TokenRevoked, "core-api at %s: %s", at, detail)
	case status == http.StatusUnauthorized:
		return finalEnd(fault.Unauthenticated,
			"core-api at %s: %s; core-api makes a token with: core-api token create --role runner --user NAME", at, detail)
	case status == http.StatusForbidden:
		return finalEnd(fault.Forbidden, "core-api at %s: %s", at, detail)
	case status == http.StatusTooManyRequests || status == http.StatusRequestTimeout || status >= 500 || again:
		return linkEnd{err: fmt.Errorf("core-api at %s answered %d: %s", at, status, detail)}
	case status >= 300 && status < 400:
		return finalEnd(fault.RunnerOffline,
			"%s redirects (%d), and the token is not sent there; give the address of core-api itself with --server", at, status)
	}
	return finalEnd(fault.RunnerOffline,
		"%s is not a core-api that takes runners: it answered %d %s; give the address of core-api with --server", at, status, detail)
}

// endOnClose is the end of a link that was opened.
func (l *link) endOnClose(err error, again bool) linkEnd {
	var closed websocket.CloseError
	at := l.m.server
	if version, ok := errors.AsType[versionError](err); ok {
		return finalEnd(fault.RunnerProtocol, "%s", version)
	}
	if !errors.As(err, &closed) {
		if errors.Is(err, io.EOF) || errors.Is(err, net.ErrClosed) {
			err = errors.New("the connection was closed")
		}
		return linkEnd{err: err}
	}
	why := wire.Cleaned(closed.Reason)
	switch closed.Code {
	case wire.StatusRevoked:
		return finalEnd(fault.TokenRevoked, "core-api at %s has revoked the token, or changed its permissions (%s); ask for a new one", at,
			why)
	case wire.StatusVersion:
		return finalEnd(fault.RunnerProtocol,
			"core-api at %s speaks another version of the runners' protocol than this secbox, which speaks %d: %s", at, wire.Version, why)
	case wire.StatusNameInUse:
		e := finalEnd(fault.RunnerNameInUse,
			"another runner of this user is connected as %s; give this one another --name, or stop the other", l.m.name)
		e.final = !again // core-api may still think that our former link is alive
		return e
	case wire.StatusProtocol:
		e := finalEnd(fault.RunnerProtocol, "core-api at %s does not understand this secbox: %s; are both of the same version?", at, why)
		e.final = !again
		return e
	case wire.StatusReplaced:
		return linkEnd{err: errors.New("core-api has a newer link of this runner")}
	case websocket.StatusGoingAway:
		return linkEnd{err: fmt.Errorf("core-api is going away (%s)", why)}
	}
	return linkEnd{err: fmt.Errorf("core-api closed the link: %d %s", closed.Code, why)}
}

// plainError is a fault whose Error is its message, without the code.
type plainError struct{ error }

func (s plainError) Error() string {
	if f, ok := errors.AsType[*fault.Error](s.error); ok {
		return f.Message
	}
	return s.error.Error()
}

func (s plainError) Unwrap() error { return s.error }
