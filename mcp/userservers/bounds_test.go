package userservers

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"time"

	"secbox/fault"
	"secbox/sandbox"
)

// other is the user of the n-th workspace of the tests.
func other(n int) sandbox.User { return sandbox.User{AgentID: "a1", ID: fmt.Sprint("u", n)} }

// TestOneTokenLeavesRoomForOthers: the servers of one token, for whatever users, leave a quarter of
// them to other tokens, and end none of theirs.
func TestOneTokenLeavesRoomForOthers(t *testing.T) {
	t.Parallel()
	f := start(t, func(c *Config) { c.Max = 4 }, server("good"))
	acquire := func(n int, token string) (*process, error) {
		return f.slot(&f.cfg.Servers[0], other(n)).acquire(t.Context(), token)
	}
	theirs, err := acquire(0, "other")
	if err != nil {
		t.Fatal(err)
	}
	f.slot(&f.cfg.Servers[0], other(0)).release(theirs, true) // it is idle
	for n := 1; n <= 3; n++ {
		p, err := acquire(n, "tok")
		if err != nil {
			t.Fatal(err)
		}
		defer f.slot(&f.cfg.Servers[0], other(n)).release(p, true)
	}
	if _, err := acquire(4, "tok"); !fault.Is(err, fault.SandboxBusy) {
		t.Errorf("the fourth: %v", err)
	}
	again, err := acquire(0, "other")
	if err != nil || again != theirs {
		t.Errorf("the other token's server was ended: %v", err)
	} else {
		f.slot(&f.cfg.Servers[0], other(0)).release(again, true)
	}
	if p, err := acquire(5, sandbox.Tokenless); err != nil {
		t.Errorf("without tokens: %v", err)
	} else {
		f.slot(&f.cfg.Servers[0], other(5)).release(p, true)
	}
}

// TestWhatIsKnownOfManyWorkspacesIsBounded: sessions of ever new workspaces do not fill the memory,
// and what was used last is kept.
func TestWhatIsKnownOfManyWorkspacesIsBounded(t *testing.T) {
	t.Parallel()
	f := start(t, func(c *Config) { c.Sweep = time.Millisecond }, server("good"))
	for n := range maxSlots {
		f.Offered(other(n).ProjectID())
	}
	f.advance(time.Second)
	f.list()
	for n := range 100 {
		f.Offered(other(maxSlots + n).ProjectID())
	}
	f.await("the oldest are forgotten", func() bool { return len(f.all()) <= maxSlots+1 }) // the process's slot does not count
	if got := f.names(); !slices.Contains(got, "srv.echo") {
		t.Errorf("%q", got)
	}
}

// TestAForgottenSlotThatStarts: a process is ended with the others even if its slot was forgotten
// as it began.
func TestAForgottenSlotThatStarts(t *testing.T) {
	t.Parallel()
	f := start(t, nil, server("good"))
	s := f.slot(&f.cfg.Servers[0], other(1))
	f.forget(s)
	p, err := s.acquire(t.Context(), "tok")
	if err != nil {
		t.Fatal(err)
	}
	s.release(p, true)
	if !slices.Contains(f.all(), s) {
		t.Error("nothing will end the process")
	}
	f.forget(s)
	s.mu.Lock()
	s.retire(p)
	s.mu.Unlock()
	if f.slot(&f.cfg.Servers[0], other(1)) == s {
		t.Fatal("it was not forgotten")
	}
	if _, err := s.acquire(context.Background(), "tok"); !fault.Is(err, fault.SandboxBusy) {
		t.Errorf("a second process beside that of the new slot: %v", err)
	}
}

// TestBigPages: the pages of a list that are read are bounded in bytes, not just in number.
func TestBigPages(t *testing.T) {
	t.Parallel()
	f := start(t, nil, server("bigpages"))
	f.list()
	if got := f.names(); len(got) != 2 {
		t.Errorf("%d pages of 600 KB were read", len(got))
	}
}
