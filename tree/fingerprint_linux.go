package tree

import (
	"io/fs"
	"syscall"

	"golang.org/x/sys/unix"
)

// fullStat distinguishes a file from every other one, and from itself after a change.
type fullStat struct {
	dev, ino     uint64
	mode         uint32
	size         int64
	mtime, ctime int64 // nanoseconds since 1970
}

func fullStatOf(fi fs.FileInfo) (fullStat, bool) {
	st, ok := fi.Sys().(*syscall.Stat_t)
	if !ok {
		return fullStat{}, false
	}
	return fullStat{uint64(st.Dev), st.Ino, st.Mode, st.Size, st.Mtim.Nano(), st.Ctim.Nano()}, true
}

func (t *Tree) matches(name string, entries []fingerprinted) bool {
	top, err := t.root.Open(".")
	if err != nil {
		return false
	}
	defer top.Close()
	var dirs []openDirectory
	defer func() {
		for _, d := range dirs {
			unix.Close(d.fd)
		}
	}()
	for i, e := range entries {
		parent, base := int(top.Fd()), name
		if i > 0 {
			var above string
			above, base = SplitPath(e.path)
			for len(dirs) > 0 && dirs[len(dirs)-1].path != above { // its content is complete
				unix.Close(dirs[len(dirs)-1].fd)
				dirs = dirs[:len(dirs)-1]
			}
			if len(dirs) == 0 {
				return false
			}
			parent = dirs[len(dirs)-1].fd
		}
		var st unix.Stat_t
		if e.dir {
			var fd int
			fd, err = unix.Openat(parent, base, unix.O_PATH|unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
			if err != nil {
				return false
			}
			dirs = append(dirs, openDirectory{e.path, fd})
			err = unix.Fstat(fd, &st)
		} else {
			err = unix.Fstatat(parent, base, &st, unix.AT_SYMLINK_NOFOLLOW)
		}
		if err != nil || e.stat != (fullStat{uint64(st.Dev), st.Ino, st.Mode, st.Size, st.Mtim.Nano(), st.Ctim.Nano()}) {
			return false
		}
	}
	return true
}

type openDirectory struct {
	path string
	fd   int
}
