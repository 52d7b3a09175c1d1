//go:build unix

package library_test

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"secbox/packages/library"
	"secbox/packages/repair"
	"secbox/packages/versions"
	"secbox/pathadapter"
	"secbox/sandbox/sandboxtest"
	"secbox/store"
	"secbox/workspace"
)

// collectorOf and repairerOf make the test binary a process that does that below a directory until
// it is killed.
const (
	collectorOf = "SECBOX_LIBRARY_COLLECTOR_OF"
	repairerOf  = "SECBOX_LIBRARY_REPAIRER_OF"
)

// openedIn is a library of a process that will be killed.
func openedIn(ctx context.Context, base string) (*library.Library, error) {
	db, err := store.Open(ctx, "", base)
	if err != nil {
		return nil, err
	}
	adapter, err := pathadapter.New(pathadapter.Config{Root: filepath.Join(base, "ws")})
	if err != nil {
		return nil, err
	}
	w, err := workspace.Open(workspace.Options{Adapter: adapter, UID: -1, GID: -1})
	if err != nil {
		return nil, err
	}
	return library.New(library.Config{Workspace: w, Versions: versions.New(w), Registry: db.Skills()})
}

func collector(base string) error {
	ctx := context.Background()
	l, err := openedIn(ctx, base)
	for n := 0; err == nil; n++ {
		var b []byte
		if b, err = zipped("demo", numbered(n%3)); err != nil {
			break
		}
		for _, o := range []library.Owner{alice, bob} {
			if _, err = l.Upload(ctx, o, library.Overlay, "x.zip", bytes.NewReader(b), int64(len(b))); err != nil {
				return err
			}
		}
		fmt.Println("uploaded")
		if _, err = l.Collect(ctx, time.Now().Add(time.Duration(n+1)*2*time.Hour)); err != nil {
			break
		}
		fmt.Println("collected")
	}
	return err
}

func repairer(base string) error {
	ctx := context.Background()
	l, err := openedIn(ctx, base)
	if err != nil {
		return err
	}
	fmt.Println("begins")
	if _, err := l.Repair(ctx, repair.Options{Now: time.Now()}); err != nil {
		return err
	}
	fmt.Println("done")
	select {} // until it is killed
}

// TestKilledCollecting kills a collection at any point: all users can read the versions of their
// pointers, and the next collection restores versions that are named.
func TestKilledCollecting(t *testing.T) {
	t.Parallel()
	base := t.TempDir()
	f := setUpIn(t, base, "")
	for n := range 3 {
		f.upload(alice, library.Baseline, "demo", numbered(n))
	}
	f.list(alice)
	for range sandboxtest.Soak(4, 100) {
		killOne(t, collectorOf+"="+base)
		for _, o := range []library.Owner{alice, bob} {
			if got := f.everything(o, "demo"); len(got) != 21 || got["SKILL.md"] != "# "+got["d0/0.txt"]+"\n" {
				t.Errorf("%s has %q", o.UserID, got)
			}
		}
		_, err := f.Collect(t.Context(), time.Now())
		must(t, err)
		f.allThere()
	}
}

// TestKilledRepairing: wherever a repair was killed, the next one does the rest, and then
// everything can be read.
func TestKilledRepairing(t *testing.T) {
	t.Parallel()
	base := t.TempDir()
	f := setUpIn(t, base, "")
	const ids = 8
	for round := range sandboxtest.Soak(2, 100) {
		for n := range ids {
			id := fmt.Sprintf("skill%d", n)
			f.upload(alice, library.Baseline, id, numbered(100*round+n))
			f.upload(alice, library.Baseline, id, numbered(100*round+n+50))
		}
		f.list(bob)
		up := f.upload(bob, library.Overlay, "skill0", numbered(100*round+99))
		rows := f.rows()
		f.forget()
		must(t, os.WriteFile(filepath.Join(f.versionDir("skill0", up.Digest), "SKILL.md"), []byte("damaged"), 0o600))
		for _, row := range rows[:2] { // two baselines are left
			_, err := f.registry.Set(t.Context(), row.PointerKey, nil, row.PointerState)
			must(t, err)
		}
		killOne(t, repairerOf+"="+base)
		_, err := f.Repair(t.Context(), repair.Options{Now: time.Now()})
		must(t, err)
		again, err := f.Repair(t.Context(), repair.Options{Now: time.Now()})
		if must(t, err); again.Changes() > 0 {
			t.Errorf("round %d: %+v", round, again.Lines)
		}
		f.allThere()
		for _, o := range []library.Owner{alice, bob, {AgentID: "agent001", UserID: fmt.Sprintf("new%d", round)}} {
			if list := f.list(o); len(list) != ids {
				t.Errorf("round %d: %s has %d skills", round, o.UserID, len(list))
			}
			for _, one := range f.list(o) {
				if got := f.everything(o, one.SkillID); len(got) != 21 || strings.Contains(got["SKILL.md"], "damaged") {
					t.Errorf("round %d: %s of %s is %q", round, one.SkillID, o.UserID, got)
				}
			}
		}
	}
}
