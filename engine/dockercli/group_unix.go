//go:build unix

package dockercli

import (
	"os/exec"
	"syscall"
)

// setOwnGroup protects the CLI from the terminal's Ctrl-C: core-api decides when a container ends.
func setOwnGroup(cmd *exec.Cmd) { cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} }

// killGroup kills a started command of setOwnGroup and its children.
func killGroup(cmd *exec.Cmd) error {
	if err := cmd.Process.Signal(syscall.Signal(0)); err != nil {
		return err // it was waited for, so its pid may have been reused
	}
	return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL)
}
