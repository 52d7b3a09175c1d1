package tree

import (
	"io/fs"
	"os"
	"time"
)

// Fingerprint is the stat data of a whole tree, as a walk saw it. While the tree matches its
// fingerprint, it has the same content, provided that its last change was older than a tick of the
// file system's clock and no command worked in it (Tree.Still) when the fingerprint was taken:
// adding, removing or renaming a file changes its directory's times. One goroutine fills a
// Fingerprint; then it never changes.
type Fingerprint struct {
	entries  []fingerprinted // the top first, then in the order of the walk
	newest   time.Time
	complete bool // every entry has a time of the last inode change
}

type fingerprinted struct {
	path string
	stat FileStat
}

// NewFingerprint begins the fingerprint of a tree; Add every entry of a walk to it.
func (t *Tree) NewFingerprint() *Fingerprint {
	f := &Fingerprint{}
	if top, err := t.Top(); err == nil {
		f.complete = true
		f.Add(top)
	}
	return f
}

// Add appends an entry of the walk.
func (f *Fingerprint) Add(e Entry) {
	stat := StatOf(e.Info)
	if at := stat.Newest(); at.After(f.newest) {
		f.newest = at
	}
	f.complete = f.complete && stat.Changed != 0
	f.entries = append(f.entries, fingerprinted{e.Path, stat})
}

// Newest is the time of the last change of anything in the tree.
func (f *Fingerprint) Newest() time.Time { return f.newest }

// Matches reports whether the directory with this name, one component, still has the stat data of a
// fingerprint; nil matches nothing. It reads no directory, so it costs a few system calls for a
// directory and one for a file.
func (t *Tree) Matches(name string, f *Fingerprint) bool {
	if f == nil || !f.complete {
		return false
	}
	var dirs []openDirectory
	defer func() {
		for _, d := range dirs {
			d.Close()
		}
	}()
	for i, e := range f.entries {
		parent, base := t.root, name
		if i > 0 {
			var above string
			above, base = SplitPath(e.path)
			for len(dirs) > 0 && dirs[len(dirs)-1].path != above { // its entries are complete
				dirs[len(dirs)-1].Close()
				dirs = dirs[:len(dirs)-1]
			}
			if len(dirs) == 0 {
				return false
			}
			parent = dirs[len(dirs)-1].Root
		}
		var fi fs.FileInfo
		var err error
		if e.stat.Mode.IsDir() {
			var dir *os.Root
			if dir, fi, err = OpenDir(parent, base); err == nil {
				dirs = append(dirs, openDirectory{dir, e.path})
			}
		} else {
			fi, err = parent.Lstat(base)
		}
		if err != nil || StatOf(fi) != e.stat {
			return false
		}
	}
	return true
}

type openDirectory struct {
	*os.Root
	path string
}
