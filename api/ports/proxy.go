package ports

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"net/http"
	"net/http/httputil"
	"strings"
	"time"
)

// Request is what a Proxy is to do with a request.
type Request struct {
	Dial       func(context.Context) (net.Conn, error) // to the server in the session
	RawQuery   string                                  // without links
	Secure     bool                                    // the client's connection is TLS
	KeepBearer bool                                    // the header Authorization is the application's
}

type requestKey struct{}

// Proxy passes requests to servers in sessions. It is safe for concurrent use.
type Proxy struct{ requests *http.Transport }

const maxHeader = 64 << 10 // bytes of an answer's header

// NewProxy makes a Proxy. answer is how long a server may take until it sends a header.
func NewProxy(answer time.Duration) *Proxy {
	return &Proxy{requests: &http.Transport{
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			of, _ := ctx.Value(requestKey{}).(Request)
			return of.Dial(ctx)
		},
		// A connection for each request belongs to one visitor, with its bytes and its place.
		DisableKeepAlives: true, DisableCompression: true, MaxResponseHeaderBytes: maxHeader, ResponseHeaderTimeout: answer,
	}}
}

// unhooked is a transport without the hooks of httputil.ReverseProxy. They would pass on answers
// such as 103 with cookies and all, in any number, to a client that need not read them.
type unhooked struct{ http.RoundTripper }

func (u unhooked) RoundTrip(r *http.Request) (*http.Response, error) {
	return u.RoundTripper.RoundTrip(r.WithContext(onlyRequest{r.Context()}))
}

// onlyRequest is a context with the value of requestKey alone.
type onlyRequest struct{ context.Context }

func (c onlyRequest) Value(key any) any {
	if key == (requestKey{}) {
		return c.Context.Value(key)
	}
	return nil
}

// ErrNoAnswer is the error of a server that has sent no header in time.
var ErrNoAnswer = errors.New("the server in the session did not answer in time")

// Serve answers a request with the answer of a server in a session. The end of the request's
// context ends both; for a WebSocket, w is of Paced. After an error, nothing was sent: the error is
// Dial's, ErrNoAnswer, or about an answer that is no HTTP.
func (p *Proxy) Serve(w http.ResponseWriter, r *http.Request, of Request) (err error) {
	proxy := httputil.ReverseProxy{
		Transport: unhooked{p.requests}, FlushInterval: -1, ErrorLog: slog.NewLogLogger(slog.DiscardHandler, slog.LevelDebug),
		Rewrite: func(asked *httputil.ProxyRequest) {
			out := asked.Out
			out.URL.Scheme, out.URL.Host, out.URL.RawQuery = "http", "session", of.RawQuery
			out.Host = asked.In.Host
			cleanRequest(out.Header, of.KeepBearer)
			out.Header.Set("X-Forwarded-Host", asked.In.Host)
			out.Header.Set("X-Forwarded-Proto", "http")
			if of.Secure {
				out.Header.Set("X-Forwarded-Proto", "https")
			}
		},
		ModifyResponse: func(answer *http.Response) error {
			cleanAnswer(answer.Header)
			return nil
		},
		ErrorHandler: func(_ http.ResponseWriter, _ *http.Request, cause error) {
			if timeout, ok := errors.AsType[net.Error](cause); ok && timeout.Timeout() && r.Context().Err() == nil {
				cause = ErrNoAnswer
			}
			err = cause
		},
	}
	proxy.ServeHTTP(w, r.WithContext(context.WithValue(r.Context(), requestKey{}, of)))
	return err
}

// ofClient are headers by which proxies tell about the client, whom the application need not know.
// httputil.ReverseProxy removes the others.
var ofClient = []string{
	"X-Real-Ip", "Via", "X-Forwarded-Server", "X-Forwarded-Port", "X-Client-Ip", "X-Cluster-Client-Ip", "X-Original-Forwarded-For",
	"X-Envoy-External-Address", "True-Client-Ip", "Cf-Connecting-Ip", "Cf-Connecting-Ipv6", "Fastly-Client-Ip", "Fly-Client-Ip",
}

// cleanRequest removes what is secbox's.
func cleanRequest(h http.Header, keepBearer bool) {
	if !keepBearer {
		h.Del("Authorization")
	}
	for _, name := range ofClient {
		h.Del(name)
	}
	var kept []string
	for _, line := range h.Values("Cookie") {
		for cookie := range strings.SplitSeq(line, ";") {
			if name, _, _ := strings.Cut(cookie, "="); !isOurs(name) {
				kept = append(kept, strings.TrimSpace(cookie))
			}
		}
	}
	h.Del("Cookie")
	if len(kept) > 0 {
		h.Set("Cookie", strings.Join(kept, "; "))
	}
}

// cleanAnswer keeps an answer from having effects outside its own host.
func cleanAnswer(h http.Header) {
	cookies := h.Values("Set-Cookie")
	h.Del("Set-Cookie")
	for _, cookie := range cookies {
		if name, _, _ := strings.Cut(cookie, "="); isOurs(name) {
			continue
		}
		parts := strings.Split(cookie, ";")
		kept := parts[:1]
		for _, attribute := range parts[1:] {
			if name, _, _ := strings.Cut(attribute, "="); !strings.EqualFold(strings.TrimSpace(name), "Domain") {
				kept = append(kept, attribute)
			}
		}
		h.Add("Set-Cookie", strings.Join(kept, ";"))
	}
	// Clear-Site-Data clears cookies of hosts above; Alt-Svc names another server for this host.
	for _, name := range []string{"Clear-Site-Data", "Alt-Svc"} {
		h.Del(name)
	}
}
