package engine

import (
	"context"

	"secbox/engine/dockercli"
	"secbox/engine/initproto"
	"secbox/fault"
	"secbox/policy"
)

// Docker is the driver of a Docker engine.
type Docker struct {
	cli     *dockercli.CLI
	options Options
}

// NewDocker makes the driver; it starts nothing.
func NewDocker(cli *dockercli.CLI, o Options) *Docker {
	if o.WorkspaceVolume != "" {
		cli.RequireSubpath() // an older engine would mount all projects
	}
	return &Docker{cli, o}
}

// Options are settings that apply to all containers.
type Options struct {
	ReadOnlyRootfs bool
	Seccomp        string // path of the profile on this machine; empty: the engine's own profile
	Podman         bool   // podman's service is the engine
	// WorkspaceVolume is the volume that sources of mounts are in; empty: they are on the engine's
	// machine.
	WorkspaceVolume string
}

// Start implements Driver.
func (d *Docker) Start(c Container) (Process, error) {
	p, err := d.cli.Start(d.Args(c)...)
	if err != nil {
		return nil, err
	}
	return p, nil
}

// Args implements Driver: the docker argv. It has nothing of the job.
func (d *Docker) Args(c Container) []string {
	args := runArgs(c.Identity, d.options, c.Spec, c.ID, c.Mounts, c.points)
	if c.Copied {
		args = append(args, initproto.FilesArg)
	}
	return args
}

// Containers implements Driver.
func (d *Docker) Containers(ctx context.Context, label string) ([]string, error) {
	return d.cli.Containers(ctx, label)
}

// RemoveEnded implements Driver: containers of Docker remove themselves.
func (d *Docker) RemoveEnded(context.Context, string) error { return nil }

// Remove implements Driver.
func (d *Docker) Remove(ctx context.Context, name string) error { return d.cli.Remove(ctx, name) }

// ChangeLimits implements Driver.
func (d *Docker) ChangeLimits(ctx context.Context, name string, to policy.ContainerLimits) error {
	return d.cli.Update(ctx, name, limitArgs(to)...)
}

// NoAnswer implements Driver.
func (d *Docker) NoAnswer(cause error) error { return noAnswer(cause) }

func noAnswer(cause error) error {
	return fault.Wrap(fault.EngineUnavailable, cause, "the Docker engine did not answer in time; check `docker info` on its host")
}
