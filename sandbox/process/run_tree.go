package process

import (
	"context"
	"errors"
	"os"
	"slices"
	"sync/atomic"
	"syscall"
	"time"

	"secbox/engine/initproto"
	"secbox/policy"
)

var errTimeout = errors.New("timeout")

// runTree runs a command as a child of this process, on systems without workers.
func (p *Processes) runTree(ctx context.Context, spec Spec) (*Result, error) {
	if fi, err := os.Stat(spec.Dir); err != nil || !fi.IsDir() {
		return nil, ErrNoDir
	}
	program, err := lookUp(spec.Argv[0], spec.Dir, spec.Env)
	if err != nil {
		return notStarted(spec.Argv[0], err)
	}
	pipes, err := connect(spec)
	if err != nil {
		return nil, noRoom(err)
	}
	defer pipes.close()
	t, err := start(program, spec.Argv, spec.Dir, spec.Env, pipes.ofCommand)
	pipes.started()
	if err != nil {
		return notStarted(spec.Argv[0], err)
	}

	within, end := context.WithCancelCause(ctx)
	defer end(nil)
	var warned atomic.Bool
	if spec.Timeout > 0 {
		defer time.AfterFunc(spec.Timeout, func() { end(errTimeout) }).Stop()
		defer time.AfterFunc(spec.Timeout-policy.KillGrace(spec.Timeout), func() {
			warned.Store(true)
			t.terminate()
		}).Stop()
	}
	if spec.Signals != nil {
		go t.passSignals(within, spec.Signals)
	}
	exited, dead := make(chan struct{}), make(chan *os.ProcessState, 1)
	go func() { dead <- t.wait(func() { close(exited) }) }()
	var state *os.ProcessState
	var timedOut, ended bool // ended: by itself
	var why error            // why it was killed, if not for its timeout
	select {
	case <-exited:
		timedOut, ended = warned.Load(), true
		select {
		case state = <-dead:
		case <-within.Done(): // the rest of the tree is still alive
		}
	case <-within.Done():
		if timedOut = errors.Is(context.Cause(within), errTimeout); !timedOut {
			why = killed(within)
		}
	}
	if state == nil {
		t.kill()
		select {
		case state = <-dead:
		case <-time.After(p.killTimeout): // the goroutine of wait stays behind
			return nil, cannotBeKilled(why)
		}
	}
	r := &Result{}
	r.ExitCode, r.Detail = verdict(state)
	r.StdoutBytes, r.StderrBytes = pipes.drain()
	if why != nil {
		return nil, why
	}
	if timedOut {
		if code := r.ExitCode; ended {
			r.Ended = &code
		}
		r.ExitCode, r.TimedOut, r.Detail = -1, true, ""
	}
	return r, nil
}

// passSignals sends the signals that arrive until ctx ends.
func (t *tree) passSignals(ctx context.Context, from <-chan syscall.Signal) {
	for {
		select {
		case s, ok := <-from:
			if !ok {
				return
			}
			if slices.Contains(initproto.Signals, s) {
				t.signal(s)
			}
		case <-ctx.Done():
			return
		}
	}
}

func verdict(state *os.ProcessState) (code int, detail string) {
	if status, ok := state.Sys().(syscall.WaitStatus); ok && status.Signaled() {
		return 128 + int(status.Signal()), endedBySignal(status.Signal())
	}
	return state.ExitCode(), ""
}

// notStarted returns the result of a command that never ran, or an error if the machine is at
// fault.
func notStarted(program string, err error) (*Result, error) {
	switch {
	case isNoRoom(err):
		return nil, noRoom(err)
	case errors.Is(err, errNotFound), errors.Is(err, os.ErrNotExist):
		return &Result{ExitCode: exitNotFound, Detail: notFound(program)}, nil
	}
	return &Result{ExitCode: exitNotExecutable, Detail: notRunnable(program)}, nil
}
