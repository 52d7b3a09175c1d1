package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"mime"
	"net"
	"net/http"
	"net/url"
	"strings"
	"time"

	client "secbox/clients/go"
	"secbox/fault"
)

// maxRefusal is how much of an error response is read, in bytes.
const maxRefusal = 64 << 10

// endpoint is the /mcp of a core-api.
type endpoint struct {
	url    *url.URL
	token  string
	client *http.Client
}

func newEndpoint(u *url.URL, token string) *endpoint {
	transport := http.DefaultTransport.(*http.Transport).Clone()
	transport.DialContext = (&net.Dialer{Timeout: 10 * time.Second, KeepAlive: 15 * time.Second}).DialContext
	transport.MaxIdleConnsPerHost = 16
	return &endpoint{url: u, token: token, client: &http.Client{
		Transport:     transport,
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }, // the token is for this server only
	}}
}

// session is an MCP session with its protocol version.
type session struct{ id, version string }

// unreachable is the error of a request that never reached core-api, so that it may be sent again.
type unreachable struct{ err error }

func (u unreachable) Error() string { return u.err.Error() }
func (u unreachable) Unwrap() error { return u.err }

// refused is an HTTP error of core-api.
type refused struct {
	status int
	code   fault.Code // empty: none given; the server may not be a core-api
	text   string
}

func (r refused) Error() string { return r.text }

// lostSession reports that core-api does not know the session: it was restarted, or the session was
// idle for too long.
func (r refused) lostSession() bool { return r.status == http.StatusNotFound }

// send makes a request with pairs of header fields. The caller closes the body of the response.
func (e *endpoint) send(ctx context.Context, method string, s session, body []byte, header ...string) (*http.Response, error) {
	req, err := http.NewRequestWithContext(ctx, method, e.url.String(), bytes.NewReader(body))
	if err != nil {
		return nil, err
	}
	if len(body) > 0 {
		req.Header.Set("Content-Type", "application/json")
		req.Header.Set("Accept", "application/json, text/event-stream")
	} else {
		req.Header.Set("Accept", "text/event-stream")
	}
	if s.id != "" {
		req.Header.Set("Mcp-Session-Id", s.id)
	}
	for i := 0; i+1 < len(header); i += 2 {
		req.Header.Set(header[i], header[i+1])
	}
	if s.version != "" {
		req.Header.Set("Mcp-Protocol-Version", s.version)
	}
	if e.token != "" {
		req.Header.Set("Authorization", "Bearer "+e.token)
	}
	req.Header.Set("User-Agent", "secbox/"+version)
	resp, err := e.client.Do(req)
	if err != nil {
		if dial, ok := errors.AsType[*net.OpError](err); ok && dial.Op == "dial" {
			return nil,
				unreachable{fmt.Errorf("core-api does not answer at %s (%w); start it with `core-api serve`, or give its address with --server", e.address(), dial.Err)}
		}
		if why := client.NotSent(err); why != "" {
			return nil, unreachable{fmt.Errorf("core-api does not answer at %s: %s", e.address(), why)}
		}
		return nil,
			fmt.Errorf("the connection to core-api at %s broke before the answer; the request may have run: GET /sandbox/execs shows it",
				e.address())
	}
	if resp.StatusCode < 300 {
		return resp, nil
	}
	defer resp.Body.Close()
	return nil, e.refusal(resp)
}

// answered is an MCP message that came with an HTTP error.
type answered struct {
	refused
	raw []byte
}

// refusal converts an HTTP error.
func (e *endpoint) refusal(resp *http.Response) error {
	body, _ := io.ReadAll(io.LimitReader(resp.Body, maxRefusal))
	r := refused{status: resp.StatusCode}
	var problem struct {
		Code   fault.Code `json:"code"`
		Detail string     `json:"detail"`
	}
	kind, _, _ := mime.ParseMediaType(resp.Header.Get("Content-Type"))
	switch kind {
	case "application/problem+json":
		_ = json.Unmarshal(body, &problem)
		r.code = problem.Code
	case "application/json":
		if m, err := parseMessage(body); err == nil && m.isAnswer() {
			return answered{r, body}
		}
	}
	switch {
	case r.code == "":
		r.text = fmt.Sprintf("%s is not a core-api: it answered %d %s; give the address of core-api with --server",
			e.address(), resp.StatusCode, http.StatusText(resp.StatusCode))
	case resp.StatusCode == http.StatusUnauthorized:
		r.text = fmt.Sprintf("core-api at %s: %s", e.address(), withTokenHint(problem.Detail))
	default:
		r.text = fmt.Sprintf("core-api at %s: %s", e.address(), problem.Detail)
	}
	return r
}

// address returns the server's address for messages.
func (e *endpoint) address() string { return e.url.Scheme + "://" + e.url.Host }

// read passes on the messages of a response: one message, or a stream of events. An event may have
// an id and no message.
func (e *endpoint) read(resp *http.Response, each func(id string, raw []byte)) error {
	kind, _, _ := mime.ParseMediaType(resp.Header.Get("Content-Type"))
	switch kind {
	case "text/event-stream":
		return events(resp.Body, each)
	case "application/json":
		body, err := io.ReadAll(io.LimitReader(resp.Body, maxMessage))
		if err != nil {
			return err
		}
		each("", body)
		return nil
	}
	if resp.StatusCode == http.StatusAccepted || resp.StatusCode == http.StatusNoContent {
		return nil
	}
	return refused{
		status: resp.StatusCode,
		text:   fmt.Sprintf("%s is not a core-api: it answered with %q; give the address of core-api with --server", e.address(), kind),
	}
}

// request returns a request without a body for a path of core-api, which may have a query.
func (e *endpoint) request(ctx context.Context, method, path string) (*http.Request, error) {
	req, err := http.NewRequestWithContext(ctx, method, e.address()+strings.TrimSuffix(e.url.Path, "/")+path, http.NoBody)
	if err != nil {
		return nil, fault.Wrap(fault.InvalidRequest, err, "the request cannot be made: %s", err)
	}
	if e.token != "" {
		req.Header.Set("Authorization", "Bearer "+e.token)
	}
	req.Header.Set("User-Agent", "secbox/"+version)
	return req, nil
}
