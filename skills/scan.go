package skills

import (
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"io/fs"
	"path"
	"slices"
	"strings"
	"time"

	"secbox/pathadapter"
	"secbox/skills/schema"
)

// Bounds of one skill's folder. It is copied beside the inputs of every exec that has not seen it yet.
const (
	maxFiles     = 2000     // regular files, and as many directories
	maxBytes     = 64 << 20 // of all files together
	maxLevels    = 16       // of directories
	maxListed    = 10_000   // names in one directory, hidden ones too
	maxProblems  = 50       // that are reported of one skill
	maxPathBytes = 1024     // of a file's path below the folder
)

// scan is what one walk has seen of a skill's folder, without opening a file.
type scan struct {
	files     []scanned // by path
	problems  []Problem
	signature [sha256.Size]byte // changes with any entry's name, mode, size, times or inode
	newest    time.Time         // of what the signature holds
}

type scanned struct {
	path string
	info fs.FileInfo
}

// walk looks at everything in the folder but what is hidden: a name that begins with a dot is an editor's or a version control's affair,
// at any level. Nothing is opened or followed. The error is one of reading, not of the skill.
func walk(t tree) (*scan, error) {
	w := &walker{tree: t, scan: &scan{}}
	if err := w.dir(".", 1); err != nil {
		return nil, err
	}
	slices.SortFunc(w.scan.files, func(a, b scanned) int { return strings.Compare(a.path, b.path) })
	w.scan.signature = sha256.Sum256(w.seen)
	return w.scan, nil
}

type walker struct {
	tree  tree
	scan  *scan
	seen  []byte // what the signature is made of
	dirs  int
	bytes int64
	full  bool // some bound was passed; the rest is not looked at
}

func (w *walker) problem(name, format string, args ...any) {
	if len(w.scan.problems) < maxProblems {
		w.scan.problems = append(w.scan.problems, Problem{File: schema.Clip(name), Reason: fmt.Sprintf(format, args...)})
	}
}

func (w *walker) dir(dir string, level int) error {
	names, err := w.tree.names(dir, maxListed)
	if err != nil {
		return err
	}
	if len(names) > maxListed {
		w.full = true
		w.problem(dir, "holds more than %d entries", maxListed)
		return nil
	}
	slices.Sort(names)
	folded := map[string]string{}
	for _, name := range names {
		if w.full {
			return nil
		}
		if strings.HasPrefix(name, ".") {
			continue
		}
		below := path.Join(dir, name)
		fi, err := w.tree.lstat(below)
		if err != nil {
			return err
		}
		w.sign(below, fi)
		if why := pathadapter.NameFault(name); why != "" {
			w.problem(below, "the name %s; it must be one that every system accepts", why)
			continue
		}
		if other, taken := folded[strings.ToLower(name)]; taken {
			w.problem(below, "differs from %s only by case; some systems cannot hold both", other)
		}
		folded[strings.ToLower(name)] = name
		if err := w.entry(below, fi, level); err != nil {
			return err
		}
	}
	return nil
}

func (w *walker) entry(name string, fi fs.FileInfo, level int) error {
	switch mode := fi.Mode(); {
	case len(name) > maxPathBytes:
		w.problem(name, "has a path of more than %d bytes", maxPathBytes)
	case fi.IsDir():
		if w.dirs++; w.dirs > maxFiles {
			w.full = true
			w.problem("", "holds more than %d directories", maxFiles)
			return nil
		}
		if level >= maxLevels {
			w.problem(name, "lies deeper than %d levels", maxLevels)
			return nil
		}
		return w.dir(name, level+1)
	case mode.IsRegular():
		w.scan.files = append(w.scan.files, scanned{name, fi})
		if w.bytes += fi.Size(); w.bytes > maxBytes {
			w.full = true
			w.problem("", "holds more than %d MiB", maxBytes>>20)
		}
		if len(w.scan.files) > maxFiles {
			w.full = true
			w.problem("", "holds more than %d files", maxFiles)
		}
	case mode&fs.ModeSymlink != 0:
		w.problem(name, "is a symbolic link; a skill holds regular files and directories only: put the file itself there")
	default:
		w.problem(name, "is %s; a skill holds regular files and directories only", specialName(mode))
	}
	return nil
}

func specialName(mode fs.FileMode) string {
	switch {
	case mode&fs.ModeNamedPipe != 0:
		return "a FIFO"
	case mode&fs.ModeSocket != 0:
		return "a socket"
	case mode&fs.ModeDevice != 0:
		return "a device"
	}
	return "something special"
}

// sign takes an entry into the signature. Of a directory only its being there counts: what is in it is signed by itself.
func (w *walker) sign(name string, fi fs.FileInfo) {
	w.seen = append(append(w.seen, name...), 0)
	w.seen = binary.BigEndian.AppendUint32(w.seen, uint32(fi.Mode()))
	if fi.IsDir() {
		return
	}
	number, changed := inode(fi)
	w.seen = binary.BigEndian.AppendUint64(w.seen, uint64(fi.Size()))
	w.seen = binary.BigEndian.AppendUint64(w.seen, uint64(fi.ModTime().UnixNano()))
	w.seen = binary.BigEndian.AppendUint64(w.seen, number)
	w.seen = binary.BigEndian.AppendUint64(w.seen, uint64(changed))
	for _, at := range []time.Time{fi.ModTime(), time.Unix(0, changed)} {
		if at.After(w.scan.newest) {
			w.scan.newest = at
		}
	}
}
