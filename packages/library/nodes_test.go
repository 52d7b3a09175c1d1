//go:build unix

package library_test

import (
	"bytes"
	"fmt"
	"sync"
	"testing"

	"secbox/fault"
	"secbox/packages/library"
	"secbox/packages/versions"
	"secbox/skills"
)

// onBoth runs a test on each database.
func onBoth(t *testing.T, run func(*fixture)) {
	t.Helper()
	for name, url := range map[string]func(testing.TB) string{
		"sqlite": func(testing.TB) string { return "" }, "postgres": func(t testing.TB) string { return cluster.Migrated(t) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			run(setUpOn(t, url(t)))
		})
	}
}

// TestNamesAlikeOnTwoNodes: of two names that some systems take for one, two nodes set at most one,
// however they meet.
func TestNamesAlikeOnTwoNodes(t *testing.T) {
	t.Parallel()
	onBoth(t, func(f *fixture) {
		t := f.t
		nodes := []*library.Library{f.Library, f.another()}
		won := 0
		for round := range 6 {
			names := []string{fmt.Sprintf("Demo%d", round), fmt.Sprintf("demo%d", round)}
			errs := make([]error, 2)
			var wait sync.WaitGroup
			for n, l := range nodes {
				wait.Go(func() {
					b := packed(t, names[n], numbered(n))
					scope := []library.Scope{library.Baseline, library.Overlay}[(round+n)%2]
					_, errs[n] = l.Upload(t.Context(), alice, scope, "x.zip", bytes.NewReader(b), int64(len(b)))
				})
			}
			wait.Wait()
			set := 0
			for n, err := range errs {
				used, e := f.registry.Digests(t.Context(), "agent001", skills.Version{SkillID: names[n]}, 1)
				must(t, e)
				there := len(used) == 1 && used[0].SkillID == names[n]
				if there {
					set++
				}
				if err != nil {
					wantFault(t, err, fault.SkillConflict, "")
				}
				if there != (err == nil) {
					t.Errorf("%s is there: %v, and its upload ended with %v", names[n], there, err)
				}
			}
			if set == 2 {
				t.Errorf("both %v are there", names)
			}
			won += set
		}
		t.Logf("%d of 6 rounds had a winner", won)
		f.nothingStaged()
	})
}

// TestClaimedName checks that a caller that finds a rival's claim on the name gives up, in uploads
// and promotions.
func TestClaimedName(t *testing.T) {
	t.Parallel()
	f := setUp(t)
	f.upload(alice, library.Overlay, "own", numbered(1))
	agent, err := versions.New(openSpace(t, f.root)).Agent("agent001")
	must(t, err)
	for _, spelling := range []string{"Demo", "OWN"} {
		rival, release, err := agent.Claim(map[string]string{"Demo": "demo", "OWN": "own"}[spelling], spelling)
		if must(t, err); rival {
			t.Error("the claim was not found")
		}
		defer release()
	}
	_, err = f.tryUpload(alice, library.Baseline, "demo", demo)
	wantFault(t, err, fault.SkillConflict, `"demo"`)
	_, err = f.Promote(t.Context(), alice, "own", false)
	wantFault(t, err, fault.SkillConflict, `"own"`)
	rival, release, err := agent.Claim("demo", "Demo") // the same spelling is not a rival
	if must(t, err); rival {
		t.Error("a rival of itself")
	}
	release()
	f.upload(alice, library.Baseline, "other", demo)
}

// TestSyncBesideAnUpload: a user's upload on one node that was answered is not lost by a sync on
// another.
func TestSyncBesideAnUpload(t *testing.T) {
	t.Parallel()
	onBoth(t, func(f *fixture) {
		t := f.t
		other := f.another()
		own := numbered(1)
		own["own.txt"] = "mine"
		b := packed(t, "demo", own)
		for round := range 10 {
			o := library.Owner{AgentID: "agent001", UserID: fmt.Sprintf("user%d", round)}
			f.upload(alice, library.Baseline, "demo", numbered(2*round))
			f.list(o)
			if round%2 == 1 {
				must(t, f.Materialise(t.Context(), o, "demo"))
			}
			f.upload(alice, library.Baseline, "demo", numbered(2*round+1))
			var wait sync.WaitGroup
			wait.Go(func() {
				if _, err := f.Upload(t.Context(), o, library.Overlay, "x.zip", bytes.NewReader(b), int64(len(b))); err != nil {
					t.Errorf("upload: %v", err)
				}
			})
			wait.Go(func() {
				if _, err := other.Sync(t.Context(), o, "demo", false); err != nil && !fault.Is(err, fault.SkillChanged) {
					t.Errorf("sync: %v", err)
				}
			})
			wait.Wait()
			if got := f.everything(o, "demo"); got["own.txt"] != "mine" {
				t.Errorf("round %d: the upload is lost: %q", round, got)
			}
		}
	})
}
