package dockercli

import (
	"os/exec"
	"syscall"
)

// killWithParent has the kernel kill a command when this process dies: without it, a `docker
// events` would stay until the next event. It must be called after setOwnGroup, and the starting
// goroutine must keep its thread.
func killWithParent(cmd *exec.Cmd) { cmd.SysProcAttr.Pdeathsig = syscall.SIGKILL }
