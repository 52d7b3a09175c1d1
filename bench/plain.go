package bench

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"secbox/dockercli"
	"secbox/engine"
)

// plain starts containers by plain `docker run` with the flags that core-api gives the docker CLI.
type plain struct {
	docker  *dockercli.CLI
	environ []string
	flags   []string // of one exec, as core-api recorded them
	node    string   // what our containers bear instead of a node's id; as long as one
	dir     string   // fresh artifacts directories are made here
	n       atomic.Int64
}

// flagsOf reads the docker argv of an exec from its meta.json.
func flagsOf(artifactsDir string) ([]string, error) {
	content, err := os.ReadFile(filepath.Join(artifactsDir, "meta.json"))
	if err != nil {
		return nil, err
	}
	var meta struct {
		DockerArgs []string `json:"docker_args"`
	}
	err = json.Unmarshal(content, &meta)
	if err == nil && len(meta.DockerArgs) == 0 {
		err = fmt.Errorf("meta.json in %s has no docker_args", artifactsDir)
	}
	return meta.DockerArgs, err
}

// withoutRuntime takes out of a docker argv which OCI runtime it asks for, so that the plain side has the engine's default, and returns that
// runtime; empty: it asked for none.
func withoutRuntime(flags []string) (rest []string, runtime string) {
	at := slices.Index(flags, "--runtime")
	if at < 0 || at+1 >= len(flags) {
		return flags, ""
	}
	return slices.Delete(slices.Clone(flags), at, at+2), flags[at+1]
}

// run is one container, already allotted.
type run struct {
	args []string
	env  []string
	path string
}

// next makes what a container needs beforehand: a name, and an artifacts directory like those of execs.
func (p *plain) next(j job) (run, error) {
	id := fmt.Sprintf("%s-%06d", p.node, p.n.Add(1))
	artifacts := filepath.Join(p.dir, id)
	if err := os.Mkdir(artifacts, 0o755); err != nil {
		return run{}, err
	}
	if err := likeTheServers(artifacts, p.flags); err != nil {
		return run{}, err
	}
	args, err := plainArgs(p.flags, id, p.node, artifacts, append([]string{j.command}, j.args...)...)
	// The CLI's hints are off for core-api's calls too.
	return run{args: args, env: append(slices.Clone(p.environ), "DOCKER_CLI_HINTS=false"), path: p.docker.Path()}, err
}

// likeTheServers gives a directory to the containers' user, as core-api does when it is root.
func likeTheServers(dir string, flags []string) error {
	at := slices.Index(flags, "--user")
	if os.Geteuid() != 0 || at < 0 || at+1 >= len(flags) {
		return nil
	}
	var uid, gid int
	if _, err := fmt.Sscanf(flags[at+1], "%d:%d", &uid, &gid); err != nil {
		return fmt.Errorf("--user %q: %w", flags[at+1], err)
	}
	return os.Chown(dir, uid, gid)
}

// plainArgs turns the argv of an exec's container into one of our own: the same flags, but for the container's name, its labels' values,
// the artifacts directory, and the job itself in place of sandbox-init.
func plainArgs(flags []string, id, node, artifacts string, job ...string) ([]string, error) {
	args := slices.Clone(flags)
	replaced := map[string]int{}
	for i := 0; i+1 < len(args); i++ {
		value := &args[i+1]
		switch {
		case args[i] == "--name":
			*value = "secbox-" + id
			replaced["name"]++
		case args[i] == "--entrypoint":
			*value = job[0]
			replaced["entrypoint"]++
		case args[i] == "--label" && strings.HasPrefix(*value, engine.LabelNode+"="):
			*value = engine.LabelNode + "=" + node
			replaced["node"]++
		case args[i] == "--label" && strings.HasPrefix(*value, engine.LabelExec+"="):
			*value = engine.LabelExec + "=" + id
			replaced["exec"]++
		case args[i] == "--mount" && strings.Contains(*value, ",target=/workspace/artifacts"):
			_, rest, _ := strings.Cut(*value, ",target=")
			*value = "type=bind,source=" + artifacts + ",target=" + rest
			replaced["artifacts"]++
		}
	}
	for _, what := range []string{"name", "entrypoint", "node", "exec", "artifacts"} {
		if replaced[what] != 1 {
			return nil, fmt.Errorf("the exec's docker_args have %d times what is its %s: %q", replaced[what], what, flags)
		}
	}
	return append(args, job[1:]...), nil
}

// ran is how a container went.
type ran struct {
	took time.Duration
	cpu  time.Duration // of the CLI
}

// start runs a container to its end, which with --rm is its removal. Its standard input is empty; stdout nil is /dev/null.
func (r run) start(ctx context.Context, stdout io.Writer) (ran, error) {
	cmd := exec.CommandContext(ctx, r.path, r.args...)
	cmd.Env, cmd.Stdout = r.env, stdout
	cmd.WaitDelay = 5 * time.Second
	var complaints bytes.Buffer
	cmd.Stderr = &complaints
	tie(cmd)
	begun := time.Now()
	err := cmd.Run()
	took := time.Since(begun)
	if err != nil {
		if ctx.Err() != nil {
			return ran{}, context.Cause(ctx)
		}
		return ran{}, fmt.Errorf("docker run: %w: %s", err, strings.TrimSpace(complaints.String()))
	}
	return ran{took: took, cpu: cmd.ProcessState.UserTime() + cmd.ProcessState.SystemTime()}, nil
}

// clean removes containers that an interruption left.
func (p *plain) clean() error {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	ids, err := p.docker.Containers(ctx, engine.LabelNode+"="+p.node)
	if err != nil {
		return err
	}
	for _, id := range ids {
		if err := p.docker.Remove(ctx, id); err != nil {
			return err
		}
	}
	return nil
}
