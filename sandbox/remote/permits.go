package remote

import (
	"cmp"
	"context"
	"sync"

	"golang.org/x/sync/semaphore"

	"secbox/fault"
	"secbox/sandbox"
	"secbox/sandbox/remote/wire"
)

const (
	// maxWaiting is how many requests wait for one runner; more are fault.SandboxBusy.
	maxWaiting = 4096

	// permitBytes is the frame size that one of the wire.MaxInFlight permits covers: a larger
	// request takes several, so that all requests in flight together hold at most 64 MiB here, and
	// on the runner.
	permitBytes = 64 << 10

	// maxWanted is how many permits the waiting requests may need together: 512 MiB of requests for
	// one runner.
	maxWanted = 8 * wire.MaxInFlight
)

// permits bound the requests that a runner handles at once: a weighted semaphore with a bounded
// queue. All but the semaphore is guarded by Hub.mu.
type permits struct {
	*semaphore.Weighted
	waiting map[*waiter]bool
	wanted  int64 // by the waiting
}

// waiter is a request that waits.
type waiter struct {
	user   sandbox.User
	refuse context.CancelCauseFunc
}

func newPermits() *permits {
	return &permits{Weighted: semaphore.NewWeighted(wire.MaxInFlight), waiting: map[*waiter]bool{}}
}

// weight returns the permits for a frame of so many bytes.
func weight(bytes int) int64 { return 1 + int64(bytes/permitBytes) }

// take takes n permits. mu is Hub.mu; it is unlocked while the request waits.
func (p *permits) take(ctx context.Context, mu *sync.Mutex, n int64, user sandbox.User) error {
	if p.TryAcquire(n) {
		return nil
	}
	if len(p.waiting) >= maxWaiting || p.wanted+n > maxWanted {
		return fault.New(fault.SandboxBusy, "%d requests wait for the user's machine; try again when some are done", len(p.waiting))
	}
	within, refuse := context.WithCancelCause(ctx)
	defer refuse(nil)
	w := &waiter{user, refuse}
	p.waiting[w] = true
	p.wanted += n
	mu.Unlock()
	err := p.Acquire(within, n)
	mu.Lock()
	delete(p.waiting, w)
	p.wanted -= n
	if err != nil {
		return cmp.Or(ctx.Err(), context.Cause(within))
	}
	return nil
}

// refuse refuses the waiters of the users that match.
func (p *permits) refuse(which func(sandbox.User) bool, err error) {
	for w := range p.waiting {
		if which(w.user) {
			w.refuse(err)
		}
	}
}

func anyUser(sandbox.User) bool { return true }
