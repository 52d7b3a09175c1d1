//go:build unix

package workspace_test

import (
	"bufio"
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"testing"
	"time"

	"secbox/workspace/tree"
)

// victimOf makes the test binary a process that packs and unpacks the workspace below this root until it is killed.
const victimOf = "SECBOX_WORKSPACE_VICTIM_OF"

func TestMain(m *testing.M) {
	if root := os.Getenv(victimOf); root != "" {
		fmt.Fprintln(os.Stderr, victim(root))
		os.Exit(1)
	}
	os.Exit(m.Run())
}

// victim packs, reads, increments a number in one file, and prints it.
func victim(root string) error {
	used, err := os.Stat(filepath.Join(root, "projects", idleID, ".idle", "used"))
	if err != nil {
		return err
	}
	now := used.ModTime() // earlier victims may have been in the future
	w, err := openIdleSpace(root, func() time.Time { return now }, nil)
	if err != nil {
		return err
	}
	for {
		p, err := w.Existing(idleID)
		if err != nil {
			return err
		}
		now = now.Add(2 * day)
		if done, err := p.PackIdle(context.Background(), day, nil); err != nil || !done {
			return fmt.Errorf("packed: %v %w", done, err)
		}
		fmt.Println("packed")
		tree, err := p.Work()
		if err != nil {
			return err
		}
		n, err := counted(tree)
		if err == nil {
			err = tree.Write("count", []byte(strconv.Itoa(n+1)), nil)
		}
		if err != nil {
			return err
		}
		if err := tree.Close(); err != nil {
			return err
		}
		fmt.Println(n + 1)
	}
}

func counted(tree *tree.Tree) (int, error) {
	f, fi, err := tree.Open("count")
	if err != nil {
		return 0, err
	}
	defer f.Close()
	b := make([]byte, fi.Size())
	if _, err := f.Read(b); err != nil {
		return 0, err
	}
	return strconv.Atoi(string(b))
}

// TestKilledWhilePacking: whenever a process is killed, everything is there afterwards, and no write that it reported is undone.
func TestKilledWhilePacking(t *testing.T) {
	t.Parallel()
	f := setUpIdle(t)
	for i := range 40 {
		write(t, filepath.Join(f.work, "d"+strconv.Itoa(i%7), strconv.Itoa(i)), fmt.Sprint(i, time.Now()))
	}
	must(t, os.Symlink("/etc/passwd", filepath.Join(f.work, "d1", "link")))
	before := snapshotOf(t, f.work)
	write(t, filepath.Join(f.work, "count"), "0")
	for range 15 {
		reported := killVictim(t, f.root)
		f.Workspace = f.another()
		must(t, f.restore())
		n, err := strconv.Atoi(read(t, filepath.Join(f.work, "count")))
		must(t, err)
		if n != reported && n != reported+1 {
			t.Fatalf("%d was reported, and there is %d", reported, n)
		}
		now := snapshotOf(t, f.work)
		delete(now, "count")
		top := before["."]
		top.modified = now["."].modified // a file was replaced in it
		before["."] = top
		sameTree(t, before, now)
	}
	f.tidyAfterCrash()
}

// tidyAfterCrash packs, which sweeps.
func (f *idleFixture) tidyAfterCrash() {
	f.t.Helper()
	used, err := os.Stat(f.idle("used"))
	must(f.t, err)
	f.clock.Store(used.ModTime().UnixNano()) // the victims were in the future
	f.pack()
	f.tidy("pack.tar.zst")
}

// killVictim starts one, kills it a moment later, and returns the last number that it printed.
func killVictim(t *testing.T, root string) (reported int) {
	cmd := exec.CommandContext(t.Context(), os.Args[0])
	cmd.Env = append(os.Environ(), victimOf+"="+root)
	cmd.Stderr = os.Stderr
	out, err := cmd.StdoutPipe()
	must(t, err)
	must(t, cmd.Start())
	lines := bufio.NewScanner(out)
	seen := func() bool {
		if !lines.Scan() {
			return false
		}
		if n, err := strconv.Atoi(lines.Text()); err == nil {
			reported = n
		}
		return true
	}
	for range 2 + rand.IntN(4) { // at least one count
		if !seen() {
			t.Error("the process ended by itself")
		}
	}
	time.Sleep(time.Duration(rand.IntN(15_000)) * time.Microsecond) // the point is to hit any point
	must(t, cmd.Process.Kill())
	for seen() {
	}
	_ = cmd.Wait()
	return reported
}
