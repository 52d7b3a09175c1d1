package workspace

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"secbox/fault"
	"secbox/internal/lockfile"
	"secbox/workspace/diskspace"
	"secbox/workspace/tree"
)

// guard keeps the work/ of a user's workspace in its place while it is used: within the process by a count, and among processes,
// which may be nodes on one root, by a lock on a file that is held while the count is not 0.
type guard struct {
	mu    sync.Mutex // held while the first use begins, which may unpack work/, and while work/ is packed
	users int
	lock  *os.File  // held shared while there are users; nil if the disk has no room for the file
	since time.Time // when this process last wrote the time of use to the disk

	// A caller that waits for packing cancels it. It increments waiting before it loads stop; the packer stores stop before it loads
	// waiting: so one of them sees the other.
	waiting atomic.Int32
	stop    atomic.Pointer[context.CancelFunc]

	left, leftAt time.Time // the last use before a failed attempt to pack, and the time of the attempt
}

// lockTimeout is how long to wait for a lock of another process. A process that is packing stops when it notices the waiter.
const lockTimeout = 2 * time.Minute

// idles reports whether the project is a user's workspace, which is packed when idle. Other projects are not: their callers control
// their lifetime.
func (p *Project) idles() bool { return strings.Contains(p.id, "~") }

// Use keeps work/ in its place until release is called, once or more, and unpacks it first if necessary. Every open Tree of work/
// has a use, and so must every container that mounts it. A nested use is cheap. Errors: fault.DiskFull when there is no room to
// unpack, and fault.Internal when the pack is damaged; then nothing was changed.
func (p *Project) Use() (release func(), err error) {
	if !p.idles() {
		return func() {}, nil
	}
	g := &p.state.guard
	g.waiting.Add(1)
	if stop := g.stop.Load(); stop != nil {
		(*stop)()
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	g.waiting.Add(-1)
	if g.users == 0 {
		if err := p.begin(); err != nil {
			return nil, err
		}
	}
	g.users++
	p.mark(g)
	return sync.OnceFunc(p.end), nil
}

func (p *Project) end() {
	g := &p.state.guard
	g.mu.Lock()
	defer g.mu.Unlock()
	p.mark(g)
	if g.users--; g.users == 0 {
		if g.lock != nil {
			lockfile.Close(g.lock)
			g.lock = nil
		}
	}
}

// UseInExec is Use for a command, from before it starts until all of its processes have ended.
func (p *Project) UseInExec() (release func(), err error) {
	end, err := p.Use()
	if err != nil {
		return nil, err
	}
	p.state.execs.Add(1)
	p.state.begun.Add(1)
	return sync.OnceFunc(func() {
		p.state.execs.Add(-1)
		end()
	}), nil
}

// ExecRuns reports whether a command of this process is running in the project.
func (p *Project) ExecRuns() bool { return p.state.execs.Load() > 0 }

// mark writes the time of use to the disk for other and later processes, at most once in MarkEvery.
func (p *Project) mark(g *guard) {
	now := p.w.opts.Now()
	if since := now.Sub(g.since); since >= 0 && since < p.w.opts.MarkEvery {
		return
	}
	g.since = now
	root, err := p.open()
	if err != nil {
		return
	}
	defer root.Close()
	if idle, _, err := tree.OpenDir(root, idleDir); err == nil {
		_ = idle.Chtimes(usedFile, now, now) // a read-only file system has no such file
		idle.Close()
	}
}

// begin takes the lock for the first use and unpacks work/.
func (p *Project) begin() error {
	root, err := p.open()
	if err != nil {
		return err
	}
	defer root.Close()
	idle, lock, err := p.openIdle(root)
	if cannotWrite(err) || errors.Is(err, fs.ErrPermission) && !isThere(root, idleDir) {
		return nil // nothing can have been packed there, and nothing is packed before the next use
	}
	if err != nil {
		return tree.Failed(err, "the directory %s of project %s cannot be used: remove the link or file in its place", idleDir, p.id)
	}
	defer idle.Close()
	for {
		if err := p.lockFor(idle, lock, lockfile.Shared); err != nil {
			lock.Close()
			return err
		}
		there, err := readIdleState(root, idle)
		if err != nil {
			lockfile.Close(lock)
			return tree.Failed(err, "the directory of project %s cannot be read", p.id)
		}
		if !there.packed() {
			p.state.guard.lock = lock
			return nil
		}
		lockfile.Unlock(lock)
		if err = p.lockFor(idle, lock, lockfile.Exclusive); err == nil {
			err = p.wake(root, idle)
		}
		if err != nil {
			lockfile.Close(lock)
			return err
		}
		lockfile.Unlock(lock)
	}
}

// lockFor waits for the lock. A packer that holds it sees the changed time of the file and gives up.
func (p *Project) lockFor(idle *os.Root, lock *os.File, mode lockfile.Mode) error {
	err := awaitLock(context.Background(), lock, mode, func() {
		now := p.w.opts.Now()
		_ = idle.Chtimes(usedFile, now, now)
	})
	if errors.Is(err, lockfile.ErrLocked) {
		return fault.New(fault.Internal, "another node is packing or unpacking the workspace %s; try again in a while", p.id)
	}
	return wrapFailed(err, "the file %s/%s of project %s cannot be locked", idleDir, usedFile, p.id)
}

// awaitLock takes a lock, or returns lockfile.ErrLocked after lockTimeout. It calls waiting, which may be nil, after each failed attempt.
func awaitLock(ctx context.Context, lock *os.File, mode lockfile.Mode, waiting func()) error {
	ctx, cancel := context.WithTimeoutCause(ctx, lockTimeout, lockfile.ErrLocked)
	defer cancel()
	return lockfile.Wait(ctx, lock, mode, waiting)
}

// wrapFailed is tree.Failed for an error that may be nil.
func wrapFailed(err error, format string, args ...any) error {
	if err == nil {
		return nil
	}
	return tree.Failed(err, format, args...)
}

// openIdle opens .idle and its file used, and makes both if necessary.
func (p *Project) openIdle(root *os.Root) (*os.Root, *os.File, error) {
	if err := root.Mkdir(idleDir, 0o700); err != nil && !errors.Is(err, fs.ErrExist) {
		return nil, nil, err
	}
	idle, _, err := tree.OpenDir(root, idleDir)
	if err != nil {
		return nil, nil, err
	}
	lock, err := idle.OpenFile(usedFile, os.O_RDWR, 0)
	if errors.Is(err, fs.ErrNotExist) {
		if lock, err = idle.OpenFile(usedFile, os.O_RDWR|os.O_CREATE, 0o600); err == nil {
			now := p.w.opts.Now() // unknown: as if it was used just now
			err = idle.Chtimes(usedFile, now, now)
		}
	}
	if err != nil {
		idle.Close()
		return nil, nil, err
	}
	return idle, lock, nil
}

func isThere(dir *os.Root, name string) bool {
	_, err := dir.Lstat(name)
	return err == nil
}

// cannotWrite reports whether an error means that the disk takes no new files.
func cannotWrite(err error) bool {
	return err != nil && (diskspace.IsFull(err) || errors.Is(err, syscall.EROFS))
}
