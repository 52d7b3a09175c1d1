package tree

import (
	"io/fs"
	"os"
	"syscall"

	"golang.org/x/sys/unix"
)

// fullStamp is all that tells a file from another and from itself after a change.
type fullStamp struct {
	dev, ino     uint64
	mode         uint32
	size         int64
	mtime, ctime int64 // nanoseconds since 1970
}

func fullStampOf(fi fs.FileInfo) (fullStamp, bool) {
	st, ok := fi.Sys().(*syscall.Stat_t)
	if !ok {
		return fullStamp{}, false
	}
	return fullStamp{uint64(st.Dev), st.Ino, st.Mode, st.Size, st.Mtim.Nano(), st.Ctim.Nano()}, true
}

func stampIs(st *unix.Stat_t, want fullStamp) bool {
	return fullStamp{uint64(st.Dev), st.Ino, st.Mode, st.Size, st.Mtim.Nano(), st.Ctim.Nano()} == want
}

// Glance is a handle for many quick looks at the directories in a tree. It must be closed, and lives no longer than the tree.
type Glance struct{ dir *os.File }

// Glance opens one.
func (t *Tree) Glance() (*Glance, error) {
	dir, err := t.root.Open(".")
	if err != nil {
		return nil, err
	}
	return &Glance{dir}, nil
}

// Close gives up the handle.
func (g *Glance) Close() error { return g.dir.Close() }

// Looks reports whether the directory with this name, one component, looks like its print. It costs three calls for a directory and one
// for a file, where a walk that lists takes ten and more, and it is confined as a walk is: every directory is opened by its one name below
// the handle of the one above, never through a link, and nothing else is opened at all.
func (g *Glance) Looks(name string, p *Print) bool {
	if p == nil || p.cannot {
		return false
	}
	return p.top.looks(int(g.dir.Fd()), name)
}

func (d *printedDir) looks(parent int, name string) bool {
	fd, err := unix.Openat(parent, name, unix.O_PATH|unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if err != nil {
		return false
	}
	defer unix.Close(fd)
	var st unix.Stat_t
	if unix.Fstat(fd, &st) != nil || !stampIs(&st, d.stamp) {
		return false
	}
	for _, f := range d.files {
		if unix.Fstatat(fd, f.name, &st, unix.AT_SYMLINK_NOFOLLOW) != nil || !stampIs(&st, f.stamp) {
			return false
		}
	}
	for _, below := range d.dirs {
		if !below.looks(fd, below.name) {
			return false
		}
	}
	return true
}
