package admission_test

import (
	"bytes"
	"context"
	"errors"
	"io"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"secbox/fault"
	"secbox/internal/admission"
)

func as(ctx context.Context, g *admission.Gate, client string) context.Context {
	return admission.WithProcessors(ctx, g, func() string { return client })
}

func begin(ctx context.Context, t *testing.T) *admission.Turn {
	t.Helper()
	turn, err := admission.Begin(ctx)
	if err != nil {
		t.Fatal(err)
	}
	return turn
}

// TestHalfOfTheProcessors: one client never has more than half of the processors, but always one.
func TestHalfOfTheProcessors(t *testing.T) {
	t.Parallel()
	for processors, its := range map[int]int{1: 1, 2: 1, 3: 1, 8: 4} {
		synctest.Test(t, func(t *testing.T) {
			g := admission.NewProcessors(processors)
			greedy, leave := context.WithCancel(as(t.Context(), g, "greedy"))
			for range its {
				begin(greedy, t)
			}
			ended := make(chan error)
			go func() {
				_, err := admission.Begin(greedy)
				ended <- err
			}()
			synctest.Wait()
			if waiting, free := g.Load(); waiting != 1 || free != processors-its {
				t.Errorf("of %d processors %d are free, %d callers wait", processors, free, waiting)
			}
			begin(t.Context(), t).End() // the server's own work
			leave()
			if err := <-ended; !errors.Is(err, context.Canceled) {
				t.Errorf("waiting for a client that has gone: %v", err)
			}
			if waiting, free := g.Load(); waiting != 0 || free != processors-its {
				t.Errorf("afterwards %d are free, %d wait", free, waiting)
			}
		})
	}
}

// TestNextLetsOthersWork: on one processor, the work of a client waits for at most one piece of
// another client's work.
func TestNextLetsOthersWork(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		g := admission.NewProcessors(1)
		long := begin(as(t.Context(), g, "greedy"), t)
		other := make(chan *admission.Turn)
		go func() { other <- begin(as(t.Context(), g, "other"), t) }()
		synctest.Wait()
		next := make(chan error)
		go func() { next <- long.Next() }()
		turn := <-other
		synctest.Wait()
		select {
		case <-next:
			t.Error("two work at once")
		default:
		}
		turn.End()
		if err := <-next; err != nil {
			t.Error(err)
		}
		long.End()
		long.End()
		if waiting, free := g.Load(); waiting != 0 || free != 1 {
			t.Errorf("%d wait, %d are free", waiting, free)
		}
	})
}

// TestWorkTimeout: work ends after a minute with a processor. Waiting for the processor and for
// slow clients does not count.
func TestWorkTimeout(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		g := admission.NewProcessors(2)
		turn := begin(as(t.Context(), g, "a"), t)
		defer turn.End()
		w := turn.Writer(slow{g, t})
		for range 3 {
			time.Sleep(admission.WorkTimeout) // nobody waits for it: the clock is the bubble's
			if _, err := w.Write([]byte("x")); err != nil {
				t.Fatal(err)
			}
		}
		for range 2 {
			time.Sleep(admission.WorkTimeout / 2)
			if err := turn.Next(); err != nil {
				t.Fatal(err)
			}
		}
		time.Sleep(time.Nanosecond)
		if err := turn.Next(); !fault.Is(err, fault.ServerBusy) {
			t.Errorf("after more than %v: %v", admission.WorkTimeout, err)
		}
		if _, free := g.Load(); free != 2 {
			t.Errorf("%d processors are free", free)
		}
	})
}

// slow is a client that reads for an hour.
type slow struct {
	g *admission.Gate
	t *testing.T
}

func (s slow) Write(p []byte) (int, error) {
	time.Sleep(time.Hour)
	if _, free := s.g.Load(); free != 2 {
		s.t.Error("a client that reads slowly keeps a processor")
	}
	return len(p), nil
}

// TestCopyEndsWithItsContext: copying looks at its context between pieces.
func TestCopyEndsWithItsContext(t *testing.T) {
	t.Parallel()
	g := admission.NewProcessors(2)
	var got bytes.Buffer
	if n, err := admission.Copy(as(t.Context(), g, "a"), &got, strings.NewReader("all of it")); n != 9 || err != nil || got.String() != "all of it" {
		t.Errorf("%d, %v: %q", n, err, got.String())
	}
	why := errors.New("why")
	ctx, cancel := context.WithCancelCause(as(t.Context(), g, "a"))
	read := 0
	endless := reader(func(p []byte) (int, error) {
		if read++; read == 3 {
			cancel(why)
		}
		return len(p), nil
	})
	if _, err := admission.Copy(ctx, io.Discard, endless); !errors.Is(err, why) || read != 3 {
		t.Errorf("after %d reads: %v", read, err)
	}
	if err := admission.Do(ctx, func() error { t.Error("it ran"); return nil }); !errors.Is(err, why) {
		t.Error(err)
	}
	if _, free := g.Load(); free != 2 {
		t.Errorf("%d processors are free", free)
	}
}

type reader func([]byte) (int, error)

func (r reader) Read(p []byte) (int, error) { return r(p) }
