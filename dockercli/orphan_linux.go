package dockercli

import (
	"os/exec"
	"syscall"
)

// diesWithUs ends a command that has no lease on its standard input when this process is killed: without it, a `docker events` would
// stay until the next event finds its pipe broken. It is called after ownGroup, and the starting goroutine keeps its thread.
func diesWithUs(cmd *exec.Cmd) { cmd.SysProcAttr.Pdeathsig = syscall.SIGKILL }
