// Package dockercli is the only package that starts the docker binary. Every call has a fixed,
// minimal environment, taken once from core-api's, an argv without a shell, and bounded output.
// Error messages of the CLI are turned into typed errors only here. The package must not know
// execs, policies or requests: nothing of a request may reach an environment or, unchecked, an
// argv.
package dockercli

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"time"

	"secbox/fault"
)

// CLI calls a docker binary. It is safe for concurrent use.
type CLI struct {
	path    string
	env     []string
	proxies []string // of core-api's environment, for builds only
}

// passed are the variables of core-api's environment that the docker CLI needs to find its engine;
// others are not passed.
var passed = map[string]bool{
	"DOCKER_HOST": true, "DOCKER_CONTEXT": true, "DOCKER_CONFIG": true, "DOCKER_CERT_PATH": true, "DOCKER_TLS": true,
	"DOCKER_TLS_VERIFY": true, "DOCKER_API_VERSION": true,
	"HOME": true, "PATH": true, "XDG_RUNTIME_DIR": true, "SSH_AUTH_SOCK": true,
	// Windows: programs need these to start and to find the user's configuration and the engine's
	// pipe.
	"SYSTEMROOT": true, "USERPROFILE": true, "PROGRAMDATA": true, "APPDATA": true, "LOCALAPPDATA": true, "PROGRAMFILES": true,
	"COMSPEC": true, "PATHEXT": true, "TEMP": true, "TMP": true, "WSLENV": true, "WSL_INTEROP": true,
}

// Find looks for the docker binary: at path, or, when that is empty, on PATH, where under WSL it
// may be docker.exe. environ is the process's environment.
func Find(path string, environ []string) (*CLI, error) {
	names := []string{"docker", "docker.exe"}
	if path != "" {
		names = []string{path}
	}
	for _, name := range names {
		found, err := exec.LookPath(name)
		if err == nil {
			return &CLI{path: found, env: minimal(environ), proxies: proxies(environ)}, nil
		}
	}
	return nil, fault.New(fault.EngineUnavailable,
		"the docker CLI was not found (looked for %s); install Docker, or set sandbox.docker_path to the binary", strings.Join(names, ", "))
}

// ours are further variables of every docker command. The CLI is a short-lived Go program: without
// parallel threads and garbage collections, a `docker run` takes a quarter less CPU time (18 ms
// instead of 24 on two cores).
var ours = []string{"DOCKER_CLI_HINTS=false", "DOCKER_SCAN_SUGGEST=false", "GOMAXPROCS=1", "GOGC=400"}

func minimal(environ []string) []string {
	var env []string
	for _, kv := range environ {
		name, _, _ := strings.Cut(kv, "=")
		if passed[strings.ToUpper(name)] {
			env = append(env, kv)
		}
	}
	return append(env, ours...)
}

// Path is the path of the binary.
func (c *CLI) Path() string { return c.path }

// IsExe reports whether it is a Windows binary, which takes Windows paths, also under WSL.
func (c *CLI) IsExe() bool { return strings.HasSuffix(strings.ToLower(c.path), ".exe") }

// maxOutput bounds the output of a call, in bytes: `docker inspect` of a thousand containers prints
// far less.
const maxOutput = 8 << 20

// command returns a docker command that is yet to be started, and what it will write to its
// standard error.
func (c *CLI) command(ctx context.Context, args ...string) (*exec.Cmd, *bounded) {
	stderr := &bounded{limit: maxStderr}
	cmd := exec.CommandContext(ctx, c.path, args...)
	cmd.Env, cmd.Stderr = c.env, stderr
	cmd.WaitDelay = 2 * time.Second // do not wait for a grandchild that keeps the pipe open
	setOwnGroup(cmd)
	return cmd, stderr
}

// Output runs docker to its end and returns its standard output. Errors are *fault.Error, by the
// message of the CLI.
func (c *CLI) Output(ctx context.Context, args ...string) ([]byte, error) {
	cmd, stderr := c.command(ctx, args...)
	stdout := &bounded{limit: maxOutput}
	cmd.Stdout = stdout
	err := cmd.Run()
	if ctxErr := ctx.Err(); ctxErr != nil && err != nil {
		return nil, fault.Wrap(fault.EngineUnavailable, fmt.Errorf("docker %s: %w", args[0], ctxErr),
			"the Docker engine did not answer in time; check `docker info` on its host")
	}
	if err != nil {
		return nil, interpret(args[0], stderr.String(), err)
	}
	if stdout.cut {
		return nil, fault.New(fault.Internal, "docker %s printed more than %d bytes", args[0], maxOutput)
	}
	return stdout.Bytes(), nil
}

// maxStderr bounds the standard error that is kept, in bytes.
const maxStderr = 16 << 10

// bounded keeps the first limit bytes and drops the rest.
type bounded struct {
	bytes.Buffer
	limit int
	cut   bool
}

func (b *bounded) Write(p []byte) (int, error) {
	keep := min(len(p), b.limit-b.Len())
	b.cut = b.cut || keep < len(p)
	_, _ = b.Buffer.Write(p[:keep])
	return len(p), nil
}

// Process is a running docker command with pipes to its standard input and output.
type Process struct {
	stdin  *os.File
	stdout *os.File
	cmd    *exec.Cmd
	stderr *bounded
	done   chan struct{}
	err    error
}

// Start starts docker and returns at once. The process has no context: it ends when its stdin is
// closed and docker exits, or by Kill. The caller must call Wait.
func (c *CLI) Start(args ...string) (*Process, error) {
	p := &Process{done: make(chan struct{})}
	p.cmd, p.stderr = c.command(context.Background(), args...)
	theirIn, ourIn, err := os.Pipe()
	if err != nil {
		return nil, fault.Wrap(fault.Internal, err, "no pipe for the docker CLI")
	}
	ourOut, theirOut, err := os.Pipe()
	if err != nil {
		_ = theirIn.Close()
		_ = ourIn.Close()
		return nil, fault.Wrap(fault.Internal, err, "no pipe for the docker CLI")
	}
	p.cmd.Stdin, p.cmd.Stdout = theirIn, theirOut
	p.stdin, p.stdout = ourIn, ourOut
	err = p.cmd.Start()
	_ = theirIn.Close()
	_ = theirOut.Close()
	if err != nil {
		_ = ourIn.Close()
		_ = ourOut.Close()
		return nil, fault.Wrap(fault.EngineUnavailable, err, "the docker CLI at %s could not be started", c.path)
	}
	go func() {
		p.err = p.cmd.Wait()
		close(p.done)
	}()
	return p, nil
}

// Stdin is the standard input of docker. Close unblocks a Write.
func (p *Process) Stdin() io.WriteCloser { return p.stdin }

// Stdout is the standard output of docker.
func (p *Process) Stdout() io.Reader { return p.stdout }

// Done is closed when the process has ended.
func (p *Process) Done() <-chan struct{} { return p.done }

// Wait waits for the end, closes our ends of the pipes, and returns nil for exit code 0, else an
// error by the message of the CLI.
func (p *Process) Wait() error {
	<-p.done
	_ = p.stdin.Close()
	_ = p.stdout.Close()
	if p.err == nil {
		return nil
	}
	return interpret("run", p.stderr.String(), p.err)
}

// ExitCode is docker's exit code after the end; -1 when a signal ended the CLI.
func (p *Process) ExitCode() int {
	<-p.done
	return p.cmd.ProcessState.ExitCode()
}

// Kill kills the CLI, not the container.
func (p *Process) Kill() { _ = p.cmd.Process.Kill() }
