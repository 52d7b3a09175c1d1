//go:build unix

package library_test

import (
	"bytes"
	"fmt"
	"slices"
	"strings"
	"testing"

	"secbox/fault"
	"secbox/packages/library"
	"secbox/skills"
)

// TestViewShowsWhatTheUserWouldFind: a view of each user is what the user's own requests find, and
// it pins nobody.
func TestViewShowsWhatTheUserWouldFind(t *testing.T) {
	t.Parallel()
	f := setUp(t)
	f.upload(alice, library.Baseline, "one", tree{"SKILL.md": "# One\n", "a.txt": "1\n"})
	f.upload(alice, library.Baseline, "three", tree{"SKILL.md": "# Three\n"})
	f.upload(bob, library.Overlay, "two", tree{"SKILL.md": "# Two\n"})
	must(t, f.Edit(t.Context(), bob, "three", "SKILL.md", []byte("# Changed\n"), nil))
	must(t, f.Delete(t.Context(), bob, "one", library.Overlay))
	carol := library.Owner{AgentID: "agent001", UserID: "carol"}
	view := f.View()
	for _, o := range []library.Owner{alice, bob, carol} {
		before, err := skills.PointersOf(t.Context(), f.registry, o.AgentID, o.UserID)
		must(t, err)
		shown, err := view.List(t.Context(), o)
		must(t, err)
		for _, one := range shown {
			files, err := view.Files(t.Context(), o, one.SkillID)
			must(t, err)
			if !slices.Contains(files, "SKILL.md") {
				t.Errorf("%s of %s has the files %q", one.SkillID, o.UserID, files)
			}
			if _, err := view.Read(t.Context(), o, one.SkillID, "SKILL.md"); err != nil {
				t.Error(err)
			}
			if text, digest, err := view.Diff(t.Context(), o, one.SkillID); err != nil || digest != one.Digest ||
				(text != "") != (one.Status == library.Modified || one.Status == library.NewSkill) {
				t.Errorf("diff of %s: %q, %v", one.SkillID, text, err)
			}
			var zip bytes.Buffer
			if err := view.Download(t.Context(), o, one.SkillID, &zip); err != nil || zip.Len() == 0 {
				t.Errorf("download of %s: %v", one.SkillID, err)
			}
		}
		after, err := skills.PointersOf(t.Context(), f.registry, o.AgentID, o.UserID)
		must(t, err)
		if fmt.Sprint(before) != fmt.Sprint(after) {
			t.Errorf("a look at %s changed the pointers from %v to %v", o.UserID, before, after)
		}
		own, err := f.List(t.Context(), o)
		must(t, err)
		if !slices.Equal(shown, own) {
			t.Errorf("%s is shown %v, and finds %v", o.UserID, shown, own)
		}
	}
	if _, err := view.Files(t.Context(), bob, "one"); !fault.Is(err, fault.UnknownSkill) {
		t.Errorf("a skill that bob has deleted: %v", err)
	}
}

// TestViewFollowsBaselines: before the first request of a user, a view shows the present baseline;
// after it, the one that the user is pinned to.
func TestViewFollowsBaselines(t *testing.T) {
	t.Parallel()
	f := setUp(t)
	view := f.View()
	read := func() string {
		t.Helper()
		content, err := view.Read(t.Context(), bob, "one", "SKILL.md")
		must(t, err)
		return string(content)
	}
	f.upload(alice, library.Baseline, "one", tree{"SKILL.md": "# 1\n"})
	if got := read(); got != "# 1\n" {
		t.Errorf("shown %q", got)
	}
	f.upload(alice, library.Baseline, "one", tree{"SKILL.md": "# 2\n"})
	if got := read(); got != "# 2\n" {
		t.Errorf("after a new baseline %q", got)
	}
	mine, baseline, err := view.Pointers(t.Context(), bob, "one")
	if err != nil || mine == nil || baseline == nil || mine.Digest != baseline.Digest || !mine.CreatedAt.IsZero() || baseline.CreatedAt.IsZero() {
		t.Errorf("pointers %+v, %+v, %v", mine, baseline, err)
	}
	_, err = f.List(t.Context(), bob)
	must(t, err)
	f.upload(alice, library.Baseline, "one", tree{"SKILL.md": "# 3\n"})
	if got := read(); got != "# 2\n" {
		t.Errorf("after bob's first request %q", got)
	}
}

// TestViewPages: the pages of a view's registry have every skill once, in order.
func TestViewPages(t *testing.T) {
	t.Parallel()
	f := setUp(t)
	digest := strings.Repeat("a", 64)
	var want []string
	for i := range 7 {
		id := fmt.Sprintf("s%d", i)
		want = append(want, id)
		owner := ""
		if i%3 == 0 {
			owner = bob.UserID
		}
		_, err := f.registry.Set(t.Context(), skills.PointerKey{AgentID: "agent001", UserID: owner, SkillID: id}, nil, skills.PointerState{Digest: digest})
		must(t, err)
	}
	var got []string
	for after := ""; ; {
		page, err := library.Unpinned(f.registry).List(t.Context(), "agent001", bob.UserID, after, 2)
		must(t, err)
		for _, row := range page {
			if row.UserID != bob.UserID {
				t.Errorf("a row of %q", row.UserID)
			}
			got = append(got, row.SkillID)
			after = row.SkillID
		}
		if len(page) < 2 {
			break
		}
	}
	if !slices.Equal(got, want) {
		t.Errorf("pages have %q", got)
	}
	for i, change := range []func() error{
		func() error {
			_, err := library.Unpinned(f.registry).Set(t.Context(), skills.PointerKey{AgentID: "agent001", SkillID: "x"}, nil,
				skills.PointerState{Digest: digest})
			return err
		},
		func() error {
			return library.Unpinned(f.registry).Remove(t.Context(), skills.PointerKey{AgentID: "agent001", SkillID: "s1"}, skills.PointerState{Digest: digest})
		},
	} {
		if err := change(); !fault.Is(err, fault.Internal) {
			t.Errorf("change %d: %v", i, err)
		}
	}
}

// TestBaselineOfAnAgent: a look at a baseline shows the agent's files, not those that a user has
// changed, and refuses paths that lead out of it.
func TestBaselineOfAnAgent(t *testing.T) {
	t.Parallel()
	f := setUp(t)
	f.upload(alice, library.Baseline, "one", tree{"SKILL.md": "# One\n", "lib/a.txt": "1\n"})
	must(t, f.Edit(t.Context(), alice, "one", "lib/a.txt", []byte("2\n"), nil))
	view, agent := f.View(), alice.AgentID
	row, files, err := view.Baseline(t.Context(), agent, "one")
	if want := []string{"SKILL.md", "lib/a.txt"}; err != nil || !slices.Equal(files, want) || row.SkillID != "one" || len(row.Digest) != 64 {
		t.Errorf("%+v, %q, %v", row, files, err)
	}
	if read, err := view.ReadBaseline(t.Context(), agent, "one", "lib/a.txt"); string(read) != "1\n" || err != nil {
		t.Errorf("%q, %v", read, err)
	}
	for _, path := range []string{"../../a", "/etc/passwd", "lib/../../x", "lib", "none"} {
		if read, err := view.ReadBaseline(t.Context(), agent, "one", path); err == nil {
			t.Errorf("%s: %q", path, read)
		}
	}
	for _, at := range [][2]string{{agent, "none"}, {agent, "../one"}, {agent, "skill-creator"}, {"../agent001", "one"}, {"other", "one"}, {"", "one"}} {
		if _, _, err := view.Baseline(t.Context(), at[0], at[1]); err == nil {
			t.Errorf("%q has a baseline", at)
		}
	}
}
