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

	"secbox/diskspace"
	"secbox/fault"
	"secbox/lockfile"
	"secbox/tree"
)

// guard keeps a workspace's work/ in its place while somebody uses it: a count within the process, and between processes, which may be
// nodes on one root, a lock on a file that is taken when the count leaves 0.
type guard struct {
	mu    sync.Mutex // held while the first use begins, which may bring work/ back, and while work/ is packed
	users int
	lock  *os.File  // held shared while there are users; nil when the disk has no room for the file
	since time.Time // when this process has last marked the access on the disk

	// Whoever waits for a pack to be made ends its making. A waiter counts itself before it looks for stop, the packer puts stop there
	// before it looks for waiters: one of them sees the other.
	waiting atomic.Int32
	stop    atomic.Pointer[context.CancelFunc]

	left, leftAt time.Time // the access after which work/ could not be packed, and when that was tried
}

// lockTimeout is how long a lock that another process holds is waited for. A process that packs gives that up when it notices.
const lockTimeout = 2 * time.Minute

// idles reports whether the project is the workspace of a user: those are packed when nobody uses them. Projects are not: whoever names
// one chooses its life.
func (p *Project) idles() bool { return strings.Contains(p.id, "~") }

// Use keeps work/ where it is until release is called, once or more, and brings it back first when it was packed. Every open Tree of work/
// has a use, and so must whatever a container works in. A use that begins within another costs nothing. Errors: fault.DiskFull when there
// is no room to bring it back, and fault.Internal when the pack is damaged: then nothing was changed.
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

// UseInExec is Use for a command that works in the project, from before it starts until none of its processes is left.
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

// ExecRuns reports whether a command of this process works in the project.
func (p *Project) ExecRuns() bool { return p.state.execs.Load() > 0 }

// mark puts the access on the disk, where other processes and a later one find it; not more often than is needed.
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
		_ = idle.Chtimes(usedFile, now, now) // a file system that cannot has never let the file be made
		idle.Close()
	}
}

// begin takes the lock for the first use, and brings work/ back.
func (p *Project) begin() error {
	root, err := p.open()
	if err != nil {
		return err
	}
	defer root.Close()
	idle, lock, err := p.openIdle(root)
	if cannotWrite(err) || errors.Is(err, fs.ErrPermission) && !isThere(root, idleDir) {
		return nil // nothing was packed where there is no room to say so, and nobody packs before the next access
	}
	if err != nil {
		return tree.Failed(err, "the directory %s of project %s cannot be used: remove what is in its place", idleDir, p.id)
	}
	defer idle.Close()
	for {
		if err := p.lockFor(idle, lock, lockfile.Shared); err != nil {
			lock.Close()
			return err
		}
		there, err := look(root, idle)
		if err != nil {
			lockfile.Close(lock)
			return tree.Failed(err, "the directory of project %s cannot be read", p.id)
		}
		if !there.asleep() {
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

// lockFor waits for the lock. Whoever holds it to pack looks at the time of the file, and gives up.
func (p *Project) lockFor(idle *os.Root, lock *os.File, mode lockfile.Mode) error {
	err := awaitLock(context.Background(), lock, mode, func() {
		now := p.w.opts.Now()
		_ = idle.Chtimes(usedFile, now, now)
	})
	if errors.Is(err, lockfile.ErrLocked) {
		return fault.New(fault.Internal, "another node is packing or unpacking the workspace %s; try again in a while", p.id)
	}
	return failedOr(err, "the file %s/%s of project %s cannot be locked", idleDir, usedFile, p.id)
}

// awaitLock takes a lock, or returns lockfile.ErrLocked after lockTimeout. It calls waiting, which may be nil, after each failed attempt.
func awaitLock(ctx context.Context, lock *os.File, mode lockfile.Mode, waiting func()) error {
	ctx, cancel := context.WithTimeoutCause(ctx, lockTimeout, lockfile.ErrLocked)
	defer cancel()
	return lockfile.Wait(ctx, lock, mode, waiting)
}

func failedOr(err error, format string, args ...any) error {
	if err == nil {
		return nil
	}
	return tree.Failed(err, format, args...)
}

// openIdle opens .idle and the file in it that is locked, and whose time is that of the last access; it makes what is missing.
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
			now := p.w.opts.Now() // for all that is known it was used just now
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

// cannotWrite reports whether the disk takes nothing new.
func cannotWrite(err error) bool {
	return err != nil && (diskspace.IsFull(err) || errors.Is(err, syscall.EROFS))
}
