package remote

import (
	"slices"

	"secbox/fault"
	"secbox/sandbox"
	"secbox/sandbox/remote/wire"
)

const (
	// maxWaiting is how many requests wait for one runner; more are fault.SandboxBusy.
	maxWaiting = 4096

	// permitBytes is the frame size that one of the wire.MaxInFlight permits covers: a larger request takes several, so that all requests in
	// flight together hold at most 64 MiB here, and on the runner.
	permitBytes = 64 << 10

	// maxWanted is how many permits the waiting requests may need together: 512 MiB of requests for one runner.
	maxWanted = 8 * wire.MaxInFlight
)

// permits bound the requests that a runner handles at once: a weighted semaphore with a bounded queue. Guarded by Hub.mu.
type permits struct {
	free    int
	waiting []*waiter // in order of arrival
	wanted  int       // by the waiting
}

// waiter waits for n permits: ready is closed when it has them, or when it is refused.
type waiter struct {
	n     int
	user  sandbox.User
	ready chan struct{}
	err   error // why it was refused; valid when ready is closed
}

func newPermits() *permits { return &permits{free: wire.MaxInFlight} }

// weight returns the permits for a frame of so many bytes.
func weight(bytes int) int { return 1 + bytes/permitBytes }

// enter takes n permits, or joins the queue.
func (p *permits) enter(n int, user sandbox.User) (*waiter, error) {
	w := &waiter{n: n, user: user, ready: make(chan struct{})}
	if p.free >= n && len(p.waiting) == 0 {
		p.free -= n
		close(w.ready)
		return w, nil
	}
	if len(p.waiting) >= maxWaiting || p.wanted+n > maxWanted {
		return nil, fault.New(fault.SandboxBusy, "%d requests wait for the user's machine; try again when some are done", len(p.waiting))
	}
	p.waiting = append(p.waiting, w)
	p.wanted += n
	return w, nil
}

// leave returns a waiter's permits, or takes it out of the queue.
func (p *permits) leave(w *waiter) {
	if i := slices.Index(p.waiting, w); i >= 0 {
		p.waiting = slices.Delete(p.waiting, i, i+1)
		p.wanted -= w.n
		p.next() // the next one may need less
		return
	}
	if w.err == nil {
		p.release(w.n)
	}
}

func (p *permits) release(n int) {
	p.free += n
	p.next()
}

func (p *permits) next() {
	for len(p.waiting) > 0 && p.free >= p.waiting[0].n {
		w := p.waiting[0]
		p.waiting = slices.Delete(p.waiting, 0, 1)
		p.free -= w.n
		p.wanted -= w.n
		close(w.ready)
	}
}

// refuse refuses the waiters of the users that match.
func (p *permits) refuse(which func(sandbox.User) bool, err error) {
	var rest []*waiter
	for _, w := range p.waiting {
		if !which(w.user) {
			rest = append(rest, w)
			continue
		}
		w.err = err
		p.wanted -= w.n
		close(w.ready)
	}
	p.waiting = rest
	p.next()
}

func anyUser(sandbox.User) bool { return true }
