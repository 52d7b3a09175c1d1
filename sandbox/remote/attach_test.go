package remote

import (
	"context"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"secbox/sandbox"
	"secbox/sandbox/remote/wire"
)

// TestIsAliveEndsWithHub: isAlive waits for aliveTimeout at most, and not at all when the hub
// closes.
func TestIsAliveEndsWithHub(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		h := NewHub(Config{})
		l := &link{hub: h, readDone: make(chan struct{}), start: time.Now(), wake: make(chan struct{}, 1)}
		begun := time.Now()
		if l.isAlive() || time.Since(begun) != aliveTimeout {
			t.Errorf("a silent one had %v to answer", time.Since(begun))
		}
		h.stop()
		begun = time.Now()
		if l.isAlive() || time.Since(begun) != 0 || len(l.echoes) != 0 {
			t.Errorf("it was waited for, for %v; %d wait", time.Since(begun), len(l.echoes))
		}
	})
}

// TestAttachWaitsForFormerReader: output is passed on without the lock, so a former link must be
// read to its end before the offsets are sent.
func TestAttachWaitsForFormerReader(t *testing.T) {
	t.Parallel()
	h := NewHub(Config{})
	hello := &wire.Hello{Session: "s", Name: "laptop"}
	link := func() *link {
		return &link{hub: h, caller: Caller{TokenID: "t", UserID: "u"}, readDone: make(chan struct{}), wake: make(chan struct{}, 1)}
	}
	first, next := link(), link()
	if former, refusal := h.attach(first, hello); former != nil || refusal != nil {
		t.Fatal(former, refusal)
	}
	h.mu.Lock()
	first.machine.pending["e"] = &request{call: call{id: "e"}, sent: true, m: first.machine}
	first.ending = &closing{wire.StatusProtocol, "it lies"}
	h.detach(first)
	h.mu.Unlock()
	if former, refusal := h.attach(next, hello); former != first || refusal != nil {
		t.Fatal("it is attached while the one before is read")
	}
	close(first.readDone)
	if former, refusal := h.attach(next, hello); former != nil || refusal != nil || next.machine != first.machine {
		t.Fatal(former, refusal)
	}
}

// TestInputIsWithdrawn: a runner that reads nothing does not keep the input of commands that are
// over in memory.
func TestInputIsWithdrawn(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		h := NewHub(Config{})
		l := &link{hub: h, caller: Caller{TokenID: "t", UserID: "u"}, wake: make(chan struct{}, 1)} // nothing is written
		if former, refusal := h.attach(l, &wire.Hello{Session: "s", Name: "laptop", Can: []string{wire.CanInput}}); former != nil || refusal != nil {
			t.Fatal(former, refusal)
		}
		for _, sent := range []bool{false, true} {
			before := len(l.out)
			ctx, cancel := context.WithCancel(t.Context())
			go func() {
				input := strings.NewReader(strings.Repeat("x", wire.StdinWindow))
				_, _ = h.Exec(ctx, sandbox.ExecSpec{Command: "c", User: sandbox.User{ID: "u"}, StdinFrom: input})
			}()
			synctest.Wait()
			h.mu.Lock()
			if frames := len(l.out) - before; frames <= wire.StdinWindow/wire.MaxOutput {
				t.Errorf("%d frames are queued, without input", frames)
			}
			for _, req := range l.machine.requests() {
				if req.sent = sent; sent {
					h.finish(req, &wire.ExecResult{}, nil) // it answers, and reads nothing more
				}
			}
			h.mu.Unlock()
			cancel()
			synctest.Wait()
			if left := len(l.out) - before; left != 0 {
				t.Errorf("sent %t: %d frames are kept", sent, left)
			}
		}
	})
}
