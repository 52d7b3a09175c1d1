package none

import (
	"cmp"
	"context"
	"errors"
	"io"
	"io/fs"
	"path/filepath"
	"slices"

	"secbox/sandbox"
	"secbox/sandbox/process"
)

// Exec runs a command.
func (s *Sandbox) Exec(ctx context.Context, spec sandbox.ExecSpec) (*sandbox.ExecResult, error) {
	return sandbox.Collect(ctx, s, spec)
}

// ExecTo runs a command whose output goes to the writers.
func (s *Sandbox) ExecTo(ctx context.Context, spec sandbox.ExecSpec, stdout, stderr io.Writer) (*sandbox.ExecResult, error) {
	if err := spec.Check(); err != nil {
		return nil, err
	}
	argv := slices.Concat([]string{spec.Command}, spec.Args)
	if spec.Shell {
		argv = process.Line(process.Shell(), spec.Command)
	}
	var result *process.Result
	err := s.do(ctx, spec.User, s.commands, func(ctx context.Context, workspace *sandbox.Directory) error {
		shared, below, err := s.files(workspace).Dir(ctx, spec.Dir)
		if err != nil {
			return err
		}
		result, err = s.processes.Run(ctx, process.Spec{
			Argv:      argv,
			Dir:       filepath.Join(cmp.Or(shared.Dir, workspace.Path), filepath.FromSlash(below)),
			Env:       slices.Concat(s.cfg.Environ, []string{sandbox.WorkspaceVariable + "=" + workspace.Path}, spec.Env),
			Stdin:     spec.Input(),
			Signals:   spec.Signals,
			Timeout:   spec.TimeoutWithin(s.cfg.MaxTimeout),
			Stdout:    stdout,
			Stderr:    stderr,
			MaxStdout: sandbox.OutputBound(spec.MaxStdout),
			MaxStderr: sandbox.OutputBound(spec.MaxStderr),
		})
		if errors.Is(err, process.ErrNoDir) { // removed since Dir checked it
			err = &fs.PathError{Op: "chdir", Path: spec.Dir, Err: fs.ErrNotExist}
		}
		return err
	})
	if err != nil {
		return nil, err
	}
	return &sandbox.ExecResult{
		ExitCode: result.ExitCode, TimedOut: result.TimedOut, Ended: result.Ended, Detail: result.Detail,
		StdoutBytes: result.StdoutBytes, StderrBytes: result.StderrBytes,
		ExecID: spec.ExecID,
	}, nil
}
