package bench

import (
	"context"
	"errors"
	"fmt"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"time"

	"secbox/dockercli"
	"secbox/engine"
)

// resident is the docker sandbox's container, by the command line of the CLI that keeps it.
type resident struct {
	name string
	args []string // from "run" on
}

// residentOf finds the container that a process keeps.
func residentOf(pid int) (resident, error) {
	all, err := processes()
	if err != nil {
		return resident{}, err
	}
	for _, p := range all {
		if p.parent != pid || !p.runsDocker() {
			continue
		}
		if at := slices.Index(p.args, "--name"); at > 0 && at+1 < len(p.args) {
			return resident{name: p.args[at+1], args: p.args[1:]}, nil
		}
	}
	return resident{}, errors.New("the docker sandbox keeps no container by a docker run")
}

// pid is that of the container's first process on this machine.
func (r resident) pid(ctx context.Context, docker *dockercli.CLI) (int, error) {
	out, err := docker.Output(ctx, "inspect", "--format", "{{.State.Pid}}", r.name)
	if err != nil {
		return 0, err
	}
	return strconv.Atoi(strings.TrimSpace(string(out)))
}

// events counts what the engine has done for the container since then.
func (r resident) events(ctx context.Context, docker *dockercli.CLI, since time.Time) (int64, error) {
	at := func(t time.Time) string { return fmt.Sprintf("%d.%09d", t.Unix(), t.Nanosecond()) }
	out, err := docker.Output(ctx, "events", "--since", at(since), "--until", at(time.Now()), "--filter", "container="+r.name)
	return int64(strings.Count(string(out), "\n")), err
}

// equal is a container with the same flags in which nothing of ours runs.
type equal struct {
	name   string
	docker *dockercli.CLI
	cmd    *exec.Cmd
}

// startEqual starts it and waits until it can be used.
func startEqual(ctx context.Context, docker *dockercli.CLI, environ []string, r resident) (*equal, error) {
	e := &equal{name: r.name + "-equal", docker: docker}
	args, err := equalArgs(r.args, e.name)
	if err != nil {
		return nil, err
	}
	e.cmd = exec.Command(docker.Path(), args...)
	e.cmd.Env = append(slices.Clone(environ), "DOCKER_CLI_HINTS=false")
	var complaints tail
	e.cmd.Stderr = &complaints
	tie(e.cmd)
	if err := e.cmd.Start(); err != nil {
		return nil, err
	}
	for {
		if out, err := docker.Output(ctx, "inspect", "--format", "{{.State.Running}}", e.name); err == nil && strings.TrimSpace(string(out)) == "true" {
			return e, nil
		}
		select {
		case <-ctx.Done():
			return nil, errors.Join(fmt.Errorf("a container with the flags of the sandbox's does not run: %w: %s", context.Cause(ctx), complaints.String()), e.end())
		case <-time.After(50 * time.Millisecond):
		}
	}
}

// equalArgs are the flags with another name, another node's label, and a program that waits.
func equalArgs(args []string, name string) ([]string, error) {
	out := slices.Clone(args)
	entry, image := -1, -1
	for i := 0; i+1 < len(out); i++ {
		switch {
		case out[i] == "--name":
			out[i+1] = name
		case out[i] == "--label" && strings.HasPrefix(out[i+1], engine.LabelNode+"="):
			out[i+1] = engine.LabelNode + "=" + name // the sandbox's node does not know it, and leaves it alone
		case out[i] == "--entrypoint":
			out[i+1], entry = "sleep", i
		case strings.HasPrefix(out[i], "sha256:"):
			image = i
		}
	}
	if entry < 0 || image < 0 {
		return nil, fmt.Errorf("the sandbox's container was started in another way than its copy could be: %q", args)
	}
	return append(out[:image+1], "infinity"), nil
}

func (e *equal) end() error {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	err := e.docker.Remove(ctx, e.name)
	_ = e.cmd.Process.Kill() // --rm ends it, but for one that never ran
	_ = e.cmd.Wait()         // it was killed, or ends with another code than 0
	return err
}

// generation is the children of some processes: those that live, and what those that have ended took.
type generation struct {
	live   map[int]bool
	faults map[int]int64
}

// offspring looks at the processes' children. One that has come and gone between two looks has left page faults: no program starts without.
func offspring(pids ...int) (generation, error) {
	g := generation{live: map[int]bool{}, faults: map[int]int64{}}
	all, err := processes()
	if err != nil {
		return g, err
	}
	for _, p := range all {
		if slices.Contains(pids, p.parent) {
			g.live[p.pid] = true
		}
	}
	for _, pid := range pids {
		fields, err := statOf(strconv.Itoa(pid))
		if err != nil {
			return g, err
		}
		if g.faults[pid], err = strconv.ParseInt(fields[8], 10, 64); err != nil { // cminflt
			return g, err
		}
	}
	return g, nil
}

// grown counts the children that are new, and for each process one more when some have come and gone.
func (g generation) grown(later generation) (n int64) {
	for pid := range later.live {
		if !g.live[pid] {
			n++
		}
	}
	for pid, faults := range later.faults {
		if faults != g.faults[pid] {
			n++
		}
	}
	return n
}
