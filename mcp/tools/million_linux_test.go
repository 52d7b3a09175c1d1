package tools_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"secbox/api/remotefiles"
	"secbox/fault"
	"secbox/mcp/tools"
	"secbox/packages/catalog"
	"secbox/packages/library"
	"secbox/sandbox"
	"secbox/sandbox/sandboxtest"
)

// manyEntries makes a workspace with so many entries: a third in one directory, a third in many, a
// third in skills/. Most are links of one file, which are made faster; ext4 allows 65,000 of a
// file.
func manyEntries(t testing.TB, dir string, entries int) {
	t.Helper()
	third := entries / 3
	var work sync.WaitGroup
	fill := func(in string, from, to int) error {
		if err := os.Mkdir(filepath.Join(dir, in), 0o755); err != nil && !errors.Is(err, os.ErrExist) {
			return err
		}
		var first string
		for n := from; n < to; n++ {
			name := filepath.Join(dir, in, fmt.Sprintf("f%07d.txt", n))
			if (n-from)%60_000 == 0 {
				first = name
				if err := os.WriteFile(name, []byte("a needle in a file\n"), 0o644); err != nil {
					return err
				}
			} else if err := os.Link(first, name); err != nil {
				return err
			}
		}
		return nil
	}
	for _, part := range []func() error{
		func() error { return fill("flat", 0, third) },
		func() error { return fill("skills", 0, third) },
		func() error {
			if err := os.Mkdir(filepath.Join(dir, "deep"), 0o755); err != nil {
				return err
			}
			for n := 0; n < third; n += 500 {
				if err := fill(fmt.Sprintf("deep/d%05d", n/500), n, min(n+499, third)); err != nil { // the directory counts too
					return err
				}
			}
			return nil
		},
	} {
		work.Go(func() {
			if err := part(); err != nil {
				t.Error(err)
			}
		})
	}
	work.Wait()
}

// residentPeak calls do and returns by how many bytes this process grew at most.
func residentPeak(t testing.TB, do func()) (grown int64) {
	t.Helper()
	read := func(name string) (kib int64) {
		status, err := os.ReadFile("/proc/self/status")
		if err != nil {
			t.Fatal(err)
		}
		_, rest, _ := strings.Cut(string(status), name)
		if _, err := fmt.Sscan(rest, &kib); err != nil {
			t.Fatal(err)
		}
		return kib
	}
	if err := os.WriteFile("/proc/self/clear_refs", []byte("5"), 0); err != nil {
		t.Fatal(err)
	}
	before := read("VmRSS:")
	do()
	return max(0, read("VmHWM:")-before) << 10
}

// TestManyEntries: in a workspace with 1,000,000 entries (in a long run; else 9,000) every tool and
// list answers, within its bounds of time and memory, with a part that says so or with a clear
// error. Not parallel: it measures the whole process.
func TestManyEntries(t *testing.T) {
	entries := sandboxtest.Soak(9_000, 1_000_000)
	for name, open := range places {
		if name == "router" { // a runner again
			continue
		}
		t.Run(name, func(t *testing.T) {
			p := open(t)
			manyEntries(t, p.dir, entries)
			session := keepingIn(t, p.sandbox)
			for _, c := range []struct {
				what string
				do   func() (text string, err error)
			}{
				{"glob of all", func() (string, error) {
					return textOf(callTool(t, session, "files.glob", map[string]any{"pattern": "*"}))
				}},
				{"glob of one", func() (string, error) {
					return textOf(callTool(t, session, "files.glob", map[string]any{"pattern": "f0000042.txt"}))
				}},
				{"grep of all", func() (string, error) {
					return textOf(callTool(t, session, "files.grep", map[string]any{"pattern": "needle"}))
				}},
				{"grep of none", func() (string, error) {
					return textOf(callTool(t, session, "files.grep", map[string]any{"pattern": "no such"}))
				}},
				{"cd", func() (string, error) {
					return textOf(callTool(t, session, "files.cd", map[string]any{"path": "/workspace/flat"}))
				}},
				{"ReadDir", func() (string, error) {
					list, err := p.sandbox.ReadDir(t.Context(), "/workspace/flat", p.user)
					return fmt.Sprint(len(list), " names"), err
				}},
				{"WalkDir", func() (string, error) {
					seen := 0
					err := sandbox.WalkDir(t.Context(), p.sandbox, sandbox.Root, p.user, sandbox.DefaultWalkBounds,
						func(string, sandbox.DirEntry) error { seen++; return nil })
					return fmt.Sprint(seen, " entries"), err
				}},
				{"files", func() (string, error) {
					list, err := remotefiles.Files{Sandbox: p.sandbox, User: p.user}.SandboxFiles(t.Context(), library.Owner{})
					return fmt.Sprint(len(list), " names"), err
				}},
				{"catalog", func() (string, error) {
					c, err := catalog.New(catalog.Config{Sandboxes: chosen{p.sandbox}}).Of(t.Context(), p.user)
					if err != nil {
						return "", err
					}
					return fmt.Sprint(len(c.Entries), " entries, ", c.Problems), nil
				}},
			} {
				var text string
				var err error
				began := time.Now()
				grown := residentPeak(t, func() { text, err = c.do() })
				took := time.Since(began)
				said := text
				if err != nil {
					said = fault.From(err).Message
				}
				t.Logf("%-12s %8s, %4d MiB: %s", c.what, took.Round(time.Millisecond), grown>>20, said[max(0, len(said)-160):])
				if len(text) > 64<<10 || grown > 128<<20 {
					t.Errorf("%s: %d bytes of answer, %d MiB of memory", c.what, len(text), grown>>20)
				}
				if err != nil && !fault.Is(err, fault.TreeTooLarge) {
					t.Errorf("%s: %v", c.what, err)
				}
			}
		})
	}
}

func textOf(r *tools.Result, err error) (string, error) {
	if err != nil {
		return "", err
	}
	return r.Text, nil
}

// chosen is the source of a catalog.
type chosen struct{ sandbox.Backend }

func (chosen) Chosen(context.Context, string) (sandbox.Choice, error) { return sandbox.Choice{}, nil }
