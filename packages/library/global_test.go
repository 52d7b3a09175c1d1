//go:build unix

package library_test

import (
	"archive/zip"
	"bytes"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"secbox/fault"
	"secbox/packages/creator"
	"secbox/packages/library"
)

const (
	global = "skill-creator"
	kelvin = "\u212a" // a K whose composed form is the letter
)

// withTool is a library of an installation that has its own skill, as every server has.
func withTool(t *testing.T) *fixture {
	t.Helper()
	f := setUp(t)
	folder, err := creator.Folder()
	must(t, err)
	must(t, f.Versions.InstallTool(folder))
	return f
}

func TestInstallationSkill(t *testing.T) {
	t.Parallel()
	f := withTool(t)
	f.upload(alice, library.Baseline, "demo", demo)
	f.upload(alice, library.Overlay, "zoo", demo)
	ids := []string{}
	for _, one := range f.list(alice) {
		ids = append(ids, one.SkillID)
	}
	if !slices.Equal(ids, []string{"demo", global, "zoo"}) {
		t.Errorf("the list has %v", ids)
	}
	one := f.listed(bob, global)
	digest, err := f.GlobalDigest()
	if one.Status != library.Unchanged || one.BaselineChanged || one.Name != global || !strings.Contains(one.Description, "packs skills") ||
		one.Digest != digest || err != nil {
		t.Errorf("it is listed as %+v, its digest is %s, %v", one, digest, err)
	}
	all := f.everything(bob, global)
	if !strings.HasPrefix(all["skill.py"], "#!") || all["SKILL.md"] == "" {
		t.Errorf("its files are %v", slices.Sorted(maps.Keys(all)))
	}
	var b bytes.Buffer
	must(t, f.Download(t.Context(), bob, global, &b))
	z, err := zip.NewReader(bytes.NewReader(b.Bytes()), int64(b.Len()))
	must(t, err)
	if i := slices.IndexFunc(z.File, func(e *zip.File) bool { return e.Name == "skill-creator/skill.py" }); i < 0 {
		t.Error("the download lacks skill.py")
	}
	if diff, _, err := f.Diff(t.Context(), bob, global); diff != "" || err != nil {
		t.Errorf("the diff is %q, %v", diff, err)
	}
	must(t, f.Materialise(t.Context(), bob, global))
	if f.exists(f.copyDir(bob, global)) {
		t.Error("it was copied into the workspace")
	}
	content, err := f.SandboxRead(t.Context(), bob, "skills/skill-creator/skill.py")
	if err != nil || string(content) != all["skill.py"] {
		t.Errorf("through the sandbox: %d bytes, %v", len(content), err)
	}
	_, err = f.SandboxRead(t.Context(), bob, "skills/skill-creator/none")
	wantFault(t, err, fault.UnknownFile, "none")

	wantFault(t, f.Edit(t.Context(), bob, global, "SKILL.md", []byte("x"), nil), fault.ReservedSkill, global)
	wantFault(t, f.SandboxEdit(t.Context(), bob, "skills/skill-creator/SKILL.md", []byte("x"), nil), fault.ReservedSkill, global)
	wantFault(t, f.Delete(t.Context(), bob, global, library.Overlay), fault.ReservedSkill, global)
	wantFault(t, f.Delete(t.Context(), bob, global, library.Baseline), fault.ReservedSkill, global)
	_, err = f.Promote(t.Context(), bob, global, true)
	wantFault(t, err, fault.ReservedSkill, global)
	_, err = f.Sync(t.Context(), bob, global, true)
	wantFault(t, err, fault.ReservedSkill, global)
	_, err = f.tryUpload(bob, library.Overlay, global, demo)
	wantFault(t, err, fault.ReservedSkill, global)

	_, err = f.Files(t.Context(), library.Owner{AgentID: "a/b", UserID: "u"}, global)
	wantFault(t, err, fault.InvalidRequest, "agent_id")
	wantFault(t, f.Materialise(t.Context(), library.Owner{AgentID: "a", UserID: ".."}, global), fault.InvalidRequest, "user_id")
}

// TestWithoutATool: a workspace into which none was installed has no such skill.
func TestWithoutATool(t *testing.T) {
	t.Parallel()
	f := setUp(t)
	_, err := f.Files(t.Context(), alice, global)
	wantFault(t, err, fault.UnknownSkill, global)
	_, err = f.GlobalDigest()
	wantFault(t, err, fault.UnknownSkill, global)
	if list := f.list(alice); len(list) > 0 {
		t.Errorf("listed are %v", list)
	}
}

// TestNameOfTheInstallationsSkill checks that a file at work/skills/skill-creator, or another
// spelling of it, neither changes the skill nor becomes one, and is not touched.
func TestNameOfTheInstallationsSkill(t *testing.T) {
	t.Parallel()
	for _, name := range []string{"skill-creator", "Skill-Creator", "SKILL-CREATOR", "\uff53kill-creator", "s" + kelvin + "ill-creator", "\u017fkill-creator"} {
		for kind, plant := range map[string]func(t *testing.T, f *fixture, path string){
			"directory": func(t *testing.T, _ *fixture, path string) {
				must(t, os.Mkdir(path, 0o755))
				must(t, os.WriteFile(path+"/SKILL.md", []byte("# mine\n"), 0o644))
				must(t, os.WriteFile(path+"/skill.py", []byte("mine\n"), 0o644))
			},
			"file": func(t *testing.T, _ *fixture, path string) { must(t, os.WriteFile(path, []byte("mine\n"), 0o644)) },
			"link": func(t *testing.T, f *fixture, path string) { must(t, os.Symlink(f.outside, path)) },
			"FIFO": func(t *testing.T, _ *fixture, path string) { must(t, syscall.Mkfifo(path, 0o644)) },
		} {
			t.Run(name+" "+kind, func(t *testing.T) {
				t.Parallel()
				f := withTool(t)
				f.upload(alice, library.Baseline, "demo", demo)
				must(t, f.Materialise(t.Context(), alice, "demo"))
				before := f.everything(alice, global)
				path := f.copyDir(alice, name)
				plant(t, f, path)

				if got := f.everything(alice, global); !maps.Equal(got, before) {
					t.Error("the skill reads otherwise")
				}
				if list := f.list(alice); len(list) != 2 || list[1].SkillID != global || list[1].Status != library.Unchanged {
					t.Errorf("listed are %+v", list)
				}
				if got, err := f.SandboxRead(t.Context(), alice, "skills/skill-creator/SKILL.md"); err != nil || string(got) != before["SKILL.md"] {
					t.Errorf("the sandbox reads %q, %v", got, err)
				}
				files, err := f.SandboxFiles(t.Context(), alice)
				if err != nil || slices.ContainsFunc(files, func(p string) bool { return !strings.HasPrefix(p, "skills/demo/") }) {
					t.Errorf("the sandbox lists %q, %v", files, err)
				}
				reserved, unknown := fault.ReservedSkill, fault.UnknownSkill
				if strings.Contains(name, kelvin) { // such a name is none in the first place
					reserved, unknown = fault.InvalidRequest, fault.InvalidRequest
				}
				wantFault(t, f.SandboxEdit(t.Context(), alice, "skills/"+name+"/SKILL.md", []byte("x"), nil), reserved, "")
				_, err = f.Promote(t.Context(), alice, name, true)
				wantFault(t, err, reserved, "")
				var b bytes.Buffer
				must(t, f.Download(t.Context(), alice, global, &b))
				if strings.Contains(b.String(), "mine") || b.Len() < 1000 {
					t.Error("the download is of something else")
				}
				if name != global {
					_, err = f.Files(t.Context(), alice, name)
					wantFault(t, err, unknown, "")
					_, err = f.SandboxRead(t.Context(), alice, "skills/"+name+"/SKILL.md")
					wantFault(t, err, unknown, "")
				}
				if kind == "file" {
					if got, err := os.ReadFile(path); err != nil || string(got) != "mine\n" {
						t.Errorf("it was touched: %q %v", got, err)
					}
				}
				f.untouched()
				f.nothingStaged()
			})
		}
	}
}

// TestReplacedInstallationSkill: it is not read then, and the list of the others is as it was.
func TestReplacedInstallationSkill(t *testing.T) {
	t.Parallel()
	f := withTool(t)
	f.upload(alice, library.Baseline, "demo", demo)
	dir := filepath.Join(f.root, "tools/skill-creator")
	must(t, os.Rename(dir, dir+".moved"))
	must(t, os.Symlink(f.outside, dir))
	_, err := f.Read(t.Context(), alice, global, "SKILL.md")
	wantFault(t, err, fault.Internal, "restart core-api")
	if got := f.status(alice, "demo"); got != library.Unchanged {
		t.Errorf("the other skill is %s", got)
	}
}
