//go:build linux

// Package sandboxtest is the conformance suite of sandbox.Sandbox, which none, docker, remote, the
// router and the recorder pass. It must not know how a sandbox is implemented: it sees the Fixture
// only.
//
//	func TestSandbox(t *testing.T) {
//		sandboxtest.Run(t, func(t *testing.T) sandboxtest.Fixture { … })
//	}
package sandboxtest

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"secbox/sandbox"
)

// Fixture is a fresh sandbox with an empty workspace. Its resources end with the test that it was
// made for.
type Fixture struct {
	Sandbox sandbox.Sandbox
	User    sandbox.User

	// Dir is the directory of sandbox.Root on this machine: the suite plants links and FIFOs in it
	// and checks files.
	Dir string
	// Owner is the uid whose files the sandbox's commands can change; planted files get it. 0: the
	// suite's own.
	Owner int

	// ReadOnly is a read-only root of the sandbox; zero: it supports none.
	ReadOnly sandbox.ReadOnlyRoot

	// Decorator says that the sandbox only passes calls on to another sandbox, which the suite
	// tests elsewhere: costly cases that prove properties of a backend are left out.
	Decorator bool

	// LimitElsewhere says that another sandbox enforces sandbox.MaxFileBytes, and the suite tests
	// it elsewhere: AStreamOverTheLimit is left out, which costs 25 seconds of CPU time through a
	// network under the race detector.
	LimitElsewhere bool

	// WorkspaceElsewhere says that commands do not see the workspace at sandbox.Root, only where
	// sandbox.WorkspaceVariable says.
	WorkspaceElsewhere bool

	// Processes counts live processes with a marker in their arguments; nil: HostProcesses, which
	// also sees processes in containers.
	Processes func(marker string) int
}

// Run runs the suite. newFixture is called once for each group of cases, which share it; groups run
// in parallel.
func Run(t *testing.T, newFixture func(t *testing.T) Fixture) {
	for _, g := range []struct {
		name  string
		cases []testCase
	}{
		{"Files", fileCases},
		{"Hostile", hostileCases},
		{"Commands", commandCases},
		{"Trees", treeCases},
		{"Streams", streamCases},
		{"Processes", processCases},
		{"Contexts", contextCases},
		{"Closing", closingCases},
		{"Copies", copyCases},
	} {
		t.Run(g.name, func(t *testing.T) {
			t.Parallel()
			f := newFixture(t)
			if f.Processes == nil {
				f.Processes = HostProcesses
			}
			t.Run("Case", func(t *testing.T) {
				for _, c := range g.cases {
					if f.Decorator && c.backend || f.LimitElsewhere && c.limit {
						continue
					}
					t.Run(c.name, func(t *testing.T) {
						if !c.alone {
							t.Parallel()
						}
						c.run(newBench(t, f))
					})
				}
			})
		})
	}
}

type testCase struct {
	name  string
	run   func(*bench)
	alone bool // it changes state that the others use: it runs by itself, in the order of the list

	backend bool // it proves a property of a backend: not for a Decorator
	limit   bool // it streams sandbox.MaxFileBytes: not with LimitElsewhere
}

// bench is one case with its own directory in the shared workspace.
type bench struct {
	*testing.T
	f    Fixture
	s    sandbox.Sandbox
	user sandbox.User
	ctx  context.Context
	dir  string // in the sandbox
	host string // on this machine
}

var directories atomic.Int64

func newBench(t *testing.T, f Fixture) *bench {
	t.Helper()
	name := "case-" + strconv.FormatInt(directories.Add(1), 10)
	b := &bench{
		T: t, f: f, s: f.Sandbox, user: f.User, ctx: t.Context(),
		dir: sandbox.Root + "/" + name, host: filepath.Join(f.Dir, name),
	}
	if err := os.Mkdir(b.host, 0o755); err != nil {
		t.Fatal(err)
	}
	b.give(b.host)
	return b
}

// give makes a planted file the sandbox's.
func (b *bench) give(path string) {
	b.Helper()
	if b.f.Owner > 0 {
		b.must(os.Lchown(path, b.f.Owner, b.f.Owner))
	}
}

func (b *bench) must(err error) {
	b.Helper()
	if err != nil {
		b.Fatal(err)
	}
}

// at returns a path in the case's directory.
func (b *bench) at(name string) string { return b.dir + "/" + name }

// plant writes a file into the directory from outside of the sandbox.
func (b *bench) plant(name, content string) {
	b.Helper()
	path := filepath.Join(b.host, name)
	b.must(os.WriteFile(path, []byte(content), 0o644))
	b.give(path)
}

func (b *bench) plantDir(name string) {
	b.Helper()
	path := filepath.Join(b.host, name)
	b.must(os.Mkdir(path, 0o755))
	b.give(path)
}

func (b *bench) plantLink(target, name string) {
	b.Helper()
	path := filepath.Join(b.host, name)
	b.must(os.Symlink(target, path))
	b.give(path)
}

// found returns the content of a file on this machine.
func (b *bench) found(name string) string {
	b.Helper()
	content, err := os.ReadFile(filepath.Join(b.host, name))
	b.must(err)
	return string(content)
}

// is checks the kind of an error, and the path in an error about a file.
func (b *bench) is(err, kind error, path string) {
	b.Helper()
	if !errors.Is(err, kind) {
		b.Errorf("%.100q: got error %v, want %v", path, err, kind)
		return
	}
	var at *fs.PathError
	if !errors.As(err, &at) {
		b.Errorf("%.100q: %v is no PathError", path, err)
	} else if at.Path != path {
		b.Errorf("the error tells of %.100q, not of %.100q", at.Path, path)
	}
}

// shell runs a line in the case's directory; it must succeed.
func (b *bench) shell(line string) *sandbox.ExecResult {
	b.Helper()
	r, err := b.s.Exec(b.ctx, b.line(line))
	b.must(err)
	return r
}

// line returns the spec of a line, with a timeout for a machine that hangs.
func (b *bench) line(line string) sandbox.ExecSpec {
	return sandbox.ExecSpec{Command: line, Shell: true, Dir: b.dir, User: b.user, Timeout: 2 * time.Minute}
}

// await polls for a condition until the test's deadline.
func (b *bench) await(what string, condition func() bool) {
	b.Helper()
	for !condition() {
		if b.ctx.Err() != nil {
			b.Fatalf("in vain: %s", what)
		}
		time.Sleep(time.Millisecond)
	}
}

// marker returns a unique time to sleep, by which processes are found. No marker is a part of
// another: the unit at the end tells 1 from 17.
func marker() string {
	return "98" + strconv.Itoa(os.Getpid()) + "." + strconv.FormatInt(directories.Add(1), 10) + "s"
}

// none checks that no process with the marker lives.
func (b *bench) none(marker string) {
	b.Helper()
	if n := b.f.Processes(marker); n != 0 {
		b.Errorf("%d processes of the command live", n)
	}
}

// HostProcesses counts this machine's live processes with a marker in their arguments.
func HostProcesses(marker string) (n int) {
	lines, _ := filepath.Glob("/proc/[0-9]*/cmdline")
	for _, line := range lines {
		content, err := os.ReadFile(line)
		if err == nil && strings.Contains(string(content), marker) { // empty for a zombie
			n++
		}
	}
	return n
}
