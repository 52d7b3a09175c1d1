package engine

import (
	"context"
	"io"
	"net"
	"os"
	"syscall"
	"time"

	"secbox/policy"
)

// Engine hands out slots. Implementations are safe for concurrent use.
type Engine interface {
	// Acquire allocates an exec id (the spec's, if it has one) and its directories. It starts no
	// job. Errors carry a fault code: fault.EngineUnavailable when no engine answers; an error of
	// Prepare is returned as it is, or by Run, because a warm slot's directories may be prepared
	// after the return. The caller must call exactly one of Run and Discard on the slot.
	Acquire(ctx context.Context, spec Spec) (Slot, error)

	// Close stops what the engine started and waits for it. Safe to call twice.
	Close() error
}

// Slot is a fresh container, which waits already or is yet to be started. It serves one job.
type Slot interface {
	ExecID() string
	Warm() bool      // the container was started before Acquire; Run makes it false if it starts another container
	Mounts() []Mount // as Prepare gave them; waits for it
	Args() []string  // the container as a command, for the record: the docker argv; it has nothing of the job
	// Attached reports whether the container was started without its project: Mounts were attached
	// when the job came, and Args has the mounts below which they were. Run makes it false if it
	// starts another container. It is always true for an engine that copies (Config.Copy): Mounts
	// were copied, and Args has none of them.
	Attached() bool

	// Run gives the job to the container and returns when no process of the job is alive. It writes
	// output while the job runs, one call at a time per stream, none after the return; errors of
	// the writers are ignored. When ctx ends, the job is killed, and Exit.Killed is true. A
	// returned error is a *RunError: the exit of the job is unknown. It wraps
	// fault.EngineUnavailable, fault.ImageMissing, fault.InvalidSettings (a runtime that the engine
	// does not know), fault.Internal, or an error of Prepare.
	Run(ctx context.Context, job Job, stdout, stderr io.Writer) (Exit, error)

	// Discard gives back a slot that was never run, and calls Drop of its mounts. The slot must not
	// be used then.
	Discard()
}

// Keeper is a slot whose container can stay and run many jobs.
type Keeper interface {
	Slot

	// Serve is called instead of Run, and returns when the container can take jobs; the end of ctx
	// ends the start. Errors are as Run's. The caller must call Stop.
	Serve(ctx context.Context, reports Reports) (*Resident, error)
}

// Spec is all that determines a container except its exec. Warm containers are keyed by it.
type Spec struct {
	ExecID    string // empty: the engine allocates one
	ProjectID string
	ImageRef  string // for messages
	ImageID   string // sha256:…
	// InitVolume is the named volume with sandbox-init, for an image without it; else empty.
	InitVolume string
	Volumes    string // of the image, see Image
	Limits     policy.ContainerLimits
	User       string // "uid:gid"
	Runtime    string // the OCI runtime by the engine's name for it; empty: the engine's default
	Access     string // identifies the mounts and their modes
	// Targets are the targets of all mounts outside /workspace.
	Targets []string
	// Serve asks for a slot that is a Keeper, for Keeper.Serve.
	Serve bool

	// Prepare makes the directories of the exec and returns what to mount. It is called with the
	// slot's exec id, once, or again when what it returned was dropped. For a container that is
	// started ahead of its job, this is after the request that brought the spec has ended: Prepare
	// must hold nothing of that request, and must not make a project that was removed meanwhile.
	Prepare func(ctx context.Context, execID string) (MountSet, error)
}

// MountSet is the mounts of one exec that is yet to run.
type MountSet struct {
	Mounts []Mount
	// Intact reports whether the directories are still the same directories; nil: they always are.
	// It is called before a waiting container gets a job.
	Intact func() bool
	// Open opens the directories of Mounts, in their order, if they are still the same directories.
	// The caller closes them. Nil: they can be mounted only when a container is started.
	Open func() ([]*os.File, error)
	// Staging opens a directory on the file system of the writable ones, out of the reach of jobs,
	// in which files are written before they get their names. The caller closes it. Nil: they are
	// written in the directories.
	Staging func() (*os.Root, error)
	// Drop removes the directories, because no job ran in them; may be nil.
	Drop func()
}

func (p MountSet) intact() bool { return p.Intact == nil || p.Intact() }

func (p MountSet) drop() {
	if p.Drop != nil {
		p.Drop()
	}
}

// Mount is a bind mount, or mounts a directory in Options.WorkspaceVolume. Source is the path as
// docker on this platform takes it.
type Mount struct {
	Source   string `json:"source"`
	Target   string `json:"target"`
	ReadOnly bool   `json:"read_only"`
}

// Job is the command of one exec. All of it goes over sandbox-init's standard input only.
type Job struct {
	Argv      []string
	Env       map[string]string
	Cwd       string
	Stdin     io.Reader // nil: none. An error ends it like io.EOF. The job's end does not wait for a Read that blocks
	Timeout   time.Duration
	Grace     time.Duration // from SIGTERM to the kill at Timeout; 0: the kill only
	MaxStdout int64         // bytes to pass on; the rest is counted and dropped
	MaxStderr int64
	// Signals are sent to the process group of the job's main process. Signals that are not in
	// initproto.Signals are dropped. May be nil. For a Resident only: fault.Unsupported when its
	// sandbox-init is too old.
	Signals <-chan syscall.Signal
	// CPUCores is the limit that programs learn from variables such as OMP_NUM_THREADS, which Env
	// and the image may set otherwise; 0: none. A Resident's Run ignores it: it has the
	// container's.
	CPUCores float64
	// CodeFile is the path of a new file for the code of an Argv of the form PROGRAM -c CODE ARG…:
	// the job runs as PROGRAM CodeFile ARG…, with Cwd first in PYTHONPATH, unless sandbox-init is
	// too old. Empty: Argv runs.
	CodeFile string
	// OnConnection is called in a goroutine of its own for each connection that the job's processes
	// make to the proxy in the container, whose address is in their environment. It must speak the
	// proxy's protocol with conn, close it, and return soon after ctx or conn has ended. Run ends
	// both with the job and returns after the last call. Nil: the job has no network.
	OnConnection func(ctx context.Context, conn net.Conn)
	// ports is called once, when sandbox-init accepts connections to ports, and must not block; see
	// Resident.ServePorts. Nil: it does not.
	ports func(Ports)
	// NetworkCA is a certificate authority, in PEM, that the job's programs shall trust, as far as
	// they obey initproto.CAEnv. Empty: there is none.
	NetworkCA string
	// OnStart is called once, when the container has taken the job, before its first output. May be
	// nil.
	OnStart func()
	// OnUnlinked is called with the disk space of files that were removed while the container's
	// processes use them: when it has changed, and every second, unless the job keeps sandbox-init
	// from running. It must not block. Nil: sandbox-init does not measure it. A Resident's Run
	// ignores it: see Reports.
	OnUnlinked func(Unlinked)
	// OnUsage is called with what the container uses, about twice a second, unless sandbox-init is
	// too old or the kernel does not count. It must not block. Nil: sandbox-init does not measure
	// it. A Resident's Run ignores it: see Reports.
	OnUsage func(Usage)
}

// Reports are what a container that stays tells of all its jobs together. Its functions must not
// block; nil: sandbox-init does not measure it.
type Reports struct {
	// OnUnlinked is like a Job's. It is called while jobs run, and once with zero at the end.
	OnUnlinked func(Unlinked)
	// OnUsage is like a Job's, but is called every two seconds, and every half minute while no job
	// runs. Its times begin with the container.
	OnUsage func(Usage)
}

// Usage is what all processes of a container use.
type Usage struct {
	CPU         time.Duration // since the job began
	Elapsed     time.Duration // since the job began
	MemoryBytes int64         // now
}

// Unlinked is the disk space of files of the project that are in use after their last name was
// removed.
type Unlinked struct {
	Bytes  int64 // of the files that sandbox-init can see, each once
	Hidden bool  // there may be files that sandbox-init cannot see
}

// Exit is how a job ended.
type Exit struct {
	Code        int    // exit code; 128+signal when a signal ended it
	Signal      int    // 0 when it exited by itself
	TimedOut    bool   // sandbox-init killed it at its deadline, or it ended after its SIGTERM
	Killed      bool   // because ctx ended
	StartError  string // the command could not be started; Code is 127 or 126 then
	OOMKills    int64  // processes that the kernel killed for memory in this container
	PIDsMax     int64  // forks that the kernel refused in this container
	StdoutBytes int64  // all output, passed on or not
	StderrBytes int64
	UserCPU     time.Duration
	SystemCPU   time.Duration
	MaxRSSBytes int64 // of the largest process

	Note string // for people: what else has ended with the job, of a slot that serves several, or was not copied

	// Lost is why not all that the job has changed is in its directories: its container did not
	// mount them, and copying failed. It is a *fault.Error.
	Lost error

	// For commands of a Resident only.
	NoDir   bool // not started: the working directory does not exist
	NoRoom  bool // not started: the container may have no more processes
	Outside bool // another process in the container killed the worker that ran it

	spent bool // not started, and the container can run no more commands; Run makes it an error
}

func (e *Exit) addNote(text string) {
	if e.Note != "" {
		text = e.Note + "; " + text
	}
	e.Note = text
}

// RunError is returned by Run when the exit of a job is unknown.
type RunError struct {
	Started bool  // the container had taken the job, which may have run
	Dead    bool  // the container is certainly gone; otherwise its directories may still change
	Err     error // a *fault.Error with the reason
}

func (e *RunError) Error() string { return e.Err.Error() }

// Unwrap returns Err.
func (e *RunError) Unwrap() error { return e.Err }
