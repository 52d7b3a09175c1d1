//go:build linux

package main

import (
	"bufio"
	"errors"
	"io"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"secbox/engine/initproto"
	"secbox/engine/worker"
)

const (
	serveProcessors = 2
	serveThreads    = 16 // for frames in and out, reaping, starting workers, counters, usage, /proc and unlinked files

	// workerGrace is how long a worker may take after its command's deadline or a kill. It needs
	// milliseconds, unless a command has stopped it.
	workerGrace = 5 * time.Second
)

// multiServer runs the commands of a long-lived container.
type multiServer struct {
	pool *workerPool

	sending sync.Mutex
	w       io.Writer
	buf     []byte

	counting sync.Mutex // one reading of the counters at a time, so that it needs one thread
	cgroup   counterFiles

	used *meters

	mu       sync.Mutex
	commands map[uint32]*command
	watching bool  // for unlinked files
	metering bool  // what the container uses
	started  int64 // commands
}

// command is a running command.
type command struct {
	id      uint32
	spec    initproto.Job
	input   chan []byte   // frames for its worker
	signals chan []byte   // signal frames for its worker
	grants  chan struct{} // chunks of output that may be sent
	blocked atomic.Bool   // it waits for a grant: the reader is slow, not the worker
	kill    chan struct{} // closed by the first kill
	killed  bool          // for the reader of frames only
	over    chan struct{} // closed when it has ended
	passed  [2]int64      // bytes of its outputs
	network *network      // nil: it has none
}

// serveMany says hello and serves until the lease ends; it returns init's exit code.
func serveMany(in *bufio.Reader, out io.Writer, hello string) int {
	worker.PrepareThreads(serveProcessors, serveThreads)
	program, err := workerProgram()
	if err != nil {
		return exitNotInit
	}
	m := &multiServer{pool: newWorkerPool(program), cgroup: openCounters(), used: openMeters(), w: out, commands: map[uint32]*command{}}
	go m.pool.reap()
	if m.write(initproto.Append(nil, initproto.TypeHello, []byte(hello))) != nil {
		return exitLease
	}
	go func() {
		for range idleAtStart {
			if w, err := m.pool.start(); err == nil {
				m.pool.put(w)
			}
		}
	}()
	frames := initproto.NewReader(in, initproto.ToServe)
	for {
		t, payload, err := frames.Next()
		if errors.Is(err, initproto.ErrProtocol) {
			return exitProtocol
		}
		if err != nil {
			return exitLease
		}
		id, payload, err := initproto.SplitID(payload)
		if err != nil || !m.handleFrame(t, id, payload) {
			return exitProtocol
		}
	}
}

func (m *multiServer) write(frame []byte) error {
	m.sending.Lock()
	defer m.sending.Unlock()
	_, err := m.w.Write(frame)
	return err
}

func (m *multiServer) send(t initproto.Type, id uint32, payload []byte) error {
	m.sending.Lock()
	defer m.sending.Unlock()
	m.buf = initproto.AppendID(m.buf[:0], t, id, payload)
	_, err := m.w.Write(m.buf)
	return err // it means that the lease ends, too
}

// handleFrame handles one frame and never waits; false when it violates the protocol.
func (m *multiServer) handleFrame(t initproto.Type, id uint32, payload []byte) bool {
	m.mu.Lock()
	c, running := m.commands[id], len(m.commands)
	m.mu.Unlock()
	if t == initproto.TypeStart {
		spec, err := initproto.DecodeJob(payload)
		if err != nil || c != nil {
			return false
		}
		if running >= initproto.MaxCommands {
			_ = m.send(initproto.TypeBusy, id, nil)
			return true
		}
		m.start(id, spec)
		return true
	}
	if c == nil {
		return true // sent before the exit was received
	}
	switch t {
	case initproto.TypeNetwork:
		return c.network != nil && c.network.wire.Push(payload) == nil
	case initproto.TypeStdin:
		return c.put(initproto.Append(nil, t, payload))
	case initproto.TypeStdinEnd:
		return c.put(initproto.Append(nil, t, nil))
	case initproto.TypeSignal:
		if _, err := initproto.DecodeSignal(payload); err != nil {
			return false
		}
		select {
		case c.signals <- initproto.Append(nil, t, payload):
		default: // signals are not counted: its worker has not taken those before
		}
	case initproto.TypeKill:
		if !c.killed {
			c.killed = true
			close(c.kill)
			return c.put(initproto.Append(nil, t, nil))
		}
	case initproto.TypeGrant:
		select {
		case c.grants <- struct{}{}:
		default:
			return false // more than were used
		}
	}
	return true
}

// put queues a frame for the worker; false when it exceeds the credit.
func (c *command) put(frame []byte) bool {
	select {
	case c.input <- frame:
		return true
	default:
		return false
	}
}

func (m *multiServer) start(id uint32, spec initproto.Job) {
	c := &command{
		id: id, spec: spec, over: make(chan struct{}), kill: make(chan struct{}),
		input:   make(chan []byte, initproto.StdinWindow+2), // and the end of the input and a kill
		signals: make(chan []byte, len(initproto.Signals)),
		grants:  make(chan struct{}, initproto.OutputWindow),
	}
	for range initproto.OutputWindow {
		c.grants <- struct{}{}
	}
	var refused *initproto.Exit
	var err error
	send := func(chunk []byte) error { return m.send(initproto.TypeNetwork, id, chunk) }
	if spec.Ports {
		c.network, err = m.openPorts(send)
	} else {
		c.network, err = openNetwork(&c.spec, send)
	}
	if err != nil {
		exit := worker.Refusal(err)
		refused = &exit
	}
	m.mu.Lock()
	m.commands[id] = c
	watch := spec.ReportUnlinked && !m.watching
	m.watching = m.watching || watch
	meter := spec.ReportUsage && !m.metering
	m.metering = m.metering || meter
	m.started++
	m.mu.Unlock()
	if watch {
		go m.watchUnlinked()
	}
	if meter {
		go m.reportUsage()
	}
	go func() {
		before := m.counters()
		var exit initproto.Exit
		switch {
		case refused != nil:
			exit = *refused
		case spec.Ports:
			c.network.begin()
			<-c.kill
			exit = initproto.Exit{Code: 137, Killed: true}
		default:
			c.network.begin()
			exit = m.run(c)
		}
		c.network.close()
		counted := m.counters().since(before)
		exit.OOMKills, exit.PIDsMax = counted.oomKills, counted.pidsMax
		m.mu.Lock()
		delete(m.commands, id) // before the report: later frames about it are ignored
		m.mu.Unlock()
		if frame, err := initproto.AppendIDJSON(nil, initproto.TypeExit, id, exit); err == nil {
			_ = m.write(frame)
		}
	}()
}

// watchUnlinked reports unlinked files while there are commands.
func (m *multiServer) watchUnlinked() {
	newOpenFiles(sandboxDirs, m.pool.has).watch(func(now initproto.Unlinked, due bool) (more bool) {
		if due {
			if frame, err := initproto.AppendIDJSON(nil, initproto.TypeUnlinked, 0, now); err == nil {
				_ = m.write(frame)
			}
		}
		m.mu.Lock()
		defer m.mu.Unlock()
		m.watching = len(m.commands) > 0 || now != initproto.Unlinked{} // open files end with their commands
		return m.watching
	})
}

// reportUsage reports what the container uses until its end.
func (m *multiServer) reportUsage() {
	time.Sleep(usagePause)
	seen, pauses := int64(0), 0
	for m.used.count() {
		m.mu.Lock()
		busy := len(m.commands) > 0 || m.started > seen
		seen = m.started
		m.mu.Unlock()
		if pauses++; busy || pauses >= idlePauses {
			pauses = 0
			if frame, err := initproto.AppendIDJSON(nil, initproto.TypeUsage, 0, m.used.read()); err == nil && m.write(frame) != nil {
				return
			}
		}
		time.Sleep(servingPause)
	}
}

func (m *multiServer) counters() counters {
	m.counting.Lock()
	defer m.counting.Unlock()
	return m.cgroup.read()
}

// alone reports whether there is only one command that runs in a worker.
func (m *multiServer) alone() bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	n := 0
	for _, c := range m.commands {
		if !c.spec.Ports {
			n++
		}
	}
	return n == 1
}

// run runs a command in a worker.
func (m *multiServer) run(c *command) initproto.Exit {
	if m.alone() && limitsOf(0) != m.pool.limits {
		return initproto.Exit{Code: 126, StartError: "a command has changed the limits of the sandbox's first process", Spent: true}
	}
	w, err := m.pool.take()
	if err != nil {
		return initproto.Exit{
			Code: 126, StartError: "no process to run it in: " + err.Error(), NoRoom: errors.Is(err, unix.EAGAIN),
			Spent: m.alone(),
		}
	}
	job, err := initproto.AppendJSON(nil, initproto.TypeJob, c.spec)
	if err != nil {
		m.pool.put(w)
		return initproto.Exit{Code: 126, StartError: err.Error()}
	}
	var feeding sync.WaitGroup
	feeding.Go(func() {
		if _, err := w.in.Write(job); err != nil {
			return
		}
		for {
			var frame []byte
			select {
			case frame = <-c.input:
			case frame = <-c.signals:
			case <-c.over:
				return
			}
			if _, err := w.in.Write(frame); err != nil {
				return
			}
		}
	})
	guarded := make(chan struct{})
	var late atomic.Bool
	go func() {
		defer close(guarded)
		c.guard(w, &late)
	}()
	exit, err := m.pass(c, w)
	close(c.over)
	<-guarded
	if err != nil {
		w.kill()
		feeding.Wait()
		m.pool.strays()
		exit = initproto.Exit{Code: 137, Signal: int(unix.SIGKILL), Outside: !late.Load()}
		exit.TimedOut = late.Load() && !isClosed(c.kill)
		exit.Killed = late.Load() && isClosed(c.kill)
		exit.StdoutBytes, exit.StderrBytes = c.passed[0], c.passed[1]
		return exit
	}
	feeding.Wait()
	m.pool.put(w)
	return exit
}

func isClosed(c <-chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}

// guard kills a worker that does not end its command in time.
func (c *command) guard(w *workerProcess, late *atomic.Bool) {
	var deadline <-chan time.Time
	if c.spec.TimeoutMS > 0 {
		timer := time.NewTimer(time.Duration(c.spec.TimeoutMS) * time.Millisecond)
		defer timer.Stop()
		deadline = timer.C
	}
	select {
	case <-c.over:
		return
	case <-deadline:
	case <-c.kill:
	}
	for left := workerGrace; left > 0; {
		select {
		case <-c.over:
			return
		case <-time.After(workerGrace / 10):
		}
		if !c.blocked.Load() { // a slow reader delays the report, not the death
			left -= workerGrace / 10
		}
	}
	late.Store(true)
	select {
	case <-w.died:
	default:
		_ = unix.Kill(w.pid, unix.SIGKILL)
	}
}

var errWorker = errors.New("the worker does not keep to its protocol")

// pass forwards the worker's frames until its report. After an error the worker is gone or
// unusable.
func (m *multiServer) pass(c *command, w *workerProcess) (initproto.Exit, error) {
	for {
		t, payload, err := w.frames.Next()
		if err != nil {
			return initproto.Exit{}, err
		}
		switch t {
		case initproto.TypeStdout, initproto.TypeStderr:
			c.blocked.Store(true)
			<-c.grants
			c.blocked.Store(false)
			_ = m.send(t, c.id, payload)
			if t == initproto.TypeStdout {
				c.passed[0] += int64(len(payload))
			} else {
				c.passed[1] += int64(len(payload))
			}
		case initproto.TypeCredit:
			_ = m.send(t, c.id, nil)
		case initproto.TypeExit:
			return initproto.DecodeExit(payload)
		default:
			return initproto.Exit{}, errWorker
		}
	}
}
