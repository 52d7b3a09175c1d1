package engine

import (
	"context"
	"io"
	"time"

	"secbox/policy"
)

// Engine hands out slots. Implementations are safe for concurrent use.
type Engine interface {
	// Acquire allots an exec id (the spec's, if it has one) and the place to run it. It starts no job. Errors carry a fault code:
	// fault.EngineUnavailable when there is no engine to ask, whatever Prepare returned when that failed.
	// The caller must call exactly one of Run and Discard on the slot.
	Acquire(ctx context.Context, spec Spec) (Slot, error)

	// Close stops what the engine started and waits for it. Safe to call twice.
	Close() error
}

// Slot is one fresh container, allotted or already waiting. It serves one job.
type Slot interface {
	ExecID() string
	Warm() bool      // the container was started before it was asked for
	Mounts() []Mount // as Prepare gave them
	Args() []string  // the docker argv, for the record; holds nothing of the job

	// Run gives the job to the container and returns once it is sure that no process of the job is alive. Output arrives at
	// out while the job runs, one call at a time per stream, none after the return; a writer's error stops nothing.
	// When ctx ends, the job is killed, and Exit.Killed is true. A returned error is a *RunError: the exit of the job is not known.
	// It wraps fault.EngineUnavailable, fault.ImageMissing, fault.InvalidSettings (a runtime that the engine does not know) or
	// fault.Internal.
	Run(ctx context.Context, job Job, stdout, stderr io.Writer) (Exit, error)

	// Discard gives back a slot that was never run, and drops what Prepare set aside for it.
	Discard()
}

// Spec is all that decides about a container except its exec: what a warm one is keyed by.
type Spec struct {
	ExecID    string // preset when the id was promised already; empty: the engine allots one
	ProjectID string
	ImageRef  string // for messages
	ImageID   string // sha256:…, what really runs
	// InitVolume is the named volume that brings sandbox-init to an image without it; empty for one that has it.
	InitVolume string
	Limits     policy.ContainerLimits
	User       string // "uid:gid"
	Runtime    string // the OCI runtime by the engine's name for it; empty: the engine's default
	Access     string // which mounts there are and how, as one comparable word

	// Prepare makes the directories of the exec and says what to mount. It is called once per slot, with the slot's exec id; for a
	// container that is started ahead of its job, after the request that brought the spec has ended. So it must hold nothing of that
	// request, and must not make a project that has been removed since.
	Prepare func(ctx context.Context, execID string) (Place, error)
}

// Place is what was set aside for one exec that is yet to run.
type Place struct {
	Mounts []Mount
	// Intact reports whether the directories are still those that were set aside; nil: they always are. It is asked before a container
	// that waited is given a job.
	Intact func() bool
	// Drop takes back what was set aside, because no job ran in it; nil: nothing to do.
	Drop func()
}

func (p Place) intact() bool { return p.Intact == nil || p.Intact() }

func (p Place) drop() {
	if p.Drop != nil {
		p.Drop()
	}
}

// Mount is a bind mount; Source is in the form that docker takes on this platform.
type Mount struct {
	Source   string `json:"source"`
	Target   string `json:"target"`
	ReadOnly bool   `json:"read_only"`
}

// Job is what one exec runs. Everything in it travels over sandbox-init's stdin and nowhere else.
type Job struct {
	Argv      []string
	Env       map[string]string
	Cwd       string
	Stdin     []byte
	Timeout   time.Duration
	MaxStdout int64 // bytes to pass on; the rest is counted and thrown away
	MaxStderr int64
	// OnStart is called once, when the container has taken the job, before its first output. Nil: not called.
	OnStart func()
	// OnUnlinked is called with the disk space that the container's processes use without a name, when it has changed. It must not block.
	// Nil: sandbox-init does not look. A Resident's Run ignores it: see ResidentSpec.
	OnUnlinked func(Unlinked)
}

// Unlinked is disk space that no name in the project leads to, because the last name was removed from a file in use.
type Unlinked struct {
	Bytes  int64 // of the files that sandbox-init can see, each once
	Hidden bool  // processes keep sandbox-init from seeing all
}

// Exit is how a job ended.
type Exit struct {
	Code        int    // exit code; 128+signal when a signal ended it
	Signal      int    // 0 when it exited by itself
	TimedOut    bool   // sandbox-init killed it at its deadline
	Killed      bool   // we asked for its death
	StartError  string // the command could not be started; Code is 127 or 126 then
	OOMKills    int64  // processes that the kernel killed for memory in this container
	PIDsMax     int64  // forks that the kernel refused in this container
	StdoutBytes int64  // all that was written, passed on or not
	StderrBytes int64
	UserCPU     time.Duration
	SystemCPU   time.Duration
	MaxRSSBytes int64 // of the largest process

	// These are of a resident's commands only.
	NoDir   bool // not started: the working directory is not there
	NoRoom  bool // not started: the container may have no more processes
	Outside bool // killed by somebody in the container who killed what ran it

	spent bool // not started, as nothing will be in this container: Run makes it an error
}

// RunError is what Run returns when the exit of a job is not known.
type RunError struct {
	Started bool  // the container had taken the job: it may have run, in part or whole
	Dead    bool  // it is certain that the container is gone; if not, its directories may still change
	Err     error // a *fault.Error with the reason
}

func (e *RunError) Error() string { return e.Err.Error() }

// Unwrap gives the reason.
func (e *RunError) Unwrap() error { return e.Err }
