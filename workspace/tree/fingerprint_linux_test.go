package tree_test

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"secbox/workspace/tree"

	"golang.org/x/sys/unix"
)

// TestFingerprints: after any change, also with size and modification time put back, the tree does
// not match its fingerprint.
func TestFingerprints(t *testing.T) {
	t.Parallel()
	putBack := func(path string, change func() error) error {
		fi, err := os.Lstat(path)
		if err == nil {
			err = change()
		}
		if err == nil {
			err = os.Chtimes(path, fi.ModTime(), fi.ModTime())
		}
		return err
	}
	for name, change := range map[string]func(dir string) error{
		"nothing":               nil,
		"a file read":           func(dir string) error { _, err := os.ReadFile(dir + "/a/b/deep"); return err },
		"a new file":            func(dir string) error { return os.WriteFile(dir+"/a/new", nil, 0o644) },
		"a new empty directory": func(dir string) error { return os.Mkdir(dir+"/a/b/new", 0o755) },
		"a file less":           func(dir string) error { return os.Remove(dir + "/top") },
		"a file renamed":        func(dir string) error { return os.Rename(dir+"/a/b/deep", dir+"/a/b/deeP") },
		"a mode":                func(dir string) error { return os.Chmod(dir+"/a/b/deep", 0o755) },
		"a same-size edit with its time put back": func(dir string) error {
			return putBack(dir+"/a/b/deep", func() error { return os.WriteFile(dir+"/a/b/deep", []byte("DEEP"), 0o644) })
		},
		"a file exchanged with its time put back": func(dir string) error {
			return putBack(dir+"/a/b", func() error {
				return putBack(dir+"/a/b/deep", func() error {
					if err := os.WriteFile(dir+"/a/b/x", []byte("DEEP"), 0o644); err != nil {
						return err
					}
					return os.Rename(dir+"/a/b/x", dir+"/a/b/deep")
				})
			})
		},
		"a directory become a link to a twin": func(dir string) error {
			if err := os.Rename(dir+"/a", dir+"-a"); err != nil {
				return err
			}
			return putBack(dir, func() error { return os.Symlink(dir+"-a", dir+"/a") })
		},
		"a link that leads elsewhere": func(dir string) error {
			return putBack(dir, func() error {
				if err := os.Remove(dir + "/link"); err != nil {
					return err
				}
				return os.Symlink("tip", dir+"/link")
			})
		},
		"the whole exchanged for a twin": func(dir string) error {
			if err := os.Rename(dir, dir+"-old"); err != nil {
				return err
			}
			return os.CopyFS(dir, os.DirFS(dir+"-old/a"))
		},
		"the whole become a link": func(dir string) error {
			if err := os.Rename(dir, dir+"-old"); err != nil {
				return err
			}
			return os.Symlink(dir+"-old", dir)
		},
		"the whole gone": os.RemoveAll,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			root := t.TempDir()
			work := filepath.Join(root, "work")
			dir := filepath.Join(work, "skill")
			for path, content := range map[string]string{"top": "top", "a/one": "one", "a/b/deep": "deep", "z/last": "last"} {
				full := filepath.Join(dir, path)
				if err := os.MkdirAll(filepath.Dir(full), 0o755); err != nil {
					t.Fatal(err)
				}
				if err := os.WriteFile(full, []byte(content), 0o644); err != nil {
					t.Fatal(err)
				}
			}
			if err := os.Symlink("top", dir+"/link"); err != nil {
				t.Fatal(err)
			}
			top := openTree(t, work)
			skill, err := top.Dir("skill")
			if err != nil {
				t.Fatal(err)
			}
			defer skill.Close()
			fingerprint := skill.NewFingerprint()
			if err := skill.Walk(t.Context(), tree.ListingBounds, func(e tree.Entry) error { fingerprint.Add(e); return nil }); err != nil {
				t.Fatal(err)
			}
			if age := time.Since(fingerprint.Newest()); age < 0 || age > time.Hour {
				t.Errorf("the last change was %v ago", age)
			}
			waitForTick(t, work)
			if change != nil {
				if err := change(dir); err != nil {
					t.Fatal(err)
				}
			}
			same := name == "nothing" || name == "a file read"
			if got := top.Matches("skill", fingerprint); got != same {
				t.Errorf("it matches: %v", got)
			}
			if top.Matches("skill", nil) || top.Matches("other", fingerprint) {
				t.Error("something else matches, too")
			}
		})
	}
}

// waitForTick waits until the file system's clock has gone on.
func waitForTick(t *testing.T, dir string) {
	t.Helper()
	var first, now unix.Stat_t
	probe := filepath.Join(dir, "probe")
	for n := 0; ; n++ {
		if err := os.WriteFile(probe, nil, 0o644); err != nil {
			t.Fatal(err)
		}
		if err := unix.Lstat(probe, &now); err != nil {
			t.Fatal(err)
		}
		if n == 0 {
			first = now
		}
		if now.Ctim.Nano() > first.Ctim.Nano() {
			return
		}
		if err := os.Remove(probe); err != nil {
			t.Fatal(err)
		}
	}
}
