//go:build linux

package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/google/uuid"

	"secbox/engine"
)

// plainDocker starts containers by `docker run` with the flags that core-api gives the docker CLI,
// and with the mounts that an exec gets.
type plainDocker struct {
	bench  *bench
	flags  []string       // of one exec, from its meta.json, without bind mounts and --runtime
	mounts []engine.Mount // of that exec; its container's mounts are empty if it waited for any project
	node   string         // label of the containers in place of a node's id; as long as one
	dir    string         // for directories of projects
	n      atomic.Int64
}

func newPlainDocker(b *bench, dir, artifacts string) (*plainDocker, error) {
	content, err := os.ReadFile(filepath.Join(artifacts, "meta.json"))
	if err != nil {
		return nil, err
	}
	var meta struct {
		DockerArgs   []string       `json:"docker_args"`
		DockerMounts []engine.Mount `json:"docker_mounts"`
	}
	if err := json.Unmarshal(content, &meta); err != nil {
		return nil, err
	}
	if len(meta.DockerMounts) == 0 {
		return nil, fmt.Errorf("%s/meta.json has no mounts", artifacts)
	}
	return &plainDocker{bench: b, flags: ownFlags(meta.DockerArgs), mounts: meta.DockerMounts, node: uuid.NewString(), dir: dir},
		os.Mkdir(dir, 0o700)
}

// ownFlags removes the bind mounts from a docker argv, and the OCI runtime: plain docker run has
// the engine's default.
func ownFlags(flags []string) (out []string) {
	for i := 0; i < len(flags); i++ {
		if i+1 < len(flags) && (flags[i] == "--runtime" || flags[i] == "--mount" && strings.HasPrefix(flags[i+1], "type=bind,")) {
			i++
			continue
		}
		out = append(out, flags[i])
	}
	return out
}

// next prepares a container: a name, and the directories of a new project.
func (p *plainDocker) next(j job) (*exec.Cmd, error) {
	id := fmt.Sprintf("%s-%06d", p.node, p.n.Add(1))
	mounts := inProject(p.mounts, filepath.Join(p.dir, id))
	uid, gid := -1, -1
	if at := slices.Index(p.flags, "--user"); os.Geteuid() == 0 && at >= 0 && at+1 < len(p.flags) {
		if _, err := fmt.Sscanf(p.flags[at+1], "%d:%d", &uid, &gid); err != nil {
			return nil, fmt.Errorf("--user %q: %w", p.flags[at+1], err)
		}
	}
	for i, m := range mounts {
		if m == p.mounts[i] {
			continue
		}
		if err := errors.Join(os.MkdirAll(m.Source, 0o755), os.Chown(m.Source, uid, gid)); err != nil { // as core-api does
			return nil, err
		}
	}
	args, err := plainArgs(p.flags, mounts, id, p.node, append([]string{j.command}, j.args...)...)
	if err != nil {
		return nil, err
	}
	return p.bench.dockerCommand(args...), nil
}

// inProject returns mounts with directories of another project.
func inProject(mounts []engine.Mount, dir string) []engine.Mount {
	mounts = slices.Clone(mounts)
	for i, m := range mounts {
		if name, below := strings.CutPrefix(m.Target, "/workspace/"); below {
			mounts[i].Source = filepath.Join(dir, name)
		}
	}
	return mounts
}

// dockerCommand is a docker CLI that ends with us.
func (b *bench) dockerCommand(args ...string) *exec.Cmd {
	cmd := exec.Command(b.docker.Path(), args...)
	cmd.Env = append(slices.Clone(b.environ), "DOCKER_CLI_HINTS=false") // as for core-api's calls
	endWithUs(cmd)
	return cmd
}

// plainArgs turns the flags of an exec's container into the argv of one of bench's: the same flags,
// but for the container's name, its labels' values, and the job in place of sandbox-init.
func plainArgs(flags []string, mounts []engine.Mount, id, node string, job ...string) ([]string, error) {
	args, err := withFlags(flags,
		dockerFlag{"--name", "", "secbox-" + id},
		dockerFlag{"--entrypoint", "", job[0]},
		dockerFlag{"--label", engine.LabelNode + "=", engine.LabelNode + "=" + node},
		dockerFlag{"--label", engine.LabelExec + "=", engine.LabelExec + "=" + id})
	if err != nil {
		return nil, err
	}
	for _, m := range mounts {
		value := "type=bind,source=" + m.Source + ",target=" + m.Target
		if m.ReadOnly {
			value += ",readonly"
		}
		args = slices.Insert(args, len(args)-1, "--mount", value) // before the image
	}
	return append(args, job[1:]...), nil
}

// dockerFlag is a flag of a docker argv whose value has a part, and the value that it is to have.
type dockerFlag struct{ name, part, value string }

// withFlags changes flags. args must have each flag once.
func withFlags(args []string, flags ...dockerFlag) ([]string, error) {
	out := slices.Clone(args)
	for _, f := range flags {
		found := 0
		for i := range len(args) - 1 {
			if args[i] == f.name && strings.Contains(args[i+1], f.part) {
				out[i+1] = f.value
				found++
			}
		}
		if found != 1 {
			return nil, fmt.Errorf("the container has %s %s %d times: %q", f.name, f.part, found, args)
		}
	}
	return out, nil
}

// run runs a container to its end, which with --rm is its removal.
func (p *plainDocker) run(ctx context.Context, j job) error {
	cmd, err := p.next(j)
	if err != nil {
		return err
	}
	return finish(ctx, cmd)
}

// several runs n containers, some at once, and returns when the first was started: they are
// prepared before.
func (p *plainDocker) several(ctx context.Context, n, atOnce int) (begun time.Time, err error) {
	cmds := make([]*exec.Cmd, n)
	for i := range cmds {
		if cmds[i], err = p.next(nothing); err != nil {
			return begun, err
		}
	}
	begun = time.Now()
	return begun, several(ctx, n, atOnce, func(ctx context.Context, i int) error { return finish(ctx, cmds[i]) })
}

// finish runs a command whose output does not matter. It is short, and ctx does not interrupt it:
// an engine that is creating a container for a docker CLI would leave it behind if the CLI were
// killed.
func finish(ctx context.Context, cmd *exec.Cmd) error {
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	if err := cmd.Start(); err != nil {
		return err
	}
	ended := make(chan struct{})
	defer close(ended)
	stop := context.AfterFunc(ctx, func() {
		select {
		case <-ended:
		case <-time.After(stopTimeout):
			_ = cmd.Process.Kill()
		}
	})
	defer stop()
	if err := cmd.Wait(); err != nil {
		return because(ctx, fmt.Errorf("%s %s: %w: %s", filepath.Base(cmd.Path), cmd.Args[1], err, strings.TrimSpace(stderr.String())))
	}
	return nil
}

// clean removes containers that an interruption left.
func (p *plainDocker) clean() error {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	ids, err := p.bench.docker.Containers(ctx, engine.LabelNode+"="+p.node)
	for _, id := range ids {
		err = errors.Join(err, p.bench.docker.Remove(ctx, id))
	}
	return err
}
