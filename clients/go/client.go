package client

import (
	"bytes"
	"context"
	"crypto/rand"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"mime"
	"net"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"time"
)

// Config configures a Client.
type Config struct {
	Server    string        // such as http://127.0.0.1:8003, which is the default
	Token     string        // empty: none
	Insecure  bool          // sends the token over plain http to another machine
	HTTP      *http.Client  // nil: a client with connections of its own; redirects are never followed
	UserAgent string        // empty: secbox-go
	Patience  time.Duration // how long a request is repeated while the server is busy or restarts; 0: 30 seconds, negative: never
}

// DefaultServer is the address of a core-api on this machine.
const DefaultServer = "http://127.0.0.1:8003"

// Client uses a core-api.
type Client struct {
	cfg  Config
	base *url.URL
	http *http.Client

	reached atomic.Bool // a core-api has answered before
}

// New returns a Client. It makes no request.
func New(cfg Config) (*Client, error) {
	if cfg.Server == "" {
		cfg.Server = DefaultServer
	}
	base, err := url.Parse(cfg.Server)
	if err != nil || base.Host == "" || base.Scheme != "http" && base.Scheme != "https" || base.User != nil || base.RawQuery != "" ||
		base.Fragment != "" {
		return nil, fmt.Errorf("%q is not the address of a core-api; use one like %s", cfg.Server, DefaultServer)
	}
	base.Path = strings.TrimSuffix(base.Path, "/")
	if cfg.Token != "" && base.Scheme == "http" && !cfg.Insecure && !isLoopback(base.Hostname()) {
		return nil, fmt.Errorf("the token would go to %s in plain text, where others can read it; use https://", base.Host)
	}
	c := &Client{cfg: cfg, base: base, http: &http.Client{}}
	if cfg.HTTP != nil {
		*c.http = *cfg.HTTP
	}
	if c.http.Transport == nil {
		transport := http.DefaultTransport.(*http.Transport).Clone()
		transport.DialContext = (&net.Dialer{Timeout: 10 * time.Second, KeepAlive: 15 * time.Second}).DialContext
		transport.MaxIdleConnsPerHost = 16
		c.http.Transport = transport
	}
	c.http.CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse } // they would get the token
	if c.cfg.Patience == 0 {
		c.cfg.Patience = 30 * time.Second
	}
	if c.cfg.UserAgent == "" {
		c.cfg.UserAgent = "secbox-go"
	}
	return c, nil
}

func isLoopback(host string) bool {
	ip := net.ParseIP(host)
	return host == "localhost" || ip != nil && ip.IsLoopback()
}

// Server returns the server's address.
func (c *Client) Server() string { return c.base.String() }

// Error is a refusal of core-api. With the Code Unreachable or NotCoreAPI it says why there is no
// answer of a core-api.
type Error struct {
	Status int    `json:"status"` // of HTTP; 0: no answer
	Code   string `json:"code"`   // see /docs of the server
	Detail string `json:"detail"` // what is wrong, and the remedy
	Fields []struct {
		Field  string `json:"field"`
		Reason string `json:"reason"`
	} `json:"errors"`
	ExecID     string        `json:"exec_id"` // the record of the refusal, if there is one
	RetryAfter time.Duration `json:"-"`       // 0: not said

	cause error
}

// Codes of errors that are not of core-api.
const (
	Unreachable = "unreachable"  // there is no answer
	NotCoreAPI  = "not_core_api" // something else answers at the address
)

// Error returns the detail, which has the remedy, with the fields that are wrong.
func (e *Error) Error() string {
	text := e.Detail
	for _, f := range e.Fields {
		if !strings.Contains(text, f.Reason) {
			text += "; " + f.Field + " " + f.Reason
		}
	}
	return text
}

// Unwrap returns the error of the connection, if any.
func (e *Error) Unwrap() error { return e.cause }

// CodeOf returns the code of an Error; empty for any other error.
func CodeOf(err error) string {
	if e, ok := errors.AsType[*Error](err); ok {
		return e.Code
	}
	return ""
}

// NewKey returns a new Idempotency-Key.
func NewKey() string { return "go-" + strings.ToLower(rand.Text()) }

// call is a request.
type call struct {
	method, path string
	query        url.Values
	header       map[string]string
	body         any       // sent as JSON; nil: none
	content      io.Reader // sent as it is; nil: none
	once         bool      // the request must not be repeated
}

const (
	maxAnswer = 64 << 20 // bytes of JSON
	maxError  = 1 << 20
)

// json makes a request and decodes its answer, unless into is nil.
func (c *Client) json(ctx context.Context, req call, into any) (http.Header, error) {
	resp, err := c.send(ctx, req)
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	if into == nil {
		_, _ = io.Copy(io.Discard, io.LimitReader(resp.Body, maxError))
		return resp.Header, nil
	}
	body, err := io.ReadAll(io.LimitReader(resp.Body, maxAnswer+1))
	switch {
	case err != nil:
		return nil, c.unreachable(err, "the connection broke before the whole answer had come")
	case len(body) > maxAnswer:
		return nil, c.notCoreAPI(resp.StatusCode, fmt.Sprintf("an answer of more than %d bytes", maxAnswer))
	case json.Unmarshal(body, into) != nil:
		return nil, c.notCoreAPI(resp.StatusCode, "an answer that is not the JSON of a core-api")
	}
	return resp.Header, nil
}

// send makes a request, again while the server is busy or away. The caller closes the body.
func (c *Client) send(ctx context.Context, req call) (*http.Response, error) {
	var body []byte
	if req.body != nil {
		var err error
		if body, err = json.Marshal(req.body); err != nil {
			return nil, err
		}
	}
	begun, pause := time.Now(), 100*time.Millisecond
	for {
		resp, err := c.sendOnce(ctx, req, body)
		e, known := errors.AsType[*Error](err)
		if err == nil || known && e.Status != 0 && e.Code != NotCoreAPI {
			c.reached.Store(true)
		}
		again := known && (e.Status != 0 || c.reached.Load()) && // a wrong address is said at once
			(e.Status == 0 || e.Status == http.StatusTooManyRequests || e.Status == http.StatusServiceUnavailable)
		if err == nil || !again || req.once || req.content != nil || ctx.Err() != nil {
			return resp, err
		}
		wait := max(pause, e.RetryAfter)
		if time.Since(begun)+wait > c.cfg.Patience {
			return nil, err
		}
		pause = min(2*pause, 5*time.Second)
		timer := time.NewTimer(wait)
		select {
		case <-ctx.Done():
			timer.Stop()
			return nil, err
		case <-timer.C:
		}
	}
}

func (c *Client) sendOnce(ctx context.Context, req call, body []byte) (*http.Response, error) {
	address := *c.base
	address.Path, address.RawPath = c.base.Path+unescaped(req.path), c.base.EscapedPath()+req.path
	address.RawQuery = req.query.Encode()
	content := req.content
	if content == nil {
		content = bytes.NewReader(body)
	}
	r, err := http.NewRequestWithContext(ctx, req.method, address.String(), content)
	if err != nil {
		return nil, err
	}
	if req.body != nil {
		r.Header.Set("Content-Type", "application/json")
	}
	for name, value := range req.header {
		r.Header.Set(name, value)
	}
	r.Header.Set("User-Agent", c.cfg.UserAgent)
	if c.cfg.Token != "" {
		r.Header.Set("Authorization", "Bearer "+c.cfg.Token)
	}
	resp, err := c.http.Do(r)
	if err != nil {
		if ctx.Err() != nil {
			return nil, context.Cause(ctx)
		}
		why := NotSent(err)
		if why == "" {
			why = "the connection broke before the answer"
		}
		return nil, c.unreachable(err, why)
	}
	if resp.StatusCode < 300 {
		return resp, nil
	}
	defer resp.Body.Close()
	return nil, c.refusal(resp)
}

// NotSent returns why a request has not reached a server, with the remedy; empty if it may have
// reached one.
func NotSent(err error) string {
	op, isOp := errors.AsType[*net.OpError](err)
	untrusted, isUntrusted := errors.AsType[*tls.CertificateVerificationError](err)
	switch {
	case isOp && op.Op == "dial":
		return fmt.Sprintf("%s; start it with `core-api serve`, or give another address", op.Err)
	case isOp && op.Op == "proxyconnect":
		return fmt.Sprintf("the proxy in HTTP_PROXY or HTTPS_PROXY does not answer (%s); correct it, or name the server in NO_PROXY", op.Err)
	case errors.Is(err, http.ErrSchemeMismatch):
		return "the server there has no TLS; use http:// in its address"
	case isUntrusted:
		return fmt.Sprintf("%s; have the operator renew it, or add its authority to this machine's", untrusted)
	}
	return ""
}

func unescaped(path string) string {
	plain, err := url.PathUnescape(path)
	if err != nil {
		return path
	}
	return plain
}

func (c *Client) unreachable(cause error, why string) *Error {
	return &Error{Code: Unreachable, Detail: "core-api does not answer at " + c.Server() + ": " + why, cause: cause}
}

func (c *Client) notCoreAPI(status int, what string) *Error {
	return &Error{Status: status, Code: NotCoreAPI, Detail: fmt.Sprintf("%s is not a core-api: it sent %s; give the address of core-api", c.Server(),
		what)}
}

// refusal reads an error answer: a problem document, or the envelope of /v1/.
func (c *Client) refusal(resp *http.Response) *Error {
	body, _ := io.ReadAll(io.LimitReader(resp.Body, maxError))
	kind, _, _ := mime.ParseMediaType(resp.Header.Get("Content-Type"))
	e := &Error{}
	var envelope struct {
		Data struct {
			Code    string `json:"code"`
			Message string `json:"message"`
		} `json:"data"`
	}
	switch kind {
	case "application/problem+json":
		_ = json.Unmarshal(body, e)
	case "application/json":
		_ = json.Unmarshal(body, &envelope)
		e.Code, e.Detail = envelope.Data.Code, envelope.Data.Message
	}
	if e.Code == "" {
		return c.notCoreAPI(resp.StatusCode, fmt.Sprintf("the answer %d %s", resp.StatusCode, http.StatusText(resp.StatusCode)))
	}
	e.Status = resp.StatusCode
	if seconds, err := strconv.Atoi(resp.Header.Get("Retry-After")); err == nil && seconds > 0 {
		e.RetryAfter = time.Duration(seconds) * time.Second
	}
	return e
}

// segments escapes the parts of a path.
func segments(parts ...string) string {
	escaped := slices.Clone(parts)
	for i, part := range escaped {
		escaped[i] = url.PathEscape(part)
	}
	return "/" + strings.Join(escaped, "/")
}
