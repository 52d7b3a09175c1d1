package transfer

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"slices"
	"syscall"
)

// Report is what a transfer did.
type Report struct {
	Files   int   // regular files
	Entries int   // files, directories and links
	Bytes   int64 // of files' content, without holes
	Removed int   // names
	// LeftOut counts what cannot be copied: sockets, FIFOs, devices, paths that are too long or too
	// deep, files that this process may not read, and, by Receive, names that something else has
	// which the job did not touch. First is one of them.
	LeftOut int64
	First   string
}

func (r *Report) leaveOut(path string) {
	if r.LeftOut++; r.LeftOut == 1 {
		r.First = shown(path)
	}
}

// Send writes directories to w. It may be called while jobs change them; a file that changes is
// sent as it was read. Errors are of w, of the file system, or ErrTooLarge.
func Send(w io.Writer, dirs []Dir, b Bounds) (Report, error) {
	s := sender{out: newWriter(w), dirs: dirs, bounds: b}
	targets := make([]target, len(dirs))
	for i, d := range dirs {
		targets[i] = target{d.Target, d.ReadOnly}
	}
	err := s.out.json(kindTargets, targets)
	for i := 0; i < len(dirs) && err == nil; i++ {
		err = s.directory(i, dirs[i].Root, "", 1)
	}
	if err == nil {
		err = s.end(nil)
	}
	return s.report, err
}

// sender walks directories and writes them.
type sender struct {
	out    *writer
	dirs   []Dir
	bounds Bounds
	known  []map[string]fileStat // what need not be sent, per directory; nil: everything is sent
	report Report
	walked int
	read   int64 // bytes
	buf    []byte
}

// end writes the last record. A cause that is ErrTooLarge, or is about the file system, is sent.
func (s *sender) end(cause error) error {
	e := ending{LeftOut: s.report.LeftOut, First: s.report.First}
	if cause != nil {
		e.Error, e.TooLarge = shown(cause.Error()), errors.Is(cause, ErrTooLarge)
	}
	if err := s.out.json(kindEnd, e); err != nil {
		return err
	}
	return s.out.w.Flush()
}

// directory sends what is in a directory, whose names are depth levels below the top.
func (s *sender) directory(i int, dir *os.Root, prefix string, depth int) error {
	all, err := names(dir, s.bounds.Entries-s.walked)
	if errors.Is(err, ErrTooLarge) {
		return fmt.Errorf("%w: more than %d files, directories and links", ErrTooLarge, s.bounds.Entries)
	}
	if errors.Is(err, fs.ErrNotExist) { // it was removed meanwhile
		return nil
	}
	if err != nil {
		return err
	}
	s.walked += len(all)
	for _, name := range all {
		if err := s.name(i, dir, prefix+name, name, depth); err != nil {
			return err
		}
	}
	return nil
}

// triesToOpen is how often a file is opened that is replaced meanwhile.
const triesToOpen = 10

// name sends what has a name.
func (s *sender) name(i int, dir *os.Root, path, name string, depth int) error {
	if len(path) > maxPath || depth > maxDepth {
		s.report.leaveOut(path)
		return nil
	}
	var err error
	for range triesToOpen {
		var fi fs.FileInfo
		if fi, err = dir.Lstat(name); err == nil {
			err = s.entry(i, dir, path, fi, depth)
		}
		if !errors.Is(err, fs.ErrNotExist) && !errors.Is(err, errOther) {
			break
		}
	}
	switch {
	case errors.Is(err, fs.ErrNotExist), errors.Is(err, errOther): // it was removed meanwhile
		return nil
	case errors.Is(err, fs.ErrPermission):
		s.report.leaveOut(path)
		return nil
	}
	return err
}

func (s *sender) entry(i int, dir *os.Root, path string, fi fs.FileInfo, depth int) error {
	name, mode := fi.Name(), fi.Mode()
	same := false
	if s.known != nil {
		known, is := s.known[i][path]
		same = is && known.same(statOf(fi))
	}
	e := entry{Dir: i, Path: []byte(path), Mode: mode.Perm()}
	switch {
	case mode.IsDir():
		below, err := openDir(dir, name)
		if err != nil {
			return err
		}
		defer below.Close()
		if !same {
			s.report.Entries++
			if err := s.out.json(kindDir, e); err != nil {
				return err
			}
		}
		return s.directory(i, below, path+"/", depth+1)
	case same:
		return nil
	case mode.IsRegular():
		return s.file(dir, fi, e)
	case mode.Type() == fs.ModeSymlink:
		to, err := dir.Readlink(name)
		if errors.Is(err, syscall.EINVAL) {
			err = errOther
		}
		if err != nil {
			return err
		}
		s.report.Entries++
		e.Link = []byte(to)
		return s.out.json(kindLink, e)
	}
	s.report.leaveOut(path)
	return nil
}

// file sends a regular file without its holes. Once its record is sent, it is sent to its end: a
// part that cannot be read any more ends it.
func (s *sender) file(dir *os.Root, fi fs.FileInfo, e entry) error {
	f, fi, err := openFile(dir, fi.Name(), fi)
	if err != nil {
		return err
	}
	defer f.Close()
	if fi.Size() > maxSize {
		return fmt.Errorf("%w: %q has more than %d bytes", ErrTooLarge, shown(string(e.Path)), int64(maxSize))
	}
	e.ModTime = fi.ModTime().UnixNano()
	if err := s.out.json(kindFile, e); err != nil {
		return err
	}
	if s.buf == nil {
		s.buf = make([]byte, maxBlock)
	}
	s.report.Files++
	s.report.Entries++
	size, at := fi.Size(), int64(0)
	for at < size {
		next, ok := nextData(f, at)
		if !ok {
			break
		}
		at = next
		n, err := f.ReadAt(s.buf[:min(maxBlock, max(0, size-at))], at)
		if n == 0 {
			if err != nil && !errors.Is(err, io.EOF) {
				return err
			}
			size = min(size, at) // it is shorter now
			break
		}
		if s.read += int64(n); s.read > s.bounds.Bytes {
			return fmt.Errorf("%w: more than %d bytes", ErrTooLarge, s.bounds.Bytes)
		}
		if data := bytes.TrimRight(s.buf[:n], "\x00"); len(data) > 0 {
			s.report.Bytes += int64(len(data))
			if err := s.out.number(kindBlock, at, data); err != nil {
				return err
			}
		}
		at += int64(n)
	}
	return s.out.number(kindSize, size, nil)
}

// gone sends the names that are known and not there any more, or have another type: what was in a
// directory before the directory itself.
func (s *sender) gone(i int) error {
	type removed struct {
		path string
		mode fs.FileMode
	}
	var list []removed
	without := map[string]bool{} // directories that are gone, or something else now
	paths := make([]string, 0, len(s.known[i]))
	for path := range s.known[i] {
		paths = append(paths, path)
	}
	slices.Sort(paths) // a directory comes before what is in it
	for _, path := range paths {
		known := s.known[i][path]
		above, _ := splitPath(path)
		missing := without[above]
		if !missing { // all directories above are directories still
			fi, err := s.dirs[i].Root.Lstat(path)
			if err != nil && !errors.Is(err, fs.ErrNotExist) {
				return err
			}
			missing = err != nil || fi.Mode().Type() != known.mode.Type()
		}
		if missing {
			list = append(list, removed{path, known.mode})
			without[path] = known.mode.IsDir()
		}
	}
	for _, r := range slices.Backward(list) {
		s.report.Removed++
		if err := s.out.json(kindGone, entry{Dir: i, Path: []byte(r.path), Mode: r.mode.Type()}); err != nil {
			return err
		}
	}
	return nil
}
