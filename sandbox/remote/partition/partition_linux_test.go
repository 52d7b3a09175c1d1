package partition

import (
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"secbox/fault"
	"secbox/sandbox"
	"secbox/sandbox/remote"
	"secbox/sandbox/sandboxtest"
)

var soakFor = flag.Duration("partition", 0, "how long to cut and restore the network; 0: a few times, with SECBOX_SOAK=1 for a minute")

const (
	clients   = 4
	cuts      = 5
	heartbeat = 200 * time.Millisecond
	grace     = 2 * time.Second
)

// newMarker returns an argument for sleep that no other process has.
func newMarker() string { return fmt.Sprintf("98%d.%d", os.Getpid(), rand.IntN(1_000_000_000)) }

// TestPartitionWhileClientsWork cuts the network at random while four clients work: for less time
// than it takes to notice, for longer, and sometimes for longer than requests wait for a runner.
func TestPartitionWhileClientsWork(t *testing.T) {
	t.Parallel()
	n, dir, marker := newNetwork(t), t.TempDir(), newMarker()
	s := serve(t, n.here, remote.Config{Heartbeat: heartbeat, Grace: grace})
	r := startRunner(t, n.there, s.url, dir)
	await(t, "the runner to connect", func() bool { return len(s.Runners()) == 1 })

	done, all, finished := make(chan struct{}), []*client{}, make(chan struct{})
	var work sync.WaitGroup
	for i := range clients {
		c := newClient(t, s, i, dir, marker)
		all = append(all, c)
		work.Go(func() { c.work(done) })
	}
	go func() { work.Wait(); close(finished) }()

	begun := time.Now()
	for i := 0; i < cuts || time.Since(begun) < max(*soakFor, sandboxtest.Soak(0, time.Minute)); i++ {
		time.Sleep(rand.N(500 * time.Millisecond)) // while the clients are busy
		n.cut(t)
		if i%cuts == cuts/2 {
			time.Sleep(grace + rand.N(time.Second))
		} else {
			time.Sleep(rand.N(6 * heartbeat))
		}
		n.restore(t)
		if i%3 == 0 {
			await(t, "the runner to be back", func() bool { return len(s.Runners()) == 1 })
		}
	}
	await(t, "a call to succeed", func() bool {
		return slices.ContainsFunc(all, func(c *client) bool { return c.successes() > 0 })
	})
	close(done)
	select {
	case <-finished:
	case <-time.After(timeout):
		for _, c := range all {
			c.mu.Lock()
			t.Errorf("%s has got no answer to %s", c.name, c.doing)
			c.mu.Unlock()
		}
		t.FailNow()
	}
	await(t, "the runner to be back", func() bool { return len(s.Runners()) == 1 })
	if !r.alive() {
		t.Fatalf("the runner has ended: %v", r.err)
	}
	result, err := s.Exec(t.Context(), sandbox.ExecSpec{Shell: true, Command: "echo still here", User: user})
	if err != nil || result.Stdout != "still here\n" {
		t.Errorf("after all: %+v, %v", result, err)
	}
	await(t, "all processes of commands to be gone", func() bool { return sandboxtest.HostProcesses(marker) == 0 })
	judge(t, dir, all)
}

// TestPartitionWhileRunnerIsKilled kills the runner while commands run and the network is cut. When
// another runner of that name connects, the commands' outcome is unknown at once, none of their
// processes lives, and none is run again.
func TestPartitionWhileRunnerIsKilled(t *testing.T) {
	t.Parallel()
	n, dir, marker := newNetwork(t), t.TempDir(), newMarker()
	s := serve(t, n.here, remote.Config{Heartbeat: heartbeat, Grace: time.Hour})
	r := startRunner(t, n.there, s.url, dir)
	await(t, "the runner to connect", func() bool { return len(s.Runners()) == 1 })

	answers := make(chan error, clients)
	for i := range clients {
		go func() {
			_, err := s.Exec(t.Context(), sandbox.ExecSpec{
				Shell: true, User: user, Timeout: time.Hour,
				Command: fmt.Sprintf("setsid sleep %s & echo killed-%d >> %s; sleep %s", marker, i, effects, marker),
			})
			answers <- err
		}()
	}
	started := func() int {
		content, _ := os.ReadFile(dir + "/" + effects)
		return strings.Count(string(content), "killed-")
	}
	await(t, "all commands to have begun", func() bool { return started() == clients })
	n.cut(t)
	if err := r.cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	<-r.ended
	await(t, "all processes of commands to be gone", func() bool { return sandboxtest.HostProcesses(marker) == 0 })
	n.restore(t)
	startRunner(t, n.there, s.url, dir)
	for range clients {
		select {
		case err := <-answers:
			if !fault.Is(err, fault.OutcomeUnknown) {
				t.Errorf("got %v", err)
			}
		case <-time.After(timeout):
			t.Fatal("a command has got no answer")
		}
	}
	result, err := s.Exec(t.Context(), sandbox.ExecSpec{Shell: true, Command: "cat " + effects, User: user})
	if err != nil || strings.Count(result.Stdout, "\n") != clients || started() != clients {
		t.Errorf("after all: %+v, %v", result, err)
	}
}
