package workspace

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"strings"
	"time"

	"secbox/fault"
	"secbox/internal/lockfile"
	"secbox/workspace/tree"
)

// RemoveArtifacts removes artifacts/<exec_id>/ of an exec that has ended. When ctx ends first, a part of it is gone, and a later call goes on. A missing
// project or directory is not an error.
func (w *Workspace) RemoveArtifacts(ctx context.Context, projectID, execID string) error {
	p, err := w.Existing(projectID)
	if errors.Is(err, fs.ErrNotExist) || fault.Is(err, fault.InvalidRequest) { // the exec was refused for its project
		return nil
	}
	if err != nil {
		return err
	}
	artifacts, err := p.openArtifacts(execID)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	defer artifacts.Close()
	_, err = tree.RemoveTree(ctx, artifacts, execID)
	return wrapFailed(err, "the artifacts directory of exec %s cannot be removed", execID)
}

// Projects calls visit with every project, and its user if it is a user's workspace, unsorted, until visit fails.
func (w *Workspace) Projects(visit func(projectID, userID string) error) error {
	return tree.EachName(w.projects, func(id string) error {
		if CheckProjectID(id) != nil {
			return nil
		}
		_, user, _ := SplitWorkspaceID(id)
		return visit(id, user)
	})
}

// RemoveUnused removes the inputs of a project that were written before the time and, if its work/ is packed and was last used before, the packs of
// work/ and home. It returns the size of what it removed or, if dry, would remove. Inputs and packs that are in use stay.
func (w *Workspace) RemoveUnused(ctx context.Context, projectID string, before time.Time, dry bool) (bytes int64, err error) {
	p, err := w.Existing(projectID)
	if err != nil {
		return 0, err
	}
	root, err := p.open()
	if err != nil {
		return 0, err
	}
	defer root.Close()
	bytes, err = p.removeInputs(ctx, root, before, dry)
	packs, packErr := p.removePacks(root, before, dry)
	if err = errors.Join(err, packErr); err != nil {
		err = tree.Failed(err, "unused files of project %s cannot be removed", projectID)
	}
	return bytes + packs, err
}

// removeInputs removes the files below inputs/ that were last written before the time, and empty directories. What is mounted there stays, and is an
// error. Skills' folders, which have names that begin with a dot, are removed by PutFolder.
func (p *Project) removeInputs(ctx context.Context, root *os.Root, before time.Time, dry bool) (int64, error) {
	if !p.state.mu.TryLock() {
		return 0, nil
	}
	defer p.state.mu.Unlock()
	if len(p.state.uses) > 0 {
		return 0, nil
	}
	inputs, _, err := tree.OpenDir(root, inputsDir)
	if errors.Is(err, fs.ErrNotExist) {
		return 0, nil
	}
	if err != nil {
		return 0, err
	}
	defer inputs.Close()
	c := cleaning{ctx: ctx, before: before, dry: dry}
	_, err = c.below(inputs, 1)
	return c.bytes, errors.Join(err, c.mounted)
}

// cleaning removes old files.
type cleaning struct {
	ctx    context.Context
	before time.Time
	dry    bool

	bytes   int64
	mounted error // the last directory on which something is mounted
}

// below removes what is old in a directory, and reports whether the directory is empty then. Requests cannot name paths deeper than tree.MaxDepth.
func (c *cleaning) below(dir *os.Root, depth int) (empty bool, err error) {
	empty = true
	err = tree.EachName(dir, func(name string) error {
		if err := context.Cause(c.ctx); err != nil {
			return err
		}
		gone, err := c.entry(dir, name, depth)
		empty = empty && gone
		return err
	})
	return empty, err
}

// entry reports whether it removed the entry.
func (c *cleaning) entry(dir *os.Root, name string, depth int) (bool, error) {
	if depth == 1 && strings.HasPrefix(name, ".") {
		return false, nil
	}
	fi, err := dir.Lstat(name)
	if errors.Is(err, fs.ErrNotExist) {
		return true, nil
	}
	if err != nil {
		return false, err
	}
	if fi.IsDir() {
		if depth > tree.MaxDepth {
			return false, nil
		}
		if err := tree.CheckMount(dir, name); err != nil {
			if _, is := errors.AsType[*tree.MountedError](err); is {
				c.mounted, err = err, nil
			}
			return false, err
		}
		below, _, err := tree.OpenDir(dir, name)
		if err != nil {
			return false, err
		}
		empty, err := c.below(below, depth+1)
		below.Close()
		if err != nil || !empty || c.dry {
			return false, err
		}
	} else if !fi.ModTime().Before(c.before) {
		return false, nil
	} else if fi.Mode().IsRegular() {
		c.bytes += fi.Size()
	}
	if c.dry {
		return false, nil
	}
	err = dir.Remove(name)
	if errors.Is(err, fs.ErrExist) { // another node has written a file there
		return false, nil
	}
	return err == nil, err
}

// removePacks removes the packs of a user's workspace that was last used before the time. It holds the lock of the idle workspace, so that no node
// unpacks them meanwhile.
func (p *Project) removePacks(root *os.Root, before time.Time, dry bool) (bytes int64, err error) {
	g := &p.state.guard
	if !p.idles() || !isThere(root, idleDir) || !g.mu.TryLock() {
		return 0, nil
	}
	defer g.mu.Unlock()
	if g.users > 0 {
		return 0, nil
	}
	idle, lock, err := p.openIdle(root)
	if err != nil {
		return 0, err
	}
	defer idle.Close()
	defer lock.Close()
	err = lockfile.Try(lock, lockfile.Exclusive)
	if errors.Is(err, lockfile.ErrLocked) {
		return 0, nil
	}
	if err != nil {
		return 0, err
	}
	defer lockfile.Unlock(lock)
	used, err := lock.Stat()
	if err != nil || !used.ModTime().Add(p.w.opts.MarkEvery).Before(before) {
		return 0, err
	}
	there, err := readIdleState(root, idle)
	if err != nil || there.work || there.moved || there.waking || !there.pack {
		return 0, err
	}
	if bytes, err = removePack(idle, packFile, dry); err != nil {
		return bytes, err
	}
	homes, _, err := tree.OpenDir(root, homesDir)
	if errors.Is(err, fs.ErrNotExist) {
		return bytes, nil
	}
	if err != nil {
		return bytes, err
	}
	defer homes.Close()
	if isThere(homes, homeDir) {
		return bytes, nil
	}
	home, err := removePack(homes, savedFile, dry)
	return bytes + home, err
}

// removePack removes a pack, if it exists, and returns its size.
func removePack(dir *os.Root, name string, dry bool) (int64, error) {
	fi, err := dir.Lstat(name)
	if errors.Is(err, fs.ErrNotExist) {
		return 0, nil
	}
	if err != nil {
		return 0, err
	}
	if !dry {
		if err := errors.Join(dir.Remove(name), tree.SyncDir(dir)); err != nil {
			return 0, err
		}
	}
	return fi.Size(), nil
}
