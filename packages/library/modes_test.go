//go:build unix

package library_test

import (
	"archive/zip"
	"bytes"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"secbox/fault"
	"secbox/packages/archive"
	"secbox/packages/library"
	"secbox/packages/metadata"
	"secbox/skills"
)

// script is a skill whose run.sh is a program, and whose tool.py is not.
func script() tree {
	return tree{"SKILL.md": "# Script\n", "run.sh": "#!/bin/sh\necho ran\n", "tool.py": "print()\n"}
}

// modesOf has the Unix modes of files in an archive; others get none.
type modesOf = map[string]fs.FileMode

func zippedAs(t *testing.T, files tree, modes modesOf) []byte {
	t.Helper()
	var b bytes.Buffer
	z := zip.NewWriter(&b)
	for name, content := range files {
		h := &zip.FileHeader{Name: "script/" + name}
		if mode, ok := modes[name]; ok {
			h.SetMode(mode)
		}
		w, err := z.CreateHeader(h)
		must(t, err)
		_, err = w.Write([]byte(content))
		must(t, err)
	}
	must(t, z.Close())
	return b.Bytes()
}

func (f *fixture) uploadModes(o library.Owner, scope library.Scope, modes modesOf) library.Uploaded {
	f.t.Helper()
	b := zippedAs(f.t.(*testing.T), script(), modes)
	up, err := f.Upload(f.t.Context(), o, scope, "script.zip", bytes.NewReader(b), int64(len(b)))
	must(f.t, err)
	return up
}

// modes returns the executable files of the user's copy.
func (f *fixture) executables(o library.Owner) string {
	f.t.Helper()
	must(f.t, f.Materialise(f.t.Context(), o, "script"))
	var found []string
	for name := range script() {
		fi, err := os.Stat(filepath.Join(f.copyDir(o, "script"), name))
		must(f.t, err)
		if fi.Mode().Perm() == 0o755 {
			found = append(found, name)
		} else if fi.Mode().Perm() != 0o644 {
			f.t.Errorf("%s is %v", name, fi.Mode())
		}
	}
	if len(found) == 2 {
		return "both"
	}
	return strings.Join(found, " ")
}

var (
	plain   = modesOf{"run.sh": 0o644, "tool.py": 0o644}
	usual   = modesOf{"run.sh": 0o755, "tool.py": 0o644}
	allRun  = modesOf{"run.sh": 0o755, "tool.py": 0o700}
	oddOnes = modesOf{"run.sh": 0o644, "tool.py": 0o755}
)

// TestUploadsKeepTheirModes: the executable bit is content. Nobody else's upload of the same
// contents decides it, before or after.
func TestUploadsKeepTheirModes(t *testing.T) {
	t.Parallel()
	f := setUp(t)
	digests := map[string]bool{}
	for _, c := range []struct {
		modes modesOf
		want  string
	}{{plain, ""}, {usual, "run.sh"}, {allRun, "both"}, {oddOnes, "tool.py"}, {plain, ""}, {nil, "run.sh"}} {
		up := f.uploadModes(alice, library.Overlay, c.modes)
		if got := f.executables(alice); got != c.want {
			t.Errorf("%v: executable are %q, want %q", c.modes, got, c.want)
		}
		if got := f.listed(alice, "script").Digest; got != up.Digest {
			t.Errorf("listed as %s, uploaded as %s", got, up.Digest)
		}
		digests[up.Digest] = true
		f.uploadModes(bob, library.Overlay, plain)
	}
	if len(digests) != 4 {
		t.Errorf("%d digests", len(digests))
	}
}

// TestModeAloneIsChange: it shows in the status and the diff, can be promoted, and merged.
func TestModeAloneIsChange(t *testing.T) {
	t.Parallel()
	f := setUp(t)
	f.uploadModes(alice, library.Baseline, plain)
	f.list(bob)
	f.executables(alice)
	copied := f.copyDir(alice, "script")
	must(t, os.Chmod(filepath.Join(copied, "run.sh"), 0o755))
	if s := f.status(alice, "script"); s != library.Modified {
		t.Errorf("after chmod it is %s", s)
	}
	diff, reviewed, err := f.Diff(t.Context(), alice, "script")
	must(t, err)
	if want := "diff --git a/run.sh b/run.sh\nold mode 100644\nnew mode 100755\n"; diff != want {
		t.Errorf("the diff is %q", diff)
	}
	if _, err := f.Promote(t.Context(), alice, "script", false, reviewed); err != nil {
		t.Fatal(err)
	}
	if s := f.status(alice, "script"); s != library.Unchanged {
		t.Errorf("after the promotion it is %s", s)
	}
	if s := f.status(bob, "script"); s != library.OutOfSync {
		t.Errorf("the other user sees %s", s)
	}
	f.edit(bob, "script", "tool.py", "print(2)\n")
	done, err := f.Sync(t.Context(), bob, "script", false)
	if err != nil || len(done.Updated) != 1 || done.Updated[0] != "run.sh" || len(done.Conflicts) != 0 {
		t.Errorf("%+v %v", done, err)
	}
	if got := f.executables(bob); got != "run.sh" {
		t.Errorf("executable are %q", got)
	}
	var b bytes.Buffer
	must(t, f.Download(t.Context(), bob, "script", &b))
	z, err := zip.NewReader(bytes.NewReader(b.Bytes()), int64(b.Len()))
	must(t, err)
	for _, file := range z.File {
		if got := file.Mode()&0o111 != 0; !file.Mode().IsDir() && got != (file.Name == "script/run.sh") {
			t.Errorf("%s is %v in the download", file.Name, file.Mode())
		}
	}
}

// TestPatchTakesModes: the diff is one that patch -p1 applies, modes included.
func TestPatchTakesModes(t *testing.T) {
	t.Parallel()
	f := setUp(t)
	f.uploadModes(alice, library.Baseline, oddOnes)
	f.executables(alice)
	was, now := t.TempDir(), f.copyDir(alice, "script")
	must(t, os.CopyFS(was, os.DirFS(now)))
	must(t, os.Chmod(filepath.Join(was, "tool.py"), 0o755))
	f.edit(alice, "script", "run.sh", "#!/bin/sh\necho new\n")
	f.edit(alice, "script", "made.sh", "#!/bin/sh\n")
	for _, name := range []string{"run.sh", "made.sh"} {
		must(t, os.Chmod(filepath.Join(now, name), 0o755))
	}
	must(t, os.Chmod(filepath.Join(now, "tool.py"), 0o644))
	text, _, err := f.Diff(t.Context(), alice, "script")
	must(t, err)
	for _, program := range [][]string{{"git", "apply", "-p1"}, {"patch", "-p1", "-s"}} {
		if _, err := exec.LookPath(program[0]); err != nil {
			t.Logf("no %s here", program[0])
			continue
		}
		dir := t.TempDir()
		must(t, os.CopyFS(dir, os.DirFS(was)))
		must(t, os.Chmod(filepath.Join(dir, "tool.py"), 0o755))
		cmd := exec.Command(program[0], program[1:]...)
		cmd.Dir, cmd.Stdin = dir, strings.NewReader(text)
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("%s: %v %s\n%s", program, err, out, text)
		}
		for name, want := range map[string]fs.FileMode{"run.sh": 0o100, "made.sh": 0o100, "tool.py": 0} {
			if fi, err := os.Stat(filepath.Join(dir, name)); err != nil || fi.Mode()&0o100 != want {
				t.Errorf("%s: %s: %v %v", program, name, fi, err)
			}
		}
	}
}

// uploadOlder stores a baseline as it was before modes counted, with a digest of its contents,
// which bob has, too.
func (f *fixture) uploadOlder(modes modesOf) (digest string) {
	f.t.Helper()
	now := f.uploadModes(alice, library.Baseline, modes).Digest
	f.executables(bob)
	older := f.uploadModes(bob, library.Overlay, usual).Digest // of the contents only
	versions := filepath.Join(f.root, "agents", alice.AgentID, "skills", "script")
	if older != now {
		must(f.t, os.RemoveAll(filepath.Join(versions, older)))
		must(f.t, os.Rename(filepath.Join(versions, now), filepath.Join(versions, older)))
	}
	must(f.t, os.RemoveAll(f.copyDir(bob, "script")))
	for _, key := range []skills.PointerKey{{AgentID: alice.AgentID, SkillID: "script"}, {AgentID: bob.AgentID, UserID: "bob", SkillID: "script"}} {
		row, ok, err := f.registry.Get(f.t.Context(), key)
		if err != nil || !ok {
			f.t.Fatal(ok, err)
		}
		is := skills.PointerState{Digest: older}
		if key.UserID != "" {
			is.BaseDigest = older
		}
		_, err = f.registry.Set(f.t.Context(), key, &row.PointerState, is)
		must(f.t, err)
	}
	return older
}

// TestOlderVersionsKeepTheirDigests: a version from before modes counted has a digest of its
// contents, whatever modes it has on disk.
func TestOlderVersionsKeepTheirDigests(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		modes modesOf
		want  string
	}{{plain, ""}, {usual, "run.sh"}, {allRun, "both"}, {oddOnes, "tool.py"}} {
		f, modes, want := setUp(t), c.modes, c.want
		older := f.uploadOlder(modes)
		f.Library = f.another() // after the update

		if got := f.executables(bob); got != want {
			t.Errorf("%v: executable are %q, want %q", modes, got, want)
		}
		if one := f.listed(bob, "script"); one.Status != library.Unchanged || one.Digest != older {
			t.Errorf("%v: %+v", modes, one)
		}
		if text, digest, err := f.Diff(t.Context(), bob, "script"); text != "" || digest != older || err != nil {
			t.Errorf("%v: the diff is %q of %s, %v", modes, text, digest, err)
		}
		if up := f.uploadModes(alice, library.Overlay, modes); up.Digest != older {
			t.Errorf("%v: the same again is %s, not %s", modes, up.Digest, older)
		}
		for _, other := range []modesOf{plain, usual, allRun, oddOnes} {
			up := f.uploadModes(alice, library.Overlay, other)
			if same := other["run.sh"] == modes["run.sh"] && other["tool.py"] == modes["tool.py"]; (up.Digest == older) != same {
				t.Errorf("%v beside %v has the digest %s", other, modes, up.Digest)
			}
			if s := f.status(bob, "script"); s != library.Unchanged {
				t.Errorf("%v: after another's upload it is %s", modes, s)
			}
		}
		for _, other := range []modesOf{plain, usual, allRun, oddOnes} {
			for name, mode := range other {
				must(t, os.Chmod(filepath.Join(f.copyDir(bob, "script"), name), mode))
			}
			s := f.status(bob, "script")
			if same := other["run.sh"] == modes["run.sh"] && other["tool.py"] == modes["tool.py"]; (s == library.Unchanged) != same {
				t.Errorf("%v beside %v is %s", other, modes, s)
			}
		}

		// When the older version was collected and another node has stored the usual modes under
		// its digest, other modes have their own.
		version := filepath.Join(f.root, "agents", alice.AgentID, "skills", "script", older)
		must(t, os.RemoveAll(version))
		must(t, os.CopyFS(version, os.DirFS(f.copyDir(bob, "script"))))
		for name, mode := range usual {
			must(t, os.Chmod(filepath.Join(version, name), mode))
		}
		if up := f.uploadModes(alice, library.Overlay, modes); (up.Digest == older) != (c.want == "run.sh") {
			t.Errorf("%v beside another node's version has the digest %s", modes, up.Digest)
		}
	}
}

func (f *fixture) uploadFile(o library.Owner, name string, pick archive.Pick) ([]library.Uploaded, error) {
	f.t.Helper()
	b, err := os.ReadFile(filepath.Join("testdata", name))
	must(f.t, err)
	return f.UploadSome(f.t.Context(), o, library.Overlay, name, pick, bytes.NewReader(b), int64(len(b)))
}

// TestSecondUploadSetsTheBit: the same files with and without the executable bit are two versions.
func TestSecondUploadSetsTheBit(t *testing.T) {
	t.Parallel()
	f := setUp(t)
	for name, want := range map[string]fs.FileMode{"mode-0644.zip": 0o644, "mode-0755.zip": 0o755} {
		for _, o := range []library.Owner{alice, bob} {
			_, err := f.uploadFile(o, name, archive.Pick{})
			must(t, err)
			must(t, f.Materialise(t.Context(), o, "my-skill"))
			if fi, err := os.Stat(filepath.Join(f.copyDir(o, "my-skill"), "run.sh")); err != nil || fi.Mode() != want {
				t.Errorf("%s: %v %v", name, fi, err)
			}
		}
	}
}

// TestRepositoryOfSkills: an archive of several skills is named, and taken one by one or whole.
func TestRepositoryOfSkills(t *testing.T) {
	t.Parallel()
	f := setUp(t)
	const name = "repository-of-skills.zip"
	_, err := f.uploadFile(alice, name, archive.Pick{})
	wantFault(t, err, fault.SeveralSkills, `"docx", "pdf"`)
	if got := f.list(alice); len(got) != 0 {
		t.Errorf("stored: %+v", got)
	}
	one, err := f.uploadFile(alice, name, archive.Pick{Path: "skills-main/pdf"})
	if err != nil || len(one) != 1 || one[0].SkillID != "pdf" || one[0].Warning != "" {
		t.Errorf("%+v %v", one, err)
	}
	all, err := f.uploadFile(bob, name, archive.Pick{All: true})
	if err != nil || len(all) != 2 || all[0].SkillID != "docx" || all[1].SkillID != "pdf" {
		t.Errorf("%+v %v", all, err)
	}
	if got := f.listed(bob, "docx"); got.Description != "Works on docx files." {
		t.Errorf("%+v", got)
	}
	whole, err := f.uploadFile(bob, name, archive.Pick{Path: "."})
	if err != nil || len(whole) != 1 || whole[0].SkillID != "skills-main" || !strings.Contains(whole[0].Warning, "there is no description") {
		t.Errorf("%+v %v", whole, err)
	}
	if got := f.listed(bob, "skills-main"); got.Warning != whole[0].Warning || got.Description != metadata.NoDescription {
		t.Errorf("%+v", got)
	}
	f.nothingStaged()

	f = setUp(t)
	f.upload(alice, library.Overlay, "PDF", tree{"SKILL.md": "# Capitals\n"})
	_, err = f.uploadFile(alice, name, archive.Pick{All: true})
	wantFault(t, err, fault.SkillConflict, `; stored before it: "docx"`)
	if f.status(alice, "docx") != library.NewSkill {
		t.Error("docx is not stored")
	}
	f.nothingStaged()
}
