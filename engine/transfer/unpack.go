package transfer

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math"
	"os"
	"path/filepath"
)

// Unpacked is directories of a container that were filled from a stream, as they were then.
type Unpacked struct {
	dirs  []Dir
	known []map[string]fileStat // nil for a directory from which nothing comes back
}

// Unpack fills the directories that a stream of Send names, and remembers them. It makes missing
// ones. Files belong to this process's user, who may not write in read-only directories. No job may
// run meanwhile.
func Unpack(r io.Reader) (*Unpacked, error) {
	in := newReader(r)
	k, payload, err := in.next()
	if err != nil {
		return nil, err
	}
	var targets []target
	if k != kindTargets {
		return nil, fmt.Errorf("%w: it names no directories", ErrFormat)
	}
	if err := decode(payload, &targets); err != nil {
		return nil, err
	}
	u := &Unpacked{known: make([]map[string]fileStat, len(targets))}
	defer u.close()
	for _, t := range targets {
		if !filepath.IsAbs(t.Path) {
			return nil, fmt.Errorf("%w: the directory %q", ErrFormat, t.Path)
		}
		if err := os.MkdirAll(t.Path, 0o755); err != nil {
			return nil, err
		}
		root, err := os.OpenRoot(t.Path)
		if err != nil {
			return nil, err
		}
		u.dirs = append(u.dirs, Dir{Target: t.Path, Root: root})
	}
	to := newReceiver(in, u.dirs, Bounds{math.MaxInt64, maxKnown}, Owner{UID: -1}) // core-api bounds what it sends
	to.strict = true
	if _, err := to.receive(); err != nil {
		return nil, err
	}
	var newest int64
	for i, t := range targets {
		if u.dirs[i].ReadOnly = t.ReadOnly; t.ReadOnly {
			if err := protect(u.dirs[i].Root); err != nil {
				return nil, err
			}
			continue
		}
		u.known[i] = map[string]fileStat{}
		if err := u.remember(i, u.dirs[i].Root, "", &newest); err != nil {
			return nil, err
		}
	}
	awaitTick(newest)
	return u, nil
}

func (u *Unpacked) close() {
	for i := range u.dirs {
		if u.dirs[i].Root != nil {
			u.dirs[i].Root.Close()
			u.dirs[i].Root = nil
		}
	}
}

func (u *Unpacked) remember(i int, dir *os.Root, prefix string, newest *int64) error {
	all, err := names(dir, maxKnown-len(u.known[i]))
	if err != nil {
		return err
	}
	for _, name := range all {
		fi, err := dir.Lstat(name)
		if err != nil {
			return err
		}
		stat := statOf(fi)
		u.known[i][prefix+name], *newest = stat, max(*newest, stat.changed)
		if fi.IsDir() {
			below, err := openDir(dir, name)
			if err != nil {
				return err
			}
			err = u.remember(i, below, prefix+name+"/", newest)
			below.Close()
			if err != nil {
				return err
			}
		}
	}
	return nil
}

// protect takes the right to write from everything in a directory: a job that writes to a read-only
// directory shall notice. Its user may undo that, but nothing of it comes back.
func protect(dir *os.Root) error {
	all, err := names(dir, maxKnown)
	if err != nil {
		return err
	}
	for _, name := range all {
		fi, err := dir.Lstat(name)
		switch {
		case err != nil:
			return err
		case fi.IsDir():
			below, err := openDir(dir, name)
			if err != nil {
				return err
			}
			err = protect(below)
			below.Close()
			if err != nil {
				return err
			}
		case fi.Mode().IsRegular():
			if err := dir.Chmod(name, fi.Mode().Perm()&^0o222); err != nil {
				return err
			}
		}
	}
	if fi, err := dir.Stat("."); err == nil {
		_ = dir.Chmod(".", fi.Mode().Perm()&^0o222) // a directory of the pod may belong to root
	}
	return nil
}

// maxKnown is how many names are remembered at most: the memory counts to the job's.
const maxKnown = 1_000_000

// Changes writes what changed since Unpack. No process of the job may be alive. An error that is
// not of w is in the stream.
func (u *Unpacked) Changes(w io.Writer, b Bounds) error {
	s := sender{out: newWriter(w), dirs: u.dirs, known: u.known, bounds: b}
	defer u.close()
	err := u.open()
	for i := 0; i < len(u.dirs) && err == nil; i++ {
		if u.known[i] != nil {
			err = s.gone(i)
		}
	}
	for i := 0; i < len(u.dirs) && err == nil; i++ {
		if u.known[i] != nil {
			err = s.directory(i, u.dirs[i].Root, "", 1)
		}
	}
	return s.end(err)
}

// open opens the directories again: a job may have removed one and made it anew. A link in its
// place is an error, and all that was in it is not taken for removed.
func (u *Unpacked) open() error {
	for i, d := range u.dirs {
		if d.ReadOnly {
			continue
		}
		parent, err := os.OpenRoot(filepath.Dir(d.Target))
		if err == nil {
			u.dirs[i].Root, err = openDir(parent, filepath.Base(d.Target))
			parent.Close()
		}
		if errors.Is(err, errOther) || errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("the job has removed or replaced %s", d.Target)
		}
		if err != nil {
			return err
		}
	}
	return nil
}
