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

func busy(format string, args ...any) error {
	e := fault.New(fault.SkillsBusy, format, args...)
	e.RetryAfter = 2 * time.Second
	return e
}

// share is a number of requests and the bytes that they have on the disk.
type share struct {
	number int
	bytes  int64
}

func (s share) plus(number int, bytes int64) share { return share{s.number + number, s.bytes + bytes} }

func (s share) within(most share) bool { return s.number <= most.number && s.bytes <= most.bytes }

// quota bounds what may wait on the disk, for all callers together and for each token. Who waits here holds no place: a client that sends
// slowly takes room from itself first, and time from nobody.
type quota struct {
	what      string // that is counted, for sentences: "uploads"
	all, each share  // at most

	mu   sync.Mutex
	used share
	by   map[string]share // by token; only those that have something
}

func newQuota(what string, all, each share) *quota {
	return &quota{what: what, all: all, each: each, by: map[string]share{}}
}

// stay is one request in a quota.
type stay struct {
	q     *quota
	token string
	bytes int64
	once  sync.Once
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
	return &stay{q: q, token: token}, nil
}

func (q *quota) check(token string, number int, bytes int64) error {
	switch {
	case !q.by[token].plus(number, bytes).within(q.each):
		return busy("this token has %s at once already, and may have %s: wait for those, and try again", q.say(q.by[token]), q.say(q.each))
	case !q.used.plus(number, bytes).within(q.all):
		return busy("there are %s at once already, and there may be %s; try again shortly", q.say(q.used), q.say(q.all))
	}
	return nil
}

func (q *quota) say(s share) string {
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
	s.bytes += bytes
	s.q.used, s.q.by[s.token] = s.q.used.plus(0, bytes), s.q.by[s.token].plus(0, bytes)
	return nil
}

// leave gives everything back. It may be called more than once.
func (s *stay) leave() {
	s.once.Do(func() {
		s.q.mu.Lock()
		defer s.q.mu.Unlock()
		s.q.used = s.q.used.plus(-1, -s.bytes)
		if left := s.q.by[s.token].plus(-1, -s.bytes); left.number > 0 {
			s.q.by[s.token] = left
		} else {
			delete(s.q.by, s.token)
		}
	})
}
