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

// Bounds of what is read of an answer, in bytes. An invoke's outputs have MaxOutputBytes, which JSON may need six times over to write, and
// beside them lie the list of its artifacts and the beginnings of its streams.
const (
	maxAnswer  = 64 << 20
	maxProblem = 1 << 20
)

// answered is a whole answer with a good status.
type answered struct {
	status int
	header http.Header
	body   []byte
}

// send makes one request and reads its answer. The parts of the path are escaped.
func (p *SkillsProvider) send(ctx context.Context, method string, path []string, query url.Values, body []byte, header http.Header) (answered, error) {
	escaped := make([]string, len(path))
	for i, part := range path {
		escaped[i] = url.PathEscape(part)
	}
	u := p.base.JoinPath(escaped...)
	u.RawQuery = query.Encode()
	req, err := http.NewRequestWithContext(ctx, method, u.String(), bytes.NewReader(body))
	if err != nil {
		return answered{}, fault.Wrap(fault.Internal, err, "the request cannot be made")
	}
	req.Header = header
	req.Header.Set("Accept", "application/json, application/problem+json")
	if p.token != "" {
		req.Header.Set("Authorization", "Bearer "+p.token)
	}
	resp, err := p.client.Do(req)
	if err != nil {
		return answered{}, p.noAnswer(err)
	}
	defer resp.Body.Close()
	a := answered{status: resp.StatusCode, header: resp.Header}
	most := int64(maxAnswer)
	good := resp.StatusCode == http.StatusOK || resp.StatusCode == http.StatusNotModified
	if !good {
		most = maxProblem
	}
	if a.body, err = io.ReadAll(io.LimitReader(resp.Body, most+1)); err != nil {
		return answered{}, p.noAnswer(err)
	}
	switch {
	case !good:
		return answered{}, p.problem(a)
	case int64(len(a.body)) > most:
		return answered{}, fault.New(fault.Internal, "the answer of core-api at %s has more than %d bytes", p.base.Host, most)
	}
	return a, nil
}

// noAnswer keeps the cause, so that a caller recognises the end of its own context.
func (p *SkillsProvider) noAnswer(err error) error {
	var dial *net.OpError
	switch {
	case errors.Is(err, context.Canceled), errors.Is(err, context.DeadlineExceeded):
		return fault.Wrap(fault.Internal, err, "the call was given up before core-api answered; what was asked for may have run")
	case errors.As(err, &dial) && dial.Op == "dial":
		return fault.Wrap(fault.Internal, err, "core-api does not answer at %s; start it, or correct the address", p.base.Host)
	}
	return fault.Wrap(fault.Internal, err, "the connection to core-api at %s broke before the answer; what was asked for may have run", p.base.Host)
}

// problem is the error that core-api answered with.
func (p *SkillsProvider) problem(a answered) error {
	var doc struct {
		Code   fault.Code    `json:"code"`
		Detail string        `json:"detail"`
		Errors []fault.Field `json:"errors"`
		ExecID string        `json:"exec_id"`
	}
	media, _, _ := mime.ParseMediaType(a.header.Get("Content-Type"))
	if media != "application/problem+json" || json.Unmarshal(a.body, &doc) != nil || doc.Code == "" {
		return fault.New(fault.Internal, "%s answered with status %d, and not as a core-api does; check the address", p.base.Host, a.status)
	}
	e := &fault.Error{Code: doc.Code, Message: doc.Detail, Fields: doc.Errors, ExecID: doc.ExecID}
	if seconds, err := strconv.Atoi(a.header.Get("Retry-After")); err == nil && seconds > 0 {
		e.RetryAfter = time.Duration(min(seconds, 24*3600)) * time.Second
	}
	return e
}

func (a answered) decode(into any) error {
	media, _, _ := mime.ParseMediaType(a.header.Get("Content-Type"))
	if media != "application/json" {
		return fault.New(fault.Internal, "the answer is %.100q, and not what a core-api answers; check the address", media)
	}
	if err := json.Unmarshal(a.body, into); err != nil {
		return fault.Wrap(fault.Internal, err, "the answer is not what a core-api answers; check its version")
	}
	return nil
}

func isLoopback(host string) bool {
	ip := net.ParseIP(host)
	return host == "localhost" || ip != nil && ip.IsLoopback()
}
