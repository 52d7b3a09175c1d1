//go:build linux

package main

import (
	"bufio"
	"errors"
	"fmt"
	"os"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"secbox/engine/initproto"
	"secbox/engine/worker"
)

const (
	// Threads of a worker: one waits for a process, one for frames, the others run. They count
	// against the container's pids.
	workerProcessors = 2
	workerThreads    = 4

	idleAtStart = 1 // workers that are started before there is a command
	maxIdle     = 8 // that are kept when there are none
)

// runWorker is the main function of a worker.
func runWorker() int {
	worker.PrepareThreads(workerProcessors, workerThreads)
	// Non-blocking, so that waiting needs no thread. No other process has these pipes.
	_, _ = unix.SetNonblock(0, true), unix.SetNonblock(1, true)
	return worker.Serve(os.NewFile(0, "stdin"), os.NewFile(1, "stdout"), worker.Options{OfferToOOM: true, Hardened: true})
}

// workerProcess is a worker, for the first process. It may die at any time: commands have its uid
// and can kill it.
type workerProcess struct {
	pid    int
	in     *os.File
	out    *os.File
	frames *initproto.Reader
	died   chan struct{} // closed when it was reaped
}

// limits are the rlimits of a process, which its commands inherit. A command may lower the rlimits
// of every process of its user, ours included, and nothing can raise them again.
type limits [unix.RLIMIT_RTTIME + 1]unix.Rlimit

func limitsOf(pid int) (l limits) {
	for resource := range l {
		_ = unix.Prlimit(pid, resource, nil, &l[resource])
	}
	return l
}

// end lets a worker without a command exit.
func (w *workerProcess) end() {
	_ = w.in.Close()
	_ = w.out.Close()
}

// kill kills a worker that did not end its command or violated the protocol, and waits until its
// children are ours.
func (w *workerProcess) kill() {
	select {
	case <-w.died: // its pid may have been reused
	default:
		_ = unix.Kill(w.pid, unix.SIGKILL)
	}
	w.end()
	<-w.died
}

// workerPool has all workers, idle or not.
type workerPool struct {
	program string
	limits  limits // of this process and its workers at the start

	mu   sync.Mutex
	all  map[int]*workerProcess // by pid; all other children are strays
	idle []*workerProcess
	wake chan struct{} // wakes reap, when there are children
}

func newWorkerPool(program string) *workerPool {
	return &workerPool{program: program, limits: limitsOf(0), all: map[int]*workerProcess{}, wake: make(chan struct{}, 1)}
}

// take returns an idle worker, or starts one.
func (c *workerPool) take() (*workerProcess, error) {
	c.mu.Lock()
	for len(c.idle) > 0 {
		w := c.idle[len(c.idle)-1]
		c.idle = c.idle[:len(c.idle)-1]
		select {
		case <-w.died:
			w.end()
			continue
		default:
		}
		if limitsOf(w.pid) != c.limits { // a command has changed them, which must not affect the next one
			_ = unix.Kill(w.pid, unix.SIGKILL)
			w.end()
			continue
		}
		c.mu.Unlock()
		_ = unix.Kill(w.pid, unix.SIGCONT) // a command may have stopped it
		return w, nil
	}
	c.mu.Unlock()
	var w *workerProcess
	var err error
	for range startTries {
		if w, err = c.start(); !errors.Is(err, errNoHello) {
			break
		}
	}
	return w, err
}

// startTries is how many workers are started for a command: another command can kill one before it
// says hello.
const startTries = 3

// errNoHello is the error of a worker that ended before its hello.
var errNoHello = errors.New("a worker did not start")

// put takes back a worker whose command has ended.
func (c *workerPool) put(w *workerProcess) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.idle) >= maxIdle {
		w.end()
		return
	}
	c.idle = append(c.idle, w)
}

// start starts a worker and waits for its hello.
func (c *workerPool) start() (*workerProcess, error) {
	var in, out [2]int
	if err := unix.Pipe2(in[:], unix.O_CLOEXEC); err != nil {
		return nil, err
	}
	if err := unix.Pipe2(out[:], unix.O_CLOEXEC); err != nil {
		_, _ = unix.Close(in[0]), unix.Close(in[1])
		return nil, err
	}
	null, err := os.OpenFile(os.DevNull, os.O_WRONLY, 0)
	if err != nil {
		return nil, err
	}
	defer null.Close()
	_, _ = unix.SetNonblock(in[1], true), unix.SetNonblock(out[0], true)
	w := &workerProcess{in: os.NewFile(uintptr(in[1]), "worker"), out: os.NewFile(uintptr(out[0]), "worker"), died: make(chan struct{})}
	w.frames = initproto.NewReader(bufio.NewReaderSize(w.out, 4<<10), initproto.FromWorker)

	c.mu.Lock() // or strays could kill it
	w.pid, err = syscall.ForkExec(c.program, []string{"sandbox-init", workerFlag}, &syscall.ProcAttr{
		Dir: "/", Env: os.Environ(), Files: []uintptr{uintptr(in[0]), uintptr(out[1]), null.Fd()}, Sys: &syscall.SysProcAttr{Setsid: true},
	})
	if err == nil {
		c.all[w.pid] = w
	}
	c.mu.Unlock()
	_, _ = unix.Close(in[0]), unix.Close(out[1])
	if err != nil {
		w.end()
		return nil, err
	}
	select {
	case c.wake <- struct{}{}:
	default:
	}
	t, hello, err := w.frames.Next()
	if err != nil || t != initproto.TypeHello || string(hello) != initproto.MagicWorker {
		w.kill()
		c.strays()
		return nil, fmt.Errorf("%w: %w", errNoHello, unix.EAGAIN) // the kernel refused it threads, or a command killed it
	}
	return w, nil
}

// reap reaps all children: workers, and processes of dead workers.
func (c *workerPool) reap() {
	for {
		pid, err := unix.Wait4(-1, nil, unix.WALL, nil)
		switch {
		case errors.Is(err, unix.EINTR):
		case err != nil: // no children
			<-c.wake
		default:
			c.mu.Lock()
			w := c.all[pid]
			delete(c.all, pid)
			c.mu.Unlock()
			if w != nil {
				close(w.died)
			}
		}
	}
}

// has reports whether a process is a worker.
func (c *workerPool) has(pid int) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.all[pid] != nil
}

// strays kills all children that are not workers until there are none; reap reaps them. The
// children of a worker become ours when it dies.
func (c *workerPool) strays() {
	for dry := 0; dry < 2; { // the list may miss some while others end
		if worker.KillChildren(c.has) == 0 {
			dry++
		} else {
			dry = 0
		}
		time.Sleep(time.Millisecond)
	}
}
