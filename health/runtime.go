package health

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"secbox/engine"
	"secbox/fault"
)

// runtimeInUse is the OCI runtime of every container: the operator's, else the engine's own choice. Empty: nobody knows.
func (c *Checker) runtimeInUse(i engineInfo) string {
	if c.cfg.Runtime != "" {
		return c.cfg.Runtime
	}
	return i.DefaultRuntime
}

// runtimeProblem compares the operator's choice with what the engine says it has.
func (c *Checker) runtimeProblem(i engineInfo) []Problem {
	name := c.cfg.Runtime
	if _, known := i.Runtimes[name]; name == "" || known || len(i.Runtimes) == 0 || i.findsShims(name) {
		return nil
	}
	return []Problem{{
		Check: "runtime", Reason: fmt.Sprintf("the engine knows no runtime %q; it has %s", name, strings.Join(slices.Sorted(maps.Keys(i.Runtimes)), ", ")),
		Remedy: "add it to the engine's daemon.json under runtimes and restart the engine, or change sandbox.runtime",
		code:   fault.EngineUnavailable,
	}}
}

// findsShims reports whether the engine may have the runtime without listing it: from 23.0 on, containerd's shims need no entry in
// daemon.json and are looked up by their name on PATH.
func (i engineInfo) findsShims(name string) bool {
	major, _, _ := strings.Cut(i.ServerVersion, ".")
	n, err := strconv.Atoi(major)
	return strings.HasPrefix(name, "io.containerd.") && (err != nil || n >= 23)
}

// ociRuntime asks the engine what a container that lives is run by; the job waits to be looked at and is ended then.
func ociRuntime(s surroundings) experiment {
	e := shell("sleep 60")
	e.inspect = true
	expected := "containers run under " + s.runtime
	if s.runtime == "" {
		expected = "the engine says which runtime runs a container"
	}
	e.checks = []check{{
		name:     "runtime",
		expected: expected,
		remedy:   "sandbox.runtime names the runtime; `docker info` lists those that the engine has",
		judge: func(o outcome) (string, bool) {
			switch {
			case o.inspectErr != nil:
				return "not measured: " + words(o.inspectErr), false
			case o.runtime == "" && o.err != nil:
				return "not measured: " + words(o.err), false
			case o.runtime == "":
				return "not measured: the job ended before anybody could look at its container", false
			case s.runtime != "" && o.runtime != s.runtime:
				return "a container runs under " + clip(o.runtime), false
			}
			return plain(o.runtime), true
		},
	}}
	return e
}

// inspected ends the job as soon as the engine has said what runs its container. The returned function waits until that is over; it may
// be called when the job never started.
func (d *Doctor) inspected(ctx context.Context, slot engine.Slot, job *engine.Job, o *outcome) (context.Context, func()) {
	ctx, end := context.WithCancel(ctx)
	done := make(chan struct{})
	started := false
	job.OnStart = func() {
		started = true
		go func() {
			defer close(done)
			defer end()
			ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
			defer cancel()
			out, err := d.cfg.Checker.cfg.CLI.Output(ctx, "inspect", "--format", "{{.HostConfig.Runtime}}", containerOf(slot))
			o.runtime, o.inspectErr = strings.TrimSpace(string(out)), err
		}()
	}
	return ctx, func() {
		if started {
			<-done
		}
		end()
	}
}

// containerOf is the name that the engine was told to give the slot's container.
func containerOf(slot engine.Slot) string {
	args := slot.Args()
	if i := slices.Index(args, "--name"); i >= 0 && i+1 < len(args) {
		return args[i+1]
	}
	return slot.ExecID()
}
