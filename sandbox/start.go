package sandbox

import (
	"context"
	"io"
	"os"
	"syscall"

	"secbox/fault"
)

// Process is a command with its streams, while it runs. Its methods are safe for concurrent use.
// The caller must read Stdout and Stderr to their ends at the same time, or close them, or end the
// context of Start: the command waits for a reader.
type Process struct {
	Stdin          io.WriteCloser // io.ErrClosedPipe at the command's end
	Stdout, Stderr io.ReadCloser  // io.EOF at the command's end, ExecTo's error when it fails, the context's error as soon as it ends

	signals chan syscall.Signal
	done    chan struct{}
	result  *ExecResult
	err     error
}

// Start starts a command with pipes, as ExecTo runs it: it ends at its timeout and with ctx, and of
// each stream it gives back as many bytes as the spec allows. The spec's Stdin, StdinFrom and
// Signals are not used. Wait returns errors of the start.
func Start(ctx context.Context, s Streamer, spec ExecSpec) *Process {
	stdin, in := io.Pipe()
	out, stdout := io.Pipe()
	errs, stderr := io.Pipe()
	p := &Process{Stdin: in, Stdout: out, Stderr: errs, signals: make(chan syscall.Signal), done: make(chan struct{})}
	spec.StdinFrom, spec.Signals = stdin, p.signals
	closeOutput := func(err error) {
		_ = stdout.CloseWithError(err)
		_ = stderr.CloseWithError(err)
	}
	stop := context.AfterFunc(ctx, func() { closeOutput(ctx.Err()) })
	go func() {
		defer close(p.done)
		defer stop()
		p.result, p.err = s.ExecTo(ctx, spec, stdout, stderr)
		_ = stdin.Close()
		closeOutput(p.err)
	}()
	return p
}

// Signal sends a signal to the command, which may not have been started yet; see ExecSpec.Signals.
// os.ErrProcessDone when it has ended.
func (p *Process) Signal(s syscall.Signal) error {
	if !CanSignal(s) {
		return fault.BadField("signal", "must be HUP, INT, TERM or KILL")
	}
	select {
	case p.signals <- s:
		return nil
	case <-p.done:
		return os.ErrProcessDone
	}
}

// Wait waits for the command's end, and returns what ExecTo returned. It may be called more than
// once.
func (p *Process) Wait() (*ExecResult, error) {
	<-p.done
	return p.result, p.err
}
