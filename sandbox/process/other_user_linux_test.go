package process_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"secbox/fault"
	"secbox/sandbox/process"
)

// unprivileged is the uid of a user without privileges.
const unprivileged = 65534

// TestCommandThatBecomesRoot: a command that becomes root, as through sudo, and cannot be killed is
// given up.
func TestCommandThatBecomesRoot(t *testing.T) {
	t.Parallel()
	if os.Getuid() != 0 {
		t.Fatal("only root can make a program by which others become root: run the tests as root, as .ci/run does")
	}
	setpriv, err := exec.LookPath("setpriv")
	if err != nil {
		t.Fatal(err)
	}
	dir, err := os.MkdirTemp("", "other-user-*")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		killMarked(leftBy + dir)
		_ = os.RemoveAll(dir)
	})
	self, become := filepath.Join(dir, "self"), filepath.Join(dir, "become")
	for to, from := range map[string]string{self: "/proc/self/exe", become: setpriv} {
		program, err := os.ReadFile(from)
		if err == nil {
			err = os.WriteFile(to, program, 0o755)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	for name, mode := range map[string]os.FileMode{dir: 0o755, become: 0o755 | os.ModeSetuid} {
		if err := os.Chmod(name, mode); err != nil {
			t.Fatal(err)
		}
	}
	for _, kind := range []string{"Workers", "Groups"} {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			cmd := exec.CommandContext(t.Context(), self, "unprivileged", kind, become)
			cmd.Dir, cmd.WaitDelay = "/", time.Second
			cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: unprivileged, Gid: unprivileged}}
			out, err := cmd.CombinedOutput()
			if err != nil {
				t.Errorf("%v: %s", err, out)
			}
		})
	}
}

// leftBy is the prefix of the variable that marks this test's processes.
const leftBy = "LEFT_BY="

// killMarked kills the processes with the variable.
func killMarked(variable string) {
	all, _ := filepath.Glob("/proc/[0-9]*/environ")
	for _, name := range all {
		environ, err := os.ReadFile(name)
		if pid, e := strconv.Atoi(strings.Split(name, "/")[2]); err == nil && e == nil && slices.Contains(strings.Split(string(environ), "\x00"), variable) {
			_ = syscall.Kill(pid, syscall.SIGKILL)
		}
	}
}

// first is called by the first write.
type first func()

func (f first) Write(p []byte) (int, error) {
	f()
	return len(p), nil
}

// runUnprivileged runs, as an unprivileged user, commands that become root, and reports wrong
// results.
func runUnprivileged(kind, become string) (code int) {
	var mu sync.Mutex
	fail := func(what string, args ...any) {
		mu.Lock()
		defer mu.Unlock()
		fmt.Printf(what+"\n", args...)
		code = 1
	}
	p := process.New()
	if kind == "Groups" {
		p = process.NewGroups()
	}
	process.SetKillTimeout(p, 100*time.Millisecond)
	spec := func(argv ...string) process.Spec {
		return process.Spec{Argv: argv, Dir: "/", Env: append(os.Environ(), leftBy+filepath.Dir(become)), Timeout: 10 * time.Minute}
	}
	asRoot := []string{become, "--reuid=0", "--regid=0", "--clear-groups", "sleep"}
	if r, err := p.Run(context.Background(), spec(append(asRoot[:len(asRoot):len(asRoot)], "0")...)); err != nil || r.ExitCode != 0 {
		fail("cannot become root: %+v, %v", r, err)
		return code
	}

	since := time.Now()
	sleepAsRoot := func() process.Spec {
		return spec(append(asRoot[:len(asRoot)-1:len(asRoot)-1], "sh", "-c", "echo; sleep 120")...)
	}
	var all sync.WaitGroup
	all.Go(func() {
		for timeout := 500 * time.Millisecond; ; timeout *= 2 {
			var isRoot atomic.Bool
			late := sleepAsRoot()
			late.Timeout, late.Stdout, late.MaxStdout = timeout, first(func() { isRoot.Store(true) }), 1
			r, err := p.Run(context.Background(), late)
			if err == nil && !isRoot.Load() && timeout < time.Minute {
				continue // killed before it was root
			}
			if !fault.Is(err, fault.OutcomeUnknown) {
				fail("after its timeout: %+v, %v", r, err)
			}
			return
		}
	})
	all.Go(func() {
		ctx, cancel := context.WithCancel(context.Background())
		canceled := sleepAsRoot()
		canceled.Stdout, canceled.MaxStdout = first(cancel), 1
		if r, err := p.Run(ctx, canceled); !fault.Is(err, fault.OutcomeUnknown) || !errors.Is(err, context.Canceled) {
			fail("canceled: %+v, %v", r, err)
		}
	})
	all.Go(func() {
		leave := strings.Join(asRoot, " ") + " 120 </dev/null >/dev/null 2>&1 & sleep 1; exit 3"
		r, err := p.Run(context.Background(), spec("sh", "-c", leave))
		if err != nil || r.ExitCode != 3 || kind == "Workers" && r.Detail == "" {
			fail("with something left: %+v, %v", r, err)
		}
	})
	all.Wait()
	if r, err := p.Run(context.Background(), spec("true")); err != nil || r.ExitCode != 0 || r.Detail != "" {
		fail("after it: %+v, %v", r, err)
	}
	if err := p.Close(); err != nil {
		fail("closing: %v", err)
	}
	if took := time.Since(since); took > 100*time.Second {
		fail("it took %s", took)
	}
	return code
}
