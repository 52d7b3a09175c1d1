package remote

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"time"

	"secbox/fault"
	"secbox/sandbox/remote/wire"
)

// machine is one session of a runner: it begins with the first link, and ends when there is neither
// a link nor a pending request, or when another session connects. Guarded by Hub.mu.
type machine struct {
	key     key
	session string
	tokenID string // of the last link
	hello   *wire.Hello
	link    *link // nil: disconnected
	last    *link // the present link or the one before, whose reader may still be running
	permits *permits

	pending   map[string]*request // queued or sent; each has a waiting caller
	abandoned map[string]int64    // sent, and the caller has left: the permits that they hold until the runner has answered
	late      map[string]struct{} // held by the runner when it connected, and unknown here
	grace     *time.Timer         // runs while disconnected
}

// attach gives a link to the machine of its hello, and queues the first messages: the welcome, and
// the requests that the runner never received. If the machine has a link already, or its former
// link is still being read, attach returns that one: the caller must end it, wait for it, and try
// again. A refusal together with a former link only holds if the former link is alive.
func (h *Hub) attach(l *link, hello *wire.Hello) (former *link, refusal *closing) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.closed {
		return nil, goingAway
	}
	k := key{l.caller.UserID, hello.Name}
	m := h.machines[k]
	switch {
	case m != nil && m.session == hello.Session && m.link != nil, m != nil && m.link == nil && !m.last.isReadDone():
		return m.last, nil
	case m != nil && m.session != hello.Session && m.link != nil:
		return m.link, &closing{wire.StatusNameInUse, "another runner named " + hello.Name + " is connected; give this one another --name"}
	case m != nil && m.session != hello.Session:
		h.failAll(m, "was restarted")
		m = nil
	}
	if m == nil {
		if h.runnersOf(k.user) >= maxRunners {
			return nil, &closing{wire.StatusNameInUse, "too many runners of this user are connected"}
		}
		m = &machine{key: k, session: hello.Session, permits: newPermits(), pending: map[string]*request{}, abandoned: map[string]int64{}}
		h.machines[k] = m
	}
	if m.grace != nil {
		m.grace.Stop()
		m.grace = nil
	}
	m.link, m.last, m.hello, m.tokenID = l, l, hello, l.caller.TokenID
	l.machine, l.since = m, h.cfg.Now()
	expects, again, stop := h.resume(m, hello.Held)
	l.sendBody("", wire.TypeWelcome, &wire.Welcome{
		Protocol: wire.Version, UserID: k.user, Version: h.cfg.Version, HeartbeatMS: max(1, h.cfg.Heartbeat.Milliseconds()),
		Expects: expects,
	})
	for _, id := range stop {
		l.sendBody(id, wire.TypeCancel, nil)
	}
	for _, req := range again {
		l.send(item{frame: req.frame, req: req})
	}
	for _, req := range m.requests() {
		if req.input != nil {
			l.sendAgain(req)
		}
	}
	return nil, nil
}

// resume compares the pending requests with the requests that the runner holds. It returns what to
// expect of the runner, which requests to send again, and which of the expected to cancel again,
// because the first cancel may have been lost with the link.
func (h *Hub) resume(m *machine, held []string) (expects []wire.Expected, again []*request, stop []string) {
	holds := make(map[string]struct{}, len(held))
	for _, id := range held {
		holds[id] = struct{}{}
	}
	m.late = map[string]struct{}{}
	for id := range holds {
		if req := m.pending[id]; req != nil {
			req.sent = true
			expects = append(expects, req.expected())
			if req.canceled {
				stop = append(stop, id)
			}
		} else {
			m.late[id] = struct{}{}
		}
	}
	for id, n := range m.abandoned { // forgotten by the runner, or held as late
		delete(m.abandoned, id)
		m.permits.Release(n)
	}
	for _, req := range m.requests() {
		if _, ok := holds[req.id]; ok {
			continue
		}
		switch {
		case req.began:
			h.finish(req, nil, fault.New(fault.OutcomeUnknown, "%s began this request and has lost it", m.title()))
		case req.canceled: // before the runner received it
			h.finish(req, nil, errCanceled)
		default:
			req.sent = false // the runner never received it
			again = append(again, req)
		}
	}
	return expects, again, stop
}

func (h *Hub) runnersOf(user string) int {
	n := 0
	for k := range h.machines {
		if k.user == user {
			n++
		}
	}
	return n
}

// detach takes a link from its machine. Unsent requests fail; sent ones wait for the runner, unless
// it cannot come back. h.mu is held.
func (h *Hub) detach(l *link) {
	m := l.machine
	if m == nil || m.link != l {
		return
	}
	m.link = nil
	revoked := l.ending != nil && l.ending.status == wire.StatusRevoked
	replaced := l.ending != nil && l.ending.status == wire.StatusReplaced
	if revoked || h.closed {
		h.failAll(m, "was disconnected")
		return
	}
	if !replaced {
		m.permits.refuse(anyUser, m.offline())
		for _, req := range m.requests() {
			if !req.sent {
				h.finish(req, nil, m.offline())
			}
		}
	}
	if len(m.pending) == 0 && !replaced {
		h.drop(m)
		return
	}
	why := "did not come back"
	if l.ending != nil && l.ending.status == wire.StatusProtocol {
		why = fmt.Sprintf("broke the protocol (%s) and did not come back", wire.Cleaned(shortened(l.ending.reason)))
	}
	m.grace = time.AfterFunc(h.cfg.Grace, func() {
		h.mu.Lock()
		defer h.mu.Unlock()
		if m.link == nil && h.machines[m.key] == m {
			h.failAll(m, why)
		}
	})
}

// failAll ends a machine whose runner will never answer: all its requests fail.
func (h *Hub) failAll(m *machine, why string) {
	m.permits.refuse(anyUser, m.offline())
	for _, req := range m.requests() {
		h.finish(req, nil, m.lossError(req, why))
	}
	h.drop(m)
}

// drop removes a machine.
func (h *Hub) drop(m *machine) {
	if m.grace != nil {
		m.grace.Stop()
	}
	if h.machines[m.key] == m {
		delete(h.machines, m.key)
	}
}

// requests returns the pending requests in the order in which they were made.
func (m *machine) requests() []*request {
	return slices.SortedFunc(maps.Values(m.pending), func(a, b *request) int { return cmp.Compare(a.seq, b.seq) })
}

// title names the machine in a sentence for its user.
func (m *machine) title() string { return `the runner "` + m.key.name + `"` }

func (m *machine) offline() error {
	return fault.New(fault.RunnerOffline, "%s is not connected; nothing was done there", m.title())
}

// lossError is the error of a request whose runner will never answer.
func (m *machine) lossError(req *request, why string) error {
	switch {
	case !req.sent:
		return m.offline()
	case !req.changes():
		return fault.New(fault.RunnerOffline, "%s %s before it answered; nothing was changed there", m.title(), why)
	}
	return fault.New(fault.OutcomeUnknown,
		"%s %s while it handled this request, which may be done in part or whole; check there before you try again",
		m.title(), why)
}
