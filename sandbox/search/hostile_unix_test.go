//go:build unix

package search

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

// TestOnlyRegularFilesWithinAreOpened: FIFOs do not block, and links are followed nowhere.
func TestOnlyRegularFilesWithinAreOpened(t *testing.T) {
	t.Parallel()
	outside, dir := t.TempDir(), t.TempDir()
	put(t, outside, "secret", "needle\n")
	put(t, dir, "a", "needle\n")
	for _, err := range []error{
		syscall.Mkfifo(filepath.Join(dir, "pipe"), 0o666), os.Symlink(filepath.Join(outside, "secret"), filepath.Join(dir, "link")),
		os.Symlink(outside, filepath.Join(dir, "dirlink")), os.Symlink(".", filepath.Join(dir, "loop")), os.Symlink("/dev/zero", filepath.Join(dir, "zero")),
	} {
		if err != nil {
			t.Fatal(err)
		}
	}
	for _, r := range []Request{{Pattern: "needle", Mode: Files}, {Glob: "*", Mode: Files}} {
		if found, _ := run(t, dir, r); !slices.Equal(names(found), []string{"a"}) {
			t.Errorf("%+v finds %q", r, names(found))
		}
	}
	for _, name := range []string{"link", "dirlink", "dirlink/secret", "zero"} {
		if found, _, err := Run(dir, Request{Path: name, Pattern: "needle", Mode: Files, Limit: 1, TimeoutMS: 600_000}); err == nil {
			t.Errorf("%s finds %q", name, names(found))
		}
	}
	if found, _ := run(t, dir, Request{Path: "pipe", Pattern: "needle", Mode: Files}); len(found) != 0 {
		t.Errorf("%q", names(found))
	}
	if found, _ := run(t, dir, Request{Path: "loop/a", Pattern: "needle", Mode: Files}); len(found) != 1 { // a link within
		t.Errorf("%q", names(found))
	}
}

// TestDirectoriesExchangedForLinks: a search never leaves its directory, even if directories become
// links while it runs.
func TestDirectoriesExchangedForLinks(t *testing.T) {
	t.Parallel()
	outside, dir := t.TempDir(), t.TempDir()
	put(t, outside, "secret", "needle\n", "d/secret", "needle\n")
	for n := range 50 {
		put(t, dir, fmt.Sprintf("d%d/d/a", n), "needle\n")
	}
	ended := make(chan struct{})
	var swapping sync.WaitGroup
	swapping.Go(func() {
		link, victim, aside := filepath.Join(dir, "link"), filepath.Join(dir, "d25"), filepath.Join(dir, "aside")
		for {
			select {
			case <-ended:
				return
			default:
			}
			_ = os.Symlink(outside, link)
			_ = os.Rename(victim, aside)
			_ = os.Rename(link, victim)
			_ = os.Remove(victim)
			_ = os.Rename(aside, victim)
		}
	})
	for range 200 {
		found, _ := run(t, dir, Request{Pattern: "needle", Mode: Files})
		for _, name := range names(found) {
			if strings.Contains(name, "secret") {
				t.Errorf("found %q", name)
			}
		}
	}
	close(ended)
	swapping.Wait()
}

// TestGrowingFile: a file is read up to the size that it had when it was opened.
func TestGrowingFile(t *testing.T) {
	t.Parallel()
	m, err := newMatcher("needle", false)
	if err != nil {
		t.Fatal(err)
	}
	w := &walk{matcher: m, request: Request{Mode: Count}, deadline: time.Now().Add(time.Hour)}
	lines, count, err := newScanner(w).scan(endless{}, 70_000)
	if err != nil || lines != nil || count != 10_000 {
		t.Errorf("%d %v", count, err)
	}
}

// endless is a file that grows as fast as it is read.
type endless struct{}

func (endless) Read(p []byte) (int, error) {
	for i := range p {
		p[i] = "needle\n"[i%7]
	}
	return len(p) - len(p)%7, nil
}

func TestDeepTree(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	root, err := os.OpenRoot(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer root.Close()
	at := "."
	for range 1500 { // longer than a path may be
		if at += "/abc"; root.Mkdir(at, 0o755) != nil {
			break
		}
	}
	put(t, dir, "abc/needle", "")
	if found, _ := run(t, dir, Request{Glob: "needle", Mode: Files}); len(found) != 1 {
		t.Errorf("%q", names(found))
	}
}

func TestManyEntries(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	const files = 20_000
	for n := range files {
		if err := os.WriteFile(filepath.Join(dir, fmt.Sprint(n)), nil, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	found, summary := run(t, dir, Request{Glob: "*", Mode: Files, Limit: 10})
	if len(found) != 10 || summary.Files != files || summary.Entries != files {
		t.Errorf("%d %+v", len(found), summary)
	}
	if found, summary = run(t, dir, Request{Glob: "*", Mode: Files, Limit: 10, maxEntries: 5000}); len(found) > 10 ||
		!strings.Contains(summary.Stopped, "more than 5000 files") || summary.Entries > 7000 {
		t.Errorf("%d %+v", len(found), summary)
	}
	stopped, summary, err := Run(dir, Request{Path: ".", Glob: "*", Mode: Files, Limit: 10, TimeoutMS: -1000})
	if err != nil || len(stopped) != 0 || summary.Stopped == "" {
		t.Errorf("%d %+v %v", len(stopped), summary, err)
	}
}
