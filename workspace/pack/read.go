package pack

import (
	"archive/tar"
	"errors"
	"hash"
	"io"
	"io/fs"
	"os"
	"strconv"
	"strings"
	"time"

	"secbox/workspace/tree"

	"github.com/klauspost/compress/zstd"
)

// packWindow is the compression window, in bytes: the memory that both sides need.
const packWindow = 8 << 20

// sink receives the entries of a pack. Paths are clean; a directory comes before its content, and all of its content before any
// other entry.
type sink interface {
	directory(path string, h *tar.Header) error
	file(path string, h *tar.Header, content io.Reader, extents []extent, size int64) error
	symlink(path string, h *tar.Header) error
	hardlink(path, first string) error
}

// readPack reads a pack to its end. sum, which may be nil, gets the archive. Errors are ErrDamaged, or those of the sink and of
// from.
func readPack(from io.Reader, sum hash.Hash, to sink) (Content, error) {
	in := &source{from: from}
	got, err := readArchive(in, sum, to)
	var own *sinkError
	switch {
	case err == nil:
		return got, nil
	case errors.As(err, &own):
		return Content{}, own.err
	case in.err != nil: // the disk's, and not the pack's
		return Content{}, in.err
	case errors.Is(err, ErrDamaged):
		return Content{}, err
	}
	return Content{}, damaged("%v", err)
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

// sinkError marks the errors of the sink.
type sinkError struct{ err error }

func (e *sinkError) Error() string { return e.err.Error() }

func fromSink(err error) error {
	if err == nil || errors.Is(err, ErrDamaged) {
		return err
	}
	return &sinkError{err}
}

func readArchive(from io.Reader, sum hash.Hash, to sink) (Content, error) {
	z, err := zstd.NewReader(from, zstd.WithDecoderConcurrency(1), zstd.WithDecoderMaxWindow(packWindow), zstd.WithDecoderLowmem(true))
	if err != nil {
		return Content{}, err
	}
	defer z.Close()
	var stream io.Reader = z
	if sum != nil {
		stream = io.TeeReader(z, sum)
	}
	r := packReader{tar: tar.NewReader(stream), to: to}
	h, err := r.tar.Next()
	if err != nil {
		return Content{}, err
	}
	if h.Typeflag != tar.TypeXGlobalHeader || h.PAXRecords[recordVersion] != packVersion {
		return Content{}, damaged("it does not begin as a pack of version %s", packVersion)
	}
	for {
		h, err := r.tar.Next()
		if err != nil {
			if errors.Is(err, io.EOF) {
				err = damaged("it has no end")
			}
			return Content{}, err
		}
		if h.Typeflag == tar.TypeXGlobalHeader {
			if h.PAXRecords[recordEntries] != strconv.FormatInt(r.Entries, 10) || r.Entries == 0 {
				return Content{}, damaged("it holds %d entries, and says %.40q", r.Entries, h.PAXRecords[recordEntries])
			}
			break
		}
		if err := r.entry(h); err != nil {
			return Content{}, err
		}
	}
	if _, err := r.tar.Next(); !errors.Is(err, io.EOF) {
		return Content{}, damaged("it goes on after its end (%v)", err)
	}
	n, err := stream.Read(make([]byte, 1)) // the checksum comes last
	if n > 0 {
		err = damaged("it goes on after its end")
	}
	if errors.Is(err, io.EOF) {
		err = nil
	}
	return r.Content, err
}

// packReader checks entries before the sink gets them.
type packReader struct {
	tar *tar.Reader
	to  sink
	Content
	dirs []string // the open directories, outermost first, each with a slash; the top is ""
}

func (r *packReader) entry(h *tar.Header) error {
	path, isDir := strings.CutSuffix(h.Name, "/")
	kind := packedKind(h)
	if kind == 0 || isDir != kind.IsDir() || h.Mode&^0o7777 != 0 {
		return damaged("it holds %.200q, which is of the kind %q and has the mode %o", h.Name, h.Typeflag, h.Mode)
	}
	if r.Entries++; r.Entries > int64(bounds.Entries)+1 {
		return damaged("it holds more than %d entries", bounds.Entries)
	}
	if r.Entries == 1 {
		if path != "." || !isDir {
			return damaged("it begins with %.200q", h.Name)
		}
		r.dirs = []string{""}
		return fromSink(r.to.directory(".", h))
	}
	above, name := "", path
	if at := strings.LastIndexByte(path, '/'); at >= 0 {
		above, name = path[:at+1], path[at+1:]
	}
	if name == "" || name == "." || name == ".." || strings.ContainsRune(name, 0) || hasSeparator(name) {
		return damaged("it holds the name %.200q", h.Name)
	}
	for len(r.dirs) > 0 && r.dirs[len(r.dirs)-1] != above {
		r.dirs = r.dirs[:len(r.dirs)-1]
	}
	if len(r.dirs) == 0 {
		return damaged("%.200q comes where its directory does not", h.Name)
	}
	switch h.Typeflag {
	case tar.TypeDir:
		if len(r.dirs) > bounds.Depth+1 {
			return damaged("it is deeper than %d directories", bounds.Depth)
		}
		r.dirs = append(r.dirs, path+"/")
		return fromSink(r.to.directory(path, h))
	case tar.TypeSymlink:
		return fromSink(r.to.symlink(path, h))
	case tar.TypeLink:
		return fromSink(r.to.hardlink(path, h.Linkname))
	}
	return r.file(path, h)
}

func (r *packReader) file(path string, h *tar.Header) error {
	extents, size := []extent{{0, h.Size}}, h.Size
	if text, ok := h.PAXRecords[recordExtents]; ok {
		var err error
		if extents, size, err = parseExtents(text, h.PAXRecords[recordSize], h.Size); err != nil {
			return err
		}
	}
	r.Bytes += h.Size
	content := &source{from: r.tar}
	err := r.to.file(path, h, content, extents, size)
	if content.err != nil {
		return content.err
	}
	return fromSink(err)
}

// discard is a sink for reading only.
type discard struct{}

func (discard) directory(string, *tar.Header) error { return nil }
func (discard) symlink(string, *tar.Header) error   { return nil }
func (discard) hardlink(string, string) error       { return nil }

func (discard) file(_ string, _ *tar.Header, content io.Reader, _ []extent, _ int64) error {
	_, err := io.Copy(io.Discard, content)
	return err
}

// Unpack makes a directory with this name that holds the tree in the pack.
func Unpack(from io.Reader, parent *os.Root, name string) (Content, error) {
	u := unpacker{parent: parent, name: name}
	defer u.leave(0)
	got, err := readPack(from, nil, &u)
	if err != nil {
		return Content{}, err
	}
	u.leave(1)
	return got, u.finish()
}

// unpacker writes a tree that no other process can reach yet. Since its content is hostile, it opens each directory by itself.
type unpacker struct {
	parent *os.Root
	name   string
	levels []unpackLevel
	made   []madeDir
}

type unpackLevel struct {
	path string
	dir  *os.Root
}

// madeDir is a directory that gets its mode and time when the tree is complete, so that neither gets in the way of its content.
type madeDir struct {
	path     string
	mode     fs.FileMode
	uid, gid int
	modified time.Time
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

func (u *unpacker) directory(path string, h *tar.Header) error {
	parent, name := u.parent, u.name
	if path != "." {
		var err error
		if parent, name, err = u.in(path); err != nil {
			return err
		}
	}
	if err := parent.Mkdir(name, 0o700); err != nil {
		return twice(err, path)
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
func twice(err error, path string) error {
	if errors.Is(err, fs.ErrExist) {
		return damaged("it holds %.200q twice", path)
	}
	return err
}

func (u *unpacker) file(path string, h *tar.Header, content io.Reader, extents []extent, size int64) error {
	dir, name, err := u.in(path)
	if err != nil {
		return err
	}
	f, err := dir.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return twice(err, path)
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
	if e := f.Close(); err == nil {
		err = e
	}
	if err != nil {
		return err
	}
	return setModified(dir, name, h.ModTime)
}

func (u *unpacker) symlink(path string, h *tar.Header) error {
	dir, name, err := u.in(path)
	if err != nil {
		return err
	}
	if err := dir.Symlink(h.Linkname, name); err != nil {
		return twice(err, path)
	}
	if err := giveTo(h.Uid, h.Gid, func(uid, gid int) error { return dir.Lchown(name, uid, gid) }); err != nil {
		return err
	}
	return setModified(dir, name, h.ModTime)
}

func (u *unpacker) hardlink(path, first string) error {
	_, _, err := u.in(path)
	if err != nil {
		return err
	}
	top := u.levels[0].dir
	if fi, err := top.Lstat(first); err != nil || !fi.Mode().IsRegular() {
		return damaged("%.200q is another name of %.200q, which is no file", path, first)
	}
	return twice(top.Link(first, path), path)
}

// finish sets the modes, owners and times of directories, innermost first. No link is in the way: each was made as a directory.
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
