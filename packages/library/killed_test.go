//go:build unix

package library_test

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"secbox/packages/library"
	"secbox/packages/versions"
	"secbox/pathadapter"
	"secbox/sandbox/sandboxtest"
	"secbox/store"
	"secbox/workspace"
)

// victimOf makes the test binary a process that changes skills below this directory until it is
// killed.
const victimOf = "SECBOX_LIBRARY_VICTIM_OF"

// numbered is a skill whose files all contain the same number.
func numbered(n int) tree {
	files := tree{"SKILL.md": fmt.Sprintf("# %d\n", n)}
	for file := range 20 {
		files[fmt.Sprintf("d%d/%d.txt", file%3, file)] = strconv.Itoa(n)
	}
	return files
}

func victim(base string) {
	check := func(err error) {
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
	}
	ctx := context.Background()
	db, err := store.Open(ctx, "", base)
	check(err)
	adapter, err := pathadapter.New(pathadapter.Config{Root: filepath.Join(base, "ws")})
	check(err)
	w, err := workspace.Open(workspace.Options{Adapter: adapter, UID: -1, GID: -1})
	check(err)
	l, err := library.New(library.Config{Workspace: w, Versions: versions.New(w), Registry: db.Skills()})
	check(err)
	for n := int(time.Now().UnixNano()); ; n++ {
		b, err := zipped("demo", numbered(n))
		check(err)
		for _, scope := range []library.Scope{library.Overlay, library.Baseline} {
			_, err = l.Upload(ctx, alice, scope, "x.zip", bytes.NewReader(b), int64(len(b)))
			check(err)
			check(l.Materialise(ctx, alice, "demo"))
			fmt.Println(scope)
		}
		_, err = l.Sync(ctx, bob, "demo", true)
		check(err)
		check(l.Edit(ctx, bob, "demo", "mine.txt", []byte("mine"), nil))
		_, err = l.Promote(ctx, bob, "demo", true)
		check(err)
		fmt.Println("promoted")
		check(l.Delete(ctx, alice, "demo", library.Overlay))
	}
}

// TestKilledAtAnyPoint kills a process at any point of a change: afterwards there is the old skill
// or the new one, or, between a deletion and the next upload, none.
func TestKilledAtAnyPoint(t *testing.T) {
	t.Parallel()
	base := t.TempDir()
	f := setUpIn(t, base, "")
	f.upload(alice, library.Baseline, "demo", numbered(0))
	f.upload(alice, library.Overlay, "demo", numbered(0))
	for round := range sandboxtest.Soak(6, 100) {
		killOne(t, victimOf+"="+base)
		for _, o := range []library.Owner{alice, bob, {AgentID: "agent001", UserID: "new" + strconv.Itoa(round)}} {
			list := f.list(o)
			if len(list) == 0 && o == alice {
				continue
			}
			if len(list) != 1 {
				t.Fatalf("%s has %+v", o.UserID, list)
			}
			got := f.everything(o, "demo")
			if mine, ok := got["mine.txt"]; ok && mine != "mine" {
				t.Errorf("an edit is %q", mine)
			}
			delete(got, "mine.txt")
			numbers := []string{}
			for name, content := range got {
				if name == "SKILL.md" {
					content = content[2 : len(content)-1]
				}
				numbers = append(numbers, content)
			}
			slices.Sort(numbers)
			if numbers = slices.Compact(numbers); len(numbers) != 1 || len(got) != 21 {
				t.Errorf("round %d: %s has %d files of %v", round, o.UserID, len(got), numbers)
			}
		}
		entries, err := os.ReadDir(filepath.Join(f.root, "projects", alice.ProjectID(), "work", "skills"))
		if err == nil && len(entries) > 1 {
			t.Errorf("in work/skills are %v", entries)
		}
	}
	f.upload(alice, library.Overlay, "demo", numbered(1))
	if got := f.content(alice, "demo", "d0/0.txt"); got != "1" {
		t.Errorf("got %q", got)
	}
}

// killOne starts a process and kills it a moment after it has done a few things.
func killOne(t *testing.T, env string) {
	cmd := exec.CommandContext(t.Context(), os.Args[0])
	cmd.Env = append(os.Environ(), env)
	cmd.Stderr = os.Stderr
	out, err := cmd.StdoutPipe()
	must(t, err)
	must(t, cmd.Start())
	lines := bufio.NewScanner(out)
	steps := 1 + rand.IntN(4)
	if strings.HasPrefix(env, repairerOf) { // it does one thing only
		steps = 1
	}
	for range steps {
		if !lines.Scan() {
			t.Error("the process ended by itself")
		}
	}
	time.Sleep(time.Duration(rand.IntN(10_000)) * time.Microsecond) // the point is to hit any point
	must(t, cmd.Process.Kill())
	for lines.Scan() {
	}
	_ = cmd.Wait()
}

func TestLitterIsSwept(t *testing.T) {
	t.Parallel()
	f := setUp(t)
	f.upload(alice, library.Baseline, "demo", demo)
	f.edit(alice, "demo", "a", "1")
	old := time.Now().Add(-2 * time.Hour)
	var leftovers []string
	for _, dir := range []string{"agents/agent001", "projects/" + alice.ProjectID()} {
		for name, changed := range map[string]time.Time{"old": old, "young": time.Now()} {
			path := filepath.Join(f.root, dir, ".staging", name)
			must(t, os.MkdirAll(filepath.Join(path, "tree"), 0o755))
			must(t, os.Chtimes(path, changed, changed))
			leftovers = append(leftovers, path)
		}
	}
	f.Library = f.another()
	f.upload(alice, library.Overlay, "demo", demo)
	for _, path := range leftovers {
		if there := f.exists(path); there != (filepath.Base(path) == "young") {
			t.Errorf("%s is there: %v", path, there)
		}
	}
}
