package network

import (
	"bufio"
	"context"
	"crypto/tls"
	"fmt"
	"net"
	"net/http"
	"net/http/httptrace"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"secbox/audit"
	"secbox/policy"
)

// Secrets are the values of credentials. It is safe for concurrent use.
type Secrets interface {
	// Value returns the value of a secret for a host. Its error is a sentence for the job, without
	// anything of the value.
	Value(ctx context.Context, name, host string, port uint16) (string, error)
	// Hosts are the rules of all hosts that may get a secret; see policy.HostRule.
	Hosts() []string
}

// credentials are the entries of the exec's policy for a target.
func (w *Way) credentials(t target) []policy.Credential {
	if t.name == "" || len(w.exec.Credentials) == 0 {
		return nil
	}
	return policy.Values{NetCredentials: w.exec.Credentials}.Credentials(t.name, t.port)
}

// values returns the values of the entries, in their order.
func (w *Way) values(ctx context.Context, t target, entries []policy.Credential) ([]string, *refusal) {
	values := make([]string, len(entries))
	for i, c := range entries {
		var err error
		if w.network.cfg.Secrets == nil {
			return nil, refuse(audit.ConnFailed, "the secret %s is no longer there; ask the operator about sandbox.secrets", c.Secret)
		}
		if values[i], err = w.network.cfg.Secrets.Value(ctx, c.Secret, t.name, t.port); err != nil {
			return nil, refuse(audit.ConnFailed, "%s", err.Error())
		}
	}
	return values, nil
}

// CA returns the certificate of the authority, in PEM, that jobs with credentials must trust. The
// authority is made at the first call.
func (n *Network) CA() (string, error) {
	a, err := n.authority()
	if err != nil {
		return "", err
	}
	return a.pem, nil
}

// tlsTimeout is how long a TLS handshake may take.
const tlsTimeout = 10 * time.Second

// endTLS ends the TLS connection of a job in a tunnel to a host of credentials, and serves the
// requests in it.
func (w *Way) endTLS(c *clientConn, l *link, asked target) (shared bool) {
	a, err := w.network.authority()
	if err != nil {
		l.finish(audit.ConnFailed, "core-api has no certificate: "+reason(err))
		abort(c.Conn)
		return false
	}
	conn := tls.Server(c, &tls.Config{
		NextProtos:     []string{"http/1.1"},
		GetCertificate: func(*tls.ClientHelloInfo) (*tls.Certificate, error) { return a.certificate(asked.name) },
	})
	ctx, cancel := context.WithTimeout(w.ctx, tlsTimeout)
	err = conn.HandshakeContext(ctx)
	cancel()
	if err != nil {
		l.finish(audit.ConnFailed, "the job's program did not accept a TLS connection with HTTP/1.1 and the certificate of core-api, which "+
			"is in the file that SSL_CERT_FILE names: "+reason(err))
		abort(c.Conn)
		return false
	}
	inner := &clientConn{
		Conn: conn, r: bufio.NewReaderSize(conn, 4<<10), target: &asked, secure: true, spare: &atomic.Pointer[link]{},
	}
	inner.spare.Store(l)
	w.serveHTTP(inner)
	return inner.spare.Swap(nil) == nil
}

// dialTLS dials the host of a request with credentials.
func (w *Way) dialTLS(ctx context.Context, network, authority string) (net.Conn, error) {
	conn, err := w.dialRequest(ctx, network, authority)
	if err != nil {
		return nil, err
	}
	host, _, _ := splitHostPort(authority, 443)
	secured := tls.Client(conn, &tls.Config{ServerName: host, RootCAs: w.network.cfg.RootCAs, NextProtos: []string{"http/1.1"}})
	ctx, cancel := context.WithTimeout(ctx, tlsTimeout)
	defer cancel()
	if err := secured.HandshakeContext(ctx); err != nil {
		r := refuse(audit.ConnFailed, "no TLS connection to %s, so the request was not sent: %s", host, reason(err))
		conn.(*link).finish(r.end, r.sentence)
		return nil, r
	}
	return secured, nil
}

// addition is what is added to a request. The zero addition is nothing.
type addition struct {
	entries []policy.Credential
	values  []string // of the entries
}

// withCredentials returns a request to which the host's credentials are to be added, and them. The
// connection that carries the request is put on record with the names before it is sent.
func (w *Way) withCredentials(r *http.Request, t target) (*http.Request, addition, *refusal) {
	a := addition{entries: w.credentials(t)}
	if len(a.entries) == 0 {
		return r, a, nil
	}
	var refused *refusal
	if a.values, refused = w.values(r.Context(), t, a.entries); refused != nil {
		return r, a, refused
	}
	var names []string
	for _, c := range a.entries {
		names = append(names, c.Secret)
	}
	slices.Sort(names)
	names = slices.Compact(names)
	traced := httptrace.WithClientTrace(r.Context(), &httptrace.ClientTrace{GotConn: func(info httptrace.GotConnInfo) {
		if secured, ok := info.Conn.(*tls.Conn); ok {
			if l, ok := secured.NetConn().(*link); ok {
				l.use(names)
			}
		}
	}})
	return r.WithContext(traced), a, nil
}

// to adds the credentials to a request.
func (a addition) to(out *http.Request) {
	for i, c := range a.entries {
		c.Add(out, a.values[i])
	}
}

// hide takes the credentials out of the header of an answer, and removes the body of a redirect: a
// job can have most servers redirect a request, by a path such as //, to the URL with its
// parameters.
func (a addition) hide(answer *http.Response) {
	if len(a.entries) == 0 {
		return
	}
	for _, values := range answer.Header {
		for i, text := range values {
			for n, c := range a.entries {
				text = c.Hide(text, a.values[n])
			}
			values[i] = text
		}
	}
	if answer.StatusCode/100 == 3 && answer.StatusCode != http.StatusNotModified {
		_ = answer.Body.Close()
		answer.Body = http.NoBody
		answer.Header.Set("Content-Length", "0")
		answer.Header.Del("Content-Encoding")
	}
}

// use puts on record that secrets are sent. If that cannot be stored, it ends the connection.
func (l *link) use(names []string) {
	l.mu.Lock()
	if l.ended || slices.Equal(l.row.Secrets, names) {
		l.mu.Unlock()
		return
	}
	l.row.Secrets = names
	row := l.row
	l.mu.Unlock()
	ctx, cancel := context.WithTimeout(context.Background(), storeTimeout)
	defer cancel()
	if err := l.way.recorder.open(ctx, row); err != nil {
		l.mu.Lock()
		l.row.Secrets = nil
		l.mu.Unlock()
		l.finish(audit.ConnFailed, "the use of a secret could not be put on record, so the request was not sent; try again")
	}
}

// objection says why a request to a host of credentials cannot be made; "" if it can.
func (w *Way) objection(r *http.Request, t target, secure bool) string {
	switch {
	case len(w.credentials(t)) == 0:
		return ""
	case !secure:
		return fmt.Sprintf("%s is a host of net.credentials, which are only sent over TLS; use https://", t)
	case strings.EqualFold(r.Method, http.MethodTrace), strings.EqualFold(r.Method, "TRACK"):
		return r.Method + " would send the secret back"
	}
	return ""
}
