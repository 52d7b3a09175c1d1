//go:build linux

package main

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"secbox/engine/initproto"
)

func TestCountersOfBothCgroupVersions(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	write := func(name, content string) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	v1 := write("oom_control", "oom_kill_disable 0\nunder_oom 0\noom_kill 3\n")
	v2 := write("memory.events", "low 0\nhigh 0\nmax 12\noom 2\noom_kill 5\noom_group_kill 0\n")
	for _, c := range []struct {
		files []string
		want  int64
	}{
		{[]string{filepath.Join(dir, "absent"), v1}, 3},
		{[]string{v2, v1}, 5},
		{[]string{filepath.Join(dir, "absent")}, 0},
		{[]string{write("garbage", "oom_kill x\n\x00")}, 0},
	} {
		if got := valueOf(openFirst(c.files), "oom_kill"); got != c.want {
			t.Errorf("%q: %d, want %d", c.files, got, c.want)
		}
	}
	if got := (counters{oomKills: 5, pidsMax: 1}).since(counters{oomKills: 2, pidsMax: 1}); got != (counters{oomKills: 3}) {
		t.Errorf("since: %+v", got)
	}
}

// TestReportsAreRepeated: without reports, core-api assumes that the job hides files.
func TestReportsAreRepeated(t *testing.T) {
	t.Parallel()
	var last lastReport
	nothing, some := initproto.Unlinked{}, initproto.Unlinked{Bytes: 1}
	for _, c := range []struct {
		said initproto.Unlinked
		want bool
	}{{nothing, true}, {nothing, false}, {some, true}, {some, false}} {
		if got := last.isDue(c.said); got != c.want {
			t.Errorf("%+v is due: %v", c.said, got)
		}
	}
	last.at = last.at.Add(-unlinkedRepeat)
	if !last.isDue(some) {
		t.Error("the same is never said again")
	}
}

// TestRefusesOtherPIDs: init kills all processes, so it must be PID 1.
func TestRefusesOtherPIDs(t *testing.T) {
	t.Parallel()
	cmd := exec.CommandContext(t.Context(), build(t))
	out, err := cmd.CombinedOutput()
	if err == nil || cmd.ProcessState.ExitCode() != exitNotInit || !strings.Contains(string(out), "first process of a container") {
		t.Fatalf("%v %q", err, out)
	}
}

// TestEndOfLease runs init as PID 1 of a namespace and closes its stdin in every state: no process
// of the job may survive.
func TestEndOfLease(t *testing.T) {
	t.Parallel()
	if os.Geteuid() != 0 {
		t.Fatal("making a PID namespace needs root; run the tests as root")
	}
	program := build(t)
	job, err := initproto.AppendJSON(nil, initproto.TypeJob, initproto.Job{
		Argv: []string{"sh", "-c", "trap '' TERM HUP; echo up; sleep 1000 & wait"}, Cwd: t.TempDir(), MaxStdout: 100,
	})
	if err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		send []byte
		code int
	}{
		"before a job":             {nil, exitLease},
		"in the middle of a job":   {job, exitLease},
		"in the middle of a frame": {job[:len(job)-3], exitLease},
		"instead of a job":         {initproto.Append(nil, initproto.TypeKill, nil), exitProtocol},
		"a job that is none":       {initproto.Append(nil, initproto.TypeJob, []byte("{}")), exitProtocol},
		"a second job":             {append(slices.Clone(job), job...), exitProtocol},
		"too much stdin": {append(slices.Clone(job),
			bytes.Repeat(initproto.Append(nil, initproto.TypeStdin, make([]byte, initproto.MaxChunk)), 40)...), exitProtocol},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			cmd, stdin, _, frames := greeted(t, initproto.FromInit, initproto.Magic, program)
			_, _ = stdin.Write(c.send) // may fail: init may end early
			if bytes.Equal(c.send, job) {
				if kind, payload, err := frames.Next(); err != nil || kind != initproto.TypeStdout || string(payload) != "up\n" {
					t.Fatalf("%q %q %v", kind, payload, err)
				}
			}
			_ = stdin.Close()
			ended := make(chan error, 1)
			go func() { ended <- cmd.Wait() }()
			select {
			case <-ended:
			case <-time.After(30 * time.Second):
				t.Fatal("init lives on without a lease")
			}
			if code := cmd.ProcessState.ExitCode(); code != c.code {
				t.Errorf("exit code %d, want %d", code, c.code)
			}
		})
	}
}

// TestAnswersRehearse: the first rehearse has no answer, each later one has, and there is none
// after the job.
func TestAnswersRehearse(t *testing.T) {
	t.Parallel()
	if os.Geteuid() != 0 {
		t.Fatal("making a PID namespace needs root; run the tests as root")
	}
	cmd, stdin, _, frames := greeted(t, initproto.FromInit, initproto.Magic, build(t))
	rehearse := initproto.Append(nil, initproto.TypeRehearse, nil)
	next := func(want initproto.Type) {
		t.Helper()
		if kind, payload, err := frames.Next(); err != nil || kind != want {
			t.Fatalf("%q %q %v, want %q", kind, payload, err, want)
		}
	}
	_, _ = stdin.Write(slices.Concat(rehearse, rehearse))
	next(initproto.TypeReady)
	_, _ = stdin.Write(rehearse)
	next(initproto.TypeReady)
	job, err := initproto.AppendJSON(nil, initproto.TypeJob, initproto.Job{Argv: []string{"true"}, Cwd: t.TempDir()})
	if err != nil {
		t.Fatal(err)
	}
	_, _ = stdin.Write(slices.Concat(job, rehearse))
	next(initproto.TypeExit)
	_ = stdin.Close()
	_ = cmd.Wait()
}

// TestReportsUsage: init says what the container uses while the job runs, if the job asks for it.
func TestReportsUsage(t *testing.T) {
	t.Parallel()
	if os.Geteuid() != 0 {
		t.Fatal("making a PID namespace needs root; run the tests as root")
	}
	cmd, stdin, _, frames := greeted(t, initproto.FromInit, initproto.Magic, build(t))
	job, err := initproto.AppendJSON(nil, initproto.TypeJob, initproto.Job{Argv: []string{"cat"}, Cwd: t.TempDir(), ReportUsage: true})
	if err != nil {
		t.Fatal(err)
	}
	_, _ = stdin.Write(job)
	for range 2 {
		kind, payload, err := frames.Next()
		if err != nil || kind != initproto.TypeUsage {
			t.Fatalf("%q %q %v", kind, payload, err)
		}
		if u, err := initproto.DecodeUsage(payload); err != nil || u.ElapsedUS == 0 || u.MemoryBytes == 0 {
			t.Errorf("%+v %v", u, err)
		}
	}
	_, _ = stdin.Write(initproto.Append(nil, initproto.TypeStdinEnd, nil))
	kind := initproto.TypeUsage
	for kind == initproto.TypeUsage {
		if kind, _, err = frames.Next(); err != nil {
			t.Fatal(err)
		}
	}
	if kind != initproto.TypeExit {
		t.Errorf("after the reports comes %q", kind)
	}
	_ = stdin.Close()
	_ = cmd.Wait()
}

// TestServeEndOfLease is TestEndOfLease with --serve.
func TestServeEndOfLease(t *testing.T) {
	t.Parallel()
	if os.Geteuid() != 0 {
		t.Fatal("making a PID namespace needs root; run the tests as root")
	}
	program := build(t)
	start := func(id uint32) []byte {
		frame, err := initproto.AppendIDJSON(nil, initproto.TypeStart, id, initproto.Job{
			Argv: []string{"sh", "-c", "trap '' TERM HUP; (setsid sleep 1000 &); echo up; sleep 1000 & wait"}, Cwd: "/", MaxStdout: 100,
		})
		if err != nil {
			t.Fatal(err)
		}
		return frame
	}
	both := append(start(1), start(2)...)
	grant := initproto.AppendID(nil, initproto.TypeGrant, 1, nil)
	for name, c := range map[string]struct {
		send []byte
		up   int
		code int
	}{
		"without a command":       {nil, 0, exitLease},
		"in the middle of two":    {both, 2, exitLease},
		"in the middle of frames": {append(slices.Clone(both), grant[:6]...), 2, exitLease},
		"unknown id":              {append(slices.Clone(both), initproto.AppendID(nil, initproto.TypeKill, 77, nil)...), 2, exitLease},
		"the same id twice":       {append(slices.Clone(both), start(2)...), 0, exitProtocol},
		"a grant for nothing":     {append(slices.Clone(both), grant...), 0, exitProtocol},
		"too much stdin": {
			append(slices.Clone(both), bytes.Repeat(initproto.AppendID(nil, initproto.TypeStdin, 1, []byte("x")), 1000)...), 0,
			exitProtocol,
		},
		"many signals": {
			append(slices.Clone(both), bytes.Repeat(initproto.AppendID(nil, initproto.TypeSignal, 2, []byte{15}), 1000)...), 0,
			exitLease,
		},
		"a signal for nothing":    {append(slices.Clone(both), initproto.AppendID(nil, initproto.TypeSignal, 77, []byte{9})...), 2, exitLease},
		"a signal of no command":  {append(slices.Clone(both), initproto.AppendID(nil, initproto.TypeSignal, 1, []byte{19})...), 0, exitProtocol},
		"a signal without number": {append(slices.Clone(both), initproto.AppendID(nil, initproto.TypeSignal, 1, nil)...), 0, exitProtocol},
		"a job instead":           {initproto.Append(nil, initproto.TypeJob, []byte("{}")), 0, exitProtocol},
		"a start that is none":    {initproto.AppendID(nil, initproto.TypeStart, 1, []byte("{}")), 0, exitProtocol},
		"a kill without an id":    {initproto.Append(nil, initproto.TypeKill, nil), 0, exitProtocol},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			cmd, stdin, stdout, frames := greeted(t, initproto.FromServe, initproto.MagicServe, program, serveFlag, initproto.ServeVersion)
			_, _ = stdin.Write(c.send) // may fail: init may end early
			for range c.up {
				if kind, payload, err := frames.Next(); err != nil || kind != initproto.TypeStdout || !strings.HasSuffix(string(payload), "up\n") {
					t.Fatalf("%q %q %v", kind, payload, err)
				}
			}
			if c.code == exitLease {
				_ = stdin.Close()
			}
			ended := make(chan error, 1)
			go func() {
				_, _ = io.Copy(io.Discard, stdout)
				ended <- cmd.Wait()
			}()
			select {
			case <-ended:
			case <-time.After(30 * time.Second):
				t.Fatal("init lives on")
			}
			if code := cmd.ProcessState.ExitCode(); code != c.code {
				t.Errorf("exit code %d, want %d", code, c.code)
			}
			_ = stdin.Close()
		})
	}
}

// TestWorkerProgramIsUnreadable: this makes a worker undumpable from its first instruction on.
func TestWorkerProgramIsUnreadable(t *testing.T) {
	t.Parallel()
	if os.Geteuid() != 0 {
		t.Fatal("making a PID namespace needs root; run the tests as root")
	}
	dir, err := os.MkdirTemp("", "sandbox-init") // its user has access
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	program := filepath.Join(dir, "sandbox-init")
	if err := errors.Join(os.Chmod(dir, 0o755), os.Rename(build(t), program)); err != nil {
		t.Fatal(err)
	}
	cmd, stdin, _, frames := greeted(t, initproto.FromServe, initproto.MagicServe, "--setgid=1000", "--setuid=1000", program, serveFlag, initproto.ServeVersion)
	start, err := initproto.AppendIDJSON(nil, initproto.TypeStart, 1, initproto.Job{Argv: []string{"sh", "-c", "echo up; read x"}, Cwd: "/", MaxStdout: 100})
	if err != nil {
		t.Fatal(err)
	}
	_, _ = stdin.Write(start)
	if _, out, err := frames.Next(); err != nil || !strings.HasSuffix(string(out), "up\n") {
		t.Fatalf("%q %v", out, err)
	}
	there := false
	for _, worker := range children(t, children(t, cmd.Process.Pid)[0]) {
		if len(children(t, worker)) == 0 {
			continue // it may be starting
		}
		there = true
		fi, err := os.Stat(fmt.Sprintf("/proc/%d/exe", worker))
		if err != nil {
			t.Fatal(err)
		}
		if fi.Mode().Perm()&0o444 != 0 {
			t.Errorf("a worker is of a program with the mode %v", fi.Mode())
		}
	}
	if !there {
		t.Error("the command has no worker")
	}
	_ = stdin.Close()
	_ = cmd.Wait()
}

// TestLoweredLimitsAreNotInherited: idle workers and init have the same user as commands, and
// limits cannot be raised again.
func TestLoweredLimitsAreNotInherited(t *testing.T) {
	t.Parallel()
	if os.Geteuid() != 0 {
		t.Fatal("making a PID namespace needs root; run the tests as root")
	}
	cmd, stdin, _, frames := greeted(t, initproto.FromServe, initproto.MagicServe1, build(t), serveFlag) // as an older core-api starts it
	run := func(id uint32) (out string, exit initproto.Exit) {
		start, err := initproto.AppendIDJSON(nil, initproto.TypeStart, id,
			initproto.Job{Argv: []string{"sh", "-c", "ulimit -f; ulimit -u"}, Cwd: "/", MaxStdout: 100})
		if err != nil {
			t.Fatal(err)
		}
		_, _ = stdin.Write(start)
		for {
			kind, payload, err := frames.Next()
			if err != nil {
				t.Fatal(err)
			}
			if kind == initproto.TypeStdout {
				out += string(payload[4:])
				continue
			}
			if exit, err = initproto.DecodeExit(payload[4:]); err != nil {
				t.Fatal(err)
			}
			return out, exit
		}
	}
	lower := func(pid, resource int, to uint64) {
		if err := unix.Prlimit(pid, resource, &unix.Rlimit{Cur: to, Max: to}, nil); err != nil && !errors.Is(err, unix.ESRCH) {
			t.Fatal(err)
		}
	}
	before, _ := run(1)
	init := children(t, cmd.Process.Pid)[0]
	for _, worker := range children(t, init) {
		lower(worker, unix.RLIMIT_FSIZE, 4096)
	}
	if after, exit := run(2); after != before || exit.Spent {
		t.Errorf("limits were %q and are %q, %+v", before, after, exit)
	}
	lower(init, unix.RLIMIT_NOFILE, 3)
	if out, exit := run(3); out != "" || !exit.Spent || exit.StartError == "" {
		t.Errorf("%q %+v", out, exit)
	}
	_ = stdin.Close()
	_ = cmd.Wait()
}

// children are the children of a process.
func children(t *testing.T, pid int) (all []int) {
	t.Helper()
	lists, _ := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/children", pid))
	for _, name := range lists {
		list, err := os.ReadFile(name)
		if err != nil {
			continue // the thread has ended
		}
		for _, field := range strings.Fields(string(list)) {
			child, err := strconv.Atoi(field)
			if err != nil {
				t.Fatal(err)
			}
			all = append(all, child)
		}
	}
	return all
}

// build compiles init as for the image.
func build(t *testing.T) string {
	t.Helper()
	program := filepath.Join(t.TempDir(), "sandbox-init")
	cmd := exec.CommandContext(t.Context(), "go", "build", "-o", program, ".")
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	return program
}

// greeted starts an init as PID 1 of a new namespace and reads its hello. As in a container, it has
// its own /proc, which init writes to.
func greeted(t *testing.T, from initproto.Direction, magic string, init ...string) (*exec.Cmd, io.WriteCloser, io.Reader, *initproto.Reader) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "unshare", append([]string{"--pid", "--fork", "--mount-proc", "--kill-child"}, init...)...)
	stdin, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	frames := initproto.NewReader(stdout, from)
	if kind, payload, err := frames.Next(); err != nil || kind != initproto.TypeHello || string(payload) != magic {
		t.Fatalf("%q %q %v", kind, payload, err)
	}
	return cmd, stdin, stdout, frames
}
