package workspace

import (
	"context"
	"errors"
	"io/fs"
	"maps"
	"os"
	"slices"
	"strings"
	"sync"
	"time"

	"secbox/internal/lockfile"
	"secbox/workspace/pack"
	"secbox/workspace/tree"
)

// LeaveOut returns paths in work/, which no other process can reach, that need not be packed because they can be made again. It must
// stop when ctx ends.
type LeaveOut func(ctx context.Context, work *tree.Tree) (map[string]bool, error)

// retryAfter is how long packing is not tried again after it failed, unless the workspace is used meanwhile.
const retryAfter = 6 * time.Hour

// wantedPause is how often a packer checks whether another process wants the tree; this process signals it.
const wantedPause = 50 * time.Millisecond

// PackIdle packs the project's home and work/ if work/ was not used for idleFor, and reports whether it packed work/. leaveOut may
// be nil. A caller that wants the tree cancels packing, which restores everything, until its last moment; so callers do not wait for
// long. The next Use unpacks. Projects that are not users' workspaces are never packed. After an error everything is as before.
func (p *Project) PackIdle(ctx context.Context, idleFor time.Duration, leaveOut LeaveOut) (bool, error) {
	g := &p.state.guard
	if !p.idles() || !g.mu.TryLock() {
		return false, nil
	}
	defer g.mu.Unlock()
	if g.users > 0 {
		return false, nil
	}
	root, err := p.open()
	if err != nil {
		return false, err
	}
	defer root.Close()
	idle, lock, err := p.openIdle(root)
	if err != nil {
		return false, tree.Failed(err, "the directory %s of project %s cannot be used: remove the link or file in its place", idleDir, p.id)
	}
	defer idle.Close()
	defer lock.Close()
	used, err := lock.Stat()
	if err != nil {
		return false, err
	}
	unused := func(fi fs.FileInfo) bool { return p.w.opts.Now().Sub(fi.ModTime()) >= idleFor+p.w.opts.MarkEvery }
	if !unused(used) || g.left.Equal(used.ModTime()) && p.w.opts.Now().Sub(g.leftAt) < retryAfter {
		return false, nil
	}
	err = lockfile.Try(lock, lockfile.Exclusive)
	if errors.Is(err, lockfile.ErrLocked) {
		return false, nil
	}
	if err != nil {
		return false, tree.Failed(err, "the file %s/%s of project %s cannot be locked", idleDir, usedFile, p.id)
	}
	defer lockfile.Unlock(lock)
	if used, err = lock.Stat(); err != nil || !unused(used) { // by another process
		return false, err
	}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	stop := context.CancelFunc(func() { cancel(pack.ErrWanted) })
	g.stop.Store(&stop)
	defer g.stop.Store(nil)
	wanted := func() bool {
		now, err := lock.Stat()
		return err != nil || g.waiting.Load() > 0 || !now.ModTime().Equal(used.ModTime())
	}
	if wanted() {
		return false, nil
	}
	unwatched := watch(ctx, wanted, stop)
	done, err := p.packAway(ctx, root, idle, leaveOut, wanted)
	calledOff := errors.Is(context.Cause(ctx), pack.ErrWanted) || errors.Is(err, pack.ErrWanted)
	ended := ctx.Err() != nil
	cancel(nil)
	unwatched()
	switch {
	case done, err == nil:
		return done, err
	case calledOff:
		return false, nil
	case !ended:
		g.left, g.leftAt = used.ModTime(), p.w.opts.Now()
		p.report(IdleEvent{Kind: IdleKept, Err: err})
	}
	return false, err
}

// watch calls stop once the tree is wanted. The returned function waits for watch to end, which it does after ctx.
func watch(ctx context.Context, wanted func() bool, stop func()) (wait func()) {
	var looks sync.WaitGroup
	looks.Go(func() {
		for ctx.Err() == nil {
			select {
			case <-ctx.Done():
			case <-time.After(wantedPause):
				if wanted() {
					stop()
				}
			}
		}
	})
	return looks.Wait
}

// packAway packs under the lock.
func (p *Project) packAway(ctx context.Context, root, idle *os.Root, leaveOut LeaveOut, wanted func() bool) (bool, error) {
	began := time.Now()
	if err := p.wake(root, idle); err != nil { // after a crash
		return false, err
	}
	switch err := p.packHome(ctx, root, wanted); {
	case errors.Is(err, pack.ErrWanted) || ctx.Err() != nil:
		return false, err
	case err != nil: // the home is unchanged
		p.report(IdleEvent{Kind: IdleKept, Err: tree.Failed(err, "the home of workspace %s cannot be packed", p.id)})
	}
	if empty, err := emptyDir(root, workDir); empty || err != nil {
		return false, err
	}
	if _, err := root.Lstat(workDir); errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	if err := tree.RenameNew(root, workDir, idle, workDir); err != nil {
		return false, err
	}
	event, err := writePack(ctx, idle, workDir, "new-"+p.w.TempName(), packFile, leaveOut, wanted)
	if err == nil {
		err = tree.SyncDir(idle)
	}
	if err == nil && wanted() {
		err = pack.ErrWanted
	}
	// Until the next rename the moved files are valid, and on an error the pack must be removed; after it the pack is valid.
	gone := "gone-" + p.w.TempName()
	if err == nil {
		err = tree.RenameNew(idle, workDir, idle, gone)
	}
	if err != nil {
		if e := idle.Remove(packFile); e != nil && !errors.Is(e, fs.ErrNotExist) {
			err = errors.Join(err, e)
		}
		return false, errors.Join(err, putBack(root, idle))
	}
	err = errors.Join(tree.SyncDir(root), tree.SyncDir(idle))
	event.Took = time.Since(began)
	p.report(event)
	_, _ = tree.RemoveTree(ctx, idle, gone) // the rest is removed later
	return true, err
}

// writePack packs the directory name of parent into the file final, which is named temp until it is complete.
func writePack(ctx context.Context, parent *os.Root, name, temp, final string, leaveOut LeaveOut, wanted func() bool) (IdleEvent, error) {
	dir, _, err := tree.OpenDir(parent, name)
	if err != nil {
		return IdleEvent{}, err
	}
	from := tree.New(dir)
	defer from.Close()
	var skip map[string]bool
	if leaveOut != nil {
		if skip, err = leaveOut(ctx, from); err != nil {
			return IdleEvent{}, err
		}
	}
	f, err := parent.OpenFile(temp, os.O_RDWR|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return IdleEvent{}, err
	}
	content, err := pack.Write(ctx, from, f, skip, wanted)
	size := int64(0)
	if fi, e := f.Stat(); e == nil {
		size = fi.Size()
	}
	if e := f.Close(); err == nil {
		err = e
	}
	if err == nil {
		err = tree.RenameNew(parent, temp, parent, final)
	}
	if err != nil {
		_ = parent.Remove(temp)
		return IdleEvent{}, err
	}
	return IdleEvent{
		Kind: IdlePacked, Entries: content.Entries, Bytes: content.Bytes, PackedBytes: size, LeftOut: slices.Sorted(maps.Keys(skip)),
	}, nil
}

// Workspaces calls visit with every project that is a user's workspace, unsorted, until visit fails.
func (w *Workspace) Workspaces(visit func(*Project) error) error {
	return tree.EachName(w.projects, func(id string) error {
		if !strings.Contains(id, "~") || CheckProjectID(id) != nil {
			return nil
		}
		if fi, err := w.projects.Lstat(id + "/" + workDir); (err != nil || !fi.IsDir()) && w.nothingToDo(id) {
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

// nothingToDo reports whether a workspace without work/ is packed or was never used. Most are, so this check is cheap.
func (w *Workspace) nothingToDo(id string) bool {
	_, err := w.projects.Lstat(id + "/" + idleDir + "/" + workDir)
	return errors.Is(err, fs.ErrNotExist)
}
