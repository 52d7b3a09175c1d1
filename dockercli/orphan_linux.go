package dockercli

import (
	"os/exec"
	"syscall"
)

// killWithParent ends a command that has no lease on its standard input when this process is killed: without it, a `docker events` would
// stay until the next event finds its pipe broken. It is called after setOwnGroup, and the starting goroutine keeps its thread.
func killWithParent(cmd *exec.Cmd) { cmd.SysProcAttr.Pdeathsig = syscall.SIGKILL }
