package engine

import (
	"context"
	"io"

	"secbox/policy"
)

// Driver starts and removes containers: containers of a Docker engine, or pods of a cluster. It is
// safe for concurrent use.
type Driver interface {
	// Start starts a container with sandbox-init as its first process, and returns at once. The
	// container must end when its standard input is closed, as this process's death does.
	Start(c Container) (Process, error)
	// Args describes the container for the record, in the form of a command.
	Args(c Container) []string
	// Containers lists the names of all containers that have the label ("key=value"), running or
	// not.
	Containers(ctx context.Context, label string) ([]string, error)
	// RemoveEnded removes the containers that have the label and ended some minutes ago, which the
	// nodes that started them have left.
	RemoveEnded(ctx context.Context, label string) error
	// Remove kills and removes a container. It succeeds when the container does not exist.
	Remove(ctx context.Context, name string) error
	// ChangeLimits changes memory, cores and pids of a running container; errors.ErrUnsupported if
	// none can be changed.
	ChangeLimits(ctx context.Context, name string, to policy.ContainerLimits) error
	// NoAnswer is the error of an engine that accepts requests and does not answer.
	NoAnswer(cause error) error
}

// Process is a container's sandbox-init as seen from here: a program or a connection that holds its
// streams.
type Process interface {
	Stdin() io.WriteCloser // the lease; Close unblocks a Write
	Stdout() io.Reader
	// Done is closed when the container has ended, or when its streams are lost.
	Done() <-chan struct{}
	// Wait waits for Done and releases the streams. It returns nil if the container ended by
	// itself.
	Wait() error
	// ExitCode is, after Done, negative if it is not known whether the container has ended.
	ExitCode() int
	// Kill gives up the streams, not the container.
	Kill()
}

// Container is what a driver needs to start one.
type Container struct {
	ID       string // of the exec that it is started for, or its own
	Identity Identity
	Spec     Spec
	Mounts   []Mount
	// Copied says that the container mounts nothing of a project: the directories of its exec are
	// copied. They must exist in it for the user, or the user must be able to make them;
	// sandbox-init needs the argument initproto.FilesArg.
	Copied bool

	points *mountPoints // of a container for any project; else nil
}

// Name is the name of the container, in the alphabet of host names.
func (c Container) Name() string { return containerName(c.ID) }

// AnyProject reports whether the container waits for any project and has no mounts.
func (c Container) AnyProject() bool {
	return c.points != nil || c.Copied && c.Spec.ProjectID == ""
}

// Limits are the limits of the container: the spec's, and what sandbox-init needs to serve.
func (c Container) Limits() policy.ContainerLimits { return limitsOf(c.Spec) }
