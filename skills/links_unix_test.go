//go:build unix

package skills

import (
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"
)

// TestSpecialFilesAreNotOpened has links, FIFOs and sockets where files are expected. Opening a
// FIFO would block, and opening a link would read its target.
func TestSpecialFilesAreNotOpened(t *testing.T) {
	t.Parallel()
	outside := filepath.Join(t.TempDir(), "outside")
	must(t, os.WriteFile(outside, []byte(good), 0o600))
	for name, c := range map[string]struct {
		at   string
		make func(path string) error
		says string
	}{
		"a manifest by link":      {ManifestFile, func(p string) error { return os.Symlink(outside, p) }, "is a symbolic link"},
		"a SKILL.md by link":      {ReadmeFile, func(p string) error { return os.Symlink(outside, p) }, "is a symbolic link"},
		"a script by link":        {"run.sh", func(p string) error { return os.Symlink("SKILL.md", p) }, "is a symbolic link"},
		"a dangling link":         {"more", func(p string) error { return os.Symlink("none", p) }, "is a symbolic link"},
		"a link to a directory":   {"more", func(p string) error { return os.Symlink("/etc", p) }, "is a symbolic link"},
		"a link in a circle":      {"more", func(p string) error { return os.Symlink(".", p) }, "is a symbolic link"},
		"a manifest that is FIFO": {ManifestFile, func(p string) error { return unix.Mkfifo(p, 0o644) }, "is a FIFO"},
		"a SKILL.md that is FIFO": {ReadmeFile, func(p string) error { return unix.Mkfifo(p, 0o644) }, "is a FIFO"},
		"a FIFO below":            {"lib/pipe", func(p string) error { return unix.Mkfifo(p, 0o644) }, "is a FIFO"},
		"a socket":                {"s", func(p string) error { _, err := net.Listen("unix", p); return err }, "is a socket"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir, err := os.MkdirTemp("", "s") // a socket's path must be short
			must(t, err)
			t.Cleanup(func() { os.RemoveAll(dir) })
			folder := filepath.Join(dir, "text.demo")
			demo().without(c.at).write(t, folder)
			must(t, os.MkdirAll(filepath.Dir(filepath.Join(folder, c.at)), 0o755))
			must(t, c.make(filepath.Join(folder, c.at)))
			problems := brokenOf(t, open(t, dir).Now(), "text.demo")
			if len(problems) != 1 && c.at != ManifestFile && c.at != ReadmeFile && c.at != "run.sh" {
				t.Errorf("%+v", problems)
			}
			wantProblem(t, problems, c.at, c.says)
		})
	}
}

func TestLinkedFolderIsNotFollowed(t *testing.T) {
	t.Parallel()
	elsewhere, dir := t.TempDir(), t.TempDir()
	demo().write(t, filepath.Join(elsewhere, "text.demo"))
	must(t, os.Symlink(filepath.Join(elsewhere, "text.demo"), filepath.Join(dir, "text.demo")))
	must(t, unix.Mkfifo(filepath.Join(dir, "text.fifo"), 0o644))
	now := open(t, dir).Now()
	wantProblem(t, brokenOf(t, now, "text.demo"), "", "is a symbolic link")
	if len(now.Broken()) != 1 {
		t.Errorf("%+v", now.Broken())
	}
	// The operator's folder itself may be a link: the operator is trusted.
	link := filepath.Join(t.TempDir(), "skills")
	must(t, os.Symlink(elsewhere, link))
	_, err := open(t, link).Now().Get("text.demo")
	must(t, err)
}

// TestSkillFSFollowsNothing reads from Skill.FS after the folder was checked and changed.
func TestSkillFSFollowsNothing(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	folder := filepath.Join(dir, "text.demo")
	demo().with("lib/x", "x").write(t, folder)
	s, err := open(t, dir).Now().Get("text.demo")
	must(t, err)
	must(t, os.Remove(filepath.Join(folder, "run.sh")))
	must(t, os.Symlink("SKILL.md", filepath.Join(folder, "run.sh")))
	must(t, os.Remove(filepath.Join(folder, ManifestFile)))
	must(t, unix.Mkfifo(filepath.Join(folder, ManifestFile), 0o644))
	must(t, os.Rename(filepath.Join(folder, "lib"), filepath.Join(folder, "real")))
	must(t, os.Symlink("real", filepath.Join(folder, "lib")))
	for _, name := range []string{"run.sh", ManifestFile, "lib/x", "../text.demo/SKILL.md", "/etc/passwd", "", "none"} {
		if content, err := fs.ReadFile(s.FS(), name); err == nil {
			t.Errorf("%q was read: %q", name, content)
		}
	}
	if _, err := fs.ReadFile(s.FS(), "real/x"); err != nil {
		t.Error(err)
	}
	must(t, os.Rename(folder, folder+".away"))
	must(t, os.Symlink(folder+".away", folder))
	if _, err := fs.ReadFile(s.FS(), ReadmeFile); err == nil {
		t.Error("the folder itself is a link now")
	}
}

func TestFileWithoutPermission(t *testing.T) {
	t.Parallel()
	if os.Geteuid() == 0 {
		// root can read everything, so only reasonOf is tested.
		if got := reasonOf(&fs.PathError{Op: "open", Path: "/secret/place", Err: unix.EACCES}); got != "cannot be read: permission denied" {
			t.Error(got)
		}
		return
	}
	dir := t.TempDir()
	demo().write(t, filepath.Join(dir, "text.demo"))
	must(t, os.Chmod(filepath.Join(dir, "text.demo", "run.sh"), 0))
	wantProblem(t, brokenOf(t, open(t, dir).Now(), "text.demo"), "run.sh", "permission denied")
}
