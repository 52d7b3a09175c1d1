//go:build linux || darwin

package process

import (
	"errors"
	"os"
	"os/exec"
	"sync"
	"syscall"

	"golang.org/x/sys/unix"
)

// errNoResources stands for what the system lacks to start anything.
var errNoResources = errors.Join(unix.EAGAIN, unix.ENOMEM, unix.EMFILE, unix.ENFILE)

// tree is a command and what it started: its process group, and what has it as an ancestor.
type tree struct {
	cmd    *exec.Cmd
	mu     sync.Mutex
	reaped bool // its number may be another process's by now
}

func start(program string, argv []string, dir string, env []string, files [3]*os.File) (*tree, error) {
	cmd := &exec.Cmd{
		Path: program, Args: argv, Dir: dir, Env: env, Stdin: files[0], Stdout: files[1], Stderr: files[2],
		SysProcAttr: &syscall.SysProcAttr{Setpgid: true},
	}
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	return &tree{cmd: cmd}, nil
}

// kill kills all of it.
func (t *tree) kill() {
	t.mu.Lock()
	defer t.mu.Unlock()
	if !t.reaped {
		killDescendants(t.cmd.Process.Pid)
		_ = unix.Kill(-t.cmd.Process.Pid, unix.SIGKILL)
	}
}

// wait waits for the main process, says so, and kills what it left.
func (t *tree) wait(itself func()) end {
	pid := t.cmd.Process.Pid
	awaitExit(pid)
	itself()
	// The main process is not reaped yet, so the group's number is still its own.
	t.mu.Lock()
	killDescendants(pid)
	_ = unix.Kill(-pid, unix.SIGKILL)
	_ = t.cmd.Wait()
	t.reaped = true
	t.mu.Unlock()
	return endOf(t.cmd.ProcessState)
}
