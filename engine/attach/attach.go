// Package attach mounts directories into containers that run already.
//
// A container is started with a Point, an empty directory, as a bind mount with rslave propagation.
// Directories that are attached below the point later appear in the container at once, each with
// its own flags. A Base holds the points of one core-api. It is a shared mount of its own, so that
// these mounts propagate to nothing else on the machine.
//
// A directory must be attached after the container's start: an engine that makes read-only bind
// mounts recursively read-only would make the attached directories read-only, too.
//
// This works for root on Linux 5.12 and newer, with an engine to which the mounts of this process
// propagate: on the same machine, not rootless, not in another mount namespace. Open fails if this
// process cannot do it. Only a trial container shows whether the engine can.
//
// The package must not know what a container or a project is.
package attach

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
)

// Base is a directory of points. It is safe for concurrent use.
type Base struct {
	dir   string
	lock  *os.File // held while the base is in use
	close func() error
}

// NewPoint makes a point with these empty directories; name and they are one path component each.
func (b *Base) NewPoint(name string, dirs ...string) (*Point, error) {
	if err := component(name); err != nil {
		return nil, err
	}
	p := &Point{dir: filepath.Join(b.dir, name)}
	// 0755 for the user in the container. On this machine, only root can pass the directory above
	// the base.
	if err := os.Mkdir(p.dir, 0o755); err != nil {
		return nil, err
	}
	for _, dir := range dirs {
		if err := p.makeDir(dir); err != nil {
			_ = p.Remove()
			return nil, err
		}
	}
	return p, nil
}

// TempDir makes an empty directory that only root can reach. The caller removes it; Open and Close
// do otherwise.
func (b *Base) TempDir() (string, error) { return os.MkdirTemp(b.dir, "temp-") }

// component returns an error unless name is one component of a path.
func component(name string) error {
	if name == "" || name == "." || name == ".." || strings.ContainsRune(name, filepath.Separator) {
		return fmt.Errorf("%q is not the name of a directory", name)
	}
	return nil
}

// Point is a directory at and below which directories can be attached. It is safe for concurrent
// use.
type Point struct {
	dir string

	mu       sync.Mutex
	made     []string // directories in dir
	attached bool
}

// Dir is a directory that is attached.
type Dir struct {
	Name     string   // its directory in the point; empty: the point itself, and there is no other
	From     *os.File // where the directory is open; not needed once Attach has returned
	ReadOnly bool
}

// Path is the source of the container's bind mount, which should be read-only.
func (p *Point) Path() string { return p.dir }

// Attach mounts directories, whose mounts never give access to devices and set-user-id programs.
// What is mounted below a directory now is attached with it, as in a container that was started
// with the directory, and has the same flags. The point must have none. After an error none is
// attached, unless Detach fails, too.
//
// Links in the directories can be followed, because jobs use them. They are followed in the
// container only: this process never reads a project through a point.
func (p *Point) Attach(dirs ...Dir) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.attached {
		return errors.New("the point has directories already")
	}
	p.attached = true
	err := p.attach(dirs)
	if err != nil {
		err = errors.Join(err, p.detach())
	}
	return err
}

func (p *Point) attach(dirs []Dir) error {
	if len(dirs) == 1 && dirs[0].Name == "" {
		return mount(p.dir, dirs[0].From, dirs[0].ReadOnly)
	}
	for _, d := range dirs {
		if err := p.makeDir(d.Name); err != nil {
			return err
		}
	}
	// All are mounted in a mount of the point on itself, so that one call detaches them together.
	self, err := os.Open(p.dir)
	if err != nil {
		return err
	}
	defer self.Close()
	if err := mount(p.dir, self, true); err != nil {
		return err
	}
	for _, d := range dirs {
		if err := mount(filepath.Join(p.dir, d.Name), d.From, d.ReadOnly); err != nil {
			return fmt.Errorf("attach %s: %w", d.Name, err)
		}
	}
	return nil
}

func (p *Point) makeDir(name string) error {
	if err := component(name); err != nil {
		return err
	}
	at := filepath.Join(p.dir, name)
	if slices.Contains(p.made, at) {
		return nil
	}
	if err := os.Mkdir(at, 0o755); err != nil {
		return err
	}
	p.made = append(p.made, at)
	return nil
}

// Detach removes all mounts. A process that has a file open keeps it; otherwise the directories are
// gone from the container. Safe to call twice.
func (p *Point) Detach() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.detach()
}

func (p *Point) detach() error {
	if !p.attached {
		return nil
	}
	if err := unmount(p.dir); err != nil {
		return err
	}
	p.attached = false
	return nil
}

// Remove detaches everything and removes the point. The container should have ended: it keeps no
// directory of a removed point.
func (p *Point) Remove() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if err := p.detach(); err != nil {
		return err
	}
	var errs []error
	for _, dir := range append(p.made, p.dir) {
		errs = append(errs, removeDir(dir))
	}
	p.made = nil
	return errors.Join(errs...)
}

// removeDir removes an empty directory, if it is there. It never removes a file: below a mount that
// was left these would be a project's.
func removeDir(dir string) error {
	if err := rmdir(dir); err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	return nil
}
