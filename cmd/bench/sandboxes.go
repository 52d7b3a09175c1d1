//go:build linux

package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/google/uuid"

	"secbox/engine"
	"secbox/policy"
	"secbox/runner/diskwatch"
	"secbox/sandbox"
	"secbox/sandbox/docker"
	"secbox/sandbox/files"
	coreapi "secbox/server"
	"secbox/settings"
)

const (
	sandboxAtOnce  = 4
	fileOperations = 200
)

var benchUser = sandbox.User{AgentID: "bench", ID: "bench"}

// sandboxes compares the docker sandbox, without the HTTP API and the audit around it, with docker
// exec into a container with the same flags.
func (b *bench) sandboxes(ctx context.Context) (err error) {
	if b.against != "" {
		return nil
	}
	defer func() { err = because(ctx, err) }()
	s, closeAll, err := b.openDockerSandbox(filepath.Join(b.dir, "docker-sandbox"))
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, closeAll()) }()
	isTrue := func(ctx context.Context, _ *subject) error {
		r, err := s.Exec(ctx, sandbox.ExecSpec{Command: "true", User: benchUser})
		if err == nil && r.ExitCode != 0 {
			err = fmt.Errorf("true ended with %d: %s", r.ExitCode, r.Stderr)
		}
		return err
	}
	if err := isTrue(ctx, nil); err != nil { // starts the container
		return err
	}
	c, err := findContainer(os.Getpid())
	if err != nil {
		return err
	}
	other, end, err := b.startEqual(ctx, c)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, end()) }()
	plainTrue := func(ctx context.Context, _ *subject) error {
		return finish(ctx, b.dockerCommand("exec", other, "true"))
	}
	if err := b.compare(ctx, comparison{
		section: "sandboxes", title: "`true` in the docker sandbox", rounds: b.pairs, least: leastPairs,
		sides: []side{{name: "core-api", unit: ms, turn: timed(isTrue)}, {name: "docker exec", unit: ms, turn: timed(plainTrue)}},
		rows:  []row{{what: "`true` in the docker sandbox, p50", other: 1, form: part, bound: 1. / 10}},
	}); err != nil {
		return err
	}
	rates := func(do func(context.Context, *subject) error) turn {
		n := 8 * b.roundExecs
		return timed(func(ctx context.Context, _ *subject) error {
			return several(ctx, n, sandboxAtOnce, func(ctx context.Context, _ int) error { return do(ctx, nil) })
		}).per(int64(n))
	}
	title := fmt.Sprintf("the same, %d at once", sandboxAtOnce)
	if err := b.compare(ctx, comparison{
		section: "sandboxes", title: title, rounds: b.rounds, least: leastRounds,
		sides: []side{
			{name: "core-api", unit: perSecond, turn: rates(isTrue)},
			{name: "docker exec", unit: perSecond, turn: rates(plainTrue)},
		},
		rows: []row{{what: title, other: 1, stat: paired, form: times, bound: 10, least: true}},
		note: func(out *Comparison) {
			var operations int
			var starts int64
			if operations, starts, err = b.countStarts(ctx, s, c, isTrue); err == nil {
				out.Targets = append(out.Targets, fact(fmt.Sprintf("processes that %d operations on files of it start", operations), count,
					float64(starts), 0))
			}
		},
	}); err != nil {
		return err
	}
	return err
}

// openDockerSandbox makes a docker sandbox as serve does, with the default settings.
func (b *bench) openDockerSandbox(dir string) (s *docker.Sandbox, closeAll func() error, err error) {
	deps, err := b.openWorkspace(dir)
	if err != nil {
		return nil, nil, err
	}
	w, log := deps.Workspace, slog.New(slog.NewTextHandler(b.log, &slog.HandlerOptions{Level: slog.LevelWarn}))
	cold, err := deps.NewEngine(engine.Identity{Installation: uuid.NewString(), Node: uuid.NewString()}, dir, log)
	if err != nil {
		return nil, nil, errors.Join(err, w.Close())
	}
	v := policy.Defaults()
	made := docker.Container{Image: v.Image, Limits: v.ContainerLimits, Runtime: v.Runtime, User: deps.User}
	s = docker.New(docker.Config{
		Directories: files.Workspaces{Workspace: w}, Workspace: w, Engine: cold, Images: deps.Images,
		Container: func() docker.Container { return made }, Disk: diskwatch.New(w, diskwatch.Limits{}, log), Log: log, Now: time.Now,
	})
	return s, func() error { return errors.Join(s.Close(), cold.Close(), w.Close()) }, nil
}

// openWorkspace opens a workspace below dir as serve does.
func (b *bench) openWorkspace(dir string) (*coreapi.Deps, error) {
	cfg, err := settings.Load("", withoutSettings(b.environ), settings.Overrides{
		StateDir: filepath.Join(dir, "state"), WorkspaceRoot: filepath.Join(dir, "workspace"),
	})
	if err != nil {
		return nil, err
	}
	deps, err := coreapi.NewDeps(cfg, b.environ)
	if err == nil {
		err = deps.OpenWorkspace()
	}
	return deps, err
}

// container is the docker sandbox's, by the command line of its docker CLI.
type container struct {
	name string
	args []string // from "run" on
}

// findContainer finds the container that a process keeps.
func findContainer(pid int) (container, error) {
	all, err := processes()
	if err != nil {
		return container{}, err
	}
	for _, p := range all {
		if at := slices.Index(p.args, "--name"); p.parent == pid && p.isDockerRun() && at > 0 && at+1 < len(p.args) {
			return container{name: p.args[at+1], args: p.args[1:]}, nil
		}
	}
	return container{}, errors.New("the docker sandbox keeps no container by a docker run")
}

// startEqual starts a container with the same flags whose only process waits.
func (b *bench) startEqual(ctx context.Context, c container) (name string, end func() error, err error) {
	name = c.name + "-equal"
	args, err := equalArgs(c.args, name)
	if err != nil {
		return "", nil, err
	}
	cmd := b.dockerCommand(args...)
	var stderr tail
	cmd.Stderr = &stderr
	if err := cmd.Start(); err != nil {
		return "", nil, err
	}
	end = func() error {
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		defer cancel()
		err := b.docker.Remove(ctx, name)
		_ = cmd.Process.Kill() // --rm ends it, unless the container never ran
		_ = cmd.Wait()
		return err
	}
	for {
		if out, err := b.docker.Output(ctx, "inspect", "--format", "{{.State.Running}}", name); err == nil &&
			strings.TrimSpace(string(out)) == "true" {
			return name, end, nil
		}
		if err := sleepUntil(ctx, time.Now().Add(50*time.Millisecond)); err != nil {
			return "", nil, errors.Join(fmt.Errorf("a container with the flags of the sandbox's does not run: %w: %s", err,
				stderr.String()), end())
		}
	}
}

// equalArgs are the flags with another name, another node's label, so that the sandbox does not
// take it for its own, and a program that waits.
func equalArgs(args []string, name string) ([]string, error) {
	out, err := withFlags(args, dockerFlag{"--name", "", name},
		dockerFlag{"--label", engine.LabelNode + "=", engine.LabelNode + "=" + name}, dockerFlag{"--entrypoint", "", "sleep"})
	image := slices.IndexFunc(out, func(arg string) bool { return strings.HasPrefix(arg, "sha256:") })
	if err == nil && image < 0 {
		err = fmt.Errorf("the sandbox's container has no image id: %q", args)
	}
	if err != nil {
		return nil, err
	}
	return append(out[:image+1], "infinity"), nil
}

// countStarts works on files of the sandbox and counts the processes that this starts: children of
// this process and of the container's first one, and events of the engine about the container.
func (b *bench) countStarts(ctx context.Context, s sandbox.Backend, c container,
	isTrue func(context.Context, *subject) error,
) (operations int, starts int64, err error) {
	if err := isTrue(ctx, nil); err != nil { // all workers have started
		return 0, 0, err
	}
	out, err := b.docker.Output(ctx, "inspect", "--format", "{{.State.Pid}}", c.name)
	if err != nil {
		return 0, 0, err
	}
	inside, err := strconv.Atoi(strings.TrimSpace(string(out)))
	if err != nil {
		return 0, 0, err
	}
	before, err := childrenOf(os.Getpid(), inside)
	if err != nil {
		return 0, 0, err
	}
	begun := time.Now()
	if operations, err = useFiles(ctx, s, fileOperations); err != nil {
		return 0, 0, err
	}
	after, err := childrenOf(os.Getpid(), inside)
	if err != nil {
		return 0, 0, err
	}
	at := func(t time.Time) string { return fmt.Sprintf("%d.%09d", t.Unix(), t.Nanosecond()) }
	events, err := b.docker.Output(ctx, "events", "--since", at(begun), "--until", at(time.Now()), "--filter", "container="+c.name)
	return operations, before.started(after) + int64(strings.Count(string(events), "\n")), err
}

// useFiles does at least n operations on files.
func useFiles(ctx context.Context, s sandbox.Backend, n int) (done int, err error) {
	user := benchUser
	for i := 0; done < n; i++ {
		dir := fmt.Sprintf("%s/files/%d", sandbox.Root, i)
		path, want := dir+"/file", strings.Repeat("content ", 512)
		for _, operation := range []func() error{
			func() error { return s.MkdirAll(ctx, dir, 0o755, user) },
			func() error { return s.WriteFile(ctx, path, []byte(want), 0o644, user) },
			func() error {
				got, err := s.ReadFile(ctx, path, user)
				if err == nil && string(got) != want {
					err = errors.New("the file has other content than was written")
				}
				return err
			},
			func() error { _, err := s.Stat(ctx, path, user); return err },
			func() error { _, err := s.ReadDir(ctx, dir, user); return err },
			func() error { _, err := s.WriteFileFrom(ctx, path, strings.NewReader(want), 0o644, user); return err },
			func() error { _, err := s.ReadFileTo(ctx, path, new(strings.Builder), user); return err },
			func() error { return s.Remove(ctx, path, user) },
			func() error { return s.RemoveAll(ctx, sandbox.Root+"/files", user) },
		} {
			if err := operation(); err != nil {
				return done, err
			}
			done++
		}
	}
	return done, nil
}

// children are the child processes of some processes: the live children, and the page faults of the
// ended children. No program runs without page faults.
type children struct {
	live   map[int]bool
	faults map[int]int64
}

func childrenOf(pids ...int) (children, error) {
	c := children{live: map[int]bool{}, faults: map[int]int64{}}
	all, err := processes()
	if err != nil {
		return c, err
	}
	for _, p := range all {
		if slices.Contains(pids, p.parent) {
			c.live[p.pid] = true
		}
	}
	for _, pid := range pids {
		fields, err := statOf(pid)
		if err != nil {
			return c, err
		}
		c.faults[pid] = fields[11]
	}
	return c, nil
}

// started counts the new children, and for each process one more if some have started and ended.
func (c children) started(later children) (n int64) {
	for pid := range later.live {
		if !c.live[pid] {
			n++
		}
	}
	for pid, faults := range later.faults {
		if faults != c.faults[pid] {
			n++
		}
	}
	return n
}
