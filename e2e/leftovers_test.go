package e2e

import (
	"bufio"
	"context"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"secbox/settings"
	"secbox/workspace/tree"
)

// tidy boots a server that must leave nothing behind: when it is closed, no container and no mount
// of its node is there, and no capture, no spooled result and no pending directory is left in its
// state dir.
func tidy(t testing.TB, more ...func(*settings.Settings)) *testServer {
	t.Helper()
	return tidyIn(t, hostileDir(t), more...)
}

// tidyIn is tidy on directories that may have been used before.
func tidyIn(t testing.TB, dir string, more ...func(*settings.Settings)) *testServer {
	t.Helper()
	var s *testServer
	t.Cleanup(func() { // runs after the server's own, which closes it
		if s == nil {
			return
		}
		if left := containersWith(t, "secbox.node="+s.node()); len(left) > 0 {
			t.Errorf("containers are left: %q", left)
		}
		if left := mountsOf(s.node()); len(left) > 0 {
			t.Errorf("mounts are left: %q", left)
		}
		for _, name := range []string{"captures", "spool", "allotted"} {
			entries, err := os.ReadDir(filepath.Join(dir, "state", name))
			if err != nil {
				t.Error(err)
			}
			for _, e := range entries {
				t.Errorf("%s/%s is left in the state dir", name, e.Name())
			}
		}
	})
	s = startIn(t, dir, more...)
	return s
}

// hostileDir is a temporary directory that is removed even when jobs left trees in it that
// os.RemoveAll cannot remove.
func hostileDir(t testing.TB) string {
	t.Helper()
	parent := t.TempDir()
	t.Cleanup(func() { // runs before TempDir's
		root, err := os.OpenRoot(parent)
		if err != nil {
			t.Error(err)
			return
		}
		defer root.Close()
		if _, err := tree.RemoveTree(context.Background(), root, "server"); err != nil {
			t.Error(err)
		}
	})
	dir := filepath.Join(parent, "server")
	if err := os.Mkdir(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	return dir
}

// under is the same server for a subtest that ends before its parent does. It is cheaper than with:
// the client is the parent's.
func (s *testServer) under(t testing.TB) *testServer {
	mine := *s
	mine.t = t
	return &mine
}

// containersWith lists the containers with a label, also after the test's context has ended.
func containersWith(t testing.TB, label string) []string {
	t.Helper()
	out, err := exec.CommandContext(context.Background(), "docker", "ps", "-aq", "--filter", "label="+label).Output()
	if err != nil {
		t.Error(err)
	}
	return strings.Fields(string(out))
}

// creations watches which containers the engine creates for a server from now on.
type creations struct {
	t     testing.TB
	mu    sync.Mutex
	execs []string
}

// watchCreations begins to watch; it ends with the test.
func (s *testServer) watchCreations() *creations {
	s.t.Helper()
	c := &creations{t: s.t}
	now := time.Now() // includes containers created before the watching begins
	// Through a shell that ends it when this process is gone, however that ends.
	cmd := exec.CommandContext(context.Background(), "sh", "-c", `docker events "$@" & read -r _; kill $!; wait`, "sh", "--since",
		fmt.Sprintf("%d.%09d", now.Unix(), now.Nanosecond()),
		"--filter", "type=container", "--filter", "event=create", "--filter", "label=secbox.node="+s.node(),
		"--format", `{{index .Actor.Attributes "secbox.exec"}}`)
	out, err := cmd.StdoutPipe()
	if err != nil {
		s.t.Fatal(err)
	}
	lease, err := cmd.StdinPipe()
	if err != nil {
		s.t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		s.t.Fatal(err)
	}
	var reading sync.WaitGroup
	reading.Go(func() {
		for lines := bufio.NewScanner(out); lines.Scan(); {
			c.mu.Lock()
			c.execs = append(c.execs, strings.TrimSpace(lines.Text()))
			c.mu.Unlock()
		}
	})
	s.t.Cleanup(func() {
		_ = lease.Close()
		reading.Wait()
		if err := cmd.Wait(); err != nil {
			s.t.Errorf("docker events: %v", err)
		}
	})
	return c
}

// upTo returns the execs for which a container was created, once the one with the given id is among
// them: events come in order, so nothing that was created before it is missing.
func (c *creations) upTo(execID string) (before []string) {
	c.t.Helper()
	eventually(c.t, "the engine reports the container of "+execID, func() bool {
		c.mu.Lock()
		defer c.mu.Unlock()
		i := slices.Index(c.execs, execID)
		before = slices.Clone(c.execs[:max(i, 0)])
		return i >= 0
	})
	return before
}

// describe lists every file and directory below dir: its type, mode and, for files, size and time.
// Databases, which are written all the time, are listed by name only, and health probes not at all.
// Nor is the transparency log's key, which is made within a second of the first event.
func describe(t testing.TB, dir string) map[string]string {
	t.Helper()
	found := map[string]string{}
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		name, err := filepath.Rel(dir, path)
		if err != nil || strings.Contains(name, "/.probe-") || strings.HasPrefix(d.Name(), "secbox.db-") || strings.HasPrefix(d.Name(), "log.key") {
			return err
		}
		if strings.Contains(name, "/allotted/") { // an exec's note may go just after its answer
			return nil
		}
		info, err := d.Info()
		if err != nil {
			return err
		}
		found[name] = info.Mode().String()
		if info.Mode().IsRegular() && d.Name() != "secbox.db" {
			found[name] += fmt.Sprint(" ", info.Size(), " ", info.ModTime())
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return found
}

// differences lists new, missing and changed files.
func differences(before, after map[string]string) (lines []string) {
	for name, was := range before {
		if is, ok := after[name]; !ok {
			lines = append(lines, "gone: "+name)
		} else if is != was {
			lines = append(lines, fmt.Sprintf("changed: %s was %s, is %s", name, was, is))
		}
	}
	for name, is := range after {
		if _, ok := before[name]; !ok {
			lines = append(lines, fmt.Sprintf("new: %s %s", name, is))
		}
	}
	slices.Sort(lines)
	return lines
}

// records lists every row that a query finds, over all its pages.
func (s *testServer) records(query string) []object {
	s.t.Helper()
	var all []object
	for cursor := ""; ; {
		page := s.get("/sandbox/execs?limit=500&" + query + cursor)
		all = append(all, page.list("items")...)
		if page.str("next_cursor") == "" {
			return all
		}
		cursor = "&cursor=" + page.str("next_cursor")
	}
}
