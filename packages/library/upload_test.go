//go:build unix

package library_test

import (
	"bytes"
	"context"
	"errors"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"testing"

	"secbox/fault"
	"secbox/packages/library"
	"secbox/skills"
)

var demo = tree{
	"SKILL.md":        "---\nname: Demo\ndescription: Says hello.\n---\n# Demo\n",
	"main.py":         "print('hi')\n",
	"utils/helper.py": "x = 1\n",
	".hidden":         "h\n",
}

func TestBaselineIsSharedByUsers(t *testing.T) {
	t.Parallel()
	f := setUp(t)
	up := f.upload(alice, library.Baseline, "demo", demo)
	if up.SkillID != "demo" || up.Files != 4 || up.Scope != library.Baseline {
		t.Errorf("got %+v", up)
	}
	for _, o := range []library.Owner{alice, bob} {
		want := library.Listed{SkillID: "demo", Name: "Demo", Description: "Says hello.", Status: library.Unchanged, Digest: up.Digest}
		if got := f.list(o); len(got) != 1 || got[0] != want {
			t.Errorf("got %+v", got)
		}
		if got := f.everything(o, "demo"); !maps.Equal(got, demo) {
			t.Errorf("got %q", got)
		}
	}
	if f.exists(filepath.Join(f.root, "projects", alice.ProjectID())) {
		t.Error("reading made a workspace")
	}
	f.nothingStaged()
}

func TestOverlayIsPerUser(t *testing.T) {
	t.Parallel()
	f := setUp(t)
	f.upload(alice, library.Baseline, "demo", demo)
	f.upload(alice, library.Overlay, "demo", tree{"SKILL.md": "# Mine\n"})
	f.upload(alice, library.Overlay, "天气", tree{"SKILL.md": "# Weather\n"})
	if got := f.everything(alice, "demo"); !maps.Equal(got, tree{"SKILL.md": "# Mine\n"}) {
		t.Errorf("got %q", got)
	}
	if s := f.status(alice, "demo"); s != library.Modified {
		t.Errorf("demo is %s", s)
	}
	if s := f.status(alice, "天气"); s != library.NewSkill {
		t.Errorf("天气 is %s", s)
	}
	if got := f.everything(bob, "demo"); !maps.Equal(got, demo) {
		t.Errorf("the other user has %q", got)
	}
	if got := f.list(bob); len(got) != 1 {
		t.Errorf("the other user sees %+v", got)
	}
}

func TestUserKeepsFirstVersion(t *testing.T) {
	t.Parallel()
	f := setUp(t)
	f.upload(alice, library.Baseline, "demo", demo)
	f.list(alice)
	second := f.upload(alice, library.Baseline, "demo", tree{"SKILL.md": "# Second\n"})
	if got := f.everything(alice, "demo"); !maps.Equal(got, demo) {
		t.Errorf("got %q", got)
	}
	if one := f.listed(alice, "demo"); one.Status != library.OutOfSync || !one.BaselineChanged || one.Name != "Demo" {
		t.Errorf("got %+v", one)
	}
	if one := f.listed(bob, "demo"); one.Status != library.Unchanged || one.Digest != second.Digest {
		t.Errorf("a user who comes later gets %+v", one)
	}
}

func TestOverlayReplacesWholeCopy(t *testing.T) {
	t.Parallel()
	f := setUp(t)
	f.upload(alice, library.Baseline, "demo", demo)
	f.edit(alice, "demo", "new.txt", "1")
	f.upload(alice, library.Overlay, "demo", tree{"SKILL.md": "# Mine\n"})
	if got := f.everything(alice, "demo"); !maps.Equal(got, tree{"SKILL.md": "# Mine\n"}) {
		t.Errorf("got %q", got)
	}
	f.nothingStaged()
}

// TestSkillWithoutDescription has its folder's name, by upload and by promotion.
func TestSkillWithoutDescription(t *testing.T) {
	t.Parallel()
	f := setUp(t)
	f.upload(alice, library.Overlay, "plain", tree{"main.py": "1"})
	f.edit(alice, "plain", "main.py", "2\n")
	f.promote(alice, "plain", false)
	for _, o := range []library.Owner{alice, bob} {
		if one := f.listed(o, "plain"); one.Name != "plain" || one.Description != "No description available." || one.Status != library.Unchanged {
			t.Errorf("%+v", one)
		}
	}
}

// TestSkillMDInSubfolder is a file like any other: edits of other files, promotion, sync and a
// download that is uploaded again take it, and edits write it.
func TestSkillMDInSubfolder(t *testing.T) {
	t.Parallel()
	f := setUp(t)
	f.upload(alice, library.Baseline, "demo", demo)
	must(t, f.Materialise(t.Context(), alice, "demo"))
	f.list(bob)
	must(t, os.WriteFile(filepath.Join(f.copyDir(alice, "demo"), "utils", "SKILL.md"), []byte("# Copy\n"), 0o644))
	f.edit(alice, "demo", "main.py", "2\n")
	f.edit(alice, "demo", "templates/skill.md", "# Template\n")
	must(t, f.SandboxEdit(t.Context(), alice, "skills/demo/templates/SKILL.md.txt", []byte("x"), nil))
	must(t, f.SandboxEdit(t.Context(), alice, "skills/demo/examples/one/SKILL.md", []byte("# One\n"), nil))
	must(t, f.SandboxEdit(t.Context(), alice, "notes/SKILL.md", []byte("# Note\n"), nil))
	for _, name := range []string{"Skill.md", "SKILL.MD"} {
		wantFault(t, f.Edit(t.Context(), alice, "demo", name, []byte("x"), nil), fault.PathRefused, "write SKILL.md")
		wantFault(t, f.SandboxEdit(t.Context(), alice, "skills/demo/"+name, []byte("x"), nil), fault.PathRefused, "write SKILL.md")
	}
	p := f.promote(alice, "demo", false)
	f.sync(bob, "demo", false)
	if got := f.content(bob, "demo", "utils/SKILL.md"); got != "# Copy\n" {
		t.Errorf("bob has %q", got)
	}
	var zip bytes.Buffer
	must(t, f.Download(t.Context(), bob, "demo", &zip))
	up, err := f.Upload(t.Context(), library.Owner{AgentID: "another", UserID: "u"}, library.Overlay, "x.zip", bytes.NewReader(zip.Bytes()), int64(zip.Len()))
	if err != nil || up.Digest != p.Digest {
		t.Errorf("%+v, %v", up, err)
	}
}

func TestRefusedUploadsChangeNothing(t *testing.T) {
	t.Parallel()
	f := setUp(t)
	f.upload(alice, library.Baseline, "Demo", demo)
	for name, c := range map[string]struct {
		id    string
		files tree
		code  fault.Code
		says  string
	}{
		"differs by case":         {"demo", demo, fault.SkillConflict, `"Demo"`},
		"reserved":                {"skill-creator", demo, fault.ReservedSkill, "skill-creator"},
		"reserved in other case":  {"Skill-Creator", demo, fault.ReservedSkill, "skill-creator"},
		"climbs":                  {"..", demo, fault.InvalidArchive, ".."},
		"an empty SKILL.md":       {"other", tree{"SKILL.md": ""}, fault.InvalidArchive, "empty"},
		"a SKILL.md further down": {"other", tree{"main.py": "1", "a/SKILL.md": "# y"}, fault.SeveralSkills, `"a"`},
	} {
		for _, scope := range []library.Scope{library.Baseline, library.Overlay} {
			_, err := f.tryUpload(bob, scope, c.id, c.files)
			if !fault.Is(err, c.code) {
				t.Errorf("%s to %s: got %v", name, scope, err)
				continue
			}
			wantFault(t, err, c.code, c.says)
		}
	}
	if _, err := f.tryUpload(alice, "both", "x", demo); !fault.Is(err, fault.InvalidRequest) {
		t.Errorf("got %v", err)
	}
	entries, err := os.ReadDir(filepath.Join(f.root, "agents", "agent001", "skills"))
	must(t, err)
	if len(entries) != 1 || len(f.list(bob)) != 1 {
		t.Errorf("got %v", entries)
	}
	f.nothingStaged()
}

func TestNamesDifferingByUnicodeForm(t *testing.T) {
	t.Parallel()
	f := setUp(t)
	f.upload(alice, library.Overlay, "caf\u00e9", demo)
	if up := f.upload(alice, library.Overlay, "cafe\u0301", demo); up.SkillID != "caf\u00e9" { // the archive's id is composed
		t.Errorf("got %q", up.SkillID)
	}
	if _, err := f.tryUpload(alice, library.Overlay, "CAF\u00c9", demo); !fault.Is(err, fault.SkillConflict) {
		t.Errorf("got %v", err)
	}
	if _, err := f.Files(t.Context(), alice, "cafe\u0301"); !fault.Is(err, fault.InvalidRequest) {
		t.Errorf("got %v", err)
	}
}

func TestSameContentIsOneVersion(t *testing.T) {
	t.Parallel()
	f := setUp(t)
	one := f.upload(alice, library.Baseline, "demo", demo)
	two := f.upload(bob, library.Overlay, "demo", demo)
	if one.Digest != two.Digest {
		t.Errorf("%s and %s", one.Digest, two.Digest)
	}
	dir := filepath.Join(f.root, "agents", "agent001", "skills", "demo")
	entries, err := os.ReadDir(dir)
	must(t, err)
	if len(entries) != 1 || entries[0].Name() != one.Digest {
		t.Errorf("got %v", entries)
	}
	// Uploading the same content repairs a damaged version.
	must(t, os.WriteFile(filepath.Join(dir, one.Digest, "main.py"), []byte("damaged"), 0o600))
	f.upload(alice, library.Baseline, "demo", demo)
	if got := f.everything(alice, "demo"); !maps.Equal(got, demo) {
		t.Errorf("got %q", got)
	}
	f.nothingStaged()
}

func TestInvalidIDs(t *testing.T) {
	t.Parallel()
	f := setUp(t)
	long := slices.Repeat([]byte("a"), 300)
	for _, id := range []string{"", "..", ".", "a/b", `a\b`, "a~b", "a\x00b", "\u0430gent", "-a", "_a", ".a", "a.", "con", string(long), "a b", "agent001\n"} {
		for _, o := range []library.Owner{{AgentID: id, UserID: "u"}, {AgentID: "a", UserID: id}} {
			if _, err := f.List(t.Context(), o); !fault.Is(err, fault.InvalidRequest) {
				t.Errorf("%+v: %v", o, err)
			}
			if _, err := f.tryUpload(o, library.Overlay, "demo", demo); !fault.Is(err, fault.InvalidRequest) {
				t.Errorf("%+v: %v", o, err)
			}
		}
	}
	for _, id := range []string{"", "..", ".", "a/b", `a\b`, "a\x00b", ".a", "a.", "con", string(long), "a\nb", "a:b"} {
		_, err := f.Files(t.Context(), alice, id)
		wantFault(t, err, fault.InvalidRequest, "skill_id")
	}
	if entries, _ := os.ReadDir(filepath.Join(f.root, "agents")); len(entries) != 0 {
		t.Errorf("made %v", entries)
	}
}

func TestDashesDoNotMixOwners(t *testing.T) {
	t.Parallel()
	f := setUp(t)
	one, two := library.Owner{AgentID: "a--b", UserID: "c"}, library.Owner{AgentID: "a", UserID: "b--c"}
	f.upload(one, library.Overlay, "demo", demo)
	f.edit(one, "demo", "main.py", "one")
	if got := f.list(two); len(got) != 0 {
		t.Errorf("got %+v", got)
	}
	f.upload(two, library.Overlay, "demo", demo)
	f.edit(two, "demo", "main.py", "two")
	if got := f.content(one, "demo", "main.py"); got != "one" {
		t.Errorf("got %q", got)
	}
}

// collecting is a registry that removes a version after the first pointer to it is set, as a
// collection does if the version counts as old.
type collecting struct {
	skills.Registry
	versions string // where they lie
	once     *sync.Once
}

func (c collecting) Set(ctx context.Context, key skills.PointerKey, saw *skills.PointerState, want skills.PointerState) (row skills.Pointer, err error) {
	row, err = c.Registry.Set(ctx, key, saw, want)
	c.once.Do(func() { err = errors.Join(err, os.RemoveAll(filepath.Join(c.versions, want.Digest))) })
	return row, err
}

// TestUploadDuringCollection stores the version again, even if its own staged tree was the
// collected one.
func TestUploadDuringCollection(t *testing.T) {
	t.Parallel()
	f := setUp(t)
	f.Registry = collecting{f.Registry, filepath.Join(f.root, "agents", "agent001", "skills", "demo"), &sync.Once{}}
	f.upload(alice, library.Baseline, "demo", numbered(0))
	f.allThere()
	f.nothingStaged()
}
