//go:build unix

package library_test

import (
	"bytes"
	"io"
	"maps"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"secbox/fault"
	"secbox/packages/library"
	"secbox/skills"
)

func (f *fixture) promote(o library.Owner, id string, force bool) library.Promoted {
	f.t.Helper()
	p, err := f.Promote(f.t.Context(), o, id, force)
	must(f.t, err)
	return p
}

func (f *fixture) baseline(id string) string {
	f.t.Helper()
	row, _, err := f.registry.Get(f.t.Context(), skills.PointerKey{AgentID: alice.AgentID, SkillID: id})
	must(f.t, err)
	return row.Digest
}

func TestPromotion(t *testing.T) {
	t.Parallel()
	f := setUp(t)
	first := f.upload(alice, library.Baseline, "demo", demo)
	f.list(bob)
	if _, err := f.Promote(t.Context(), alice, "demo", false); !fault.Is(err, fault.SkillConflict) {
		t.Errorf("an unchanged one: %v", err)
	}
	f.edit(alice, "demo", "main.py", "print(2)\n")
	p := f.promote(alice, "demo", false)
	if p.Previous != first.Digest || p.Digest != f.baseline("demo") || p.Digest == first.Digest {
		t.Errorf("got %+v", p)
	}
	if s := f.status(alice, "demo"); s != library.Unchanged {
		t.Errorf("the promoter sees %s", s)
	}
	if s := f.status(bob, "demo"); s != library.OutOfSync {
		t.Errorf("the other user sees %s", s)
	}
	if _, err := f.Promote(t.Context(), bob, "demo", true); !fault.Is(err, fault.SkillConflict) {
		t.Errorf("one that is out of sync: %v", err)
	}
	if got := f.content(bob, "demo", "main.py"); got != demo["main.py"] {
		t.Errorf("the other user reads %q", got)
	}
	if got := f.content(library.Owner{AgentID: "agent001", UserID: "carol"}, "demo", "main.py"); got != "print(2)\n" {
		t.Errorf("a new user reads %q", got)
	}
	f.nothingStaged()
}

// TestPromotionOfReviewedVersion: it promotes only the version with the given digest.
func TestPromotionOfReviewedVersion(t *testing.T) {
	t.Parallel()
	f := setUp(t)
	f.upload(alice, library.Baseline, "demo", demo)
	f.edit(alice, "demo", "main.py", "good\n")
	diff, reviewed, err := f.Diff(t.Context(), alice, "demo")
	must(t, err)
	if reviewed != f.listed(alice, "demo").Digest || !strings.Contains(diff, "+good") {
		t.Fatalf("the diff of %s is %q", reviewed, diff)
	}
	f.edit(alice, "demo", "main.py", "evil\n")
	before := f.baseline("demo")
	_, err = f.Promote(t.Context(), alice, "demo", true, reviewed)
	wantFault(t, err, fault.PreconditionFailed, f.listed(alice, "demo").Digest)
	if f.baseline("demo") != before {
		t.Error("the baseline has moved")
	}
	f.edit(alice, "demo", "main.py", "good\n")
	p, err := f.Promote(t.Context(), alice, "demo", false, "another", reviewed)
	must(t, err)
	if p.Digest != reviewed {
		t.Errorf("promoted %s", p.Digest)
	}
	// A version without a copy is named by its digest, too.
	f.list(bob)
	must(t, f.Delete(t.Context(), alice, "demo", library.Baseline))
	_, err = f.Promote(t.Context(), bob, "demo", false, "another")
	wantFault(t, err, fault.PreconditionFailed, reviewed)
	if _, err = f.Promote(t.Context(), bob, "demo", false, reviewed); err != nil {
		t.Error(err)
	}
	f.nothingStaged()
}

// TestCopiesNeedSpace checks that promotions and downloads keep the same space free as uploads.
func TestCopiesNeedSpace(t *testing.T) {
	t.Parallel()
	f := setUp(t)
	f.upload(alice, library.Overlay, "demo", demo)
	f.edit(alice, "demo", "main.py", "1\n")
	f.FreeMinBytes = 1 << 60
	_, err := f.Promote(t.Context(), alice, "demo", false)
	wantFault(t, err, fault.DiskFull, "free some space")
	wantFault(t, f.Download(t.Context(), alice, "demo", io.Discard), fault.DiskFull, "free some space")
	f.nothingStaged()
}

// TestSkillWithoutBaseline: users who have it keep it as their own, and it can become the baseline
// again.
func TestSkillWithoutBaseline(t *testing.T) {
	t.Parallel()
	f := setUp(t)
	f.upload(alice, library.Baseline, "demo", demo)
	must(t, f.Materialise(t.Context(), alice, "demo"))
	f.edit(bob, "demo", "main.py", "bob\n")
	must(t, f.Delete(t.Context(), alice, "demo", library.Baseline))
	for _, o := range []library.Owner{alice, bob} {
		if one := f.listed(o, "demo"); one.Status != library.NewSkill || one.BaselineChanged {
			t.Errorf("%s has %+v", o.UserID, one)
		}
		for _, force := range []bool{false, true} {
			_, err := f.Sync(t.Context(), o, "demo", force)
			wantFault(t, err, fault.SkillConflict, "promote it")
		}
	}
	p := f.promote(alice, "demo", false)
	if p.Previous != "" || f.status(alice, "demo") != library.Unchanged {
		t.Errorf("%+v, %s", p, f.status(alice, "demo"))
	}
	if s := f.status(bob, "demo"); s != library.Modified {
		t.Errorf("bob's is %s", s)
	}
}

func TestPromotionConflict(t *testing.T) {
	t.Parallel()
	f := setUp(t)
	f.upload(alice, library.Baseline, "demo", demo)
	f.edit(alice, "demo", "main.py", "alice\n")
	f.edit(bob, "demo", "main.py", "bob\n")
	hers := f.promote(alice, "demo", false)
	if one := f.listed(bob, "demo"); one.Status != library.Modified || !one.BaselineChanged {
		t.Errorf("got %+v", one)
	}
	_, err := f.Promote(t.Context(), bob, "demo", false)
	wantFault(t, err, fault.SkillMoved, "sync")
	if f.baseline("demo") != hers.Digest {
		t.Error("the baseline has moved")
	}
	f.promote(bob, "demo", true)
	if s := f.status(alice, "demo"); s != library.OutOfSync {
		t.Errorf("it is %s", s)
	}
	// Two users with the same changes are not in conflict.
	f.edit(alice, "demo", "main.py", "bob\n")
	if one := f.listed(alice, "demo"); one.Status != library.Unchanged || one.BaselineChanged {
		t.Errorf("got %+v", one)
	}
}

func TestPromoteNewSkill(t *testing.T) {
	t.Parallel()
	f := setUp(t)
	f.upload(alice, library.Overlay, "uploaded", demo)
	f.promote(alice, "uploaded", false)
	// One that a command has made has no pointer.
	dir := f.copyDir(alice, "made")
	must(t, f.SandboxEdit(t.Context(), alice, "x", nil, nil))
	must(t, os.MkdirAll(dir, 0o755))
	if s := f.status(alice, "made"); s != library.NewSkill {
		t.Errorf("it is %s", s)
	}
	_, err := f.Promote(t.Context(), alice, "made", false)
	wantFault(t, err, fault.SkillConflict, "SKILL.md")
	must(t, os.WriteFile(filepath.Join(dir, "SKILL.md"), []byte("# Made\n"), 0o600))
	f.promote(alice, "made", false)
	if got := f.everything(bob, "made"); !maps.Equal(got, tree{"SKILL.md": "# Made\n"}) {
		t.Errorf("got %q", got)
	}
	if list := f.list(bob); len(list) != 2 {
		t.Errorf("got %+v", list)
	}
	if _, err := f.Promote(t.Context(), alice, "none", false); !fault.Is(err, fault.UnknownSkill) {
		t.Errorf("got %v", err)
	}
}

func TestDeletion(t *testing.T) {
	t.Parallel()
	f := setUp(t)
	f.upload(alice, library.Baseline, "demo", demo)
	f.edit(alice, "demo", "main.py", "x")
	must(t, f.Delete(t.Context(), alice, "demo", library.Overlay))
	for range 2 {
		if list := f.list(alice); len(list) != 0 {
			t.Errorf("got %+v", list)
		}
	}
	if _, err := f.Files(t.Context(), alice, "demo"); !fault.Is(err, fault.UnknownSkill) {
		t.Errorf("got %v", err)
	}
	if err := f.Edit(t.Context(), alice, "demo", "a", nil, nil); !fault.Is(err, fault.UnknownSkill) {
		t.Errorf("got %v", err)
	}
	if err := f.Delete(t.Context(), alice, "demo", library.Overlay); !fault.Is(err, fault.UnknownSkill) {
		t.Errorf("got %v", err)
	}
	if f.exists(f.copyDir(alice, "demo")) {
		t.Error("the copy is there")
	}
	if got := f.everything(bob, "demo"); !maps.Equal(got, demo) {
		t.Errorf("the other user has %q", got)
	}
	must(t, f.Delete(t.Context(), alice, "demo", library.Baseline))
	if got := f.everything(bob, "demo"); !maps.Equal(got, demo) {
		t.Errorf("who has it keeps it: %q", got)
	}
	if list := f.list(library.Owner{AgentID: "agent001", UserID: "carol"}); len(list) != 0 {
		t.Errorf("got %+v", list)
	}
	for _, scope := range []library.Scope{library.Baseline, library.Overlay} {
		if err := f.Delete(t.Context(), alice, "demo", scope); !fault.Is(err, fault.UnknownSkill) {
			t.Errorf("%s: %v", scope, err)
		}
		if err := f.Delete(t.Context(), alice, "skill-creator", scope); !fault.Is(err, fault.ReservedSkill) {
			t.Errorf("%s: %v", scope, err)
		}
	}
	if err := f.Delete(t.Context(), alice, "demo", ""); !fault.Is(err, fault.InvalidRequest) {
		t.Errorf("got %v", err)
	}
	f.upload(alice, library.Overlay, "demo", demo)
	if s := f.status(alice, "demo"); s != library.NewSkill {
		t.Errorf("it is %s", s)
	}
	f.nothingStaged()
}

func TestDownloadCanBeUploaded(t *testing.T) {
	t.Parallel()
	f := setUp(t)
	up := f.upload(alice, library.Baseline, "demo", demo)
	for _, materialised := range []bool{false, true} {
		if materialised {
			must(t, f.Materialise(t.Context(), alice, "demo"))
		}
		var b bytes.Buffer
		must(t, f.Download(t.Context(), alice, "demo", &b))
		again, err := f.Upload(t.Context(), alice, library.Overlay, "x.zip", bytes.NewReader(b.Bytes()), int64(b.Len()))
		if err != nil || again.Digest != up.Digest || again.SkillID != "demo" {
			t.Errorf("got %+v, %v", again, err)
		}
	}
	if err := f.Download(t.Context(), alice, "none", &bytes.Buffer{}); !fault.Is(err, fault.UnknownSkill) {
		t.Errorf("got %v", err)
	}
	f.nothingStaged()
}
