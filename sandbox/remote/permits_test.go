package remote

import (
	"strconv"
	"sync"
	"testing"
	"testing/synctest"

	"secbox/fault"
	"secbox/sandbox"
	"secbox/sandbox/remote/wire"
)

// TestWaitingBytesAreBounded: waiting requests are bounded by their bytes, not only by their
// number.
func TestWaitingBytesAreBounded(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var mu sync.Mutex
		p := newPermits()
		long := weight(wire.MaxMessage)
		end := make(chan struct{})
		kept, refused, busy := 0, 0, false
		for !busy {
			user := sandbox.User{ID: strconv.Itoa(kept % 2)}
			kept++
			go func() {
				mu.Lock()
				defer mu.Unlock()
				switch err := p.take(t.Context(), &mu, long, user); {
				case err == nil:
					mu.Unlock()
					<-end
					mu.Lock()
					p.Release(long)
				case fault.Is(err, fault.SandboxBusy):
					busy = true
					kept--
				case fault.Is(err, fault.ShuttingDown) && user.ID == "1":
					refused++
				default:
					t.Error(err)
				}
			}()
			synctest.Wait()
		}
		if kept*wire.MaxMessage > 600<<20 {
			t.Errorf("%d MiB are kept", kept*wire.MaxMessage>>20)
		}
		mu.Lock()
		waiting := len(p.waiting)
		p.refuse(func(u sandbox.User) bool { return u.ID == "1" }, errShuttingDown())
		mu.Unlock()
		synctest.Wait()
		if refused == 0 || len(p.waiting) != waiting-refused {
			t.Errorf("%d of %d refused, and %d still wait", refused, waiting, len(p.waiting))
		}
		close(end)
		synctest.Wait()
		if p.wanted != 0 || len(p.waiting) != 0 || !p.TryAcquire(wire.MaxInFlight) {
			t.Errorf("%+v when all have left", p)
		}
	})
}
