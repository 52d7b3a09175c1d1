//go:build unix

package secrets

import (
	"os"
	"os/exec"
	"syscall"
)

// inGroup makes the end of a command's context end the processes that it has started, too.
func inGroup(cmd *exec.Cmd) {
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error {
		if err := cmd.Process.Signal(syscall.Signal(0)); err != nil {
			return err // it was waited for, so its pid may have been reused
		}
		return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL)
	}
}

// open opens a file without waiting for the writer of a pipe.
func open(path string) (*os.File, error) { return os.OpenFile(path, os.O_RDONLY|syscall.O_NONBLOCK, 0) }
