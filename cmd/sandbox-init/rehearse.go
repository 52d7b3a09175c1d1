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

// rehearsal makes a container ready for its job while there is none. In a container that nothing has run in yet, the first look at each file
// goes through all layers of the image; the second one is answered from memory. So the programs that jobs are made of are run once,
// with nothing to do: that takes a fifth off a `bash -lc true` and off a Python. They leave nothing behind, are in no job's account, and
// end the moment there is a job. core-api asks for it when the container has to wait; a cold start has better things to do.
type rehearsal struct {
	done sync.WaitGroup

	mu    sync.Mutex
	ended bool
	pid   int // of the command that runs; 0: none
}

// rehearsed are the commands of the two kinds of exec. What an image does not have is left out.
//
// No row speaks of them, so nothing of the project may run in them, whatever the image's environment says: Python ignores it (-I), bash
// finds no home, no BASH_ENV and no libraries but the image's own, and neither is taken from the project's directories.
var (
	rehearsed   = [][]string{{"bash", "-lc", "true"}, {"python", "-I", "-c", ""}}
	rehearsedIn = []string{"PATH=/usr/local/bin:/usr/bin:/bin", "HOME=/nonexistent", "LANG=C.UTF-8"}
)

// notRehearsed is where a project's directories are mounted.
const notRehearsed = "/workspace/"

// rehearsalMemory is the least memory of a container in which it is done, in bytes: a smaller one is the job's alone.
const rehearsalMemory = 64 << 20

// begin starts it in the background. It is called at most once.
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

// end ends it: when it returns, init is the only process again.
func (r *rehearsal) end() {
	r.mu.Lock()
	r.ended = true
	if r.pid > 0 {
		_ = unix.Kill(r.pid, unix.SIGKILL)
	}
	r.mu.Unlock()
	r.done.Wait()
}

// run runs one command to its end, unless there is a job.
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
	// All that it may have left is reaped, so that nothing of it is taken for the job's.
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
