package engine

import (
	"bytes"
	"context"
	"io"
	"sync"
	"sync/atomic"
	"time"

	"secbox/engine/initproto"
	"secbox/fault"
	"secbox/policy"
)

// ResidentSpec describes a container that serves many commands, in parallel and one after the
// other.
type ResidentSpec struct {
	ProjectID  string
	ImageRef   string // for messages
	ImageID    string // sha256:…
	InitVolume string
	Volumes    string                 // of the image, see Image
	Limits     policy.ContainerLimits // of all commands together; residentPIDs are added to PIDs
	User       string                 // "uid:gid"
	Runtime    string
	Mounts     []Mount
	// PathTail is a list of directories that is appended to the image's PATH.
	PathTail string
	Reports

	// asSlot starts a job as in a slot: a missing Cwd is made, and Argv[0] is looked up in the
	// image's PATH.
	asSlot bool
}

// MaxResidentCommands is how many commands a resident runs at once.
const MaxResidentCommands = initproto.MaxCommands

// residentPIDs are the pids that a resident's init and its workers need, threads included: 64
// workers of 8, and init. Commands can use pids that these do not need, so the container's limit is
// larger than the policy's.
const residentPIDs = 64*8 + 32

// Timeouts for a resident's init, after which the container is removed. Init gives its workers five
// seconds.
const (
	residentKillGrace = 10 * time.Second // from a kill frame to the command's exit
	residentLateGrace = 15 * time.Second // beyond the command's deadline
)

// Resident is a container whose sandbox-init serves until it is stopped. It is safe for concurrent
// use.
type Resident struct {
	session   *session
	spec      ResidentSpec
	container Container
	stopOnce  sync.Once

	done chan struct{} // closed when it serves no more commands
	gone chan struct{} // closed when the container is dead, or all attempts to remove it were made

	mu       sync.Mutex
	commands map[uint32]*residentCommand
	next     uint32
	stopping bool
	over     bool
}

// residentCommand is a running command. Its channels hold as much as the protocol's windows allow,
// so that the reader of the container's frames never waits for the reader of the output.
type residentCommand struct {
	id      uint32
	chunks  chan outputChunk // closed at its end
	feed    *initproto.Feed
	conns   *connections
	writing atomic.Bool // a writer of its output is blocking it
	exit    Exit        // exit and err are to be read when chunks is closed
	err     error
}

type outputChunk struct {
	stderr bool
	bytes  []byte
}

// StartResident starts a container and returns when its sandbox-init has said hello; the end of ctx
// ends the start. Errors are as Slot.Run's. The caller must call Stop.
func (c *Cold) StartResident(ctx context.Context, spec ResidentSpec) (*Resident, error) {
	if c.cfg.Copy != nil {
		return nil, &RunError{Dead: true, Err: noCopies()}
	}
	of := Spec{
		ProjectID: spec.ProjectID, ImageID: spec.ImageID, InitVolume: spec.InitVolume, Volumes: spec.Volumes, Limits: spec.Limits,
		User: spec.User, Runtime: spec.Runtime, Serve: true,
	}
	spec.Limits = limitsOf(of)
	container := c.container("sandbox-"+c.cfg.NewID(), of, spec.Mounts)
	s, err := c.startResident(ctx, container)
	if err != nil {
		return nil, err
	}
	return c.resident(s, container, spec), nil
}

// startResident starts a container that serves.
func (c *Cold) startResident(ctx context.Context, container Container) (*session, error) {
	if err := c.mayStart(ctx); err != nil {
		return nil, &RunError{Dead: true, Err: fault.Wrap(fault.Internal, err, "ended before the container was started")}
	}
	s, err := startSession(c, container, initproto.FromServe, initproto.MagicServe)
	if err != nil {
		c.started()
		return nil, &RunError{Dead: true, Err: err}
	}
	if err := s.greet(ctx); err != nil {
		s.release()
		return nil, &RunError{Dead: true, Err: err}
	}
	return s, nil
}

// resident begins the life of the Resident of a container that serves.
func (c *Cold) resident(s *session, container Container, spec ResidentSpec) *Resident {
	r := &Resident{
		session: s, spec: spec, container: container, done: make(chan struct{}), gone: make(chan struct{}),
		commands: map[uint32]*residentCommand{},
	}
	c.teardown.Go(r.live)
	return r
}

// Name is the name of the container.
func (r *Resident) Name() string { return r.session.name }

// Args describes the container for the record, as Slot's.
func (r *Resident) Args() []string { return r.session.engine.cfg.Driver.Args(r.container) }

// Limits returns the container's limits: PIDs includes residentPIDs.
func (r *Resident) Limits() policy.ContainerLimits { return r.spec.Limits }

// Done is closed when the container was stopped or has died.
func (r *Resident) Done() <-chan struct{} { return r.done }

// Stop ends the container and waits until its death is confirmed, or all attempts to remove it were
// made. Running commands end with a RunError. Safe to call twice.
func (r *Resident) Stop() {
	r.stopOnce.Do(func() {
		r.mu.Lock()
		r.stopping = true
		r.mu.Unlock()
		_ = r.session.proc.Stdin().Close() // the lease
	})
	late := time.AfterFunc(residentKillGrace, func() { r.session.remove(r.done, nil) })
	defer late.Stop()
	<-r.gone
}

// ending reports whether Stop was called, or the container has ended.
func (r *Resident) ending() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.stopping || r.over
}

// live reads frames until the container ends, and then ends all commands.
func (r *Resident) live() {
	err := r.listen()
	r.mu.Lock()
	r.over = true
	stopping, commands := r.stopping, r.commands
	r.commands = nil
	r.mu.Unlock()
	close(r.done)
	var lost *RunError
	if stopping {
		r.session.end(endTimeout)
		confirmed := r.session.proc.ExitCode() >= 0
		lost = &RunError{Started: true, Dead: confirmed, Err: fault.Wrap(fault.Internal, err, "its container was stopped while it ran")}
	} else {
		lost = r.session.lost(err)
	}
	r.session.points.detach()
	r.session.release()
	close(r.gone)
	for _, c := range commands {
		c.err = lost
		close(c.chunks)
	}
}

// listen reads frames until the end of the stream or a violation of the protocol.
func (r *Resident) listen() error {
	for {
		t, payload, err := r.session.frames.Next()
		if err != nil {
			return err
		}
		id, payload, err := initproto.SplitID(payload)
		if err != nil {
			return err
		}
		if id == 0 {
			if err := r.handleReport(t, payload); err != nil {
				return err
			}
			continue
		}
		r.mu.Lock()
		c := r.commands[id]
		r.mu.Unlock()
		if c == nil || !r.handleFrame(c, t, payload) {
			return initproto.ErrProtocol // there are no frames about a command after its exit
		}
	}
}

// handleReport handles a frame about all commands.
func (r *Resident) handleReport(t initproto.Type, payload []byte) error {
	switch t {
	case initproto.TypeUnlinked:
		return unlinked(r.spec.OnUnlinked, payload)
	case initproto.TypeUsage:
		return usage(r.spec.OnUsage, payload)
	default:
		return initproto.ErrProtocol
	}
}

// handleFrame handles one frame about a command; false when it violates the protocol.
func (r *Resident) handleFrame(c *residentCommand, t initproto.Type, payload []byte) bool {
	switch t {
	case initproto.TypeStdout, initproto.TypeStderr:
		select {
		case c.chunks <- outputChunk{t == initproto.TypeStderr, bytes.Clone(payload)}:
		default:
			return false // more than was granted
		}
	case initproto.TypeNetwork:
		return c.conns.take(payload) == nil
	case initproto.TypeCredit:
		return c.feed.Credit()
	case initproto.TypeBusy:
		r.finish(c, Exit{}, fault.New(fault.SandboxBusy, "%d commands run in this sandbox, which is the most; try again when one has ended",
			MaxResidentCommands))
	case initproto.TypeExit:
		e, err := initproto.DecodeExit(payload)
		if err != nil {
			return false
		}
		r.finish(c, exitOf(e), nil)
	default:
		return false
	}
	return true
}

func (r *Resident) finish(c *residentCommand, exit Exit, err error) {
	r.mu.Lock()
	delete(r.commands, c.id)
	r.mu.Unlock()
	c.exit, c.err = exit, err
	close(c.chunks)
}

// Run runs one command and returns when no process of it is alive. The job's Cwd must exist:
// Exit.NoDir. Argv[0] is looked up in the job's PATH. Both are otherwise with
// Keeper.Serve. It writes output one call at a time, none
// after the return; a slow writer slows this command only. When ctx ends, the command is killed,
// and Exit.Killed is true. fault.SandboxBusy: not started, too many run. Any other error is a
// *RunError and ends the resident.
func (r *Resident) Run(ctx context.Context, job Job, stdout, stderr io.Writer) (Exit, error) {
	if job.Signals != nil && r.session.magic != initproto.MagicServe {
		return Exit{},
			fault.New(fault.Unsupported,
				"the sandbox-init in the sandbox image is too old to send signals to a command; rebuild the image (make images)")
	}
	c := &residentCommand{chunks: make(chan outputChunk, initproto.OutputWindow)}
	var buf []byte
	c.feed = initproto.NewFeed(job.Stdin, func(t initproto.Type, chunk []byte) error {
		buf = initproto.AppendID(buf[:0], t, c.id, chunk)
		return r.session.send(buf)
	})
	var err error
	c.conns, err = newConnections(job, func(chunk []byte) error {
		return r.session.send(initproto.AppendID(nil, initproto.TypeNetwork, c.id, chunk))
	})
	if err != nil {
		return Exit{}, &RunError{Dead: true, Err: err}
	}
	defer c.conns.close(closingTimeout, func() { _ = r.session.proc.Stdin().Close() })
	r.mu.Lock()
	if r.over || r.stopping {
		r.mu.Unlock()
		return Exit{}, &RunError{Dead: true, Err: fault.New(fault.Internal, "the container has ended")}
	}
	for r.next++; r.next == 0 || r.commands[r.next] != nil; r.next++ {
	}
	c.id = r.next
	r.commands[c.id] = c
	r.mu.Unlock()

	job.OnUnlinked, job.OnUsage, job.CPUCores = r.spec.OnUnlinked, r.spec.OnUsage, r.spec.Limits.CPUCores
	wire := wireJob(job)
	wire.CwdMustExist, wire.OwnPath, wire.PathTail = !r.spec.asSlot, !r.spec.asSlot, r.spec.PathTail
	frame, err := initproto.AppendIDJSON(nil, initproto.TypeStart, c.id, wire)
	if err != nil || len(frame) > initproto.MaxJob {
		r.mu.Lock()
		delete(r.commands, c.id)
		r.mu.Unlock()
		return Exit{}, fault.Wrap(fault.InvalidRequest, err, "the command's arguments and variables are more than %d bytes",
			initproto.MaxJob)
	}
	stdin, whole := c.feed.Whole()
	if whole { // in the same write
		if len(stdin) > 0 {
			frame = initproto.AppendID(frame, initproto.TypeStdin, c.id, stdin)
		}
		frame = initproto.AppendID(frame, initproto.TypeStdinEnd, c.id, nil)
	}
	over := make(chan struct{})
	var beside sync.WaitGroup
	defer beside.Wait()
	defer close(over)
	sent := make(chan struct{})
	// The watch begins before the send, which a frozen container blocks.
	beside.Go(func() { r.watch(ctx, c, deadline(job.Timeout), sent, over) })
	_ = r.session.send(frame) // it fails when the container has ended, which listen reports
	close(sent)
	if job.OnStart != nil {
		job.OnStart()
	}
	if !whole {
		go c.feed.Run()
		defer c.feed.Stop(nil)
	}
	if job.Signals != nil {
		beside.Go(func() {
			initproto.SendSignals(job.Signals, over, func(t initproto.Type, payload []byte) error {
				return r.session.send(initproto.AppendID(nil, t, c.id, payload))
			})
		})
	}
	r.copyOutput(c, stdout, stderr)
	if err := c.conns.check(c.exit); err != nil && c.err == nil {
		return Exit{}, err
	}
	if c.exit.spent {
		r.Stop()
		return Exit{}, &RunError{Dead: true, Err: fault.New(fault.Internal, "the container can run no more commands: %s",
			c.exit.StartError)}
	}
	return c.exit, c.err
}

// copyOutput writes the output until the command's end. Output from before a kill is written, too.
func (r *Resident) copyOutput(c *residentCommand, stdout, stderr io.Writer) {
	grant := initproto.AppendID(nil, initproto.TypeGrant, c.id, nil)
	for chunk := range c.chunks {
		to := stdout
		if chunk.stderr {
			to = stderr
		}
		c.writing.Store(true)
		_, _ = to.Write(chunk.bytes)
		c.writing.Store(false)
		_ = r.session.send(grant)
	}
}

// watch kills the command when ctx ends, after it was sent, and removes the container when that
// does not help or the timeout ends.
func (r *Resident) watch(ctx context.Context, c *residentCommand, timeout time.Duration, sent, over <-chan struct{}) {
	select {
	case <-over:
		return
	case <-r.done:
		return
	case <-time.After(timeout):
		r.session.log.Warn("a sandbox's container did not end a command in time", "container", r.session.name, "patience", timeout)
	case <-ctx.Done():
		killed := make(chan struct{})
		go func() {
			defer close(killed)
			<-sent
			_ = r.session.send(initproto.AppendID(nil, initproto.TypeKill, c.id, nil))
		}()
		defer func() { <-killed }()
		for left := residentKillGrace; left > 0; {
			select {
			case <-over:
				return
			case <-r.done:
				return
			case <-time.After(residentKillGrace / 10):
			}
			if !c.writing.Load() {
				left -= residentKillGrace / 10
			}
		}
		r.session.log.Warn("a sandbox's container ignored a kill and is removed", "container", r.session.name)
	}
	for c.writing.Load() { // the writer delays the report, not the container
		select {
		case <-over:
			return
		case <-time.After(time.Second):
		}
	}
	r.session.remove(r.done, over)
}
