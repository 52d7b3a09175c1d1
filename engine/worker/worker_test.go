//go:build linux

package worker_test

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"secbox/engine/initproto"
	"secbox/engine/worker"
)

// workerVariable makes this test program a worker.
const workerVariable = "WORKER_TEST_SERVES"

func TestMain(m *testing.M) {
	if os.Getenv(workerVariable) != "" {
		_ = os.Unsetenv(workerVariable)
		os.Exit(worker.Serve(os.Stdin, os.Stdout, worker.Options{Hardened: true}))
	}
	os.Exit(m.Run())
}

// process is a worker process.
type process struct {
	t      *testing.T
	cmd    *exec.Cmd
	stdin  io.WriteCloser
	frames *initproto.Reader
}

func start(t *testing.T) *process {
	t.Helper()
	p := &process{t: t, cmd: exec.CommandContext(t.Context(), os.Args[0])}
	p.cmd.Env = append(os.Environ(), workerVariable+"=1")
	p.cmd.Stderr = os.Stderr
	var err error
	if p.stdin, err = p.cmd.StdinPipe(); err != nil {
		t.Fatal(err)
	}
	stdout, err := p.cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := p.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	p.frames = initproto.NewReader(bufio.NewReader(stdout), initproto.FromWorker)
	if kind, payload := p.next(); kind != initproto.TypeHello || string(payload) != initproto.MagicWorker {
		t.Fatalf("%q %q", kind, payload)
	}
	t.Cleanup(func() {
		_ = p.stdin.Close()
		_ = p.cmd.Wait()
	})
	return p
}

func (p *process) next() (initproto.Type, []byte) {
	p.t.Helper()
	kind, payload, err := p.frames.Next()
	if err != nil {
		p.t.Fatal(err)
	}
	return kind, payload
}

func (p *process) send(frames ...[]byte) {
	p.t.Helper()
	if _, err := p.stdin.Write(bytes.Join(frames, nil)); err != nil {
		p.t.Fatal(err)
	}
}

func frame(t initproto.Type, payload []byte) []byte { return initproto.Append(nil, t, payload) }

func (p *process) job(job initproto.Job) []byte {
	p.t.Helper()
	if job.Cwd == "" {
		job.Cwd = "/"
	}
	if job.MaxStdout == 0 {
		job.MaxStdout, job.MaxStderr = 1<<20, 1<<20
	}
	job.CwdMustExist, job.OwnPath = true, true
	b, err := initproto.AppendJSON(nil, initproto.TypeJob, job)
	if err != nil {
		p.t.Fatal(err)
	}
	return b
}

func sh(script string) initproto.Job { return initproto.Job{Argv: []string{"sh", "-c", script}} }

// ended reads frames until the exit.
func (p *process) ended() (exit initproto.Exit, stdout, stderr string) {
	p.t.Helper()
	for {
		kind, payload := p.next()
		switch kind {
		case initproto.TypeStdout:
			stdout += string(payload)
		case initproto.TypeStderr:
			stderr += string(payload)
		case initproto.TypeExit:
			exit, err := initproto.DecodeExit(payload)
			if err != nil {
				p.t.Fatal(err)
			}
			return exit, stdout, stderr
		}
	}
}

func (p *process) run(job initproto.Job) (initproto.Exit, string, string) {
	p.t.Helper()
	p.send(p.job(job), frame(initproto.TypeStdinEnd, nil))
	return p.ended()
}

// waitFor reads output until it holds text.
func (p *process) waitFor(text string) {
	p.t.Helper()
	for got := ""; !strings.Contains(got, text); {
		kind, payload := p.next()
		if kind == initproto.TypeExit {
			p.t.Fatalf("ended: %s, printed %q", payload, got)
		}
		got += string(payload)
	}
}

// alive lists processes whose command line holds the marker.
func alive(t *testing.T, marker string) (found []string) {
	t.Helper()
	files, err := filepath.Glob("/proc/[0-9]*/cmdline")
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range files {
		line, _ := os.ReadFile(name)
		if bytes.Contains(line, []byte(marker)) {
			found = append(found, name+": "+strings.ReplaceAll(string(line), "\x00", " "))
		}
	}
	return found
}

func marker(t *testing.T) string { return fmt.Sprintf("%d%d", os.Getpid(), time.Now().UnixNano()) }

func TestCommandsInSequence(t *testing.T) {
	t.Parallel()
	p := start(t)
	dir := t.TempDir()
	script := filepath.Join(dir, "beside-this-test")
	if err := os.WriteFile(script, []byte("#!/bin/sh\necho mine\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "data"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		job    initproto.Job
		code   int
		stdout string
		noDir  bool
	}{
		"success":             {sh("echo out; echo err >&2"), 0, "out\n", false},
		"failure":             {sh("exit 7"), 7, "", false},
		"a signal":            {sh("kill -TERM $$"), 143, "", false},
		"no program":          {initproto.Job{Argv: []string{"no-such-program"}}, 127, "", false},
		"no path to it":       {initproto.Job{Argv: []string{"./no-such-program"}}, 127, "", false},
		"a name without end":  {initproto.Job{Argv: []string{strings.Repeat("\x01ä", 100_000)}}, 127, "", false},
		"no program but data": {initproto.Job{Argv: []string{"./data"}, Cwd: dir}, 126, "", false},
		"a directory":         {initproto.Job{Argv: []string{"/etc"}}, 126, "", false},
		"no directory":        {initproto.Job{Argv: []string{"true"}, Cwd: "/no/such"}, 127, "", true},
		"a program beside":    {initproto.Job{Argv: []string{"./beside-this-test"}, Cwd: dir}, 0, "mine\n", false},
		"a path of its own":   {initproto.Job{Argv: []string{"beside-this-test"}, Env: []string{"PATH=/bin:" + dir}}, 0, "mine\n", false},
		"a path's tail":       {initproto.Job{Argv: []string{"beside-this-test"}, PathTail: dir}, 0, "mine\n", false},
		"too large arguments": {initproto.Job{Argv: []string{"true", strings.Repeat("x", 1<<20)}}, 126, "", false},
	} {
		exit, stdout, _ := p.run(c.job)
		if c.noDir != exit.NoDir || !c.noDir && exit.Code != c.code || stdout != c.stdout {
			t.Errorf("%s: %+v %q", name, exit, stdout)
		}
	}
}

func TestStandardStreams(t *testing.T) {
	t.Parallel()
	p := start(t)
	content := bytes.Repeat([]byte("0123456789abcdef\x00\xff"), 40_000)
	for range 2 {
		job := initproto.Job{Argv: []string{"cat"}, MaxStdout: int64(len(content)) - 5}
		p.send(p.job(job))
		credits := make(chan struct{}, 1000)
		go func() {
			window := initproto.StdinWindow
			for rest := content; len(rest) > 0; window-- {
				if window == 0 {
					<-credits
					window++
				}
				n := min(len(rest), initproto.MaxChunk)
				_, _ = p.stdin.Write(frame(initproto.TypeStdin, rest[:n]))
				rest = rest[n:]
			}
			_, _ = p.stdin.Write(frame(initproto.TypeStdinEnd, nil))
		}()
		var out []byte
		for {
			kind, payload := p.next()
			if kind == initproto.TypeCredit {
				credits <- struct{}{}
			}
			if kind == initproto.TypeStdout {
				out = append(out, payload...)
			}
			if kind == initproto.TypeExit {
				exit, err := initproto.DecodeExit(payload)
				if err != nil || exit.Code != 0 || exit.StdoutBytes != int64(len(content)) {
					t.Fatalf("%+v %v", exit, err)
				}
				break
			}
		}
		if !bytes.Equal(out, content[:len(content)-5]) {
			t.Fatalf("got %d bytes", len(out))
		}
	}
}

// TestAllProcessesAreKilled runs commands that leave processes behind in many ways.
func TestAllProcessesAreKilled(t *testing.T) {
	t.Parallel()
	for name, script := range map[string]string{
		"in the background":      `sleep 1000.%s &`,
		"a session of its own":   `setsid sleep 1000.%s & setsid -f sleep 1000.%[1]s`,
		"without environment":    `env -i setsid -f sh -c 'trap "" TERM HUP INT; sleep 1000.%s; true'`,
		"a daemon":               `(setsid sh -c '(cd / && exec sleep 1000.%s) >/dev/null 2>&1 </dev/null &') &`,
		"stopped":                `sleep 1000.%s & kill -STOP $!`,
		"one that runs away":     `f() { [ $1 -lt 3000 ] && (trap "" TERM; f $(($1+1)) $2) & }; f 0 1000.%s &`,
		"a reaper of its own":    `setsid sh -c 'sh -c "sleep 1000.%s & sleep 1000.%[1]s & wait"; sleep 1000.%[1]s' & sleep 0.1`,
		"with the output's pipe": `setsid -f sh -c 'while :; do echo x; sleep 1000.%s; done'`,
	} {
		for how, end := range map[string]func(p *process){
			"at its end": func(p *process) {
				p.send(p.job(sh(fmt.Sprintf(script, marker(t)))), frame(initproto.TypeStdinEnd, nil))
			},
			"when it is killed": func(p *process) {
				p.send(p.job(sh(fmt.Sprintf(script, marker(t)) + "\necho up; sleep 1000")))
				p.waitFor("up")
				p.send(frame(initproto.TypeKill, nil))
			},
			"at its deadline": func(p *process) {
				job := sh(fmt.Sprintf(script, marker(t)) + "\nsleep 1000")
				job.TimeoutMS = 300
				p.send(p.job(job))
			},
		} {
			t.Run(name+" "+how, func(t *testing.T) {
				t.Parallel()
				p := start(t)
				end(p)
				exit, _, _ := p.ended()
				if left := children(p.cmd.Process.Pid); len(left) > 0 {
					t.Errorf("%+v, and there are %q", exit, left)
				}
				if (how == "when it is killed") != exit.Killed || (how == "at its deadline") != exit.TimedOut {
					t.Errorf("%+v", exit)
				}
				if exit, stdout, _ := p.run(sh("echo next")); exit.Code != 0 || stdout != "next\n" {
					t.Errorf("the next command: %+v %q", exit, stdout)
				}
			})
		}
	}
}

// TestSIGTERMBeforeTheDeadline: all that the command runs gets it and has the time, and it has
// timed out, however it ends.
func TestSIGTERMBeforeTheDeadline(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		script       string
		code, signal int
		stdout       string
		timeout      int64 // ms; 0: soon after SIGTERM, which comes later and later until the script was up
	}{
		"a child of a shell that ends at once": {
			script: `sh -c 'trap "sleep 0.1; echo saved; exit" TERM; echo up; while :; do sleep 0.01; done'; true`, code: 143, signal: 15,
			stdout: "up\nsaved\n", timeout: 600_000,
		},
		"its own exit code": {
			script: `trap 'echo saved; exit 3' TERM; echo up; while :; do sleep 0.01; done`, code: 3, stdout: "up\nsaved\n",
			timeout: 600_000,
		},
		"success": {script: `trap 'exit 0' TERM; echo up; while :; do sleep 0.01; done`, stdout: "up\n", timeout: 600_000},
		"stopped": {
			script: `trap 'echo saved; exit 0' TERM; echo up; kill -STOP $$; while :; do sleep 0.01; done`, stdout: "up\nsaved\n",
			timeout: 600_000,
		},
		"deaf":         {script: `trap '' TERM; echo up; sleep 1000.1; echo late`, code: 137, signal: 9, stdout: "up\n"},
		"a deaf child": {script: `(trap '' TERM; echo up; exec sleep 1000.1) & wait`, code: 143, signal: 15, stdout: "up\n"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			for after := int64(200); ; after *= 2 {
				p := start(t)
				job := sh(c.script)
				job.TimeoutMS = max(c.timeout, after+200)
				job.GraceMS = job.TimeoutMS - after
				exit, stdout, _ := p.run(job)
				if stdout == "" && exit.TimedOut && after < 60_000 {
					continue
				}
				if !exit.TimedOut || exit.Killed || exit.Code != c.code || exit.Signal != c.signal || stdout != c.stdout {
					t.Errorf("%+v %q", exit, stdout)
				}
				if left := children(p.cmd.Process.Pid); len(left) > 0 {
					t.Errorf("%+v, and there are %q", exit, left)
				}
				return
			}
		})
	}
}

// children lists the children of a process, zombies included.
func children(pid int) (found []string) {
	lists, _ := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/children", pid))
	for _, list := range lists {
		content, _ := os.ReadFile(list)
		found = append(found, strings.Fields(string(content))...)
	}
	return found
}

func TestEndOfLease(t *testing.T) {
	t.Parallel()
	p := start(t)
	m := marker(t)
	p.send(p.job(sh("setsid -f sleep 1000." + m + "; yes & echo up; sleep 1000." + m)))
	p.waitFor("up") // and the output of yes is not read
	_ = p.stdin.Close()
	err := p.cmd.Wait()
	if code := p.cmd.ProcessState.ExitCode(); code != 137 {
		t.Errorf("%v", err)
	}
	if left := alive(t, "1000."+m); len(left) > 0 {
		t.Errorf("left: %q", left)
	}
}

func TestWorkerProtocolViolations(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct{ send func(p *process) []byte }{
		"a second job": {func(p *process) []byte { return append(p.job(sh("sleep 1000")), p.job(sh("true"))...) }},
		"too much stdin": {func(p *process) []byte {
			return append(p.job(sh("sleep 1000")), bytes.Repeat(frame(initproto.TypeStdin, make([]byte, initproto.MaxChunk)), 40)...)
		}},
		"no job":  {func(*process) []byte { return frame(initproto.TypeJob, []byte("{}")) }},
		"garbage": {func(*process) []byte { return []byte("GET / HTTP/1.1\r\n\r\n") }},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := start(t)
			_, _ = p.stdin.Write(c.send(p))
			_ = p.cmd.Wait()
			if code := p.cmd.ProcessState.ExitCode(); code != 2 && code != 137 || name != "garbage" && code != 2 {
				t.Errorf("exit code %d", code)
			}
		})
	}
}

// TestFramesAfterExitAreIgnored: a kill that was sent before the exit was received must not hit the
// next command.
func TestFramesAfterExitAreIgnored(t *testing.T) {
	t.Parallel()
	p := start(t)
	if exit, _, _ := p.run(sh("true")); exit.Code != 0 {
		t.Fatalf("%+v", exit)
	}
	p.send(frame(initproto.TypeKill, nil), frame(initproto.TypeStdin, []byte("old")), frame(initproto.TypeStdinEnd, nil),
		p.job(sh("cat; echo done")), frame(initproto.TypeStdin, []byte("new ")), frame(initproto.TypeStdinEnd, nil))
	if exit, stdout, _ := p.ended(); exit.Code != 0 || stdout != "new done\n" {
		t.Errorf("%+v %q", exit, stdout)
	}
}
