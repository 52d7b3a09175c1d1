package files

import (
	"context"
	"io/fs"
	"os"
	"path"
	"runtime"
	"strings"
	"sync"
	"time"

	"secbox/internal/names"
	"secbox/sandbox"
)

// Config configures Files.
type Config struct {
	Root *os.Root // the directory of sandbox.Root; the caller closes it
	// UID and GID own new files if they are not negative and the process may set them; -1: files
	// stay with this process's user.
	UID, GID int
	ReadOnly []sandbox.ReadOnlyRoot
	// Room is called before and during writes, and returns fault.DiskFull if the disk has too
	// little room; nil: not checked.
	Room func() error
	// Windows refuses names that are special on Windows; always set there.
	Windows bool
	// LockEdits makes the caller the only one who replaces files of Root until release is called;
	// nil: a lock of these Files alone.
	LockEdits func(ctx context.Context) (release func(), err error)
	// Now is the clock for the age of temporary files; nil: time.Now.
	Now func() time.Time
}

// Files implements the file operations of one sandbox. It keeps nothing open and is safe for
// concurrent use.
type Files struct {
	cfg     Config
	clean   func(op, name, root string) (string, error)
	escapes error // os.Root's error for a path that leads out of it
}

// New makes Files for a directory.
func New(cfg Config) *Files {
	f := &Files{cfg: cfg, clean: sandbox.Clean, escapes: escapeError(cfg.Root)}
	if cfg.Windows || runtime.GOOS == "windows" {
		f.clean = sandbox.CleanWindows
	}
	if f.cfg.LockEdits == nil {
		var edits sync.Mutex
		f.cfg.LockEdits = func(context.Context) (func(), error) {
			edits.Lock()
			return edits.Unlock, nil
		}
	}
	if f.cfg.Now == nil {
		f.cfg.Now = time.Now
	}
	return f
}

// location is a path below one of the roots.
type location struct {
	root     *os.Root
	shared   sandbox.ReadOnlyRoot // the root if it is read-only; else zero
	below    string               // with slashes; "." is the root itself
	readOnly bool
}

func (p location) close() {
	if p.readOnly { // opened for this call
		p.root.Close()
	}
}

// locate finds the root of a path, unless ctx has ended. The location must be closed.
func (f *Files) locate(ctx context.Context, op, name string) (location, error) {
	if err := ended(ctx); err != nil {
		return location{}, err
	}
	for _, r := range f.cfg.ReadOnly {
		below, err := f.clean(op, name, r.Path)
		if err != nil && r.Link != "" {
			below, err = f.clean(op, name, r.Link)
		}
		if err != nil {
			continue
		}
		root, err := os.OpenRoot(r.Dir)
		if err != nil {
			return location{}, f.failed(op, name, err)
		}
		return location{root: root, shared: r, below: below, readOnly: true}, nil
	}
	below, err := f.clean(op, name, sandbox.Root)
	if err != nil {
		return location{}, err
	}
	below = names.Meant(below, func(path string) bool {
		_, err := f.cfg.Root.Lstat(path)
		return err == nil
	})
	return location{root: f.cfg.Root, below: below}, nil
}

// locateToChange is locate for a change.
func (f *Files) locateToChange(ctx context.Context, op, name string) (location, error) {
	p, err := f.locate(ctx, op, name)
	if err == nil && p.readOnly {
		p.close()
		return location{}, sandbox.Refused(op, name)
	}
	return p, err
}

// Dir checks that a command can start in a directory, and returns the read-only root that it is in,
// zero for sandbox.Root, and the path below the root ("." or with slashes). Empty means
// sandbox.Root. The directory may still change before the command starts.
func (f *Files) Dir(ctx context.Context, name string) (shared sandbox.ReadOnlyRoot, below string, err error) {
	const op = "chdir"
	if name == "" {
		return shared, ".", nil
	}
	p, err := f.locate(ctx, op, name)
	if err != nil {
		return shared, "", err
	}
	defer p.close()
	fi, err := p.root.Stat(p.below)
	if err != nil {
		return shared, "", f.failed(op, name, err)
	}
	if !fi.IsDir() {
		return shared, "", sandbox.Invalid(op, name)
	}
	return p.shared, p.below, nil
}

// openDir opens a directory below a root, following links inside. The "/." makes the system open it
// as a directory: a plain OpenRoot would block at a FIFO in its place.
func openDir(root *os.Root, below string) (*os.Root, error) { return root.OpenRoot(below + "/.") }

// split splits a path below a root before its last name.
func split(below string) (dir, name string) {
	if at := strings.LastIndexByte(below, '/'); at >= 0 {
		return below[:at], below[at+1:]
	}
	return ".", below
}

// modeOf returns the mode of a file; on Windows without permissions, because files there have no
// executable bit.
func modeOf(fi fs.FileInfo) fs.FileMode {
	if runtime.GOOS == "windows" {
		return fi.Mode() &^ fs.ModePerm
	}
	return fi.Mode()
}

func describe(name string, fi fs.FileInfo) *sandbox.FileInfo {
	info := &sandbox.FileInfo{Name: path.Base(path.Clean(name)), Mode: modeOf(fi), ModTime: fi.ModTime(), IsDir: fi.IsDir()}
	if fi.Mode().IsRegular() {
		info.Size = fi.Size()
	}
	return info
}
