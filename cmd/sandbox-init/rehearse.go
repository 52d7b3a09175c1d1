//go:build linux

package main

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"

	"golang.org/x/sys/unix"

	"secbox/engine/worker"
)

// rehearsal prepares a waiting container for its job. In a fresh container, the first access to a
// file goes through all layers of the image; later ones are answered from memory. So the usual
// programs of jobs run once, with nothing to do: that saves a fifth of a `bash -lc true` and of a
// Python. They leave nothing behind, do not count for the job, and end when the job comes. core-api
// requests it when the container has to wait, and not for a cold start.
type rehearsal struct {
	done sync.WaitGroup

	mu    sync.Mutex
	ended bool
	pid   int // of the command that runs; 0: none
}

// rehearsed are the commands of the two kinds of exec. Those that the image does not have are left
// out.
//
// They are not on record, so they must not run files of the project, with any environment of the
// image: Python ignores it (-I); bash has no home, no BASH_ENV and only the image's libraries;
// programs in the project's directories are not used.
var (
	rehearsed   = [][]string{{"bash", "-lc", "true"}, {"python", "-I", "-c", ""}}
	rehearsedIn = []string{"PATH=/usr/local/bin:/usr/bin:/bin", "HOME=/nonexistent", "LANG=C.UTF-8"}
)

// notRehearsed is the parent of the project's directories.
const notRehearsed = "/workspace/"

// rehearsalMemory is the smallest memory limit, in bytes, of a container with a rehearsal.
const rehearsalMemory = 64 << 20

// begin starts the rehearsal in the background. It must be called at most once.
func (r *rehearsal) begin() {
	if memoryLimit() < rehearsalMemory {
		return
	}
	r.done.Go(func() {
		for _, argv := range rehearsed {
			r.run(argv)
		}
	})
}

// end ends the rehearsal: when it returns, init is the only process again.
func (r *rehearsal) end() {
	r.mu.Lock()
	r.ended = true
	if r.pid > 0 {
		_ = unix.Kill(r.pid, unix.SIGKILL)
	}
	r.mu.Unlock()
	r.done.Wait()
}

// run runs one command to its end, unless end was called.
func (r *rehearsal) run(argv []string) {
	path, err := exec.LookPath(argv[0])
	if err == nil {
		path, err = filepath.EvalSymlinks(path)
	}
	if err != nil || strings.HasPrefix(path, notRehearsed) {
		return
	}
	null, err := os.OpenFile(os.DevNull, os.O_RDWR, 0)
	if err != nil {
		return
	}
	defer null.Close()
	if !r.start(path, argv, null.Fd()) {
		return
	}
	// All its processes are reaped, so that none is taken for one of the job.
	for {
		_, err := unix.Wait4(-1, nil, 0, nil)
		if errors.Is(err, unix.ECHILD) {
			break
		}
		_ = unix.Kill(-1, unix.SIGKILL)
	}
	r.mu.Lock()
	r.pid = 0
	r.mu.Unlock()
}

func (r *rehearsal) start(path string, argv []string, null uintptr) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.ended {
		return false
	}
	pid, err := syscall.ForkExec(path, argv, &syscall.ProcAttr{
		Dir: "/", Env: rehearsedIn, Files: []uintptr{null, null, null}, Sys: &syscall.SysProcAttr{Setsid: true},
	})
	if err != nil {
		return false
	}
	r.pid = pid
	worker.OfferToOOMKiller(pid)
	return true
}
