package skills

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"mime"
	"net"
	"net/http"
	"net/url"
	"strconv"
	"time"

	"secbox/fault"
)

// Bounds of response bodies, in bytes. Escaping can make the MaxOutputBytes of an invoke's outputs
// six times as long, and the list of artifacts and the beginnings of the streams come with them.
const (
	maxResponse = 64 << 20
	maxProblem  = 1 << 20
)

// response is a complete response with status 200 or 304.
type response struct {
	status int
	header http.Header
	body   []byte
}

// send makes one request and reads the response. It escapes the parts of the path.
func (p *SkillsProvider) send(ctx context.Context, method string, path []string, query url.Values, body []byte,
	header http.Header,
) (response, error) {
	escaped := make([]string, len(path))
	for i, part := range path {
		escaped[i] = url.PathEscape(part)
	}
	u := p.base.JoinPath(escaped...)
	u.RawQuery = query.Encode()
	req, err := http.NewRequestWithContext(ctx, method, u.String(), bytes.NewReader(body))
	if err != nil {
		return response{}, fault.Wrap(fault.Internal, err, "the request cannot be made")
	}
	req.Header = header
	req.Header.Set("Accept", "application/json, application/problem+json")
	if p.token != "" {
		req.Header.Set("Authorization", "Bearer "+p.token)
	}
	resp, err := p.client.Do(req)
	if err != nil {
		return response{}, p.connectionError(err)
	}
	defer resp.Body.Close()
	a := response{status: resp.StatusCode, header: resp.Header}
	most := int64(maxResponse)
	good := resp.StatusCode == http.StatusOK || resp.StatusCode == http.StatusNotModified
	if !good {
		most = maxProblem
	}
	if a.body, err = io.ReadAll(io.LimitReader(resp.Body, most+1)); err != nil {
		return response{}, p.connectionError(err)
	}
	switch {
	case !good:
		return response{}, p.problem(a)
	case int64(len(a.body)) > most:
		return response{}, fault.New(fault.Internal, "the response of core-api at %s has more than %d bytes", p.base.Host, most)
	}
	return a, nil
}

// connectionError wraps the cause, so that callers recognise the end of their own contexts.
func (p *SkillsProvider) connectionError(err error) error {
	var dial *net.OpError
	switch {
	case errors.Is(err, context.Canceled), errors.Is(err, context.DeadlineExceeded):
		return fault.Wrap(fault.Internal, err, "the call ended before core-api responded; the skill may have run")
	case errors.As(err, &dial) && dial.Op == "dial":
		return fault.Wrap(fault.Internal, err, "core-api does not respond at %s; start it, or correct the address", p.base.Host)
	}
	return fault.Wrap(fault.Internal, err, "the connection to core-api at %s broke before the response; the skill may have run",
		p.base.Host)
}

// problem returns the error in an error response.
func (p *SkillsProvider) problem(a response) error {
	var doc struct {
		Code   fault.Code    `json:"code"`
		Detail string        `json:"detail"`
		Errors []fault.Field `json:"errors"`
		ExecID string        `json:"exec_id"`
	}
	media, _, _ := mime.ParseMediaType(a.header.Get("Content-Type"))
	if media != "application/problem+json" || json.Unmarshal(a.body, &doc) != nil || doc.Code == "" {
		return fault.New(fault.Internal, "%s responded with status %d, but not as core-api does; check the address", p.base.Host, a.status)
	}
	e := &fault.Error{Code: doc.Code, Message: doc.Detail, Fields: doc.Errors, ExecID: doc.ExecID}
	if seconds, err := strconv.Atoi(a.header.Get("Retry-After")); err == nil && seconds > 0 {
		e.RetryAfter = time.Duration(min(seconds, 24*3600)) * time.Second
	}
	return e
}

func (a response) decode(into any) error {
	media, _, _ := mime.ParseMediaType(a.header.Get("Content-Type"))
	if media != "application/json" {
		return fault.New(fault.Internal, "the response has the type %.100q, which core-api does not send; check the address", media)
	}
	if err := json.Unmarshal(a.body, into); err != nil {
		return fault.Wrap(fault.Internal, err, "the response is not one of core-api; check its version")
	}
	return nil
}

func isLoopback(host string) bool {
	ip := net.ParseIP(host)
	return host == "localhost" || ip != nil && ip.IsLoopback()
}
