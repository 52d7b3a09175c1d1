package api

import (
	"context"
	"fmt"
	"math"
	"sync"
	"time"

	"secbox/admission"
	"secbox/fault"
)

// places bounds what costs the disk and a processor: archives being unpacked, skills being copied as a whole.
type places struct {
	gate  *admission.Gate
	queue int
}

func newPlaces(atOnce, queue int) *places { return &places{admission.New(atOnce, queue), queue} }

// enter waits for a place, which leave gives to the next one; leave may be called more than once. fault.SkillsBusy when too many wait.
func (p *places) enter(ctx context.Context) (leave func(), err error) {
	ticket := p.gate.Enter()
	if ticket == nil {
		return nil, busy("%d requests wait for skills to be unpacked or copied already; try again shortly", p.queue)
	}
	if err := ticket.Wait(ctx); err != nil {
		return nil, err
	}
	return ticket.Leave, nil
}

func busy(format string, args ...any) error { return busyWith(fault.SkillsBusy, format, args...) }

func busyWith(code fault.Code, format string, args ...any) error {
	e := fault.New(code, format, args...)
	e.RetryAfter = 2 * time.Second
	return e
}

// share is a number of requests and the bytes that they hold, on the disk or in memory.
type share struct {
	number int
	bytes  int64
}

func (s share) plus(number int, bytes int64) share { return share{s.number + number, s.bytes + bytes} }

func (s share) within(most share) bool { return s.number <= most.number && s.bytes <= most.bytes }

// quota bounds what requests hold, for all callers together and for each token. A request in it holds no place: a client that sends
// slowly takes room from itself first, and time from no other.
type quota struct {
	what      string     // that is counted, for sentences: "uploads"
	setting   string     // of all; that of each is called so too, with _per_token
	code      fault.Code // of a refusal
	all, each share      // at most

	mu   sync.Mutex
	used share
	by   map[string]share // by token; only those that have something
}

func newQuota(what string, all, each share) *quota {
	return &quota{what: what, code: fault.SkillsBusy, all: all, each: each, by: map[string]share{}}
}

// stay is one request in a quota.
type stay struct {
	q       *quota
	token   string
	bytes   int64
	holders int // the request, and what outlives it; 0: nothing of the stay counts
	left    bool
}

// enter takes up one request, if there is room for it and for the bytes that it means to bring; only those that grow has counted are taken
// from others, so that nobody can keep room by a promise. fault.SkillsBusy.
func (q *quota) enter(token string, promised int64) (*stay, error) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if err := q.check(token, 1, max(0, promised)); err != nil {
		return nil, err
	}
	q.used, q.by[token] = q.used.plus(1, 0), q.by[token].plus(1, 0)
	return &stay{q: q, token: token, holders: 1}, nil
}

// total is the bytes of all.
func (q *quota) total() float64 {
	q.mu.Lock()
	defer q.mu.Unlock()
	return float64(q.used.bytes)
}

func (q *quota) check(token string, number int, bytes int64) error {
	switch {
	case !q.by[token].plus(number, bytes).within(q.each):
		return busyWith(q.code, "this token has %s at once already, and may have %s: wait for those, and try again%s", q.say(q.by[token]), q.say(q.each), q.raise("_per_token"))
	case !q.used.plus(number, bytes).within(q.all):
		return busyWith(q.code, "there are %s at once already, and there may be %s; try again shortly%s", q.say(q.used), q.say(q.all), q.raise(""))
	}
	return nil
}

// raise names the setting, if there is one.
func (q *quota) raise(suffix string) string {
	if q.setting == "" {
		return ""
	}
	return " (the setting " + q.setting + suffix + " raises it)"
}

func (q *quota) say(s share) string {
	if q.all.number == math.MaxInt {
		return fmt.Sprintf("%d bytes of %s", s.bytes, q.what)
	}
	if q.all.bytes == math.MaxInt64 {
		return fmt.Sprintf("%d %s", s.number, q.what)
	}
	return fmt.Sprintf("%d %s of %d bytes together", s.number, q.what, s.bytes)
}

// grow counts bytes before they are written. fault.SkillsBusy when they have no room any more.
func (s *stay) grow(bytes int64) error {
	s.q.mu.Lock()
	defer s.q.mu.Unlock()
	if err := s.q.check(s.token, 0, bytes); err != nil {
		return err
	}
	s.add(bytes)
	return nil
}

// force counts bytes that are there already, and takes away those that are not there any more when it is negative.
func (s *stay) force(bytes int64) {
	s.q.mu.Lock()
	defer s.q.mu.Unlock()
	s.add(max(bytes, -s.bytes))
}

func (s *stay) add(bytes int64) {
	s.bytes += bytes
	if s.holders > 0 {
		s.count(0, bytes)
	}
}

// count changes the sums of the quota, whose lock is held.
func (s *stay) count(number int, bytes int64) {
	s.q.used = s.q.used.plus(number, bytes)
	if left := s.q.by[s.token].plus(number, bytes); left.number > 0 {
		s.q.by[s.token] = left
	} else {
		delete(s.q.by, s.token)
	}
}

// leave ends the request's part in the stay: everything is given back that nothing else holds. It may be called more than once.
func (s *stay) leave() {
	s.q.mu.Lock()
	defer s.q.mu.Unlock()
	if !s.left {
		s.left = true
		s.drop()
	}
}

// hold keeps everything counted until release is called, also beyond the end of the request.
func (s *stay) hold() (release func()) {
	s.q.mu.Lock()
	defer s.q.mu.Unlock()
	if s.holders == 0 {
		s.count(1, s.bytes)
	}
	s.holders++
	return sync.OnceFunc(func() {
		s.q.mu.Lock()
		defer s.q.mu.Unlock()
		s.drop()
	})
}

func (s *stay) drop() {
	if s.holders--; s.holders == 0 {
		s.count(-1, -s.bytes)
	}
}
