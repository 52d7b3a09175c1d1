package remote

import (
	"cmp"
	"maps"
	"slices"
	"time"

	"secbox/fault"
	"secbox/sandbox/remote/wire"
)

// machine is one life of a runner, a session of it, as far as it is known here: it begins with the first link and ends when there is
// neither a link nor anything to wait for, or when another session comes. Guarded by Hub.mu.
type machine struct {
	key     key
	session string
	tokenID string // of the last link
	hello   *wire.Hello
	link    *link // nil: cut
	last    *link // the same, or the one before: what it has read may be on its way still
	places  *places

	pending map[string]*request // queued or sent; somebody waits for each
	left    map[string]int      // sent, and nobody waits any more: the places that they hold until the runner has answered
	late    map[string]struct{} // what the runner held when it dialled and nobody here knows
	grace   *time.Timer         // runs while the link is cut
}

func newMachine(k key, session string) *machine {
	return &machine{key: k, session: session, places: newPlaces(), pending: map[string]*request{}, left: map[string]int{}}
}

// attach gives a link to the machine that its hello is from, and queues what is to be said first: the welcome, and what the runner has never
// taken. When the same session has a link already, or the one before is still read, that is returned to be ended first; then the caller
// tries again. A refusal is a closing; with a link, it holds as long as that answers.
func (h *Hub) attach(l *link, hello *wire.Hello) (former *link, refusal *closing) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.closed {
		return nil, goingAway
	}
	k := key{l.caller.UserID, hello.Name}
	m := h.machines[k]
	switch {
	case m != nil && m.session == hello.Session && m.link != nil, m != nil && m.link == nil && !m.last.isGone():
		return m.last, nil
	case m != nil && m.session != hello.Session && m.link != nil:
		return m.link, &closing{wire.StatusNameInUse, "another runner named " + hello.Name + " is connected; give this one another --name"}
	case m != nil && m.session != hello.Session:
		h.lose(m, "was started anew")
		m = nil
	}
	if m == nil {
		if h.runnersOf(k.user) >= maxRunners {
			return nil, &closing{wire.StatusNameInUse, "too many runners of this user are connected"}
		}
		m = newMachine(k, hello.Session)
		h.machines[k] = m
	}
	if m.grace != nil {
		m.grace.Stop()
		m.grace = nil
	}
	m.link, m.last, m.hello, m.tokenID = l, l, hello, l.caller.TokenID
	l.machine, l.since = m, h.cfg.Now()
	expects, again, stop := h.takeUp(m, hello.Held)
	l.sendBody("", wire.TypeWelcome, &wire.Welcome{
		Protocol: wire.Version, UserID: k.user, Version: h.cfg.Version, HeartbeatMS: max(1, h.cfg.Heartbeat.Milliseconds()), Expects: expects,
	})
	for _, id := range stop {
		l.sendBody(id, wire.TypeCancel, nil)
	}
	for _, req := range again {
		l.send(item{frame: req.frame, req: req})
	}
	return nil, nil
}

// takeUp compares what is waited for with what the runner holds: what it expects of the runner, what must be sent again, and what of the
// former is to be canceled again, for that may have been lost with the link.
func (h *Hub) takeUp(m *machine, held []string) (expects []wire.Expected, again []*request, stop []string) {
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
	for id, n := range m.left { // the runner forgot it, or holds it as late
		delete(m.left, id)
		m.places.release(n)
	}
	for _, req := range m.all() {
		if _, ok := holds[req.id]; ok {
			continue
		}
		switch {
		case req.began:
			h.finish(req, nil, fault.New(fault.OutcomeUnknown, "%s has begun this and knows nothing of it any more", m.title()))
		case req.canceled: // before it was taken, and now it never will be
			h.finish(req, nil, errCanceled)
		default:
			req.sent = false // never taken
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

// detach takes a link from its machine. What was not sent has not happened; what was sent waits for the runner, unless it cannot come back.
// Called with mu held.
func (h *Hub) detach(l *link) {
	m := l.machine
	if m == nil || m.link != l {
		return
	}
	m.link = nil
	revoked := l.ending != nil && l.ending.status == wire.StatusRevoked
	replaced := l.ending != nil && l.ending.status == wire.StatusReplaced
	if revoked || h.closed {
		h.lose(m, "was disconnected")
		return
	}
	if !replaced {
		m.places.refuse(anybody, m.offline())
		for _, req := range m.all() {
			if !req.sent {
				h.finish(req, nil, m.offline())
			}
		}
	}
	if len(m.pending) == 0 && !replaced {
		h.drop(m)
		return
	}
	m.grace = time.AfterFunc(h.cfg.Grace, func() {
		h.mu.Lock()
		defer h.mu.Unlock()
		if m.link == nil && h.machines[m.key] == m {
			h.lose(m, "did not come back")
		}
	})
}

// lose ends a machine: nobody will ever know what has become of what it was sent.
func (h *Hub) lose(m *machine, why string) {
	m.places.refuse(anybody, m.offline())
	for _, req := range m.all() {
		h.finish(req, nil, m.lost(req, why))
	}
	h.drop(m)
}

// drop forgets a machine.
func (h *Hub) drop(m *machine) {
	if m.grace != nil {
		m.grace.Stop()
	}
	if h.machines[m.key] == m {
		delete(h.machines, m.key)
	}
}

// all are the requests that somebody waits for, in the order in which they were made.
func (m *machine) all() []*request {
	return slices.SortedFunc(maps.Values(m.pending), func(a, b *request) int { return cmp.Compare(a.seq, b.seq) })
}

// title is how a machine is called in a sentence for its user.
func (m *machine) title() string { return `the runner "` + m.key.name + `"` }

func (m *machine) offline() error {
	return fault.New(fault.RunnerOffline, "%s is not connected; nothing was done there", m.title())
}

// lost is the error of a request that was sent to a runner which will never answer it.
func (m *machine) lost(req *request, why string) error {
	switch {
	case !req.sent:
		return m.offline()
	case !req.changes:
		return fault.New(fault.RunnerOffline, "%s %s before it answered; nothing was changed there", m.title(), why)
	}
	return fault.New(fault.OutcomeUnknown, "%s %s while it was doing this: it may be done in part or whole; look there before it is done again",
		m.title(), why)
}
