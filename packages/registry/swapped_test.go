//go:build linux

package registry_test

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"secbox/fault"
	"secbox/packages/catalog"
	"secbox/sandbox"
	"secbox/sandbox/sandboxtest"
)

// swap exchanges a directory with a link out of the workspace all the time, until the test ends or
// the returned function is called.
func swap(t *testing.T, at, out string) (stop func()) {
	t.Helper()
	if err := os.Symlink(out, at+"-evil"); err != nil {
		t.Fatal(err)
	}
	ended := make(chan struct{})
	var swapper sync.WaitGroup
	swapper.Go(func() {
		for {
			err := unix.Renameat2(unix.AT_FDCWD, at, unix.AT_FDCWD, at+"-evil", unix.RENAME_EXCHANGE)
			if err != nil && !errors.Is(err, fs.ErrNotExist) {
				t.Error(err)
				return
			}
			select {
			case <-ended:
				return
			case <-time.After(50 * time.Microsecond): // else the swapper has a core to itself
			}
		}
	})
	stop = sync.OnceFunc(func() { close(ended); swapper.Wait() })
	t.Cleanup(stop)
	return stop
}

// TestLinksSwappedDuringEachCall: nothing outside of the workspace is published, listed or changed.
func TestLinksSwappedDuringEachCall(t *testing.T) {
	t.Parallel()
	f := start(t)
	out := t.TempDir()
	if err := os.WriteFile(out+"/SKILL.md", []byte("# Secret"), 0o644); err != nil {
		t.Fatal(err)
	}
	f.plant(ann, "skills/good/SKILL.md", "# Good")
	f.plant(ann, "skills/good/a", "a")
	f.publish(skill(ann, "good"))
	f.plant(ann, "skills/s/SKILL.md", "# Mine")
	f.plant(ann, "skills/s/sub/SKILL.md", "# Mine")
	f.plant(bob, "skills/other/SKILL.md", "# Bob's")
	swap(t, f.at(ann, "skills/s"), out)
	swap(t, f.at(ann, "skills/good"), out)
	stopBob := swap(t, f.at(bob, "skills"), out)
	list := catalog.New(catalog.Config{Sandboxes: chosenHere{f.s}, Fresh: time.Nanosecond})
	fine := func(what string, err error) bool {
		if fault.CodeOf(err) == fault.Internal {
			t.Errorf("%s: %v", what, err)
		}
		return err == nil
	}
	published, installed := 0, 0
	for i := 0; i < sandboxtest.Soak(20, 500) || published == 0 || installed == 0; i++ {
		if t.Context().Err() != nil {
			t.Fatalf("%d publications and %d installations got through", published, installed)
		}
		if _, err := f.Publish(t.Context(), skill(ann, "s")); fine("publish", err) {
			published++
		}
		_, err := f.Install(t.Context(), skill(bob, "good"))
		if fine("install", err) {
			installed++
		}
		fine("uninstall", f.Uninstall(t.Context(), skill(bob, "good")))
		c, err := list.Of(t.Context(), sandbox.User{AgentID: ann.AgentID, ID: ann.UserID})
		if err != nil {
			t.Fatal(err)
		}
		for _, e := range c.Entries {
			if e.Title == "Secret" {
				t.Fatalf("the catalog lists %+v", e)
			}
		}
	}
	stopBob()
	left, err := os.ReadDir(out)
	if content, e := os.ReadFile(out + "/SKILL.md"); err != nil || len(left) != 1 || e != nil || string(content) != "# Secret" {
		t.Errorf("outside are %v, %q, %v", left, content, errors.Join(err, e))
	}
	err = filepath.WalkDir(f.root+"/registry", func(path string, e fs.DirEntry, err error) error {
		if err != nil || e.IsDir() {
			return err
		}
		content, err := os.ReadFile(path)
		if string(content) == "# Secret" {
			t.Errorf("%s was published", path)
		}
		return err
	})
	if err != nil {
		t.Error(err)
	}
}

// chosenHere is the sandbox of users who have chosen nothing.
type chosenHere struct{ sandbox.Backend }

func (chosenHere) Chosen(context.Context, string) (sandbox.Choice, error) {
	return sandbox.Choice{}, nil
}
