//go:build linux

package process_test

import (
	"bytes"
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
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"secbox/fault"
	"secbox/sandbox/process"
	"secbox/sandbox/sandboxtest"
)

func TestMain(m *testing.M) {
	process.Main()
	if len(os.Args) > 2 && os.Args[1] == "be-killed" {
		beKilled(os.Args[2])
	}
	if len(os.Args) > 3 && os.Args[1] == "unprivileged" {
		os.Exit(runUnprivileged(os.Args[2], os.Args[3]))
	}
	os.Exit(m.Run())
}

// both runs a test with workers, as on Linux, and with process groups, as on macOS.
func both(t *testing.T, f func(t *testing.T, p *process.Processes)) {
	t.Helper()
	for name, make := range map[string]func() *process.Processes{"Workers": process.New, "Groups": process.NewGroups} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := make()
			t.Cleanup(func() {
				if err := p.Close(); err != nil {
					t.Error(err)
				}
			})
			f(t, p)
		})
	}
}

// sh returns the spec of a shell line, with a timeout for a machine that hangs.
func sh(t *testing.T, line string) process.Spec {
	return process.Spec{
		Argv: []string{"sh", "-c", line}, Dir: t.TempDir(), Env: os.Environ(), Timeout: 2 * time.Minute, MaxStdout: 1 << 20, MaxStderr: 1 << 20,
	}
}

// run runs a spec and returns its output.
func run(t *testing.T, p *process.Processes, spec process.Spec) (r *process.Result, stdout, stderr string) {
	t.Helper()
	var out, errs bytes.Buffer
	spec.Stdout, spec.Stderr = &out, &errs
	r, err := p.Run(t.Context(), spec)
	if err != nil {
		t.Fatal(err)
	}
	return r, out.String(), errs.String()
}

func TestOutputInputAndCode(t *testing.T) {
	t.Parallel()
	both(t, func(t *testing.T, p *process.Processes) {
		spec := sh(t, "cat; echo $K >&2; exit 3")
		stdin := strings.Repeat("hello", 50_000)
		spec.Env, spec.Stdin = append(os.Environ(), "K=u", "K=v"), strings.NewReader(stdin)
		r, out, errs := run(t, p, spec)
		if r.ExitCode != 3 || out != stdin || errs != "v\n" || r.StdoutBytes != 250_000 || r.StderrBytes != 2 {
			t.Errorf("%+v %d %q", r, len(out), errs)
		}
	})
}

func TestCommandThatDoesNotStart(t *testing.T) {
	t.Parallel()
	both(t, func(t *testing.T, p *process.Processes) {
		dir := t.TempDir()
		for name, mode := range map[string]os.FileMode{"text": 0o644, "no-format": 0o755} {
			if err := os.WriteFile(filepath.Join(dir, name), []byte("\x00"), mode); err != nil {
				t.Fatal(err)
			}
		}
		for program, want := range map[string]int{
			"no-such-program": 127, "./no-such": 127, "/no/such": 127, "./text": 126, "./no-format": 126, "/": 126, "text": 126,
		} {
			spec := process.Spec{Argv: []string{program}, Dir: dir, Env: []string{"PATH=/usr/bin:/bin:" + dir}}
			r, out, errs := run(t, p, spec)
			if r.ExitCode != want || r.Detail == "" || out != "" || errs != "" {
				t.Errorf("%s: %+v, want %d", program, r, want)
			}
		}
		if _, err := p.Run(t.Context(), process.Spec{Argv: []string{"true"}, Dir: dir + "/no", Env: os.Environ()}); !errors.Is(err, process.ErrNoDir) {
			t.Errorf("a directory that is not there: %v", err)
		}
		if _, err := p.Run(t.Context(), process.Spec{Argv: []string{""}, Dir: dir}); !fault.Is(err, fault.InvalidRequest) {
			t.Errorf("no command: %v", err)
		}
	})
}

func TestSignalsAndTimeouts(t *testing.T) {
	t.Parallel()
	both(t, func(t *testing.T, p *process.Processes) {
		if r, _, _ := run(t, p, sh(t, "kill -15 $$")); r.ExitCode != 143 || r.TimedOut || r.Detail == "" {
			t.Errorf("%+v", r)
		}
		spec := sh(t, "trap '' TERM; sleep 100000")
		spec.Timeout = 50 * time.Millisecond
		if r, _, _ := run(t, p, spec); r.ExitCode != -1 || !r.TimedOut || r.Ended != nil {
			t.Errorf("%+v", r)
		}
		for limit := 2 * time.Second; ; limit *= 2 {
			spec = sh(t, "trap 'echo saved; exit 3' TERM; echo up; while :; do sleep 0.01; done")
			spec.Timeout = limit
			r, out, _ := run(t, p, spec)
			if out == "up\nsaved\n" && r.TimedOut && r.Ended != nil && *r.Ended == 3 {
				break
			}
			if limit > 20*time.Second { // else the machine was too slow
				t.Errorf("%+v %q", r, out)
				break
			}
		}
		ctx, cancel := context.WithCancelCause(t.Context())
		why := errors.New("why")
		spec = sh(t, "echo up; sleep 100000")
		spec.Stdout = writer(func(b []byte) (int, error) { cancel(why); return len(b), nil })
		if r, err := p.Run(ctx, spec); !errors.Is(err, context.Canceled) || !errors.Is(err, why) {
			t.Errorf("%+v %v", r, err)
		}
	})
}

type writer func([]byte) (int, error)

func (w writer) Write(b []byte) (int, error) { return w(b) }

// TestProcessGroupDies tests the guarantee of all systems.
func TestProcessGroupDies(t *testing.T) {
	t.Parallel()
	both(t, func(t *testing.T, p *process.Processes) {
		mark := "97" + strconv.Itoa(os.Getpid()) + "." + strconv.Itoa(len(t.Name()))
		run(t, p, sh(t, "sleep "+mark+" & sleep "+mark+" & nohup sleep "+mark+" >/dev/null 2>&1 & sleep 0.01"))
		if n := sandboxtest.HostProcesses(mark); n != 0 {
			t.Errorf("%d live", n)
		}
	})
}

func TestClose(t *testing.T) {
	t.Parallel()
	both(t, func(t *testing.T, p *process.Processes) {
		up := make(chan struct{})
		ended := make(chan error)
		go func() {
			spec := sh(t, "echo up; sleep 100000")
			spec.Stdout = writer(func(b []byte) (int, error) { close(up); return len(b), nil })
			_, err := p.Run(t.Context(), spec)
			ended <- err
		}()
		<-up
		go p.Close()
		if err := <-ended; !fault.Is(err, fault.ShuttingDown) {
			t.Error(err)
		}
		if err := p.Close(); err != nil {
			t.Error(err)
		}
		if _, err := p.Run(t.Context(), sh(t, "true")); !fault.Is(err, fault.ShuttingDown) {
			t.Error(err)
		}
	})
}

// TestNoInheritedDescriptors: a command has its three standard descriptors only.
func TestNoInheritedDescriptors(t *testing.T) {
	t.Parallel()
	const (
		line = "cd /proc/$$/fd && echo *"
		want = "0 1 2 3\n" // the last is the shell's, of the directory that it lists
	)
	both(t, func(t *testing.T, p *process.Processes) {
		if _, out, errs := run(t, p, sh(t, line)); out != want {
			t.Errorf("%q %q", out, errs)
		}
	})
	inherited, err := unix.Open(os.DevNull, unix.O_RDONLY, 0) // without O_CLOEXEC, as from a careless parent
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(inherited)
	p := process.New()
	defer p.Close()
	if _, out, errs := run(t, p, sh(t, line)); out != want {
		t.Errorf("%q %q", out, errs)
	}
}

func TestWorkersAreReused(t *testing.T) {
	t.Parallel()
	p := process.New()
	defer p.Close()
	var parents []string
	for range 5 {
		_, out, _ := run(t, p, sh(t, "echo $PPID"))
		parents = append(parents, out)
	}
	if len(slices.Compact(parents)) != 1 {
		t.Errorf("five commands had the parents %q", parents)
	}
	// However many run at once, few stay idle.
	var all sync.WaitGroup
	for range 20 {
		all.Go(func() {
			if _, err := p.Run(t.Context(), sh(t, "sleep 0.05")); err != nil {
				t.Error(err)
			}
		})
	}
	all.Wait()
	if n := process.Idle(p); n < 1 || n > 8 {
		t.Errorf("%d workers are kept", n)
	}
	process.Age(p, 50*time.Second)
	if process.Idle(p) == 0 {
		t.Error("no worker is kept for a minute")
	}
	process.Age(p, 11*time.Second)
	if n := process.Idle(p); n != 0 {
		t.Errorf("%d workers are kept for more than a minute", n)
	}
	if r, out, _ := run(t, p, sh(t, "echo on")); r.ExitCode != 0 || out != "on\n" {
		t.Errorf("%+v %q", r, out)
	}
}

// TestKilledWorker: after a command has killed its worker, the outcome is unknown, and the next
// command gets another worker.
func TestKilledWorker(t *testing.T) {
	t.Parallel()
	p := process.New()
	defer p.Close()
	if r, err := p.Run(t.Context(), sh(t, "kill -9 $PPID; sleep 0.1")); !fault.Is(err, fault.OutcomeUnknown) {
		t.Errorf("%+v %v", r, err)
	}
	run(t, p, sh(t, "true"))
	process.KillIdle(p)
	if r, out, _ := run(t, p, sh(t, "kill -TERM $PPID; kill -INT $PPID; kill -HUP $PPID; echo on")); r.ExitCode != 0 || out != "on\n" {
		t.Errorf("%+v %q", r, out)
	}
}

// TestStoppedWorker: a worker that its command has stopped is resumed when it is needed.
func TestStoppedWorker(t *testing.T) {
	t.Parallel()
	p := process.New()
	defer p.Close()
	const line = "kill -STOP $PPID; echo stopped; sleep 100000"
	spec := sh(t, line)
	spec.Timeout = 50 * time.Millisecond
	if r, _, _ := run(t, p, spec); !r.TimedOut {
		t.Errorf("%+v", r)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	spec = sh(t, line)
	spec.Stdin = strings.NewReader(strings.Repeat("x", 1<<20)) // more than a pipe holds
	if r, err := p.Run(ctx, spec); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("%+v %v", r, err)
	}
}

// TestWorkersDieWithProgram kills a program with a running command, which has also stopped its
// worker.
func TestWorkersDieWithProgram(t *testing.T) {
	t.Parallel()
	mark := "96" + strconv.Itoa(os.Getpid()) + ".5"
	cmd := exec.CommandContext(t.Context(), os.Args[0], "be-killed", mark)
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	await := func(n int, what string) {
		for sandboxtest.HostProcesses("sleep\x00"+mark) != n {
			if t.Context().Err() != nil {
				t.Fatal(what)
			}
			time.Sleep(time.Millisecond)
		}
	}
	await(2, "the command is not up")
	_ = cmd.Process.Kill()
	_ = cmd.Wait()
	await(0, "the command lives on")
}

func beKilled(mark string) {
	_, err := process.New().Run(context.Background(), process.Spec{
		Argv: []string{"sh", "-c", `setsid sleep "$0" & kill -STOP $PPID; exec sleep "$0"`, mark}, Dir: "/", Env: os.Environ(),
	})
	fmt.Println(err)
	os.Exit(1)
}

// BenchmarkTrue measures a command; compare with BenchmarkOSExec.
func BenchmarkTrue(b *testing.B) {
	p := process.New()
	defer p.Close()
	for b.Loop() {
		if _, err := p.Run(b.Context(), process.Spec{Argv: []string{"true"}, Dir: "/", Env: os.Environ(), Timeout: time.Minute}); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkOSExec(b *testing.B) {
	for b.Loop() {
		if err := exec.Command("true").Run(); err != nil {
			b.Fatal(err)
		}
	}
}

// TestNoTerminal: a command has its own session, so that a program that asks for a password fails
// instead of being stopped, and does not ask at this program's terminal.
func TestNoTerminal(t *testing.T) {
	t.Parallel()
	both(t, func(t *testing.T, p *process.Processes) {
		if _, out, _ := run(t, p, sh(t, `cut -d' ' -f6 /proc/$$/stat; echo $$`)); len(strings.Fields(out)) != 2 ||
			strings.Fields(out)[0] != strings.Fields(out)[1] {
			t.Errorf("its session and itself: %q", out)
		}
	})
}
