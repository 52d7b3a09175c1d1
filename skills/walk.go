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
	"secbox/workspace/tree"
)

// Bounds of one skill's folder. It is copied into the inputs of every project that runs the skill.
const (
	maxFiles     = 2000     // regular files, and as many directories
	maxBytes     = 64 << 20 // of all files together
	maxLevels    = 16       // of directories
	maxNames     = 10_000   // in one directory, with hidden ones
	maxProblems  = 50       // reported for one skill
	maxPathBytes = 1024     // of a file's path below the folder
)

// walk is the result of walking a skill's folder, without opening a file.
type walk struct {
	files     []walkedFile // by path
	problems  []Problem
	signature [sha256.Size]byte // changes with any entry's name, mode, size, times or inode
	newest    time.Time         // the latest time in the signature
}

type walkedFile struct {
	path string
	info fs.FileInfo
}

// walkFolder visits all entries except hidden ones: names that begin with a dot belong to editors
// and version control, at any level. It opens and follows nothing. An error is one of reading, not
// of the skill.
func walkFolder(d skillDir) (*walk, error) {
	w := &walker{folder: d}
	if err := w.dir(".", 1); err != nil {
		return nil, err
	}
	slices.SortFunc(w.files, func(a, b walkedFile) int { return strings.Compare(a.path, b.path) })
	w.signature = sha256.Sum256(w.signed)
	return &w.walk, nil
}

type walker struct {
	walk
	folder skillDir
	signed []byte // the preimage of the signature
	dirs   int
	bytes  int64
	full   bool // a bound was exceeded, and the walk ends
}

func (w *walker) problem(name, format string, args ...any) {
	if len(w.problems) < maxProblems {
		w.problems = append(w.problems, Problem{File: schema.Clip(name), Reason: fmt.Sprintf(format, args...)})
	}
}

// exceeded reports a problem that ends the walk.
func (w *walker) exceeded(name, format string, args ...any) {
	w.full = true
	w.problem(name, format, args...)
}

func (w *walker) dir(dir string, level int) error {
	names, err := w.folder.names(dir, maxNames)
	if err != nil {
		return err
	}
	if len(names) > maxNames {
		w.exceeded(dir, "holds more than %d entries", maxNames)
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
		fi, err := w.folder.lstat(below)
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
			w.exceeded("", "holds more than %d directories", maxFiles)
			return nil
		}
		if level >= maxLevels {
			w.problem(name, "is deeper than %d levels", maxLevels)
			return nil
		}
		return w.dir(name, level+1)
	case mode.IsRegular():
		w.files = append(w.files, walkedFile{name, fi})
		if w.bytes += fi.Size(); w.bytes > maxBytes {
			w.exceeded("", "holds more than %d MiB", maxBytes>>20)
		}
		if len(w.files) > maxFiles {
			w.exceeded("", "holds more than %d files", maxFiles)
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
	return "a special file"
}

// sign adds an entry to the signature. A directory counts by its name only, as its entries are
// signed themselves.
func (w *walker) sign(name string, fi fs.FileInfo) {
	w.signed = append(append(w.signed, name...), 0)
	w.signed = binary.BigEndian.AppendUint32(w.signed, uint32(fi.Mode()))
	if fi.IsDir() {
		return
	}
	stat := tree.StatOf(fi)
	for _, n := range []uint64{uint64(stat.Size), uint64(stat.Modified), stat.Inode, uint64(stat.Changed)} {
		w.signed = binary.BigEndian.AppendUint64(w.signed, n)
	}
	if newest := stat.Newest(); newest.After(w.newest) {
		w.newest = newest
	}
}
