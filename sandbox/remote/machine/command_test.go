//go:build unix

package machine_test

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"secbox/sandbox/remote/wire"
)

func TestCommand(t *testing.T) {
	t.Setenv("SECBOX_TOKEN", goodToken)
	t.Setenv("SECRET_OF_THE_MACHINE", "x")
	_, r, l := both(t)
	if err := os.Mkdir(filepath.Join(r.dir, "below"), 0o700); err != nil {
		t.Fatal(err)
	}
	spec := shell(`cat; echo "$GREETING"; pwd; env | grep -c '^SEC' ; echo err >&2; exit 3`)
	spec.Env, spec.Dir = []string{"GREETING=good day"}, "/workspace/below"
	spec.SetStdin("in\xff\n")
	l.send("1", wire.TypeExec, spec)
	o := l.result("1")
	e := o.exec(t)
	dir, err := filepath.EvalSymlinks(r.dir)
	if err != nil {
		t.Fatal(err)
	}
	want := "in\xff\ngood day\n" + dir + "/below\n1\n" // "1" is printed if the workspace variable is right
	if string(o.stdout) != want || string(o.stderr) != "err\n" || e.ExitCode != 3 || e.TimedOut || e.Canceled ||
		e.StdoutBytes != int64(len(want)) || e.StderrBytes != 4 {
		t.Errorf("%q, %q, %+v", o.stdout, o.stderr, e)
	}
	l.send("2", wire.TypeExec, &wire.Exec{Command: "echo", Args: []string{"a b", "$HOME"}})
	if o := l.result("2"); string(o.stdout) != "a b $HOME\n" {
		t.Errorf("%q", o.stdout)
	}
	l.send("3", wire.TypeExec, &wire.Exec{Command: "no-such-program"})
	if e := l.result("3").exec(t); e.ExitCode != 127 {
		t.Errorf("%+v", e)
	}
	for id, c := range map[string]struct {
		spec *wire.Exec
		code string
	}{
		"no-such-dir": {&wire.Exec{Command: "true", Dir: "/workspace/nothing"}, wire.CodeNotExist},
		"outside":     {&wire.Exec{Command: "true", Dir: "/etc"}, wire.CodePermission},
		"hidden":      {&wire.Exec{Command: "true", Env: []string{"secret_x=1"}}, wire.CodeFailed},
	} {
		l.send(id, wire.TypeExec, c.spec)
		if o := l.result(id); o.code() != c.code {
			t.Errorf("%s: %+v", id, o.body)
		}
	}
	log := r.log.String()
	if !strings.Contains(log, "program=echo") || !strings.Contains(log, "exit_code=3") || strings.Contains(log, "good day") || strings.Contains(log, "a b") {
		t.Error(log)
	}
}

func TestLongOutput(t *testing.T) {
	t.Parallel()
	_, _, l := both(t)
	const lines = 400_000 // more than a stream may have in memory
	l.send("1", wire.TypeExec, shell(fmt.Sprintf("seq %d; seq 10 >&2", lines)))
	o := l.result("1")
	var want bytes.Buffer
	for i := range lines {
		want.WriteString(strconv.Itoa(i + 1))
		want.WriteByte('\n')
	}
	if e := o.exec(t); !bytes.Equal(o.stdout, want.Bytes()) || len(o.stderr) != 21 || e.StdoutBytes != int64(want.Len()) || o.outputs == 0 {
		t.Errorf("%d bytes of %d, %+v", len(o.stdout), want.Len(), e)
	}
	// Output beyond the bound is counted and dropped.
	spec := shell(fmt.Sprintf("seq %d; seq 10 >&2", lines))
	spec.MaxStdout, spec.MaxStderr = 100_000, 5
	l.send("2", wire.TypeExec, spec)
	o = l.result("2")
	if e := o.exec(t); !bytes.Equal(o.stdout, want.Bytes()[:100_000]) || string(o.stderr) != "1\n2\n3" || e.StdoutBytes != int64(want.Len()) ||
		e.StderrBytes != 21 {
		t.Errorf("%d bytes, %q, %+v", len(o.stdout), o.stderr, e)
	}
}

// TestOutputWhileCommandRuns: the command continues only when its first output has arrived.
func TestOutputWhileCommandRuns(t *testing.T) {
	t.Parallel()
	_, r, l := both(t)
	l.send("1", wire.TypeExec, shell("echo ready; until [ -e go ]; do sleep 0.01; done; echo done"))
	o := outcome{}
	for string(o.stdout) != "ready\n" {
		if o.add(t, l.receive()) {
			t.Fatalf("the command has ended: %+v", o)
		}
	}
	r.write("go", "")
	l.finish("1", &o)
	if string(o.stdout) != "ready\ndone\n" {
		t.Errorf("%q", o.stdout)
	}
}

// daemon is a line that leaves processes in other sessions, with their ids in the file pids.
const daemon = `for i in 1 2 3; do setsid sh -c 'echo $$ >> pids; exec sleep 600' < /dev/null > /dev/null 2>&1 & done
until [ "$(cat pids 2> /dev/null | wc -l)" -eq 3 ]; do sleep 0.01; done; echo started; `

// allDead reports the processes in pids that live, or did not start.
func (r *runner) allDead() {
	r.t.Helper()
	pids := strings.Fields(r.read("pids"))
	if len(pids) != 3 {
		r.t.Errorf("%d processes were started", len(pids))
	}
	if runtime.GOOS != "linux" {
		return // package process promises less elsewhere
	}
	for _, s := range pids {
		pid, err := strconv.Atoi(s)
		if err != nil {
			r.t.Fatal(err)
		}
		if syscall.Kill(pid, 0) == nil {
			stat, _ := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
			r.t.Errorf("process %d is there: %s", pid, stat)
		}
	}
}

// started waits until the command's daemons run.
func (l *serverLink) started(o *outcome) {
	l.t.Helper()
	for string(o.stdout) != "started\n" {
		if o.add(l.t, l.receive()) {
			l.t.Fatalf("the command has ended: %+v", o.body)
		}
	}
}

// written waits until so much output has arrived.
func (l *serverLink) written(o *outcome, bytes int) {
	l.t.Helper()
	for len(o.stdout) < bytes {
		if o.add(l.t, l.receive()) {
			l.t.Fatalf("the command has ended: %+v", o.body)
		}
	}
}

func TestNoProcessIsLeft(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		line    string
		timeout float64
		end     func(r *runner, l *serverLink)
		ok      func(e *wire.ExecResult) bool
	}{
		"end": {daemon, 0, nil, func(e *wire.ExecResult) bool { return e.ExitCode == 0 && !e.Canceled }},
		"time-out": {daemon + "sleep 600", 3, nil, func(e *wire.ExecResult) bool {
			return e.TimedOut && e.ExitCode == -1 && !e.Canceled
		}},
		"cancel": {daemon + "sleep 600", 0, func(_ *runner, l *serverLink) { l.send("1", wire.TypeCancel, nil) }, func(e *wire.ExecResult) bool {
			return e.Canceled && e.ExitCode == 137
		}},
		"stop": {daemon + "sleep 600", 0, func(r *runner, _ *serverLink) { r.stop() }, func(e *wire.ExecResult) bool {
			return !e.Canceled && e.ExitCode == 137 && strings.Contains(e.Detail, "stopped")
		}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			_, r, l := both(t)
			spec := shell(c.line)
			spec.Timeout = c.timeout
			l.send("1", wire.TypeExec, spec)
			o := outcome{}
			if c.end != nil {
				l.started(&o)
				c.end(r, l)
			}
			l.finish("1", &o)
			l.send("1", wire.TypeAck, nil)
			if e := o.exec(t); !c.ok(e) {
				t.Errorf("%+v", e)
			}
			r.allDead()
		})
	}
}

// running waits until so many commands run.
func (r *runner) running(n int) {
	r.t.Helper()
	until(r.t, "they do not run", func() bool { return strings.Count(r.log.String(), "msg=command ") == n })
}

// TestCancel cancels requests that have not started, or have ended.
func TestCancel(t *testing.T) {
	t.Parallel()
	_, r, l := both(t)
	l.send("unknown", wire.TypeCancel, nil)
	// The most commands that run at once, and one in the queue.
	const atOnce = 32
	for i := range atOnce {
		l.send(fmt.Sprint(i), wire.TypeExec, &wire.Exec{Command: "sleep", Args: []string{"600"}})
	}
	r.running(atOnce)
	l.send("queued", wire.TypeExec, shell("touch ran"))
	l.send("queued", wire.TypeCancel, nil)
	if o := l.result("queued"); o.code() != wire.CodeCanceled {
		t.Errorf("%+v", o.body)
	}
	for i := range atOnce {
		l.send(fmt.Sprint(i), wire.TypeCancel, nil)
	}
	for range atOnce {
		m := l.receive()
		l.send(m.ID, wire.TypeCancel, nil) // too late
		l.send(m.ID, wire.TypeAck, nil)
		l.send(m.ID, wire.TypeAck, nil)
	}
	if _, err := os.Stat(filepath.Join(r.dir, "ran")); err == nil {
		t.Error("a command that was canceled in the queue was run")
	}
}

// TestMaxInFlight sends as many requests at once as allowed, and more.
func TestMaxInFlight(t *testing.T) {
	t.Parallel()
	_, r, l := both(t)
	r.write("f", strings.Repeat("x", 4096))
	const held = 32
	for i := range held {
		l.send(fmt.Sprint("held", i), wire.TypeExec, &wire.Exec{Command: "sleep", Args: []string{"600"}})
	}
	r.running(held)
	for i := range wire.MaxInFlight - held {
		l.send(fmt.Sprint("queued", i), wire.TypeExec, &wire.Exec{Command: "true"})
	}
	l.send("more", wire.TypeStat, &wire.Path{Path: "/workspace"})
	o := outcome{}
	if l.finish("more", &o); o.code() != wire.CodeBusy {
		t.Errorf("%+v", o.body)
	}
	for i := range wire.MaxInFlight - held {
		l.send(fmt.Sprint("queued", i), wire.TypeCancel, nil)
	}
	seen := map[string]bool{}
	for len(seen) < wire.MaxInFlight-held {
		m := l.receive()
		if e, ok := m.Body.(*wire.Error); !ok || e.Code != wire.CodeCanceled || seen[m.ID] {
			t.Fatalf("%s %+v", m.ID, m.Body)
		}
		seen[m.ID] = true
		l.send(m.ID, wire.TypeAck, nil)
	}
	// There is room again, also for the refused requests, which were not taken.
	l.send("more", wire.TypeStat, &wire.Path{Path: "/workspace"})
	if o := l.result("more"); o.typ != wire.TypeFileInfo {
		t.Errorf("%+v", o.body)
	}
	for i := range held {
		l.send(fmt.Sprint("held", i), wire.TypeCancel, nil)
	}
	for range held {
		l.send(l.receive().ID, wire.TypeAck, nil)
	}
	for i := range 1000 {
		l.send(fmt.Sprint("read", i), wire.TypeReadFile, &wire.Path{Path: "/workspace/f"})
	}
	for range 1000 {
		m := l.receive()
		if c, ok := m.Body.(*wire.FileContent); !ok || len(c.Data) != 4096 {
			t.Fatalf("%+v", m.Body)
		}
		l.send(m.ID, wire.TypeAck, nil)
	}
}

// TestSlowReader reads nothing while a command writes more than all buffers hold: the command still
// ends, and a short result overtakes the long one when something is read.
func TestSlowReader(t *testing.T) {
	t.Parallel()
	_, r, l := both(t)
	const long = 16 << 20
	l.send("long", wire.TypeExec, shell(fmt.Sprintf("head -c %d /dev/zero; touch ended", long)))
	until(t, "the command waits for the reader", func() bool {
		_, err := os.Stat(filepath.Join(r.dir, "ended"))
		return err == nil
	})
	l.send("short", wire.TypeStat, &wire.Path{Path: "/workspace"})
	o, atShort := outcome{}, -1
	for o.typ == "" {
		m := l.receive()
		if m.ID == "short" {
			atShort = len(o.stdout)
			continue
		}
		o.add(t, m)
	}
	if len(o.stdout) != long || atShort < 0 || atShort > long*3/4 {
		t.Errorf("%d bytes, the short result came after %d", len(o.stdout), atShort)
	}
}
