package dockercli_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"

	"secbox/engine/dockercli"
	"secbox/engine/dockercli/dockerclitest"
)

const dockerOfTheOrphan = "SECBOX_TEST_DOCKER_OF_THE_ORPHAN"

// TestEventStreamDiesWithParent kills a process that follows the events; its docker must end, too.
func TestEventStreamDiesWithParent(t *testing.T) {
	if path := os.Getenv(dockerOfTheOrphan); path != "" { // in the process that will be killed
		cli, err := dockercli.Find(path, os.Environ())
		if err != nil {
			t.Fatal(err)
		}
		t.Fatal(cli.FollowImages(t.Context(), func() {}, func() { _ = syscall.Kill(os.Getpid(), syscall.SIGKILL) }))
	}
	t.Parallel()
	fifo := filepath.Join(t.TempDir(), "fifo")
	if err := syscall.Mkfifo(fifo, 0o600); err != nil {
		t.Fatal(err)
	}
	docker := dockerclitest.Script(t, "exec 3>"+fifo+"; echo image tag; exec sleep 1000")
	us := exec.Command(os.Args[0], "-test.run=^TestEventStreamDiesWithParent$")
	us.Env = append(os.Environ(), dockerOfTheOrphan+"="+docker.Path())
	if err := us.Start(); err != nil {
		t.Fatal(err)
	}
	closed(t, fifo)
	if err := us.Wait(); err == nil || us.ProcessState.Sys().(syscall.WaitStatus).Signal() != syscall.SIGKILL {
		t.Errorf("ended by itself: %v", err)
	}
}
