// Package placestest stands in for the containers of sessions in tests.
package placestest

import (
	"context"
	"encoding/json"
	"io"
	"os"
	"os/exec"
	"time"

	"secbox/engine"
	"secbox/sandbox"
	"secbox/sandbox/inside"
)

// Here runs a test's own program as the sandbox-init of a session, on this machine. The test's
// TestMain must call inside.Main.
type Here struct {
	Dir string // has the paths of requests below it; empty: they are this machine's
}

// Run implements session.Inside.
func (h Here) Run(ctx context.Context, job engine.Job, stdout io.Writer) (engine.Exit, error) {
	program, err := os.Executable()
	if err != nil {
		return engine.Exit{}, err
	}
	verb, request := job.Argv[0], job.Argv[1]
	if h.Dir != "" {
		var r inside.Request
		if err := json.Unmarshal([]byte(request), &r); err != nil {
			return engine.Exit{}, err
		}
		for _, path := range []*[]byte{&r.Path, &r.To} {
			if *path != nil {
				*path = append([]byte(h.Dir), *path...)
			}
		}
		text, err := json.Marshal(r)
		if err != nil {
			return engine.Exit{}, err
		}
		request = string(text)
	}
	cmd := exec.CommandContext(ctx, program, verb, request)
	cmd.Stdout, cmd.WaitDelay = &sandbox.BoundedWriter{W: stdout, Left: job.MaxStdout}, time.Second
	in, err := cmd.StdinPipe()
	if err != nil {
		return engine.Exit{}, err
	}
	if err := cmd.Start(); err != nil {
		return engine.Exit{}, err
	}
	go func() {
		if job.Stdin != nil {
			_, _ = io.Copy(in, job.Stdin) // its end tells the program
		}
		in.Close()
	}()
	_ = cmd.Wait()
	if ctx.Err() != nil {
		return engine.Exit{}, context.Cause(ctx)
	}
	return engine.Exit{Code: cmd.ProcessState.ExitCode()}, nil
}

// Watch implements session.Inside.
func (h Here) Watch(ctx context.Context, job engine.Job, stdout io.Writer) (engine.Exit, error) {
	return h.Run(ctx, job, stdout)
}
