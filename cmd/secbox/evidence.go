package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"net/url"
	"time"

	"secbox/audit/translog/verify"
	"secbox/fault"
)

// Bounds of what a server may take, which may be hostile.
const (
	stallTimeout   = 20 * time.Second // for the header, and between two reads of the body
	slowest        = 512 << 10        // bytes a second, of an answer that is as large as it may be
	answerAttempts = 4
)

// evidence is a core-api whose evidence is verified. It implements verify.Source. It trusts nothing
// that the server sends: each answer is bounded before it is read.
type evidence struct{ *endpoint }

func newEvidence(e *endpoint) evidence {
	if t, ok := e.client.Transport.(*http.Transport); ok {
		t.ResponseHeaderTimeout, t.MaxResponseHeaderBytes = stallTimeout, 64<<10
	}
	return evidence{e}
}

func (e evidence) Checkpoint(ctx context.Context) (string, error) {
	text, err := e.get(ctx, "/audit/log/checkpoint", verify.MaxCheckpoint)
	return string(text), err
}

func (e evidence) Tile(ctx context.Context, path string) ([]byte, error) {
	return e.get(ctx, "/audit/log/tile/"+path, verify.MaxTile)
}

func (e evidence) Subjects(ctx context.Context, at string, each func(verify.Subject) error) (next string, err error) {
	page, err := e.get(ctx, "/audit/log/documents?"+url.Values{"at": {at}}.Encode(), verify.MaxPage)
	if err != nil {
		return "", err
	}
	var refused error
	next, err = verify.ReadSubjects(bytes.NewReader(page), func(s verify.Subject) error {
		refused = each(s)
		return refused
	})
	if err != nil && refused == nil {
		err = fault.Wrap(fault.InvalidProof, err, "the evidence of core-api at %s cannot be read: %s", e.address(), err)
	}
	return next, err
}

// get returns an answer of at most limit bytes. It tries again when the server is busy or the
// connection breaks.
func (e evidence) get(ctx context.Context, path string, limit int64) (body []byte, err error) {
	pause := time.Second / 4
	for attempt := 1; ; attempt++ {
		body, err = e.getOnce(ctx, path, limit)
		again := fault.Is(err, fault.ServerBusy) || fault.Is(err, fault.DatabaseUnavailable) || fault.Is(err, fault.OutcomeUnknown)
		if !again || attempt == answerAttempts {
			return body, err
		}
		select {
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		case <-time.After(pause):
			pause *= 2
		}
	}
}

var errStalled = errors.New("no byte arrived for too long")

func (e evidence) getOnce(ctx context.Context, path string, limit int64) ([]byte, error) {
	ctx, cancel := context.WithTimeout(ctx, stallTimeout+time.Duration(limit/slowest)*time.Second)
	defer cancel()
	ctx, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	stalled := time.AfterFunc(stallTimeout, func() { stop(errStalled) })
	defer stalled.Stop()
	req, err := e.request(ctx, http.MethodGet, path)
	if err != nil {
		return nil, err
	}
	resp, err := e.client.Do(req)
	if err != nil {
		return nil, fault.Wrap(fault.OutcomeUnknown, err,
			"core-api does not answer at %s; start it with `core-api serve`, or give its address with --server", e.address())
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		limit = maxRefusal
	}
	// The limit is of the decompressed body, which is read no further.
	body, err := io.ReadAll(alive{io.LimitReader(resp.Body, limit+1), stalled})
	if err != nil {
		return nil, fault.Wrap(fault.OutcomeUnknown, err, "the answer of core-api at %s broke off, or was too slow", e.address())
	}
	if int64(len(body)) > limit {
		return nil, fault.New(fault.InvalidProof, "the answer of %s to %s has more than %d bytes, which no answer of core-api has",
			e.address(), req.URL.Path, limit)
	}
	if resp.StatusCode == http.StatusOK {
		return body, nil
	}
	var problem struct {
		Code   fault.Code `json:"code"`
		Detail string     `json:"detail"`
	}
	if json.Unmarshal(body, &problem) != nil || problem.Code == "" {
		return nil, fault.New(fault.InvalidRequest, "%s is not a core-api: it answered %d %s; give the address of core-api with --server",
			e.address(), resp.StatusCode, http.StatusText(resp.StatusCode))
	}
	hint := ""
	if resp.StatusCode == http.StatusUnauthorized || resp.StatusCode == http.StatusForbidden {
		hint = " (secbox reads the token of the role auditor from " + envToken + " or --token-file)"
	}
	return nil, fault.New(problem.Code, "core-api at %s: %s%s", e.address(), verify.Printable(problem.Detail), hint)
}

// alive is a body that sets a timer back whenever bytes arrive.
type alive struct {
	io.Reader
	stalled *time.Timer
}

func (a alive) Read(b []byte) (int, error) {
	n, err := a.Reader.Read(b)
	if n > 0 {
		a.stalled.Reset(stallTimeout)
	}
	return n, err
}
