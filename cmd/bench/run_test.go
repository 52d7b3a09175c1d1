//go:build linux

package main

import (
	"context"
	"errors"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"
)

func TestMain(m *testing.M) {
	code := m.Run()
	if programs != "" {
		os.RemoveAll(programs)
	}
	os.Exit(code)
}

// programs is where build puts core-api, once.
var programs string

var build = sync.OnceValue(func() error {
	dir, err := os.MkdirTemp("", "secbox-bench-test-")
	if err != nil {
		return err
	}
	programs = dir
	_ = os.Getenv("SECBOX_SOURCE") // so that go test repeats this when any file has changed
	cmd := exec.Command("go", "build", "-trimpath", "-ldflags=-s -w", "-o", dir+"/", "secbox/cmd/core-api")
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	out, err := cmd.CombinedOutput()
	if err != nil {
		return errors.New(string(out))
	}
	return nil
})

// small is a run that measures a little of these sections.
func small(t *testing.T, only ...string) *bench {
	t.Helper()
	if err := build(); err != nil {
		t.Fatal(err)
	}
	dir, err := os.MkdirTemp("", "sb-")
	if err != nil {
		t.Fatal(err)
	}
	b := &bench{options: defaults(), environ: append(os.Environ(), "CORE_API_ADDR=256.0.0.1:1"), log: t.Output()}
	b.server, b.tmp, b.only = filepath.Join(programs, "core-api"), dir, only
	b.settings = []string{poolReady + "1"} // each container costs time
	b.pairs, b.rounds, b.roundExecs, b.outputBytes = 1, 1, 2, 4<<20
	b.pace, b.closedAt, b.closedExecs, b.burst, b.skills = 100*time.Millisecond, []int{2}, 2, 2, 5
	b.files, b.packages = 12, 5
	t.Cleanup(func() { nothingLeft(t, dir) })
	return b
}

// nothingLeft checks that a run leaves no files, containers or processes.
func nothingLeft(t *testing.T, dir string) {
	t.Helper()
	if left, err := os.ReadDir(dir); err != nil || len(left) > 0 {
		t.Errorf("files left: %v %v", left, err)
	}
	os.RemoveAll(dir)
	out, err := exec.Command("docker", "ps", "-a", "--no-trunc", "--format", "{{.Names}} {{.Mounts}}").Output()
	if err != nil || strings.Contains(string(out), dir+"/") {
		t.Errorf("containers left: %v\n%s", err, out)
	}
	all, err := processes()
	if err != nil {
		t.Error(err)
	}
	for _, p := range all {
		if strings.Contains(strings.Join(p.args, " "), dir+"/") {
			t.Errorf("a process left: %d %q", p.pid, p.args)
		}
	}
}

// TestRun measures every section once: each comparison of the docs is in its report, with numbers.
func TestRun(t *testing.T) {
	targets := map[string]int{
		"cold": 1, "cold-throughput": 1, "output": 2, "first": 6, "warm": 4, "uneven": 4, "closed": 1, "burst": 2, "skills": 4,
		"packages": 8, "sandboxes": 3, "sessions": 9,
	}
	for _, s := range sections() {
		t.Run(s.name, func(t *testing.T) {
			if s.name != "sandboxes" { // which counts the children of this process, and so must run alone
				t.Parallel()
			}
			b := small(t, s.name)
			b.goJudge = serveJudge(t, http.StatusOK, accepted)
			if err := b.run(t.Context()); err != nil {
				t.Fatal(err)
			}
			found := 0
			for _, c := range b.report.Comparisons {
				found += len(c.Targets)
				for _, s := range c.Sides {
					if s.N == 0 || !(s.Min > 0) || s.P95 < s.P50 {
						t.Errorf("%s, %s: %+v", c.Section, c.Title, s)
					}
				}
				for _, target := range c.Targets {
					if target.Measured == "" || target.Wanted == "≤ 0" && !target.Reached {
						t.Errorf("%s: %+v", c.Section, target)
					}
				}
			}
			if found < targets[s.name] || found == 0 {
				t.Errorf("%d targets", found)
			}
			wanted := []string{"cgroup v", "| what | core-api | other | measured | target | |"}
			if s.name == "first" {
				wanted = append(wanted, "(docker run) | 1/", "(go-judge) | ", "CPU per exec", "execs missed")
			}
			var text strings.Builder
			if err := b.report.writeText(&text); err != nil {
				t.Fatal(err)
			}
			for _, want := range wanted {
				if !strings.Contains(text.String(), want) {
					t.Errorf("%q is not in\n%s", want, text.String())
				}
			}
		})
	}
}

func TestAgainst(t *testing.T) {
	t.Parallel()
	b := small(t, "cold")
	b.against = b.server
	if err := b.run(t.Context()); err != nil {
		t.Fatal(err)
	}
	c := b.report.Comparisons[0]
	if len(c.Sides) != 2 || c.Sides[0].Name != "core-api, new" || c.Sides[1].Name != "core-api, old" || len(c.Targets) != 1 || !(c.Targets[0].Value > 0) {
		t.Errorf("%+v", c)
	}
}

// TestInterrupted ends runs in the middle: they must leave nothing all the same.
func TestInterrupted(t *testing.T) {
	t.Parallel()
	for _, section := range []string{"warm", "sandboxes"} {
		t.Run(section, func(t *testing.T) {
			t.Parallel()
			b := small(t, section)
			b.pairs, b.rounds = 1000, 1000
			ctx, stop := context.WithCancel(t.Context())
			defer stop()
			b.log = writer(func(p []byte) {
				if strings.Contains(string(p), "rounds") {
					time.AfterFunc(200*time.Millisecond, stop)
				}
			})
			if err := b.run(ctx); !errors.Is(err, context.Canceled) {
				t.Errorf("got %v", err)
			}
		})
	}
}

type writer func(p []byte)

func (w writer) Write(p []byte) (int, error) { w(p); return len(p), nil }
