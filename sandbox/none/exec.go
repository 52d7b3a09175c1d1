package none

import (
	"context"
	"errors"
	"io"
	"io/fs"
	"path/filepath"
	"slices"
	"time"

	"secbox/sandbox"
	"secbox/sandbox/process"
)

// Exec runs a command.
func (s *Sandbox) Exec(ctx context.Context, spec sandbox.ExecSpec) (*sandbox.ExecResult, error) {
	return sandbox.Collect(ctx, s, spec)
}

// ExecTo runs a command whose output goes to the writers.
func (s *Sandbox) ExecTo(ctx context.Context, spec sandbox.ExecSpec, stdout, stderr io.Writer) (*sandbox.ExecResult, error) {
	if err := sandbox.CheckSpec(spec); err != nil {
		return nil, err
	}
	var result *process.Result
	err := s.do(ctx, spec.User, s.commands, func(ctx context.Context, place *sandbox.Place) error {
		root, below, err := s.files(place).Dir(spec.Dir)
		if err != nil {
			return err
		}
		dir := place.Path
		if root != sandbox.Root {
			dir = s.readOnlyDir(root)
		}
		result, err = s.processes.Run(ctx, process.Spec{
			Argv:      argv(spec),
			Dir:       filepath.Join(dir, filepath.FromSlash(below)),
			Env:       slices.Concat(s.cfg.Environ, []string{sandbox.WorkspaceVariable + "=" + place.Path}, spec.Env),
			Stdin:     spec.Stdin,
			Timeout:   s.timeout(spec),
			Stdout:    stdout,
			Stderr:    stderr,
			MaxStdout: sandbox.OutputBound(spec.MaxStdout),
			MaxStderr: sandbox.OutputBound(spec.MaxStderr),
		})
		if errors.Is(err, process.ErrNoDir) { // it went between the look and the start
			err = &fs.PathError{Op: "chdir", Path: spec.Dir, Err: fs.ErrNotExist}
		}
		return err
	})
	if err != nil {
		return nil, err
	}
	return &sandbox.ExecResult{
		ExitCode: result.ExitCode, TimedOut: result.TimedOut, Detail: result.Detail,
		StdoutBytes: result.StdoutBytes, StderrBytes: result.StderrBytes,
		ExecID: spec.ExecID,
	}, nil
}

func argv(spec sandbox.ExecSpec) []string {
	if spec.Shell {
		return process.Line(process.Shell(), spec.Command)
	}
	return slices.Concat([]string{spec.Command}, spec.Args)
}

func (s *Sandbox) timeout(spec sandbox.ExecSpec) time.Duration {
	t := spec.Timeout
	if t <= 0 {
		t = sandbox.DefaultTimeout
	}
	if s.cfg.MaxTimeout > 0 {
		t = min(t, s.cfg.MaxTimeout)
	}
	return t
}
