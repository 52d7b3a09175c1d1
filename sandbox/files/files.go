package files

import (
	"io/fs"
	"os"
	"path"
	"runtime"
	"strings"
	"sync"
	"time"

	"secbox/sandbox"
)

// Config is what Files work on.
type Config struct {
	Root *os.Root // what sandbox.Root is; it stays the caller's, who closes it
	// UID and GID are given to what is made, if they are not negative and the process may: -1 keeps it with us.
	UID, GID int
	ReadOnly []sandbox.ReadOnlyRoot
	// Room is asked before and while something is written, and answers fault.DiskFull if there is too little left; nil: it is not asked.
	Room func() error
	// Windows refuses names that Windows understands as something else than themselves. On Windows it is always so.
	Windows bool
	// Commits is held while a content takes a file's place; nil: a lock of these Files alone.
	Commits *sync.Mutex
	// Now is the clock by which leftovers are told from what is being written; nil: time.Now.
	Now func() time.Time
}

// Files are the files of one sandbox. They hold nothing open and are safe for concurrent use.
type Files struct {
	cfg     Config
	clean   func(op, name, root string) (string, error)
	escapes error // what os.Root says of a path that leads out of it
}

// New makes Files of a directory.
func New(cfg Config) *Files {
	f := &Files{cfg: cfg, clean: sandbox.Clean, escapes: escapeError(cfg.Root)}
	if cfg.Windows || runtime.GOOS == "windows" {
		f.clean = sandbox.CleanWindows
	}
	if f.cfg.Commits == nil {
		f.cfg.Commits = &sync.Mutex{}
	}
	if f.cfg.Now == nil {
		f.cfg.Now = time.Now
	}
	return f
}

// place is a path below one of the roots.
type place struct {
	root     *os.Root
	top      string // the root's path in the sandbox
	below    string // with slashes; "." is the root itself
	readOnly bool
}

func (p place) close() {
	if p.readOnly { // opened for this one call
		p.root.Close()
	}
}

// locate finds the root that a path is below. The place must be closed.
func (f *Files) locate(op, name string) (place, error) {
	below, err := f.clean(op, name, sandbox.Root)
	if err == nil {
		return place{root: f.cfg.Root, top: sandbox.Root, below: below}, nil
	}
	for _, r := range f.cfg.ReadOnly {
		below, e := f.clean(op, name, r.Path)
		if e != nil {
			continue
		}
		root, e := os.OpenRoot(r.Dir)
		if e != nil {
			return place{}, f.failed(op, name, e)
		}
		return place{root: root, top: r.Path, below: below, readOnly: true}, nil
	}
	return place{}, err
}

// locateToChange is locate for what changes something.
func (f *Files) locateToChange(op, name string) (place, error) {
	p, err := f.locate(op, name)
	if err == nil && p.readOnly {
		p.close()
		return place{}, sandbox.Refused(op, name)
	}
	return p, err
}

// Dir checks that a command can start in a directory: it is there, inside, and a directory. It answers with the root as the sandbox shows it,
// sandbox.Root or a read-only root's path, and the way from there, "." or with slashes. Empty means sandbox.Root. What becomes of the
// directory until the command starts is not in its hands.
func (f *Files) Dir(name string) (root, below string, err error) {
	const op = "chdir"
	if name == "" {
		return sandbox.Root, ".", nil
	}
	p, err := f.locate(op, name)
	if err != nil {
		return "", "", err
	}
	defer p.close()
	fi, err := p.root.Stat(p.below)
	if err != nil {
		return "", "", f.failed(op, name, err)
	}
	if !fi.IsDir() {
		return "", "", sandbox.Invalid(op, name)
	}
	return p.top, p.below, nil
}

// openDir opens a directory below a root, following links inside. With "/." the name itself is opened as a directory: a plain OpenRoot
// would wait for ever at a FIFO put in its place.
func openDir(root *os.Root, below string) (*os.Root, error) { return root.OpenRoot(below + "/.") }

// split cuts a path below a root before its last name.
func split(below string) (dir, name string) {
	if at := strings.LastIndexByte(below, '/'); at >= 0 {
		return below[:at], below[at+1:]
	}
	return ".", below
}

func describe(name string, fi fs.FileInfo) *sandbox.FileInfo {
	info := &sandbox.FileInfo{Name: path.Base(path.Clean(name)), Mode: fi.Mode(), ModTime: fi.ModTime(), IsDir: fi.IsDir()}
	if fi.Mode().IsRegular() {
		info.Size = fi.Size()
	}
	return info
}
