package process

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"slices"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"secbox/engine/initproto"
	"secbox/engine/worker"
	"secbox/fault"
	"secbox/policy"
	"secbox/sandbox/search"
)

// workerName is the name of a worker in lists of processes, and tells Main to be one.
const workerName = "secbox-worker"

// hasMain is set by Main: without it, a worker would run the whole program again.
var hasMain atomic.Bool

// Main serves as a worker or searches, and does not return, if this process was started to do that.
// A program with Processes must call it first.
func Main() {
	closeOnExec()
	search.Main()
	if len(os.Args) == 0 || os.Args[0] != workerName {
		hasMain.Store(true)
		return
	}
	// The starter handles these signals and closes our standard input to end us; other ones come
	// from commands. Use Notify, not Ignore: children inherit ignored signals. Without SIGPIPE,
	// writing to a closed pipe is an error.
	signal.Notify(make(chan os.Signal, 1), unix.SIGINT, unix.SIGTERM, unix.SIGHUP, unix.SIGQUIT, unix.SIGUSR1, unix.SIGUSR2, unix.SIGALRM,
		unix.SIGPIPE)
	os.Exit(worker.Serve(os.Stdin, os.Stdout, worker.Options{OfferToOOM: true, Hardened: true}))
}

// Idle workers end after idleTime; more than maxIdle end at once.
const (
	maxIdle  = 8
	idleTime = time.Minute
)

// workers are the processes that run commands, each one command after another.
type workers struct {
	mu     sync.Mutex
	idle   []*workerProcess // the last one was used last
	closed bool
	all    sync.WaitGroup
}

// workerProcess is one worker.
type workerProcess struct {
	process   *os.Process
	died      chan struct{} // closed when it has died
	left      chan struct{} // closed when close need not wait for it
	passing   atomic.Bool   // its output is with the caller's writer
	link      *worker.Link
	in, out   *os.File
	frames    *initproto.Reader
	greeted   bool
	dismissed atomic.Bool
	since     time.Time // idle since
}

var errNoMain = errors.New("process: Main was not called")

// take returns an idle worker, or a new one.
func (ws *workers) take() (*workerProcess, error) {
	for {
		ws.mu.Lock()
		n := len(ws.idle)
		if n == 0 {
			ws.mu.Unlock()
			return ws.start()
		}
		w := ws.idle[n-1]
		ws.idle = ws.idle[:n-1]
		ws.mu.Unlock()
		select {
		case <-w.died: // killed from outside
			w.dismiss()
		default:
			return w, nil
		}
	}
}

func (ws *workers) start() (_ *workerProcess, err error) {
	if !hasMain.Load() {
		return nil, errNoMain
	}
	theirIn, in, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	defer theirIn.Close()
	out, theirOut, err := os.Pipe()
	if err != nil {
		in.Close()
		return nil, err
	}
	defer theirOut.Close()
	cmd := &exec.Cmd{
		Path: "/proc/self/exe", Args: []string{workerName}, Env: helperEnviron, Dir: "/", Stdin: theirIn, Stdout: theirOut,
		// Setsid keeps a terminal's Ctrl-C away. When we die, SIGCONT wakes it, if a command has
		// stopped it, to see the end of its input.
		SysProcAttr: &syscall.SysProcAttr{Setsid: true, Pdeathsig: unix.SIGCONT},
	}
	if err := cmd.Start(); err != nil {
		in.Close()
		out.Close()
		return nil, err
	}
	died, left := make(chan struct{}), make(chan struct{})
	go func() {
		_ = cmd.Wait()
		close(died)
	}()
	ws.all.Go(func() {
		select {
		case <-died:
		case <-left:
		}
	})
	return &workerProcess{
		process: cmd.Process, died: died, left: left, link: worker.NewLink(in), in: in, out: out,
		frames: initproto.NewReader(bufio.NewReaderSize(out, initproto.MaxChunk), initproto.FromWorker),
	}, nil
}

// give takes a worker back.
func (ws *workers) give(w *workerProcess) {
	w.since = time.Now()
	ws.mu.Lock()
	if ws.closed || w.dismissed.Load() || len(ws.idle) >= maxIdle {
		ws.mu.Unlock()
		w.dismiss()
		return
	}
	ws.idle = append(ws.idle, w)
	first := len(ws.idle) == 1
	ws.mu.Unlock()
	if first {
		time.AfterFunc(idleTime, ws.dismissOld)
	}
}

// dismissOld ends the workers that were idle for idleTime.
func (ws *workers) dismissOld() {
	ws.mu.Lock()
	old := 0
	for old < len(ws.idle) && time.Since(ws.idle[old].since) >= idleTime {
		old++
	}
	gone := ws.idle[:old]
	ws.idle = slices.Clone(ws.idle[old:])
	if len(ws.idle) > 0 {
		time.AfterFunc(idleTime-time.Since(ws.idle[0].since), ws.dismissOld)
	}
	ws.mu.Unlock()
	for _, w := range gone {
		w.dismiss()
	}
}

// close ends all workers, also workers that are given back during the call, and waits for them.
// take must not be called any more.
func (ws *workers) close() {
	ws.mu.Lock()
	ws.closed = true
	idle := ws.idle
	ws.idle = nil
	ws.mu.Unlock()
	for _, w := range idle {
		w.dismiss()
	}
	ws.all.Wait()
}

// dismiss makes a worker end, which kills its command first.
func (w *workerProcess) dismiss() {
	w.dismissed.Store(true)
	w.in.Close()
	w.out.Close()
}

// system is the part of Processes that only Linux has.
type system = workers

// runHere runs a command in a worker.
func (p *Processes) runHere(ctx context.Context, spec Spec) (*Result, error) {
	job, err := json.Marshal(initproto.Job{
		Argv: spec.Argv, Env: spec.Env, Cwd: spec.Dir, CwdMustExist: true, OwnPath: true, TimeoutMS: milliseconds(spec.Timeout),
		GraceMS:   policy.KillGrace(spec.Timeout).Milliseconds(),
		MaxStdout: spec.MaxStdout, MaxStderr: spec.MaxStderr,
	})
	if err != nil || len(job) > initproto.MaxJob {
		return nil, fault.Wrap(fault.InvalidRequest, err, "the command, its arguments and its environment are too large")
	}
	w, err := p.system.take()
	switch {
	case errors.Is(err, errNoMain):
		return nil, err
	case err != nil:
		return nil, noRoom(err)
	}
	exit, why, err := p.serve(ctx, w, job, spec)
	if errors.Is(err, errGivenUp) {
		close(w.left) // it waits for processes that it may not kill, and ends then
		return nil, cannotBeKilled(why)
	}
	if err != nil {
		_ = w.process.Kill()
		return nil, fault.Wrap(fault.OutcomeUnknown, err,
			"the process that ran the command has died, and it is unknown how far the command came")
	}
	if exit.Left {
		w.dismiss()
	}
	p.system.give(w)
	switch {
	case exit.Killed && exit.Left:
		return nil, fault.Wrap(fault.OutcomeUnknown, why, detailSurvivor)
	case exit.Killed:
		return nil, why
	}
	return resultOf(spec.Argv[0], exit)
}

func milliseconds(d time.Duration) int64 {
	if d <= 0 {
		return 0
	}
	return int64((d + time.Millisecond - 1) / time.Millisecond)
}

// resultOf converts a worker's report.
func resultOf(program string, exit initproto.Exit) (*Result, error) {
	switch {
	case exit.NoDir:
		return nil, ErrNoDir
	case exit.NoRoom:
		return nil, noRoom(nil)
	}
	r := &Result{ExitCode: exit.Code, StdoutBytes: exit.StdoutBytes, StderrBytes: exit.StderrBytes}
	switch {
	case exit.StartError != "" && exit.Code == exitNotFound:
		r.Detail = notFound(program)
	case exit.StartError != "":
		r.Detail = notRunnable(program)
	case exit.TimedOut:
		r.ExitCode, r.TimedOut = -1, true
		if exit.Signal != int(syscall.SIGKILL) {
			r.Ended = &exit.Code
		}
	case exit.Signal != 0:
		r.Detail = endedBySignal(syscall.Signal(exit.Signal))
	}
	if exit.Left {
		r.Detail = detailSurvivor
	}
	return r, nil
}

// resumeTime is how long a worker may be late before it gets SIGCONT: a command of the same user
// may have stopped it.
const resumeTime = time.Second

// errGivenUp is the error of a worker whose command survives being killed.
var errGivenUp = errors.New("the command cannot be killed")

// serve runs a command in a worker, and kills it if it must end early. After an error the worker is
// useless; why is the reason if the command was killed.
func (p *Processes) serve(ctx context.Context, w *workerProcess, job []byte, spec Spec) (exit initproto.Exit, why, err error) {
	over, sent := make(chan struct{}), make(chan struct{})
	var watch sync.WaitGroup
	var overdue time.Duration // not counted while the caller's writer is slow
	watch.Go(func() {
		canceled := ctx.Done()
		resume := time.NewTimer(resumeTime + spec.Timeout)
		defer resume.Stop()
		if spec.Timeout <= 0 {
			resume.Stop()
		}
		for {
			select {
			case <-over:
				return
			case <-canceled:
				why = killed(ctx)
				watch.Go(func() { // a stopped worker may not read it yet
					<-sent
					_ = w.link.Send(initproto.TypeKill, nil)
				})
			case <-resume.C:
				_ = w.process.Signal(unix.SIGCONT)
				if !w.passing.Load() {
					overdue += resumeTime
				}
				if overdue > p.killTimeout {
					w.dismiss()
					return
				}
				resume.Reset(resumeTime)
				continue
			}
			canceled = nil
			resume.Reset(resumeTime)
		}
	})
	feed := initproto.NewFeed(spec.Stdin, w.link.Send)
	err = w.link.Send(initproto.TypeJob, job)
	close(sent)
	if err == nil {
		go feed.Run()
		if spec.Signals != nil {
			watch.Go(func() { initproto.SendSignals(spec.Signals, over, w.link.Send) })
		}
		exit, err = w.serve(spec, feed)
	}
	close(over)
	if err != nil {
		w.dismiss() // ends a pending write
	}
	feed.Stop(nil) // before the worker's next command
	watch.Wait()
	if err != nil && overdue > p.killTimeout {
		err = errGivenUp
	}
	return exit, why, err
}

// serve passes on the output of a command until its end.
func (w *workerProcess) serve(spec Spec, feed *initproto.Feed) (exit initproto.Exit, err error) {
	stdout, stderr := checkedWriter{to: spec.Stdout}, checkedWriter{to: spec.Stderr}
	for {
		t, payload, err := w.frames.Next()
		if err != nil {
			return exit, err
		}
		switch {
		case !w.greeted:
			if t != initproto.TypeHello || string(payload) != initproto.MagicWorker {
				return exit, initproto.ErrProtocol
			}
			w.greeted = true
		case t == initproto.TypeStdout:
			w.pass(&stdout, payload)
		case t == initproto.TypeStderr:
			w.pass(&stderr, payload)
		case t == initproto.TypeCredit:
			if !feed.Credit() {
				return exit, initproto.ErrProtocol
			}
		case t == initproto.TypeExit:
			return initproto.DecodeExit(payload)
		}
	}
}

func (w *workerProcess) pass(to *checkedWriter, payload []byte) {
	w.passing.Store(true)
	defer w.passing.Store(false)
	to.write(payload)
}

// checkedWriter is a writer that is not called again after an error.
type checkedWriter struct{ to io.Writer }

func (w *checkedWriter) write(p []byte) {
	if w.to != nil {
		if _, err := w.to.Write(p); err != nil {
			w.to = nil
		}
	}
}
