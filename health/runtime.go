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

// runtimeInUse is the OCI runtime of every container: the operator's, else the engine's default.
// Empty: not known.
func (c *Checker) runtimeInUse(i engineInfo) string {
	if c.cfg.Runtime != "" {
		return c.cfg.Runtime
	}
	return i.DefaultRuntime
}

// runtimeProblem compares the operator's choice with the engine's runtimes.
func (c *Checker) runtimeProblem(i engineInfo) []Problem {
	name := c.cfg.Runtime
	if _, known := i.Runtimes[name]; name == "" || known || len(i.Runtimes) == 0 || i.findsShims(name) {
		return nil
	}
	return []Problem{{
		Check: "runtime", Reason: fmt.Sprintf("the engine knows no runtime %q; it has %s", name,
			strings.Join(slices.Sorted(maps.Keys(i.Runtimes)), ", ")),
		Remedy: "add it to the engine's daemon.json under runtimes and restart the engine, or change sandbox.runtime",
		code:   fault.EngineUnavailable,
	}}
}

// findsShims reports whether the engine may have the runtime without listing it: since 23.0 it
// finds containerd's shims by name on PATH, without an entry in daemon.json.
func (i engineInfo) findsShims(name string) bool {
	major, _, _ := strings.Cut(i.ServerVersion, ".")
	n, err := strconv.Atoi(major)
	return strings.HasPrefix(name, "io.containerd.") && (err != nil || n >= 23)
}

// ociRuntime asks the engine for the runtime of a running container, and then ends the job.
func ociRuntime(s environment) experiment {
	e := shell("sleep 60")
	e.inspect = true
	expected := "containers run under " + s.runtime
	if s.runtime == "" {
		expected = "the engine names the runtime of a container"
	}
	e.checks = []check{{
		name:     "runtime",
		expected: expected,
		remedy:   "sandbox.runtime names the runtime; `docker info` lists those that the engine has",
		judge: func(o outcome) (string, bool) {
			switch {
			case o.inspectErr != nil:
				return "not measured: " + message(o.inspectErr), false
			case o.runtime == "" && o.err != nil:
				return "not measured: " + message(o.err), false
			case o.runtime == "":
				return "not measured: the job ended before its container could be inspected", false
			case s.runtime != "" && o.runtime != s.runtime:
				return "a container runs under " + quoted(o.runtime), false
			}
			return plain(o.runtime), true
		},
	}}
	return e
}

// inspected ends the job as soon as the engine has named its container's runtime. The returned
// function waits for that; it may be called when the job never started.
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

// containerOf is the name of the slot's container.
func containerOf(slot engine.Slot) string {
	args := slot.Args()
	if i := slices.Index(args, "--name"); i >= 0 && i+1 < len(args) {
		return args[i+1]
	}
	return slot.ExecID()
}
