package engine

import (
	"context"
	"io"

	"secbox/fault"
)

// ResidentSpec is a container that serves many commands, at the same time and one after the other.
type ResidentSpec struct {
	ProjectID  string
	ImageRef   string // for messages
	ImageID    string // sha256:…, what really runs
	InitVolume string
	Limits     Limits
	User       string // "uid:gid"
	Runtime    string
	Mounts     []Mount
}

// Resident is a container whose sandbox-init serves until it is stopped. It is safe for concurrent use.
type Resident struct{}

// StartResident starts a container and returns when its sandbox-init has said hello.
func (c *Cold) StartResident(ctx context.Context, spec ResidentSpec) (*Resident, error) {
	return nil, fault.New(fault.Unsupported, "not yet")
}

// Command is what a resident runs.
type Command struct {
	Job
	// DirMissing and so on are told in the Exit.
}

// Run runs one command.
func (r *Resident) Run(ctx context.Context, job Job, stdout, stderr io.Writer) (Exit, error) {
	return Exit{}, fault.New(fault.Unsupported, "not yet")
}
