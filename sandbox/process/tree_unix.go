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

// isNoRoom reports that the system cannot start another process.
func isNoRoom(err error) bool {
	return errors.Is(err, unix.EAGAIN) || errors.Is(err, unix.ENOMEM) || errors.Is(err, unix.EMFILE) || errors.Is(err, unix.ENFILE)
}

// closeListedOnExec is closeOnExec for the descriptors that a directory of the system lists.
func closeListedOnExec(dir string) {
	open, _ := os.ReadDir(dir)
	for _, entry := range open {
		if fd, err := strconv.Atoi(entry.Name()); err == nil && fd > 2 {
			unix.CloseOnExec(fd)
		}
	}
}

// tree is a command with its descendants: its process group and the processes that descend from it.
// macOS offers no more; on Linux tree is only used by tests.
type tree struct {
	cmd    *exec.Cmd
	mu     sync.Mutex
	reaped bool // its pid may belong to another process
}

func start(program string, argv []string, dir string, env []string, files [3]*os.File) (*tree, error) {
	cmd := &exec.Cmd{
		Path: program, Args: argv, Dir: dir, Env: env, Stdin: files[0], Stdout: files[1], Stderr: files[2],
		// A session has its own group, and no terminal that could stop the command when it reads.
		SysProcAttr: &syscall.SysProcAttr{Setsid: true},
	}
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	return &tree{cmd: cmd}, nil
}

// kill kills the tree.
func (t *tree) kill() {
	t.mu.Lock()
	defer t.mu.Unlock()
	if !t.reaped {
		t.killAll()
	}
}

// signal sends a signal to the command's process group.
func (t *tree) signal(s syscall.Signal) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if !t.reaped {
		_ = unix.Kill(-t.cmd.Process.Pid, s)
	}
}

// terminate asks the command's process group to end.
func (t *tree) terminate() { t.signal(unix.SIGTERM) }

// killAll kills the descendants first, because they are found by their present parents.
func (t *tree) killAll() {
	killDescendants(t.cmd.Process.Pid)
	_ = unix.Kill(-t.cmd.Process.Pid, unix.SIGKILL)
}

// wait waits for the main process, calls itself, and kills the rest of the tree.
func (t *tree) wait(itself func()) *os.ProcessState {
	awaitExit(t.cmd.Process.Pid)
	itself()
	t.mu.Lock()
	defer t.mu.Unlock()
	t.killAll() // the main process is not reaped yet, so the group's id is still its own
	_ = t.cmd.Wait()
	t.reaped = true
	t.awaitGone()
	return t.cmd.ProcessState
}

// awaitGone waits briefly until the group is empty: the heirs of the killed processes reap them.
func (t *tree) awaitGone() {
	for begun := time.Now(); time.Since(begun) < time.Second; time.Sleep(time.Millisecond) {
		if errors.Is(unix.Kill(-t.cmd.Process.Pid, 0), unix.ESRCH) {
			return
		}
	}
}
