//go:build unix

package pgtest_test

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"secbox/store/storetest/pgtest"
)

// childEnv makes the test binary play a test that is killed.
const childEnv = "PGTEST_CHILD"

func TestStopKeepsTheData(t *testing.T) {
	t.Parallel()
	c := pgtest.New(t)
	url := c.Database(t)
	if other := c.Database(t); other == url {
		t.Error("two databases have one name")
	}
	c.SQL(t, "test_1", "CREATE TABLE x (i int); INSERT INTO x VALUES (7)")
	for range 2 {
		c.Stop(t)
		if out, err := c.TrySQL("test_1", "SELECT 1"); err == nil {
			t.Errorf("a stopped server answers %q", out)
		}
		c.Start(t)
		if got := c.SQL(t, "test_1", "SELECT i FROM x"); got != "7" {
			t.Errorf("after the start it says %q", got)
		}
	}
}

// TestKilledTestLeavesNothing kills a process that holds a cluster and sees the server and its
// folder go.
func TestKilledTestLeavesNothing(t *testing.T) {
	t.Parallel()
	if os.Getenv(childEnv) != "" {
		c := pgtest.New(t)
		u, err := url.Parse(c.URL("postgres"))
		if err != nil {
			t.Fatal(err)
		}
		fmt.Println("CLUSTER", filepath.Dir(u.Query().Get("host")))
		io.Copy(io.Discard, os.Stdin) // until we are killed
		return
	}
	child := exec.Command(os.Args[0], "-test.run=^TestKilledTestLeavesNothing$")
	child.Env = append(os.Environ(), childEnv+"=1")
	hold, err := child.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	defer hold.Close()
	out, err := child.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := child.Start(); err != nil {
		t.Fatal(err)
	}
	var dir string
	for lines := bufio.NewScanner(out); dir == "" && lines.Scan(); {
		if rest, ok := strings.CutPrefix(lines.Text(), "CLUSTER "); ok {
			dir = rest
		}
	}
	if dir == "" {
		t.Fatal("the child started no cluster")
	}
	pidFile, err := os.ReadFile(filepath.Join(dir, "data", "postmaster.pid"))
	if err != nil {
		t.Fatal(err)
	}
	first, _, _ := strings.Cut(string(pidFile), "\n")
	server, err := strconv.Atoi(first)
	if err != nil {
		t.Fatal(err)
	}
	if err := child.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = child.Wait() // it was killed, as it should

	deadline := time.NewTimer(time.Minute)
	defer deadline.Stop()
	look := time.NewTicker(20 * time.Millisecond)
	defer look.Stop()
	for {
		_, statErr := os.Stat(dir)
		if errors.Is(statErr, os.ErrNotExist) && errors.Is(syscall.Kill(server, 0), syscall.ESRCH) {
			return
		}
		select {
		case <-deadline.C:
			t.Fatalf("a minute later: folder %v, server %v", statErr, syscall.Kill(server, 0))
		case <-look.C:
		}
	}
}
