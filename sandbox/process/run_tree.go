package process

import (
	"context"
	"errors"
	"fmt"
	"os"
	"sync"
	"sync/atomic"
	"syscall"
	"time"
)

// Why a command ended; the first reason counts.
const (
	reasonNone int32 = iota
	reasonItself
	reasonTimeout
	reasonContext
	reasonClosing
)

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

	var reason atomic.Int32
	over, gaveUp := make(chan struct{}), make(chan struct{})
	var watch sync.WaitGroup
	watch.Go(func() {
		p.watch(ctx, spec.Timeout, over, func(why int32) {
			reason.CompareAndSwap(reasonNone, why)
			t.kill()
			select {
			case <-over:
			case <-time.After(p.killTimeout):
				close(gaveUp)
			}
		})
	})
	dead := make(chan *os.ProcessState, 1)
	go func() { dead <- t.wait(func() { reason.CompareAndSwap(reasonNone, reasonItself) }) }()
	var state *os.ProcessState
	select {
	case state = <-dead:
	case <-gaveUp: // the goroutine of wait stays behind
	}
	close(over)
	watch.Wait()
	if state == nil {
		return nil, cannotBeKilled(whyKilled(ctx, reason.Load()))
	}
	r := &Result{}
	r.ExitCode, r.Detail = verdict(state)
	r.StdoutBytes, r.StderrBytes = pipes.drain()
	if err := whyKilled(ctx, reason.Load()); err != nil {
		return nil, err
	}
	if reason.Load() == reasonTimeout {
		r.ExitCode, r.TimedOut, r.Detail = -1, true, ""
	}
	return r, nil
}

// whyKilled returns the error of a command that did not end by itself or by its timeout.
func whyKilled(ctx context.Context, reason int32) error {
	switch reason {
	case reasonContext:
		return fmt.Errorf("the command was killed: %w", ended(ctx))
	case reasonClosing:
		return shuttingDown()
	}
	return nil
}

// watch calls kill when the command must be ended.
func (p *Processes) watch(ctx context.Context, timeout time.Duration, over <-chan struct{}, kill func(why int32)) {
	var late <-chan time.Time
	if timeout > 0 {
		timer := time.NewTimer(timeout)
		defer timer.Stop()
		late = timer.C
	}
	select {
	case <-over:
	case <-late:
		kill(reasonTimeout)
	case <-ctx.Done():
		kill(reasonContext)
	case <-p.closing:
		kill(reasonClosing)
	}
}

func verdict(state *os.ProcessState) (code int, detail string) {
	if status, ok := state.Sys().(syscall.WaitStatus); ok && status.Signaled() {
		return 128 + int(status.Signal()), endedBySignal(status.Signal())
	}
	return state.ExitCode(), ""
}

// notStarted returns the result of a command that never ran, or an error if the machine is at fault.
func notStarted(program string, err error) (*Result, error) {
	switch {
	case isNoRoom(err):
		return nil, noRoom(err)
	case errors.Is(err, errNotFound), errors.Is(err, os.ErrNotExist):
		return &Result{ExitCode: exitNotFound, Detail: notFound(program)}, nil
	}
	return &Result{ExitCode: exitNotExecutable, Detail: notRunnable(program)}, nil
}
