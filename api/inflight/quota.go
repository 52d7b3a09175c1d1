// Package inflight bounds requests in progress: how many there are, the memory and disk space that
// they hold, and how slowly a client may send a body or read an answer. It must not know routes or
// handlers.
//
// Quota is not golang.org/x/sync/semaphore: it refuses instead of waiting, counts per token as well
// as in total, and counts bytes as they arrive, since their number is unknown before.
package inflight

import (
	"cmp"
	"fmt"
	"math"
	"sync"
	"time"

	"secbox/fault"
)

// Share is a number of requests and the bytes that they hold, on disk or in memory.
type Share struct {
	Requests int
	Bytes    int64
}

func (s Share) plus(requests int, bytes int64) Share {
	return Share{s.Requests + requests, s.Bytes + bytes}
}

func (s Share) within(limit Share) bool {
	return s.Requests <= limit.Requests && s.Bytes <= limit.Bytes
}

// Quota bounds what requests hold, in total and per token. No request waits: a client that sends
// slowly uses up its own share, not the time of others. Safe for concurrent use.
type Quota struct {
	noun     string     // of the counted things, in the plural
	setting  string     // of the total; the setting per token has the suffix _per_token; empty: messages name none
	code     fault.Code // of a refusal
	total    Share
	perToken Share

	tokenCode   fault.Code // of a refusal because of the token's share
	tokenRemedy string

	mu      sync.Mutex
	used    Share
	byToken map[string]Share // without zero values
}

// NewQuota refuses with fault.SkillsBusy. noun is what it counts, for messages: "uploads".
func NewQuota(noun string, total, perToken Share) *Quota {
	return &Quota{
		noun: noun, code: fault.SkillsBusy, total: total, perToken: perToken, tokenRemedy: "wait for those and try again",
		byToken: map[string]Share{},
	}
}

// NewCount bounds how many requests of a sort run at once. It refuses with fault.ServerBusy.
func NewCount(noun string, total, perToken int) *Quota {
	q := NewQuota(noun, Share{total, math.MaxInt64}, Share{perToken, math.MaxInt64})
	q.code = fault.ServerBusy
	return q
}

// NewMemory bounds the bytes of memory that bodies and answers take. It refuses with
// fault.ServerBusy.
func NewMemory(total, perToken int64) *Quota {
	q := NewQuota("requests in memory", Share{math.MaxInt, total}, Share{math.MaxInt, perToken})
	q.code, q.setting = fault.ServerBusy, "http.max_memory_bytes"
	return q
}

// WithTokenRefusal sets the code and the remedy of refusals because of a token's share. It returns
// q, which must not be in use yet.
func (q *Quota) WithTokenRefusal(code fault.Code, remedy string) *Quota {
	q.tokenCode, q.tokenRemedy = code, remedy
	return q
}

// Bytes returns the bytes that all requests hold.
func (q *Quota) Bytes() float64 {
	q.mu.Lock()
	defer q.mu.Unlock()
	return float64(q.used.Bytes)
}

// Enter counts one request, if it and the announced bytes fit. Only the bytes that Grow adds count
// against others: an announcement reserves nothing. The caller must call Leave.
func (q *Quota) Enter(token string, announced int64) (*Reservation, error) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if err := q.check(token, 1, max(0, announced)); err != nil {
		return nil, err
	}
	r := &Reservation{quota: q, token: token, holders: 1}
	r.count(1, 0)
	return r, nil
}

func (q *Quota) check(token string, requests int, bytes int64) error {
	switch used := q.byToken[token]; {
	case !used.plus(requests, bytes).within(q.perToken):
		return busy(cmp.Or(q.tokenCode, q.code), "token limit reached: %s of %s in progress; %s%s", q.format(used), q.format(q.perToken),
			q.tokenRemedy, q.remedy("_per_token"))
	case !q.used.plus(requests, bytes).within(q.total):
		return busy(q.code, "server limit reached: %s of %s in progress; try again shortly%s", q.format(q.used), q.format(q.total),
			q.remedy(""))
	}
	return nil
}

func (q *Quota) format(s Share) string {
	if q.total.Requests == math.MaxInt {
		return fmt.Sprintf("%d bytes of %s", s.Bytes, q.noun)
	}
	if q.total.Bytes == math.MaxInt64 {
		return fmt.Sprintf("%d %s", s.Requests, q.noun)
	}
	return fmt.Sprintf("%d %s with %d bytes", s.Requests, q.noun, s.Bytes)
}

func (q *Quota) remedy(suffix string) string {
	if q.setting == "" {
		return ""
	}
	return " (the setting " + q.setting + suffix + " raises the limit)"
}

func busy(code fault.Code, format string, args ...any) error {
	e := fault.New(code, format, args...)
	e.RetryAfter = 2 * time.Second
	return e
}

// Reservation is the part of a quota that one request holds.
type Reservation struct {
	quota   *Quota
	token   string
	bytes   int64
	holders int // the request and the holds that outlive it; at 0 the reservation counts nothing
	left    bool
}

// Grow counts bytes before they are written. It returns the quota's error if they do not fit.
func (r *Reservation) Grow(bytes int64) error {
	r.quota.mu.Lock()
	defer r.quota.mu.Unlock()
	if err := r.quota.check(r.token, 0, bytes); err != nil {
		return err
	}
	r.add(bytes)
	return nil
}

// Force counts bytes that exist already. A negative number gives bytes back.
func (r *Reservation) Force(bytes int64) {
	r.quota.mu.Lock()
	defer r.quota.mu.Unlock()
	r.add(max(bytes, -r.bytes))
}

// Leave ends the request's part: everything is given back that no Hold keeps. Safe to call twice.
func (r *Reservation) Leave() {
	r.quota.mu.Lock()
	defer r.quota.mu.Unlock()
	if !r.left {
		r.left = true
		r.drop()
	}
}

// Hold keeps everything counted until release is called, even after Leave.
func (r *Reservation) Hold() (release func()) {
	r.quota.mu.Lock()
	defer r.quota.mu.Unlock()
	if r.holders == 0 {
		r.count(1, r.bytes)
	}
	r.holders++
	return sync.OnceFunc(func() {
		r.quota.mu.Lock()
		defer r.quota.mu.Unlock()
		r.drop()
	})
}

// The methods below need quota.mu.

func (r *Reservation) add(bytes int64) {
	r.bytes += bytes
	if r.holders > 0 {
		r.count(0, bytes)
	}
}

func (r *Reservation) drop() {
	if r.holders--; r.holders == 0 {
		r.count(-1, -r.bytes)
	}
}

func (r *Reservation) count(requests int, bytes int64) {
	q := r.quota
	q.used = q.used.plus(requests, bytes)
	if left := q.byToken[r.token].plus(requests, bytes); left.Requests > 0 {
		q.byToken[r.token] = left
	} else {
		delete(q.byToken, r.token)
	}
}
