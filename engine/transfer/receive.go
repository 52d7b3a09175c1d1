package transfer

import (
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"strconv"
	"strings"
	"time"
)

// Owner is the user and group that files get if this process is root. UID -1: they keep this
// process's.
type Owner struct{ UID, GID int }

func (o Owner) gives() bool { return o.UID >= 0 && os.Geteuid() == 0 }

// Receive applies a stream of Unpacked.Changes to directories. Other programs may change them
// meanwhile. After an error, what came before it is in place. Errors are ErrFormat, ErrTooLarge,
// and errors of the reader and of the file system.
func Receive(r io.Reader, dirs []Dir, b Bounds, o Owner) (Report, error) {
	return newReceiver(newReader(r), dirs, b, o).receive()
}

// receiver applies records.
type receiver struct {
	in     *reader
	dirs   []Dir
	bounds Bounds
	owner  Owner
	report Report
	strict bool   // a conflict is an error
	temp   string // prefix of temporary names
	temps  int

	open *os.Root // the directory of the last name, if it is not a Dir's own
	dir  int
	path string // open's
}

func newReceiver(in *reader, dirs []Dir, b Bounds, o Owner) *receiver {
	return &receiver{in: in, dirs: dirs, bounds: b, owner: o, temp: ".secbox-" + rand.Text() + "-"}
}

// errConflict reports that something has the place of a name which the sender does not know of.
var errConflict = errors.New("something else has its place")

func (r *receiver) receive() (Report, error) {
	defer r.leave()
	for {
		k, payload, err := r.in.next()
		if err != nil {
			return r.report, err
		}
		if k == kindEnd {
			return r.report, r.end(payload)
		}
		var e entry
		if err := decode(payload, &e); err != nil {
			return r.report, err
		}
		path := string(e.Path)
		if err := r.check(e, path); err != nil {
			return r.report, err
		}
		switch k {
		case kindFile:
			err = r.file(e, path)
		case kindDir:
			err = r.directory(e, path)
		case kindLink:
			err = r.link(e, path)
		case kindGone:
			err = r.gone(e, path)
		default:
			err = fmt.Errorf("%w: a record of kind %q", ErrFormat, byte(k))
		}
		if !r.strict && (errors.Is(err, errConflict) || isNoName(err)) {
			r.report.leaveOut(path)
			err = nil
		}
		if err != nil {
			return r.report, fmt.Errorf("%q: %w", shown(path), err)
		}
	}
}

// end takes the last record.
func (r *receiver) end(payload []byte) error {
	var e ending
	if err := decode(payload, &e); err != nil {
		return err
	}
	if e.LeftOut > 0 {
		if r.report.LeftOut == 0 {
			r.report.First = shown(e.First)
		}
		r.report.LeftOut += e.LeftOut
	}
	switch {
	case e.TooLarge:
		return fmt.Errorf("%w: %s", ErrTooLarge, strings.TrimPrefix(shown(e.Error), ErrTooLarge.Error()+": "))
	case e.Error != "":
		return errors.New(shown(e.Error))
	}
	return nil
}

// check refuses an entry that the sender may not send.
func (r *receiver) check(e entry, path string) error {
	if e.Dir < 0 || e.Dir >= len(r.dirs) || r.dirs[e.Dir].ReadOnly {
		return fmt.Errorf("%w: something of a directory that does not come back", ErrFormat)
	}
	if r.report.Entries++; r.report.Entries > r.bounds.Entries {
		return fmt.Errorf("%w: more than %d files, directories and links", ErrTooLarge, r.bounds.Entries)
	}
	return checkPath(path)
}

// leave closes the directory of the last name.
func (r *receiver) leave() {
	if r.open != nil {
		r.open.Close()
		r.open = nil
	}
}

// parent opens the directory of a path, and makes it if it is missing.
func (r *receiver) parent(e entry, path string) (dir *os.Root, name string, err error) {
	above, name := splitPath(path)
	top := r.dirs[e.Dir].Root
	if above == "" {
		return top, name, nil
	}
	if r.open != nil && r.dir == e.Dir && r.path == above {
		return r.open, name, nil
	}
	r.leave()
	at := top
	for step := range strings.SplitSeq(above, "/") {
		next, err := openDir(at, step)
		if errors.Is(err, fs.ErrNotExist) {
			if next, err = r.makeDir(at, step, 0o755); errors.Is(err, fs.ErrExist) {
				next, err = openDir(at, step)
			}
		}
		if at != top {
			at.Close()
		}
		if errors.Is(err, errOther) {
			err = errConflict
		}
		if err != nil {
			return nil, "", err
		}
		at = next
	}
	r.open, r.dir, r.path = at, e.Dir, above
	return at, name, nil
}

// makeDir makes a directory for the owner and opens it.
func (r *receiver) makeDir(parent *os.Root, name string, mode fs.FileMode) (*os.Root, error) {
	if err := parent.Mkdir(name, 0o700); err != nil {
		return nil, err
	}
	dir, err := openDir(parent, name)
	if err != nil {
		return nil, err
	}
	if err = dir.Chmod(".", mode.Perm()|0o700); err == nil && r.owner.gives() {
		_ = dir.Lchown(".", r.owner.UID, r.owner.GID) // a file system without owners needs none
	}
	if err != nil {
		dir.Close()
		return nil, err
	}
	return dir, nil
}

func (r *receiver) directory(e entry, path string) error {
	parent, name, err := r.parent(e, path)
	if err != nil {
		return err
	}
	dir, err := openDir(parent, name)
	if errors.Is(err, fs.ErrNotExist) {
		dir, err = r.makeDir(parent, name, e.Mode)
	}
	if errors.Is(err, errOther) || errors.Is(err, fs.ErrExist) {
		return errConflict
	}
	if err != nil {
		return err
	}
	defer dir.Close()
	return dir.Chmod(".", e.Mode.Perm()|0o700)
}

// staging is where new files of a directory are written.
func (r *receiver) staging(e entry) (dir *os.Root, temp string) {
	r.temps++
	if dir = r.dirs[e.Dir].Staging; dir == nil {
		dir = r.dirs[e.Dir].Root
	}
	return dir, r.temp + strconv.Itoa(r.temps)
}

func (r *receiver) file(e entry, path string) (err error) {
	staging, temp := r.staging(e)
	f, err := staging.OpenFile(temp, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	placed := false
	defer func() {
		f.Close()
		if !placed {
			_ = staging.Remove(temp)
		}
	}()
	if err := r.content(f); err != nil {
		return err
	}
	if err := f.Chmod(e.Mode.Perm() | 0o600); err != nil {
		return err
	}
	if r.owner.gives() {
		_ = f.Chown(r.owner.UID, r.owner.GID) // a file system without owners needs none
	}
	if err := f.Close(); err != nil {
		return err
	}
	parent, name, err := r.place(staging, temp, e, path)
	if err != nil {
		return err
	}
	placed = true
	r.report.Files++
	// Not before: old files in staging are taken for leftovers of a crash.
	at := time.Unix(0, e.ModTime)
	err = parent.Chtimes(name, at, at)
	if errors.Is(err, fs.ErrNotExist) { // it has another name already
		err = nil
	}
	return err
}

// content writes the blocks of a file.
func (r *receiver) content(f *os.File) error {
	end := int64(0)
	for {
		k, payload, err := r.in.next()
		if err != nil {
			return err
		}
		if k == kindEnd { // the sender could not read on
			if err := r.end(payload); err != nil {
				return err
			}
		}
		if k != kindBlock && k != kindSize {
			return fmt.Errorf("%w: a file without an end", ErrFormat)
		}
		n, data, err := numberIn(payload)
		switch {
		case err != nil:
			return err
		case n < end:
			return fmt.Errorf("%w: a block before the end of the last one", ErrFormat)
		case k == kindSize && len(data) == 0:
			if n > end { // a hole at the end
				return f.Truncate(n)
			}
			return nil
		case k == kindSize || len(data) == 0 || n+int64(len(data)) > maxSize:
			return fmt.Errorf("%w: a block without data, or too far", ErrFormat)
		}
		if r.report.Bytes += int64(len(data)); r.report.Bytes > r.bounds.Bytes {
			return fmt.Errorf("%w: more than %d bytes", ErrTooLarge, r.bounds.Bytes)
		}
		if _, err := f.WriteAt(data, n); err != nil {
			return err
		}
		end = n + int64(len(data))
	}
}

func (r *receiver) link(e entry, path string) error {
	if to := string(e.Link); to == "" || len(to) > maxPath || strings.IndexByte(to, 0) >= 0 {
		return fmt.Errorf("%w: a link without a target", ErrFormat)
	}
	staging, temp := r.staging(e)
	if err := staging.Symlink(string(e.Link), temp); err != nil {
		return err
	}
	if r.owner.gives() {
		_ = staging.Lchown(temp, r.owner.UID, r.owner.GID)
	}
	_, _, err := r.place(staging, temp, e, path)
	if err != nil {
		_ = staging.Remove(temp)
	}
	return err
}

// place gives a new file or link its name. It replaces a file, a link or an empty directory.
func (r *receiver) place(staging *os.Root, temp string, e entry, path string) (parent *os.Root, name string, err error) {
	if parent, name, err = r.parent(e, path); err != nil {
		return nil, "", err
	}
	err = rename(staging, temp, parent, name)
	if fi, e := parent.Lstat(name); err != nil && e == nil && fi.IsDir() {
		if parent.Remove(name) != nil {
			return nil, "", errConflict
		}
		err = rename(staging, temp, parent, name)
	}
	return parent, name, err
}

// gone removes a name: a file, a link or an empty directory, as the sender has known it.
func (r *receiver) gone(e entry, path string) error {
	above, name := splitPath(path)
	dir := r.dirs[e.Dir].Root
	r.leave() // this directory may be removed
	if above != "" {
		for step := range strings.SplitSeq(above, "/") {
			next, err := openDir(dir, step)
			if dir != r.dirs[e.Dir].Root {
				dir.Close()
			}
			if errors.Is(err, fs.ErrNotExist) || errors.Is(err, errOther) {
				return nil
			}
			if err != nil {
				return err
			}
			dir = next
		}
		defer dir.Close()
	}
	fi, err := dir.Lstat(name)
	if errors.Is(err, fs.ErrNotExist) || err == nil && fi.IsDir() != e.Mode.IsDir() {
		return nil
	}
	if err == nil {
		err = dir.Remove(name)
	}
	switch {
	case err == nil:
		r.report.Removed++
	case errors.Is(err, fs.ErrNotExist), fi != nil && fi.IsDir(): // it is not empty: another exec uses it
		return nil
	}
	return err
}

// splitPath splits a path into the directory, empty for the top, and the name in it.
func splitPath(path string) (dir, name string) {
	at := strings.LastIndexByte(path, '/')
	return path[:max(0, at)], path[at+1:]
}
