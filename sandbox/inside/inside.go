//go:build linux

package inside

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"syscall"

	"golang.org/x/sys/unix"

	"secbox/internal/names"
)

// Main does a file operation and does not return, if this process was started to do that. A program
// that is started with Verb must call it first.
func Main() {
	if len(os.Args) != 3 || os.Args[1] != Verb {
		return
	}
	unix.Umask(0o022)
	var r Request
	if err := json.Unmarshal([]byte(os.Args[2]), &r); err != nil {
		os.Exit(2)
	}
	if err := serve(r, os.Stdin, os.Stdout); err != nil {
		os.Exit(1)
	}
	os.Exit(0)
}

// job is one operation.
type job struct {
	Request
	path string
	in   io.Reader
	out  io.Writer
	said bool // the Answer was sent
}

// serve does an operation, and answers. It fails only if the answer cannot be sent.
func serve(r Request, in io.Reader, out io.Writer) error {
	j := &job{Request: r, path: meant(r.Path), in: bufio.NewReaderSize(in, 64<<10), out: out}
	answer, err := Answer{}, error(unix.EINVAL)
	switch r.Op {
	case List:
		answer, err = j.list()
	case Read:
		err = j.read()
	case Write:
		err = j.write()
	case MakeDir:
		if err = os.MkdirAll(j.path, 0o755); errors.Is(err, unix.ENOTDIR) {
			err = fs.ErrExist // a file is in the way
		}
	case Move:
		err = j.move()
	case Remove:
		err = j.remove()
	case Watch:
		err = j.watch()
	case Processes:
		answer.Processes, answer.More, err = processes(j.Limit)
	}
	if answer.Code = codeOf(err); j.said {
		return nil // the end of the content, or its lack, has told
	}
	return j.answer(answer)
}

func (j *job) answer(a Answer) error {
	j.said = true
	return json.NewEncoder(j.out).Encode(a)
}

// meant returns the path that a text means.
func meant(path []byte) string {
	return names.Meant(string(path), func(path string) bool {
		_, err := os.Lstat(path)
		return err == nil
	})
}

// errKind is the error for a file of the wrong kind, errChanged for one that is not as expected,
// errPart for a directory that could not be removed whole.
var (
	errPart    = errors.New("not removed whole")
	errKind    = errors.New("wrong kind of file")
	errChanged = errors.New("changed")
	errLarge   = errors.New("too large")
)

// codeOf returns the code of an error.
func codeOf(err error) string {
	if err == nil {
		return ""
	}
	for _, c := range []struct {
		code string
		of   []error
	}{
		{Part, []error{errPart}},
		{Kind, []error{errKind, unix.EISDIR, unix.ENXIO, unix.ENODEV}},
		{Changed, []error{errChanged}},
		{Large, []error{errLarge}},
		{NotEmpty, []error{unix.ENOTEMPTY}},
		{Missing, []error{fs.ErrNotExist, unix.ENOTDIR}},
		{Exists, []error{fs.ErrExist}},
		{Denied, []error{fs.ErrPermission, unix.EROFS, unix.EBUSY, unix.ETXTBSY}},
		{Full, []error{unix.ENOSPC, unix.EDQUOT, unix.EFBIG}},
		{OtherDisk, []error{unix.EXDEV}},
		{Invalid, []error{unix.ENAMETOOLONG, unix.ELOOP, unix.EINVAL, unix.EILSEQ}},
	} {
		if slices.ContainsFunc(c.of, func(one error) bool { return errors.Is(err, one) }) {
			return c.code
		}
	}
	return Failed
}

func describe(name string, fi fs.FileInfo) Entry {
	e := Entry{Name: []byte(name), Mode: fi.Mode(), Modified: fi.ModTime()}
	if fi.Mode().IsRegular() {
		e.Size = fi.Size()
	}
	return e
}

// version changes with the content of a file.
func version(fi fs.FileInfo) string {
	s, ok := fi.Sys().(*syscall.Stat_t)
	if !ok {
		return ""
	}
	return fmt.Sprint(s.Dev, s.Ino, s.Size, s.Mtim, s.Ctim)
}

// list describes a file, and lists it if it is a directory.
func (j *job) list() (a Answer, err error) {
	fi, err := os.Stat(j.path)
	if errors.Is(err, fs.ErrNotExist) {
		fi, err = os.Lstat(j.path) // a link that leads nowhere
	}
	if err != nil {
		return a, err
	}
	a.File, a.Version = describe(filepath.Base(j.path), fi), version(fi)
	if !fi.IsDir() || j.Limit <= 0 {
		return a, nil
	}
	dir, err := os.OpenFile(j.path, unix.O_DIRECTORY|unix.O_NONBLOCK, 0)
	if err != nil {
		return a, err
	}
	defer dir.Close()
	found, err := j.names(dir)
	if err != nil {
		return a, err
	}
	if a.More = len(found) > j.Limit; a.More {
		found = found[:j.Limit]
	}
	for _, name := range found {
		if fi, err := os.Lstat(j.path + "/" + name); err == nil { // else it was removed meanwhile
			a.Entries = append(a.Entries, describe(name, fi))
		}
	}
	if a.More {
		a.Last = []byte(found[len(found)-1])
	}
	return a, nil
}

// nameBatch is how many names are read at once.
const nameBatch = 1024

// names returns the first names after After, and one more than Limit, in the order of their bytes.
func (j *job) names(dir *os.File) (first []string, err error) {
	for {
		batch, err := dir.Readdirnames(nameBatch)
		for _, name := range batch {
			if name > string(j.After) {
				first = append(first, name)
			}
		}
		slices.Sort(first)
		first = slices.Clip(first[:min(len(first), j.Limit+1)])
		if errors.Is(err, io.EOF) {
			return first, nil
		}
		if err != nil {
			return nil, err
		}
	}
}

// openRegular opens a regular file without blocking. It checks the file before it opens it, because
// opening some devices has effects, and afterwards, because the file may have been exchanged.
func openRegular(path string) (*os.File, fs.FileInfo, error) {
	fi, err := os.Stat(path)
	if err == nil && !fi.Mode().IsRegular() {
		err = errKind
	}
	if err != nil {
		return nil, nil, err
	}
	f, err := os.OpenFile(path, os.O_RDONLY|unix.O_NONBLOCK|unix.O_NOCTTY, 0)
	if err != nil {
		return nil, nil, err
	}
	if fi, err = f.Stat(); err == nil && !fi.Mode().IsRegular() {
		err = errKind
	}
	if err != nil {
		f.Close()
		return nil, nil, err
	}
	return f, fi, nil
}

// read sends up to Limit bytes of a file from Offset on; with All, the file may not have more.
func (j *job) read() error {
	f, fi, err := openRegular(j.path)
	if err != nil {
		return err
	}
	defer f.Close()
	a := Answer{File: describe(filepath.Base(j.path), fi), Version: version(fi)}
	switch {
	case j.Version != "" && j.Version != a.Version:
		return errChanged
	case j.All && fi.Size() > int64(j.Limit):
		a.Code = Large
		return j.answer(a)
	}
	if _, err := f.Seek(j.Offset, io.SeekStart); err != nil {
		return err
	}
	content := io.LimitReader(f, int64(j.Limit)+1) // to see whether there is more
	buf := make([]byte, min(ChunkBytes, int64(j.Limit)+1))
	n, err := readPiece(content, buf) // before the answer, so that it has an error's code
	if err != nil {
		return err
	}
	if err := j.answer(a); err != nil {
		return err
	}
	for sent := 0; n > 0; {
		if more := sent+n > j.Limit; more && j.All {
			return errLarge // it has grown
		} else if more {
			n = j.Limit - sent
		}
		if n == 0 {
			break
		}
		if err := WriteChunk(j.out, buf[:n]); err != nil {
			return err
		}
		sent += n
		if n, err = readPiece(content, buf); err != nil {
			return err
		}
	}
	return WriteChunk(j.out, nil)
}

// readPiece fills the buffer, or reads the rest; 0 at the end.
func readPiece(r io.Reader, buf []byte) (int, error) {
	n, err := io.ReadFull(r, buf)
	if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		err = nil
	}
	return n, err
}

// move renames a file or a directory. Without All, nothing may have the new name.
func (j *job) move() error {
	to := meant(j.To)
	if j.All {
		return os.Rename(j.path, to)
	}
	err := unix.Renameat2(unix.AT_FDCWD, j.path, unix.AT_FDCWD, to, unix.RENAME_NOREPLACE)
	if !errors.Is(err, unix.EINVAL) && !errors.Is(err, unix.ENOSYS) {
		return err
	}
	if _, err := os.Lstat(to); err == nil { // a file system without this flag
		return fs.ErrExist
	}
	return os.Rename(j.path, to)
}

// remove removes a file, a link or an empty directory; with All a directory with what is in it.
func (j *job) remove() error {
	if !j.All {
		return os.Remove(j.path)
	}
	fi, err := os.Lstat(j.path)
	if err != nil {
		return err
	}
	err = os.RemoveAll(j.path)
	if err != nil && fi.IsDir() {
		err = errors.Join(errPart, err)
	}
	return err
}
