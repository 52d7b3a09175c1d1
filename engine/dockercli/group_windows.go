package dockercli

import (
	"os/exec"
	"syscall"
)

// setOwnGroup protects the CLI from the console's Ctrl-C: core-api decides when a container ends.
func setOwnGroup(cmd *exec.Cmd) {
	cmd.SysProcAttr = &syscall.SysProcAttr{CreationFlags: syscall.CREATE_NEW_PROCESS_GROUP}
}

// killGroup kills a started command; Windows has no groups of processes to kill.
func killGroup(cmd *exec.Cmd) error { return cmd.Process.Kill() }
