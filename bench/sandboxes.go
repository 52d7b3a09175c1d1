package bench

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"time"

	"secbox/dockercli"
)

// Sandboxed is what users' sandboxes cost beside what they are made of.
type Sandboxed struct {
	Docker *Contained `json:"docker,omitempty"`
	Runner *Linked    `json:"runner,omitempty"`
}

// Linked is a runner on loopback: core-api's end and the runner are processes that do nothing else.
type Linked struct {
	Exec     Summary `json:"exec"`    // true on the runner
	Start    Summary `json:"os_exec"` // true as a child of the process that has core-api's end
	Overhead float64 `json:"overhead_ms_p50"`

	Files     int       `json:"files"`
	FileBytes int       `json:"file_bytes"`
	InFlight  int       `json:"in_flight"`
	FileRates []float64 `json:"files_per_second"` // by round

	Large Streamed `json:"large"`
}

// Streamed is one large file each way, beside plain HTTP between the same processes and disks.
type Streamed struct {
	Bytes      int64     `json:"bytes"`
	Read       []float64 `json:"read_per_second"` // bytes, by round; from the runner to core-api
	Put        []float64 `json:"put_per_second"`
	Write      []float64 `json:"write_per_second"` // from core-api to the runner
	Get        []float64 `json:"get_per_second"`
	ReadRatio  float64   `json:"read_ratio"` // by neighbouring rounds
	WriteRatio float64   `json:"write_ratio"`
	HubPeak    int64     `json:"hub_peak_bytes"` // the most that the process held during Read and Write; 0 where it cannot be measured
	RunnerPeak int64     `json:"runner_peak_bytes"`
}

// How much of it, where no flag says so.
const (
	smallFileBytes  = 4 << 10
	filesInFlight   = 16
	sandboxAtOnce   = 4
	fileOperations  = 200
	connectPatience = time.Minute
)

// measureSandboxes measures what it can of both backends.
func measureSandboxes(ctx context.Context, o Options, dir string) (*Sandboxed, error) {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return nil, err
	}
	out := &Sandboxed{}
	var dockerErr, runnerErr error
	if out.Runner, runnerErr = measureRunner(ctx, o, filepath.Join(dir, RunnerSide)); runnerErr != nil {
		runnerErr = fmt.Errorf("runner: %w", because(ctx, runnerErr))
	}
	if ctx.Err() == nil {
		if out.Docker, dockerErr = measureDocker(ctx, o, filepath.Join(dir, DockerSide)); dockerErr != nil {
			dockerErr = fmt.Errorf("docker: %w", because(ctx, dockerErr))
		}
	}
	return out, errors.Join(runnerErr, dockerErr)
}

// link is both sides of a runner's link.
type link struct {
	Options
	hub, runner       *side
	hubDir, runnerDir string
}

func measureRunner(ctx context.Context, o Options, dir string) (_ *Linked, err error) {
	l := &link{Options: o, hubDir: filepath.Join(dir, "core-api"), runnerDir: filepath.Join(dir, "user")}
	for _, d := range []string{l.hubDir, l.runnerDir} {
		if err := os.MkdirAll(d, 0o700); err != nil {
			return nil, err
		}
	}
	if l.hub, err = startSide(o, HubSide); err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, l.hub.stop()) }()
	if l.runner, err = startSide(o, RunnerSide); err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, l.runner.stop()) }()
	url, err := do[string](ctx, l.hub, "Serve", l.hubDir)
	if err == nil {
		_, err = do[bool](ctx, l.runner, "Run", Dialled{URL: url, Dir: l.runnerDir})
	}
	if err == nil {
		_, err = do[bool](ctx, l.hub, "Connected", connectPatience)
	}
	if err != nil {
		return nil, err
	}
	out := &Linked{}
	for _, measure := range []func(context.Context, *Linked) error{l.execs, l.many, l.large} {
		if err := measure(ctx, out); err != nil {
			return nil, err
		}
	}
	return out, nil
}

// timed is a task that answers how long it took.
func timed(s *side, task string, args any) func(context.Context) (time.Duration, error) {
	return func(ctx context.Context) (time.Duration, error) { return do[time.Duration](ctx, s, task, args) }
}

func (l *link) execs(ctx context.Context, out *Linked) error {
	l.say("sandboxes: %d turns of true on a runner and as a child", l.Pairs)
	if _, err := timed(l.hub, "Exec", true)(ctx); err != nil { // the first worker starts
		return err
	}
	ours, theirs, err := alternate(ctx, l.Pairs, leastPairs, timed(l.hub, "Exec", true), timed(l.hub, "Start", true))
	out.Exec, out.Start = summarise(ours), summarise(theirs)
	out.Overhead = out.Exec.P50 - out.Start.P50
	return err
}

func (l *link) many(ctx context.Context, out *Linked) error {
	m := Many{Files: l.SandboxFiles, Bytes: smallFileBytes, AtOnce: filesInFlight}
	out.Files, out.FileBytes, out.InFlight = m.Files, m.Bytes, m.AtOnce
	l.say("sandboxes: %d rounds of %d files of %s read from a runner, %d at once", l.SandboxRounds, m.Files, binarySize(int64(m.Bytes)), m.AtOnce)
	if _, err := do[bool](ctx, l.hub, "Fill", m); err != nil {
		return err
	}
	for range l.SandboxRounds {
		took, err := timed(l.hub, "ReadMany", m)(ctx)
		if err != nil {
			return err
		}
		out.FileRates = append(out.FileRates, float64(m.Files)/took.Seconds())
	}
	return nil
}

func (l *link) large(ctx context.Context, out *Linked) error {
	s := &out.Large
	s.Bytes = l.LargeBytes
	l.say("sandboxes: %d rounds of a file of %s each way, and by plain HTTP", l.SandboxRounds, binarySize(s.Bytes))
	for _, dir := range []string{l.hubDir, l.runnerDir} {
		if err := noise(filepath.Join(dir, sourceFile), s.Bytes); err != nil {
			return err
		}
	}
	// Every transfer makes a new file, on a disk that has nothing left to write.
	fresh := func(dir, name string, ours bool, transfer func(context.Context) (time.Duration, error)) func(context.Context) (float64, error) {
		return func(ctx context.Context) (float64, error) {
			if err := os.Remove(filepath.Join(dir, name)); err != nil && !errors.Is(err, os.ErrNotExist) {
				return 0, err
			}
			if err := settle(dir); err != nil {
				return 0, err
			}
			took, err := l.watched(ctx, s, ours, transfer)
			return float64(s.Bytes) / took.Seconds(), err
		}
	}
	var err error
	if s.Read, s.Put, err = alternate(ctx, l.SandboxRounds, leastRounds,
		fresh(l.hubDir, ourFile, true, timed(l.hub, "Read", s.Bytes)),
		fresh(l.hubDir, plainFile, false, timed(l.runner, "Put", s.Bytes))); err != nil {
		return err
	}
	if s.Write, s.Get, err = alternate(ctx, l.SandboxRounds, leastRounds,
		fresh(l.runnerDir, ourFile, true, timed(l.hub, "Write", s.Bytes)),
		fresh(l.runnerDir, plainFile, false, timed(l.runner, "Get", s.Bytes))); err != nil {
		return err
	}
	s.ReadRatio, s.WriteRatio = pairedRates(s.Read, s.Put), pairedRates(s.Write, s.Get)
	return nil
}

// watched looks at what both sides hold during a transfer of ours.
func (l *link) watched(ctx context.Context, s *Streamed, ours bool, transfer func(context.Context) (time.Duration, error)) (time.Duration, error) {
	if !ours {
		return transfer(ctx)
	}
	peaks := map[*side]*int64{l.hub: &s.HubPeak, l.runner: &s.RunnerPeak}
	for side := range peaks {
		if err := resetPeak(side.pid()); err != nil && !errors.Is(err, errors.ErrUnsupported) {
			return 0, err
		}
	}
	took, err := transfer(ctx)
	for side, peak := range peaks {
		m, memoryErr := memoryOf(side.pid())
		if memoryErr != nil && !errors.Is(memoryErr, errors.ErrUnsupported) {
			err = errors.Join(err, memoryErr)
		}
		*peak = max(*peak, m.peak)
	}
	return took, err
}

// pairedRates is the median of neighbouring rounds' ratios.
func pairedRates(ours, theirs []float64) float64 {
	var all []float64
	for i := range ours {
		all = append(all, ours[i]/theirs[i])
	}
	return median(all)
}

// noise makes a file that neither packs nor has holes.
func noise(path string, size int64) error {
	f, err := os.Create(path)
	if err != nil {
		return err
	}
	w := bufio.NewWriterSize(f, 1<<20)
	_, err = io.CopyN(w, rand.NewChaCha8([32]byte{1}), size)
	return errors.Join(err, w.Flush(), f.Close())
}

// Contained is the docker sandbox beside docker exec into a container that was started with the same flags.
type Contained struct {
	Exec      Summary `json:"exec"`
	PlainExec Summary `json:"docker_exec"`
	Ratio     float64 `json:"ratio_p50"`

	AtOnce      int       `json:"at_once"`
	RoundExecs  int       `json:"round_execs"`
	Rates       []float64 `json:"per_second"`
	PlainRates  []float64 `json:"docker_exec_per_second"`
	PairedRatio float64   `json:"ratio_paired"`

	Operations int   `json:"file_operations"`
	Processes  int64 `json:"processes"` // that were started meanwhile by the sandbox, in its container, or by the engine for it
}

func measureDocker(ctx context.Context, o Options, dir string) (_ *Contained, err error) {
	for _, sub := range []string{"workspace", "state"} {
		if err := os.MkdirAll(filepath.Join(dir, sub), 0o700); err != nil {
			return nil, err
		}
	}
	s, err := startSide(o, DockerSide, "--workspace-root", filepath.Join(dir, "workspace"), "--state-dir", filepath.Join(dir, "state"))
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, s.stop()) }()
	if _, err := timed(s, "Exec", true)(ctx); err != nil { // the container starts
		return nil, err
	}
	ours, err := residentOf(s.pid())
	if err != nil {
		return nil, err
	}
	plain, err := startEqual(ctx, o.Docker, o.Environ, ours)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, plain.end()) }()
	if _, err := do[bool](ctx, s, "Compare", []string{o.Docker.Path(), "exec", plain.name, "true"}); err != nil {
		return nil, err
	}
	out := &Contained{AtOnce: sandboxAtOnce, RoundExecs: o.SandboxExecs}
	o.say("sandboxes: %d turns of true in the docker sandbox and by docker exec", o.Pairs)
	mine, theirs, err := alternate(ctx, o.Pairs, leastPairs, timed(s, "Exec", true), timed(s, "PlainExec", true))
	if err != nil {
		return nil, err
	}
	out.Exec, out.PlainExec = summarise(mine), summarise(theirs)
	out.Ratio = out.Exec.P50 / out.PlainExec.P50

	o.say("sandboxes: %d rounds of %d of each, %d at once", o.SandboxRounds, o.SandboxExecs, sandboxAtOnce)
	rate := func(plain bool) func(context.Context) (float64, error) {
		return func(ctx context.Context) (float64, error) {
			took, err := timed(s, "Many", Storm{Execs: o.SandboxExecs, AtOnce: sandboxAtOnce, Plain: plain})(ctx)
			return float64(o.SandboxExecs) / took.Seconds(), err
		}
	}
	if out.Rates, out.PlainRates, err = alternate(ctx, o.SandboxRounds, leastRounds, rate(false), rate(true)); err != nil {
		return nil, err
	}
	out.PairedRatio = pairedRates(out.Rates, out.PlainRates)

	o.say("sandboxes: the processes that %d operations on files start", fileOperations)
	out.Operations, out.Processes, err = countStarts(ctx, o.Docker, s)
	return out, err
}

// countStarts lets the side work on files and counts what is started for it.
func countStarts(ctx context.Context, docker *dockercli.CLI, s *side) (operations int, starts int64, err error) {
	if _, err := timed(s, "Exec", true)(ctx); err != nil { // it has a container now, whatever became of the first
		return 0, 0, err
	}
	c, err := residentOf(s.pid())
	if err != nil {
		return 0, 0, err
	}
	inside, err := c.pid(ctx, docker)
	if err != nil {
		return 0, 0, err
	}
	before, err := offspring(s.pid(), inside)
	if err != nil {
		return 0, 0, err
	}
	begun := time.Now()
	if operations, err = do[int](ctx, s, "Files", fileOperations); err != nil {
		return 0, 0, err
	}
	after, err := offspring(s.pid(), inside)
	if err != nil {
		return 0, 0, err
	}
	events, err := c.events(ctx, docker, begun)
	return operations, before.grown(after) + events, err
}
