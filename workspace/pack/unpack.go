package pack

import (
	"archive/tar"
	"errors"
	"io"
	"io/fs"
	"os"
	"strconv"
	"strings"
	"time"

	"secbox/workspace/tree"

	"github.com/klauspost/compress/zstd"
)

// packWindow is the compression window, in bytes: the memory that reading needs.
const packWindow = 8 << 20

// Unpack makes a directory with this name in parent that holds the tree in the pack. It returns
// ErrDamaged, or an error of from or of the file system. A part of the tree may be there then.
func Unpack(from io.Reader, parent *os.Root, name string) error {
	in := &source{from: from}
	u := unpacker{parent: parent, name: name}
	defer u.leave(0)
	err := u.archive(in)
	var own *diskError
	switch {
	case err == nil:
		u.leave(1)
		return u.finish()
	case errors.As(err, &own):
		return own.err
	case in.err != nil: // the disk's, and not the pack's
		return in.err
	case errors.Is(err, ErrDamaged):
		return err
	}
	return damaged("%v", err)
}

// source remembers an error of reading the file itself.
type source struct {
	from io.Reader
	err  error
}

func (s *source) Read(b []byte) (int, error) {
	n, err := s.from.Read(b)
	if err != nil && !errors.Is(err, io.EOF) {
		s.err = err
	}
	return n, err
}

// diskError marks errors of writing the tree.
type diskError struct{ err error }

func (e *diskError) Error() string { return e.err.Error() }

func writing(err error) error {
	if err == nil || errors.Is(err, ErrDamaged) {
		return err
	}
	return &diskError{err}
}

// unpacker checks the entries of a pack and writes a tree that no other process can reach yet.
// Since its content is hostile, it opens each directory by itself.
type unpacker struct {
	tar     *tar.Reader
	entries int64

	parent *os.Root
	name   string
	levels []unpackLevel
	made   []madeDir
}

type unpackLevel struct {
	path string
	dir  *os.Root
}

// madeDir is a directory that gets its mode and time when the tree is complete, so that neither
// gets in the way of its content.
type madeDir struct {
	path     string
	mode     fs.FileMode
	uid, gid int
	modified time.Time
}

func (u *unpacker) archive(from io.Reader) error {
	z, err := zstd.NewReader(from, zstd.WithDecoderConcurrency(1), zstd.WithDecoderMaxWindow(packWindow), zstd.WithDecoderLowmem(true))
	if err != nil {
		return err
	}
	defer z.Close()
	u.tar = tar.NewReader(z)
	h, err := u.tar.Next()
	if err != nil {
		return err
	}
	if h.Typeflag != tar.TypeXGlobalHeader || h.PAXRecords[recordVersion] != packVersion {
		return damaged("it does not begin as a pack of version %s", packVersion)
	}
	for {
		h, err := u.tar.Next()
		if err != nil {
			if errors.Is(err, io.EOF) {
				err = damaged("it has no end")
			}
			return err
		}
		if h.Typeflag == tar.TypeXGlobalHeader {
			if h.PAXRecords[recordEntries] != strconv.FormatInt(u.entries, 10) || u.entries == 0 {
				return damaged("it holds %d entries, and says %.40q", u.entries, h.PAXRecords[recordEntries])
			}
			break
		}
		if err := u.entry(h); err != nil {
			return err
		}
	}
	if _, err := u.tar.Next(); !errors.Is(err, io.EOF) {
		return damaged("it goes on after its end (%v)", err)
	}
	switch n, err := z.Read(make([]byte, 1)); { // the checksum comes last
	case n > 0:
		return damaged("it goes on after its end")
	case !errors.Is(err, io.EOF):
		return err
	}
	return nil
}

func (u *unpacker) entry(h *tar.Header) error {
	path, isDir := strings.CutSuffix(h.Name, "/")
	kind := packedKind(h)
	if kind == 0 || isDir != kind.IsDir() || h.Mode&^0o7777 != 0 {
		return damaged("it holds %.200q, which is of the kind %q and has the mode %o", h.Name, h.Typeflag, h.Mode)
	}
	if u.entries++; u.entries > int64(bounds.Entries)+1 {
		return damaged("it holds more than %d entries", bounds.Entries)
	}
	if u.entries == 1 {
		if path != "." || !isDir {
			return damaged("it begins with %.200q", h.Name)
		}
		return writing(u.directory(u.parent, u.name, ".", h))
	}
	dir, name, err := u.in(path)
	if err != nil {
		return err
	}
	if name == "" || name == "." || name == ".." || strings.ContainsRune(name, 0) || hasSeparator(name) {
		return damaged("it holds the name %.200q", h.Name)
	}
	switch h.Typeflag {
	case tar.TypeDir:
		if len(u.levels) > bounds.Depth+1 {
			return damaged("it is deeper than %d directories", bounds.Depth)
		}
		return writing(u.directory(dir, name, path, h))
	case tar.TypeSymlink:
		return writing(u.symlink(dir, name, h))
	case tar.TypeLink:
		return writing(u.hardlink(h))
	}
	return u.file(dir, name, h)
}

// leave closes the directories from the given level on.
func (u *unpacker) leave(from int) {
	for len(u.levels) > from {
		u.levels[len(u.levels)-1].dir.Close()
		u.levels = u.levels[:len(u.levels)-1]
	}
}

// in returns the open directory of path, and the name in it.
func (u *unpacker) in(path string) (*os.Root, string, error) {
	above, name := tree.SplitPath(path)
	for len(u.levels) > 0 {
		if top := u.levels[len(u.levels)-1]; top.path == above {
			return top.dir, name, nil
		}
		u.leave(len(u.levels) - 1)
	}
	return nil, "", damaged("%.200q comes where its directory does not", path)
}

func (u *unpacker) directory(parent *os.Root, name, path string, h *tar.Header) error {
	if err := parent.Mkdir(name, 0o700); err != nil {
		return twice(err, h)
	}
	dir, _, err := tree.OpenDir(parent, name)
	if err != nil {
		return err
	}
	u.levels = append(u.levels, unpackLevel{path, dir})
	u.made = append(u.made, madeDir{path, fileMode(h.Mode), h.Uid, h.Gid, h.ModTime})
	return nil
}

// twice converts fs.ErrExist: two entries have the same path.
func twice(err error, h *tar.Header) error {
	if errors.Is(err, fs.ErrExist) {
		return damaged("it holds %.200q twice", h.Name)
	}
	return err
}

func (u *unpacker) file(dir *os.Root, name string, h *tar.Header) error {
	extents, size := []extent{{0, h.Size}}, h.Size
	if text, ok := h.PAXRecords[recordExtents]; ok {
		var err error
		if extents, size, err = parseExtents(text, h.PAXRecords[recordSize], h.Size); err != nil {
			return err
		}
	}
	content := &source{from: u.tar}
	err := write(dir, name, h, content, extents, size)
	if content.err != nil {
		return content.err
	}
	return writing(err)
}

func write(dir *os.Root, name string, h *tar.Header, content io.Reader, extents []extent, size int64) error {
	f, err := dir.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return twice(err, h)
	}
	for _, piece := range extents {
		if err == nil {
			_, err = io.Copy(io.NewOffsetWriter(f, piece.offset), io.LimitReader(content, piece.length))
		}
	}
	if err == nil {
		err = f.Truncate(size)
	}
	if err == nil {
		err = giveTo(h.Uid, h.Gid, f.Chown)
	}
	if err == nil {
		err = f.Chmod(fileMode(h.Mode))
	}
	if err == nil && !tree.FlushTakesAll {
		err = f.Sync()
	}
	if err = errors.Join(err, f.Close()); err != nil {
		return err
	}
	return setModified(dir, name, h.ModTime)
}

func (u *unpacker) symlink(dir *os.Root, name string, h *tar.Header) error {
	if err := dir.Symlink(h.Linkname, name); err != nil {
		return twice(err, h)
	}
	if err := giveTo(h.Uid, h.Gid, func(uid, gid int) error { return dir.Lchown(name, uid, gid) }); err != nil {
		return err
	}
	return setModified(dir, name, h.ModTime)
}

func (u *unpacker) hardlink(h *tar.Header) error {
	top := u.levels[0].dir
	if fi, err := top.Lstat(h.Linkname); err != nil || !fi.Mode().IsRegular() {
		return damaged("%.200q is another name of %.200q, which is no file", h.Name, h.Linkname)
	}
	return twice(top.Link(h.Linkname, h.Name), h)
}

// finish sets the modes, owners and times of directories, innermost first. No link is in the way:
// each was made as a directory.
func (u *unpacker) finish() error {
	for i := len(u.made) - 1; i >= 0; i-- {
		d := u.made[i]
		dir, name := u.levels[0].dir, d.path
		if name == "." {
			dir, name = u.parent, u.name
		}
		if err := giveTo(d.uid, d.gid, func(uid, gid int) error { return dir.Lchown(name, uid, gid) }); err != nil {
			return err
		}
		if err := dir.Chmod(name, d.mode); err != nil {
			return err
		}
		if err := setModifiedAt(dir, name, d.modified); err != nil {
			return err
		}
	}
	return nil
}

// setModifiedAt is setModified for a path.
func setModifiedAt(dir *os.Root, path string, at time.Time) error {
	above, name := tree.SplitPath(path)
	if above == "." {
		return setModified(dir, name, at)
	}
	parent, err := dir.OpenRoot(above)
	if err != nil {
		return err
	}
	defer parent.Close()
	return setModified(parent, name, at)
}
