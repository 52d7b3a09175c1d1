package lifecycle_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"secbox/audit"
	"secbox/audit/admin"
	"secbox/fault"
	"secbox/policy"
	"secbox/runner/lifecycle"
)

func newCommands(log lifecycle.Log) *lifecycle.Commands {
	return lifecycle.New(lifecycle.Config{Log: log, NodeID: "n", Now: time.Now})
}

func begin(t *testing.T, c *lifecycle.Commands, execID string) (context.Context, *lifecycle.Command) {
	t.Helper()
	ctx, cmd, err := c.Begin(t.Context(), lifecycle.Command{ExecID: execID}, nil)
	if err != nil {
		t.Fatal(err)
	}
	return ctx, cmd
}

func TestCancel(t *testing.T) {
	t.Parallel()
	c := newCommands(nil)
	ctx, cmd := begin(t, c, "1")
	other, _ := begin(t, c, "2")
	ended := c.Ended("1")
	if c.Cancel(t.Context(), "3") || !c.Cancel(t.Context(), "1") || other.Err() != nil || c.Running() != 2 {
		t.Errorf("canceled the wrong one; %d run", c.Running())
	}
	if status, reason, detail := lifecycle.Killed(ctx); status != audit.Canceled || reason != audit.ReasonCanceled || detail == "" {
		t.Errorf("killed because of %q, %q", reason, detail)
	}
	c.End(cmd)
	<-ended
	if c.Ended("1") != nil || c.Cancel(t.Context(), "1") || c.Running() != 1 {
		t.Error("an ended command is still in progress")
	}
}

// TestLose: a node that has lost its lease kills what it runs, and takes new commands only when all
// that paused it have resumed.
func TestLose(t *testing.T) {
	t.Parallel()
	c := newCommands(nil)
	ctx, cmd := begin(t, c, "1")
	drained := c.Pause(fault.New(fault.Draining, "drained"))
	resume := c.Pause(fault.New(fault.ServerBusy, "for now"))
	if _, _, err := c.Begin(t.Context(), lifecycle.Command{ExecID: "2"}, nil); !fault.Is(err, fault.ServerBusy) || !fault.Is(c.Accepts(), fault.ServerBusy) {
		t.Errorf("while it is paused: %v", err)
	}
	if ctx.Err() != nil {
		t.Error("Pause has killed a command")
	}
	lost := make(chan struct{})
	go func() {
		c.Lose()
		close(lost)
	}()
	<-ctx.Done()
	if status, reason, detail := lifecycle.Killed(ctx); status != audit.Lost || reason != audit.NodeLost || detail == "" {
		t.Errorf("killed as %s because of %q, %q", status, reason, detail)
	}
	select {
	case <-lost:
		t.Error("Lose has not waited")
	default:
	}
	c.End(cmd)
	<-lost
	drained()
	drained()
	if err := c.Accepts(); !fault.Is(err, fault.ServerBusy) {
		t.Errorf("after the first resume: %v", err)
	}
	resume()
	if err := c.Accepts(); err != nil {
		t.Errorf("after the last resume: %v", err)
	}
	begin(t, c, "2")
}

// TestCanceledBy: the record of a command says who canceled it, as far as that is known.
func TestCanceledBy(t *testing.T) {
	t.Parallel()
	for want, by := range map[string]admin.Actor{
		"canceled by request of token ops (t-1)":            admin.Caller("t-1", "ops"),
		"canceled by request of token loopback":             admin.Caller("loopback", "loopback"),
		"canceled by request of person Ada (oidc:i#ada)":    admin.Caller("oidc:i#ada", "Ada"),
		"canceled by request of token a\ufffdb\ufffd (t-1)": admin.Caller("t-1", "a\nb\u202e"),
		"canceled by request":                               {Type: admin.ByUnknown},
	} {
		c := newCommands(nil)
		ctx, _ := begin(t, c, "1")
		if !c.Cancel(admin.By(t.Context(), by), "1") {
			t.Fatal("it is not in progress")
		}
		if _, _, detail := lifecycle.Killed(ctx); detail != want {
			t.Errorf("%q, want %q", detail, want)
		}
	}
}

// TestAwait: those who wait for a command learn of its beginning, and leave nothing.
func TestAwait(t *testing.T) {
	t.Parallel()
	c := newCommands(nil)
	first, leaveFirst := c.Await("1")
	second, leaveSecond := c.Await("1")
	other, leaveOther := c.Await("2")
	leaveSecond()
	leaveSecond()
	_, _ = begin(t, c, "1")
	<-first
	<-second
	select {
	case <-other:
		t.Error("another command began")
	default:
	}
	again, leaveAgain := c.Await("1")
	<-again
	leaveFirst()
	leaveAgain()
	leaveOther()
	if n := c.Awaited(); n != 0 {
		t.Errorf("%d commands are still awaited", n)
	}
}

func TestBegin(t *testing.T) {
	t.Parallel()
	c := newCommands(nil)
	_, _ = begin(t, c, "1")
	if _, _, err := c.Begin(t.Context(), lifecycle.Command{ExecID: "1"}, nil); !fault.Is(err, fault.Internal) {
		t.Errorf("the same id again: %v", err)
	}
	refused := errors.New("refused")
	_, _, err := c.Begin(t.Context(), lifecycle.Command{ExecID: "2"}, func(inProgress map[string]*lifecycle.Command) error {
		if len(inProgress) != 1 || inProgress["1"] == nil {
			t.Errorf("admit sees %v", inProgress)
		}
		return refused
	})
	if !errors.Is(err, refused) || c.Running() != 1 {
		t.Errorf("%v, %d run", err, c.Running())
	}
}

// TestDrain: commands may end until the deadline; the others are killed, and Drain waits for them.
func TestDrain(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c := newCommands(nil)
		_, quick := begin(t, c, "quick")
		slow, slowCommand := begin(t, c, "slow")
		deadline, cancel := context.WithTimeout(context.Background(), time.Minute)
		defer cancel()
		drained := make(chan struct{})
		for range 2 {
			go func() {
				c.Drain(deadline)
				drained <- struct{}{}
			}()
		}
		synctest.Wait()
		if _, _, err := c.Begin(t.Context(), lifecycle.Command{ExecID: "late"}, nil); !fault.Is(err, fault.ShuttingDown) || fault.From(err).RetryAfter == 0 {
			t.Errorf("a new command: %v", err)
		}
		c.End(quick)
		synctest.Wait()
		if slow.Err() != nil {
			t.Error("killed before the deadline")
		}
		<-slow.Done()
		if _, reason, _ := lifecycle.Killed(slow); reason != audit.ShuttingDown || deadline.Err() == nil {
			t.Errorf("killed because of %q", reason)
		}
		select {
		case <-drained:
			t.Error("Drain did not wait for the killed command")
		default:
		}
		c.End(slowCommand)
		<-drained
		<-drained
	})
}

// closing is a log that closes rows.
type closing struct {
	lifecycle.Log
	err error
}

func (l closing) Close(context.Context, *audit.Record) (bool, error) { return true, l.err }

func TestRecord(t *testing.T) {
	t.Parallel()
	c := newCommands(closing{})
	r, err := c.NewRecord(audit.Record{ExecID: "1", EnvKeys: []string{"B", "A", "B"}}, policy.Snapshot{SettingsDigest: "d"})
	if err != nil || len(r.EnvKeys) != 2 || r.EnvKeys[0] != "A" || r.Args == nil || r.Inputs == nil || r.NodeID != "n" || r.SettingsDigest != "d" ||
		r.PolicySnapshot != nil {
		t.Errorf("%+v %v", r, err)
	}
	r.StartedAt, r.EndedAt = r.CreatedAt, r.CreatedAt.Add(1500*time.Millisecond)
	if spooled, err := c.Close(t.Context(), &r); !spooled || err != nil || r.DurationMS != 1500 {
		t.Errorf("%v %v, %d ms", spooled, err, r.DurationMS)
	}
	c = newCommands(closing{err: fault.New(fault.DiskFull, "full")})
	if _, err := c.Close(t.Context(), &r); !fault.Is(err, fault.DiskFull) || fault.From(err).ExecID != "1" {
		t.Errorf("%v", err)
	}
}
