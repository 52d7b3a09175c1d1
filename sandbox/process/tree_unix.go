//go:build linux || darwin

package process

import (
	"errors"
	"os"
	"os/exec"
	"strconv"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// isNoRoom reports what the system lacks to start anything.
func isNoRoom(err error) bool {
	return errors.Is(err, unix.EAGAIN) || errors.Is(err, unix.ENOMEM) || errors.Is(err, unix.EMFILE) || errors.Is(err, unix.ENFILE)
}

// closeListedOnExec does it for the descriptors that a directory of the system lists.
func closeListedOnExec(dir string) {
	open, _ := os.ReadDir(dir)
	for _, entry := range open {
		if fd, err := strconv.Atoi(entry.Name()); err == nil && fd > 2 {
			unix.CloseOnExec(fd)
		}
	}
}

// tree is a command and what it started: its process group, and what has it as an ancestor. That is what macOS offers; on Linux it is
// only tested, since workers are better.
type tree struct {
	cmd    *exec.Cmd
	mu     sync.Mutex
	reaped bool // its number may be another process's by now
}

func start(program string, argv []string, dir string, env []string, files [3]*os.File) (*tree, error) {
	cmd := &exec.Cmd{
		Path: program, Args: argv, Dir: dir, Env: env, Stdin: files[0], Stdout: files[1], Stderr: files[2],
		// A session of its own is a group of its own, and has no terminal to ask the user at, as one that runs behind would be stopped for.
		SysProcAttr: &syscall.SysProcAttr{Setsid: true},
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
		t.killAll()
	}
}

// killAll goes for the descendants first: they are found by the parents that they have now.
func (t *tree) killAll() {
	killDescendants(t.cmd.Process.Pid)
	_ = unix.Kill(-t.cmd.Process.Pid, unix.SIGKILL)
}

// wait waits for the main process, says so, and kills what it left.
func (t *tree) wait(itself func()) *os.ProcessState {
	awaitExit(t.cmd.Process.Pid)
	itself()
	t.mu.Lock()
	defer t.mu.Unlock()
	t.killAll() // the main process is not reaped yet, so the group's number is still its own
	_ = t.cmd.Wait()
	t.reaped = true
	t.awaitGone()
	return t.cmd.ProcessState
}

// awaitGone waits until nobody of the group is left, as long as that is a matter of moments: whoever inherits what was killed reaps it.
func (t *tree) awaitGone() {
	const patience = time.Second
	for begun := time.Now(); time.Since(begun) < patience; time.Sleep(time.Millisecond) {
		if errors.Is(unix.Kill(-t.cmd.Process.Pid, 0), unix.ESRCH) {
			return
		}
	}
}
