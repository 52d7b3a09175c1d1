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

	// placeBytes is what one of the wire.MaxInFlight places pays for: a request with more takes several, so that all of them together hold
	// at most 64 MiB here, and on the runner.
	placeBytes = 64 << 10

	// maxWanted is how many places those that wait may want together: 512 MiB of requests are kept for one runner, whatever their number.
	maxWanted = 8 * wire.MaxInFlight
)

// places are what a runner can take at once. Guarded by Hub.mu.
type places struct {
	free    int
	waiting []*waiter // in the order of arrival
	wanted  int       // by them
}

// waiter waits for n places: ready is closed when it has them, or when it never will.
type waiter struct {
	n     int
	user  sandbox.User
	ready chan struct{}
	err   error // why it never will; to be read when ready is closed
}

func newPlaces() *places { return &places{free: wire.MaxInFlight} }

// weight is how many places a frame of so many bytes takes.
func weight(bytes int) int { return 1 + bytes/placeBytes }

// enter takes n places, or a place in the queue.
func (p *places) enter(n int, user sandbox.User) (*waiter, error) {
	w := &waiter{n: n, user: user, ready: make(chan struct{})}
	if p.free >= n && len(p.waiting) == 0 {
		p.free -= n
		close(w.ready)
		return w, nil
	}
	if len(p.waiting) >= maxWaiting || p.wanted+n > maxWanted {
		return nil, fault.New(fault.SandboxBusy, "%d requests wait for the user's machine already; try again when some are done", len(p.waiting))
	}
	p.waiting = append(p.waiting, w)
	p.wanted += n
	return w, nil
}

// leave gives a waiter's places back, whether it has them or still waits.
func (p *places) leave(w *waiter) {
	if i := slices.Index(p.waiting, w); i >= 0 {
		p.waiting = slices.Delete(p.waiting, i, i+1)
		p.wanted -= w.n
		p.next() // the one behind may need less
		return
	}
	if w.err == nil {
		p.release(w.n)
	}
}

func (p *places) release(n int) {
	p.free += n
	p.next()
}

func (p *places) next() {
	for len(p.waiting) > 0 && p.free >= p.waiting[0].n {
		w := p.waiting[0]
		p.waiting = slices.Delete(p.waiting, 0, 1)
		p.free -= w.n
		p.wanted -= w.n
		close(w.ready)
	}
}

// refuse sends away those who wait for a place for such a user.
func (p *places) refuse(which func(sandbox.User) bool, err error) {
	var stay []*waiter
	for _, w := range p.waiting {
		if !which(w.user) {
			stay = append(stay, w)
			continue
		}
		w.err = err
		p.wanted -= w.n
		close(w.ready)
	}
	p.waiting = stay
	p.next()
}

func anybody(sandbox.User) bool { return true }
