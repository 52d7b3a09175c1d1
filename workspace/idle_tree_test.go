//go:build unix

package workspace_test

import (
	"crypto/sha256"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
	"pgregory.net/rapid"
)

// looks is everything that a user can see of a file.
type looks struct {
	mode     fs.FileMode
	uid, gid uint32
	modified time.Time
	size     int64
	content  string // its digest, or where the link leads
	names    string // the first of its names, of a file with several
}

// snapshotOf describes a tree, its top included.
func snapshotOf(t testing.TB, dir string) map[string]looks {
	t.Helper()
	all := map[string]looks{}
	first := map[uint64]string{}
	must(t, filepath.WalkDir(dir, func(path string, _ fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		fi, err := os.Lstat(path)
		if err != nil {
			return err
		}
		st := fi.Sys().(*syscall.Stat_t)
		l := looks{mode: fi.Mode(), uid: st.Uid, gid: st.Gid, modified: fi.ModTime()}
		name, err := filepath.Rel(dir, path)
		if err != nil {
			return err
		}
		switch {
		case fi.Mode()&fs.ModeSymlink != 0:
			l.content, err = os.Readlink(path)
		case fi.Mode().IsRegular():
			l.size = fi.Size()
			l.content, err = digestOf(path)
			if st.Nlink > 1 {
				if first[st.Ino] == "" {
					first[st.Ino] = name
				}
				l.names = first[st.Ino]
			}
		}
		all[name] = l
		return err
	}))
	return all
}

func digestOf(path string) (string, error) {
	f, err := os.Open(path)
	if err != nil {
		return "", err
	}
	defer f.Close()
	h := sha256.New()
	_, err = io.Copy(h, f)
	return fmt.Sprintf("%x", h.Sum(nil)), err
}

type errorer interface {
	Helper()
	Errorf(format string, args ...any)
}

func sameTree(t errorer, before, after map[string]looks) {
	t.Helper()
	names := maps.Clone(before)
	maps.Copy(names, after)
	for _, name := range slices.Sorted(maps.Keys(names)) {
		was, is := before[name], after[name]
		if !was.modified.Equal(is.modified) {
			t.Errorf("%q: modified %v, and now %v", name, was.modified, is.modified)
		}
		was.modified, is.modified = time.Time{}, time.Time{}
		if was != is {
			t.Errorf("%q was\n%+v, and is\n%+v", name, was, is)
		}
	}
}

// strangeNames are used beside names of random bytes.
var strangeNames = []string{
	"a", "b", "SKILL.md", "-rf", " ", "\n", "\xff\xfe", "ä", "\u0061\u0308", "con", "x y", "*", "'\"", `\`, "...", ".hidden", "..a",
	"d\r", "\x7f", "\xc3", "name.tar.gz", ".hoist-1", "GNU.sparse", "=", "12 path=x\n",
	"l23456789012345678901234567890123456789012345678901234567890123456789012345678901234567890123456789012345678901234567890123456789ä",
}

func drawName(t *rapid.T) string {
	if rapid.Bool().Draw(t, "known") {
		return rapid.SampledFrom(strangeNames).Draw(t, "name")
	}
	bytes := rapid.SliceOfN(rapid.Custom(func(t *rapid.T) byte {
		b := rapid.Byte().Draw(t, "byte")
		if b == 0 || b == '/' {
			b = '_'
		}
		return b
	}), 1, 200).Draw(t, "bytes")
	if name := string(bytes); name != "." && name != ".." {
		return name
	}
	return "dots"
}

// growTree makes a tree as a hostile job might: all kinds of names, modes, times and links.
func growTree(t *rapid.T, top string, must func(error)) {
	dirs, files, all := []string{top}, []string{}, []string{top}
	for range rapid.IntRange(0, 25).Draw(t, "entries") {
		path := filepath.Join(rapid.SampledFrom(dirs).Draw(t, "in"), drawName(t))
		if _, err := os.Lstat(path); err == nil || len(path) > 3000 {
			continue
		}
		switch rapid.IntRange(0, 5).Draw(t, "kind") {
		case 0:
			must(os.Mkdir(path, 0o755))
			dirs = append(dirs, path)
		case 1:
			to := rapid.SampledFrom([]string{"/etc/passwd", "..", ".", "../../..", "x\xff", "/", "a"}).Draw(t, "to")
			must(os.Symlink(to, path))
		case 2:
			if len(files) > 0 {
				must(os.Link(rapid.SampledFrom(files).Draw(t, "same"), path))
				break
			}
			fallthrough
		case 3: // with holes
			f, err := os.Create(path)
			must(err)
			for range rapid.IntRange(0, 3).Draw(t, "pieces") {
				_, err := f.WriteAt([]byte("data"), rapid.Int64Range(0, 1<<22).Draw(t, "offset"))
				must(err)
			}
			must(f.Truncate(rapid.Int64Range(0, 1<<23).Draw(t, "size")))
			must(f.Close())
			files = append(files, path)
		default:
			must(os.WriteFile(path, rapid.SliceOfN(rapid.Byte(), 0, 3000).Draw(t, "content"), 0o644))
			files = append(files, path)
		}
		all = append(all, path)
	}
	for _, path := range slices.Backward(all) { // innermost first: changes in a directory change its times
		fi, err := os.Lstat(path)
		must(err)
		if os.Geteuid() == 0 && rapid.Bool().Draw(t, "given") {
			must(os.Lchown(path, rapid.SampledFrom([]int{0, 1000, 4_000_000}).Draw(t, "uid"), 1000))
		}
		if fi.Mode()&fs.ModeSymlink == 0 && rapid.Bool().Draw(t, "moded") {
			mode := uint32(rapid.IntRange(0, 0o7777).Draw(t, "mode"))
			if os.Geteuid() != 0 {
				mode |= 0o700
			}
			must(unix.Chmod(path, mode))
		}
		at := unix.Timespec{Sec: rapid.Int64Range(-1<<31, 1<<33).Draw(t, "seconds"), Nsec: rapid.Int64Range(0, 999_999_999).Draw(t, "nanoseconds")}
		must(unix.UtimesNanoAt(unix.AT_FDCWD, path, []unix.Timespec{at, at}, unix.AT_SYMLINK_NOFOLLOW))
	}
}

// TestAnyTreeIsRestored: every tree of a user is restored exactly.
func TestAnyTreeIsRestored(t *testing.T) {
	t.Parallel()
	f := setUpIdle(t)
	rapid.Check(t, func(rt *rapid.T) {
		must := func(err error) {
			if err != nil {
				rt.Fatal(err)
			}
		}
		must(os.RemoveAll(f.work))
		f.project()
		growTree(rt, f.work, must)
		before := snapshotOf(t, f.work)
		f.later(day + time.Minute)
		done, err := f.tryPack()
		must(err)
		if done != (len(before) > 1) {
			rt.Fatalf("packed: %v, with %d entries", done, len(before))
		}
		must(f.restore())
		sameTree(rt, before, snapshotOf(t, f.work))
	})
}

// TestHolesStayHoles: sparse files stay sparse and pack fast.
func TestHolesStayHoles(t *testing.T) {
	t.Parallel()
	f := setUpIdle(t)
	path := filepath.Join(f.work, "sparse")
	file, err := os.Create(path)
	must(t, err)
	for _, at := range []int64{0, 3 << 30, 1<<40 - 5} {
		_, err := file.WriteAt([]byte("data"), at)
		must(t, err)
	}
	must(t, file.Truncate(1<<40))
	must(t, file.Close())
	f.pack()
	must(t, f.restore())
	fi, err := os.Stat(path)
	must(t, err)
	if blocks := fi.Sys().(*syscall.Stat_t).Blocks; fi.Size() != 1<<40 || blocks > 1000 {
		t.Errorf("%d bytes in %d blocks", fi.Size(), blocks)
	}
	file, err = os.Open(path)
	must(t, err)
	defer file.Close()
	for _, at := range []int64{0, 3 << 30, 1<<40 - 5} {
		got := make([]byte, 5)
		if _, err := file.ReadAt(got, at); err != nil || string(got) != "data\x00" {
			t.Errorf("at %d: %q %v", at, got, err)
		}
	}
}
