package e2e

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"secbox/api/contracttest"
	"secbox/settings"
	"secbox/workspace/tree"
)

// sharedServer is the server of all tests that need only default settings. It has no tokens, and
// room for many execs at once. Its tests keep apart by their projects: each uses names that no
// other test uses.
type sharedServer struct {
	how  serving
	once sync.Once
	app  application
	dir  string
	turn turn
	err  error
}

var common, commonWarm = sharedServer{how: cold}, sharedServer{how: warm}

// shared is the common server without a pool for a test. It is started by the first that asks and
// closed by TestMain.
func shared(t testing.TB) *testServer {
	t.Helper()
	return common.of(t)
}

// sharedWarm is the common server with a pool, whose execs are warm.
func sharedWarm(t testing.TB) *testServer {
	t.Helper()
	return commonWarm.of(t).serving(warm)
}

func (c *sharedServer) of(t testing.TB) *testServer {
	t.Helper()
	c.once.Do(c.start)
	if c.err != nil {
		t.Fatalf("the common server: %v", c.err)
	}
	return &testServer{
		t: t, app: c.app, client: contracttest.New(t), url: "http://" + c.app.Addr(), dir: c.dir, environ: os.Environ(), turn: &c.turn,
	}
}

func (c *sharedServer) start() {
	if c.dir, c.err = os.MkdirTemp("", "secbox-e2e-"); c.err != nil {
		return
	}
	log, err := os.Create(c.log())
	if err != nil {
		c.err = err
		return
	}
	s, err := settings.Load("", os.Environ(), settings.Overrides{
		Addr: "127.0.0.1:0", StateDir: filepath.Join(c.dir, "state"), WorkspaceRoot: filepath.Join(c.dir, "workspace"),
	})
	if err != nil {
		c.err = err
		return
	}
	s.Pool.Ready = 4
	c.how.settings(&s)
	s.Sandbox.MaxConcurrentExecs = 64
	c.app, c.err = startApplication(context.Background(), s, os.Environ(), log)
}

// log is where the common server's log is: no single test can have it.
func (c *sharedServer) log() string { return filepath.Join(c.dir, "log") }

// printLog writes the last warnings and errors of the log to stderr.
func (c *sharedServer) printLog() {
	log, err := os.ReadFile(c.log())
	if err != nil {
		return // it was not started
	}
	lines := slices.DeleteFunc(strings.SplitAfter(string(log), "\n"), func(line string) bool { return strings.Contains(line, " level=INFO ") })
	fmt.Fprintf(os.Stderr, "the last warnings and errors of the common server:\n%s", strings.Join(lines[max(0, len(lines)-30):], ""))
}

// close ends the server, which must leave nothing behind, and removes its directories.
func (c *sharedServer) close() error {
	if c.dir == "" {
		return nil
	}
	var errs []error
	if c.app != nil {
		errs = append(errs, c.app.Close(), c.leftovers())
	}
	root, err := os.OpenRoot(filepath.Dir(c.dir))
	if err == nil {
		defer root.Close()
		_, err = tree.RemoveTree(context.Background(), root, filepath.Base(c.dir))
	}
	return errors.Join(append(errs, err)...)
}

// leftovers is an error when the closed server left containers, captures, spooled results or
// pending directories.
func (c *sharedServer) leftovers() error {
	node, err := os.ReadFile(filepath.Join(c.dir, "state/node_id"))
	if err != nil {
		return err
	}
	out, err := exec.Command("docker", "ps", "-aq", "--filter", "label=secbox.node="+strings.TrimSpace(string(node))).Output()
	if err != nil || len(out) > 0 {
		err = fmt.Errorf("containers of the common server are left: %s %w", out, err)
	}
	if left := mountsOf(strings.TrimSpace(string(node))); len(left) > 0 {
		err = errors.Join(err, fmt.Errorf("mounts of the common server are left: %q", left))
	}
	for _, name := range []string{"captures", "spool", "allotted"} {
		entries, readErr := os.ReadDir(filepath.Join(c.dir, "state", name))
		if err = errors.Join(err, readErr); len(entries) > 0 {
			err = errors.Join(err, fmt.Errorf("%s of the common server's state dir: %v", name, entries))
		}
	}
	return err
}
