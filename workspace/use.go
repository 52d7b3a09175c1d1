package workspace

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"strings"
	"sync"
	"time"

	"secbox/internal/lockfile"
	"secbox/workspace/tree"
)

// A user's workspace has the directory .idle, which no container sees. The modification time of its
// file used is when the workspace was last used; processes write it at most once in
// Options.MarkEvery. Only users' workspaces can be idle: callers control the lifetime of other
// projects.
const (
	idleDir  = ".idle"
	usedFile = "used"
	editFile = "edit" // locked by an editor of files in work/
)

// ofUser reports whether the project is a user's workspace.
func (p *Project) ofUser() bool { return strings.Contains(p.id, "~") }

// BeginExec marks the workspace as used by a command, from before it starts until all of its
// processes have ended.
func (p *Project) BeginExec() (end func()) {
	p.state.execs.Add(1)
	p.state.begun.Add(1)
	p.mark()
	return sync.OnceFunc(func() {
		p.mark()
		p.state.execs.Add(-1)
	})
}

// ExecRuns reports whether a command of this process is running in the project.
func (p *Project) ExecRuns() bool { return p.state.execs.Load() > 0 }

// mark writes the time of use, for all processes. It fails silently: a read-only file system has no
// idle workspaces.
func (p *Project) mark() {
	if !p.ofUser() {
		return
	}
	s, now := p.state, p.w.opts.Now()
	s.marking.Lock()
	defer s.marking.Unlock()
	if since := now.Sub(s.marked); since >= 0 && since < p.w.opts.MarkEvery {
		return
	}
	s.marked = now
	if idle, err := p.openIdle(); err == nil {
		_ = idle.Chtimes(usedFile, now, now)
		idle.Close()
	}
}

// MarkRunning marks the workspaces in which commands of this process run.
func (w *Workspace) MarkRunning() {
	w.mu.Lock()
	var running []*Project
	for id, s := range w.known {
		if s.execs.Load() > 0 {
			running = append(running, &Project{w: w, id: id, state: s})
		}
	}
	w.mu.Unlock()
	for _, p := range running {
		p.mark()
	}
}

// openIdle opens .idle, and makes it and its file used if necessary.
func (p *Project) openIdle() (*os.Root, error) {
	root, err := p.open()
	if err != nil {
		return nil, err
	}
	defer root.Close()
	if err := root.Mkdir(idleDir, 0o700); err != nil && !errors.Is(err, fs.ErrExist) {
		return nil, err
	}
	idle, _, err := tree.OpenDir(root, idleDir)
	if err != nil {
		return nil, err
	}
	f, err := idle.OpenFile(usedFile, os.O_RDWR|os.O_CREATE|os.O_EXCL, 0o600)
	if err == nil { // the last use is not known: as if it was just now
		now := p.w.opts.Now()
		err = errors.Join(f.Close(), idle.Chtimes(usedFile, now, now))
	}
	if err != nil && !errors.Is(err, fs.ErrExist) {
		idle.Close()
		return nil, err
	}
	return idle, nil
}

// unusedSince opens .idle of a workspace that was not used at or after the time; nil for any other.
// The caller asks unused again after it has moved files away.
func (p *Project) unusedSince(before time.Time) (idle *os.Root, used time.Time, err error) {
	if !p.ofUser() || p.ExecRuns() {
		return nil, used, nil
	}
	if idle, err = p.openIdle(); err != nil {
		return nil, used, err
	}
	fi, err := idle.Lstat(usedFile)
	if err == nil && fi.ModTime().Add(p.w.opts.MarkEvery).Before(before) {
		return idle, fi.ModTime(), nil
	}
	idle.Close()
	return nil, used, err
}

// stillUnused reports whether the last use is still the one of unusedSince.
func (p *Project) stillUnused(idle *os.Root, used time.Time) bool {
	fi, err := idle.Lstat(usedFile)
	return err == nil && fi.ModTime().Equal(used) && !p.ExecRuns()
}

// IfIdle calls f with work/ if the project is a user's workspace that was not used for so long, and
// f has not succeeded since the last use. f may ask unused whether that is still so. Projects
// without a work/ are left out.
func (p *Project) IfIdle(idleFor time.Duration, f func(work *tree.Tree, unused func() bool) error) error {
	idle, used, err := p.unusedSince(p.w.opts.Now().Add(-idleFor))
	if idle == nil || err != nil {
		return wrapFailed(err, "the directory %s of project %s cannot be used", idleDir, p.id)
	}
	defer idle.Close()
	if p.state.settled.Equal(used) {
		return nil
	}
	dir, err := p.openPart(workDir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	work := tree.NewIn(dir, host{p})
	defer work.Close()
	if err := f(work, func() bool { return p.stillUnused(idle, used) }); err != nil {
		return err
	}
	p.state.settled = used
	return nil
}

// Workspaces calls visit with every project that is a user's workspace, unsorted, until visit
// fails.
func (w *Workspace) Workspaces(visit func(*Project) error) error {
	return w.Projects(func(id, user string) error {
		if user == "" {
			return nil
		}
		p, err := w.Existing(id)
		if errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		if err != nil {
			return err
		}
		return visit(p)
	})
}

// lockTimeout is how long to wait for a lock of another process.
const lockTimeout = 2 * time.Minute

// awaitLock takes a lock, or returns lockfile.ErrLocked after lockTimeout.
func awaitLock(ctx context.Context, lock *os.File) error {
	ctx, cancel := context.WithTimeoutCause(ctx, lockTimeout, lockfile.ErrLocked)
	defer cancel()
	return lockfile.Wait(ctx, lock)
}

// wrapFailed is tree.Failed for an error that may be nil.
func wrapFailed(err error, format string, args ...any) error {
	if err == nil {
		return nil
	}
	return tree.Failed(err, format, args...)
}
