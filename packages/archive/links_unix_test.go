//go:build unix

package archive

import (
	"bytes"
	"context"
	"io"
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"

	"secbox/fault"
)

// TestExistingFilesStay puts links and files where the archive's entries go.
func TestExistingFilesStay(t *testing.T) {
	t.Parallel()
	outside := t.TempDir()
	victim := filepath.Join(outside, "victim")
	for name, plant := range map[string]func(dir string) error{
		"a link at a file, outside":   func(dir string) error { return os.Symlink(victim, filepath.Join(dir, "SKILL.md")) },
		"a link at a file, inside":    func(dir string) error { return os.Symlink("new", filepath.Join(dir, "SKILL.md")) },
		"a link at a folder, outside": func(dir string) error { return os.Symlink(outside, filepath.Join(dir, "lib")) },
		"a file at a file":            func(dir string) error { return os.WriteFile(filepath.Join(dir, "SKILL.md"), []byte("old"), 0o600) },
		"a folder at a folder":        func(dir string) error { return os.Mkdir(filepath.Join(dir, "lib"), 0o700) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir, into := newDir(t)
			if err := plant(dir); err != nil {
				t.Fatal(err)
			}
			b := some()
			_, err := unpackAll(context.Background(), bytes.NewReader(b), int64(len(b)), "", into, DefaultLimits())
			if !fault.Is(err, fault.Internal) {
				t.Errorf("got %v", err)
			}
			if _, err := os.Lstat(victim); err == nil {
				t.Error("something was written outside")
			}
			if list, _ := os.ReadDir(outside); len(list) != 0 {
				t.Errorf("outside there is %v", list)
			}
			if b, err := os.ReadFile(filepath.Join(dir, "new")); err == nil {
				t.Errorf("a link was followed: %q", b)
			}
			if name == "a file at a file" {
				if b, err := os.ReadFile(filepath.Join(dir, "SKILL.md")); err != nil || string(b) != "old" {
					t.Errorf("the file holds %q, %v", b, err)
				}
			}
		})
	}
}

func TestLinkIsNotPacked(t *testing.T) {
	t.Parallel()
	dir, into := newDir(t)
	if err := os.Symlink("/etc/passwd", filepath.Join(dir, "link")); err != nil {
		t.Fatal(err)
	}
	wantFault(t, Pack(context.Background(), io.Discard, into.FS(), "x"), fault.InvalidArchive, `"link" cannot be packed: it is a link`)
}

// TestModesIgnoreUmask is not parallel: the umask is the whole process's.
func TestModesIgnoreUmask(t *testing.T) {
	before := unix.Umask(0o077)
	defer unix.Umask(before)
	_, tree, err := unpack(t, demo(raw{name: "demo/lib/a", mode: 0o100700}, raw{name: "demo/lib/b"}), "", DefaultLimits())
	if err != nil || paths(tree) != "SKILL.md lib/ lib/a* lib/b" || tree["lib/"] != "-rwxr-xr-x" {
		t.Errorf("got %q, %v", tree, err)
	}
}
