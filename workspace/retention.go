package workspace

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"slices"
	"strings"
	"time"

	"secbox/fault"
	"secbox/internal/lockfile"
	"secbox/workspace/tree"
)

// RemoveArtifacts removes artifacts/<exec_id>/ of an exec that has ended. When ctx ends first, a
// part of it is gone, and a later call goes on. A missing project or directory is not an error.
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

// Projects calls visit with every project, and its user if it is a user's workspace, unsorted,
// until visit fails.
func (w *Workspace) Projects(visit func(projectID, userID string) error) error {
	return tree.EachName(w.projects, func(id string) error {
		if CheckProjectID(id) != nil {
			return nil
		}
		_, user, _ := SplitWorkspaceID(id)
		return visit(id, user)
	})
}

// ProjectIDs returns the first most projects after an id, in the order of their bytes, for which
// may is true, and whether there are more.
func (w *Workspace) ProjectIDs(after string, most int, may func(projectID string) bool) (ids []string, more bool, err error) {
	first := func() {
		slices.Sort(ids)
		more = more || len(ids) > most
		ids = ids[:min(len(ids), most)]
	}
	err = w.Projects(func(id, _ string) error {
		if id > after && may(id) {
			if ids = append(ids, id); len(ids) > 2*most+1000 {
				first()
			}
		}
		return nil
	})
	first()
	return ids, more, wrapFailed(err, "the projects cannot be listed")
}

// RemoveUnused removes the inputs of a project that were written before the time, except those in
// use, and returns the size of what it removed or, if dry, would remove.
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
	return bytes, wrapFailed(err, "unused files of project %s cannot be removed", projectID)
}

// gonePrefix begins names in .idle: files of a workspace whose removal is on record.
const gonePrefix = "gone-"

// RemoveWorkspace removes a user's workspace that was not used at or after the time: work/, the
// home, and inputs; artifacts are not of the workspace but of execs. It calls commit with the size
// of the files, in bytes, before the first of them is lost; if commit returns false or an error, or
// if the workspace is used meanwhile, all of them stay. Without commit it removes nothing. It
// returns the size of what it removed or would remove, and whether there was anything. What an
// earlier call has left after its commit is removed, too, and not counted.
func (w *Workspace) RemoveWorkspace(ctx context.Context, projectID string, before time.Time, commit func(bytes int64) (bool, error)) (
	bytes int64, found bool, err error,
) {
	p, err := w.Existing(projectID)
	if err != nil {
		return 0, false, err
	}
	root, err := p.open()
	if err != nil {
		return 0, false, err
	}
	defer root.Close()
	idle, used, err := p.unusedSince(before)
	if err == nil && idle != nil {
		defer idle.Close()
		bytes, found = measureWorkspace(ctx, root, idle)
		if commit != nil {
			if found {
				found, err = p.moveAway(root, idle, used, func() (bool, error) { return commit(bytes) })
			}
			err = errors.Join(err, removeGone(ctx, idle))
		}
	}
	return bytes, found, wrapFailed(err, "the workspace %s cannot be removed", projectID)
}

// RemoveProject removes work/, the home and the inputs of any project, used or not, as
// RemoveWorkspace does. found is false without an error if commit returned false, a command of this
// process runs in the project, or there was nothing.
func (w *Workspace) RemoveProject(ctx context.Context, projectID string, commit func(bytes int64) (bool, error)) (
	bytes int64, found bool, err error,
) {
	p, err := w.Existing(projectID)
	if err != nil {
		return 0, false, err
	}
	root, err := p.open()
	if err != nil {
		return 0, false, err
	}
	defer root.Close()
	idle, err := p.openIdle()
	if err == nil {
		defer idle.Close()
		var used fs.FileInfo
		if used, err = idle.Lstat(usedFile); err == nil {
			if bytes, found = measureWorkspace(ctx, root, idle); found {
				found, err = p.moveAway(root, idle, used.ModTime(), func() (bool, error) { return commit(bytes) })
			}
			err = errors.Join(err, removeGone(ctx, idle))
		}
	}
	return bytes, found, wrapFailed(err, "the files of project %s cannot be removed", projectID)
}

// RemoveRest removes what a process has left of workspaces whose removal it recorded, before it
// died.
func (p *Project) RemoveRest(ctx context.Context) error {
	root, err := p.open()
	if err != nil {
		return err
	}
	defer root.Close()
	idle, _, err := tree.OpenDir(root, idleDir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err == nil {
		defer idle.Close()
		err = removeGone(ctx, idle)
	}
	return wrapFailed(err, "the rest of the workspace %s cannot be removed", p.id)
}

// measureWorkspace returns the size of a workspace, and whether there is anything of it.
func measureWorkspace(ctx context.Context, root, idle *os.Root) (bytes int64, found bool) {
	count := func(dir *os.Root, name string) {
		usage := tree.Measure(ctx, dir, name, tree.MaxUsageEntries)
		bytes, found = bytes+usage.Bytes, found || name != inputsDir || usage.Entries > 0
	}
	for _, name := range []string{workDir, homesDir, inputsDir} {
		if isThere(root, name) {
			count(root, name)
		}
	}
	for _, name := range ofWorkspace(idle) {
		if fi, err := idle.Lstat(name); err == nil && !fi.IsDir() { // a pack
			size, _, _ := tree.OnDisk(fi)
			bytes, found = bytes+size, true
			continue
		}
		count(idle, name)
	}
	return bytes, found
}

// ofWorkspace returns the names of packs of older versions, and of other files of the workspace, in
// .idle.
func ofWorkspace(idle *os.Root) (names []string) {
	_ = tree.EachName(idle, func(name string) error {
		if name != usedFile && name != editFile && !strings.HasPrefix(name, gonePrefix) {
			names = append(names, name)
		}
		return nil
	})
	return names
}

// moveAway gives all files of a workspace names that begin with gonePrefix, and reports whether it
// did. It hides work/ first, where Unpack finds it: requests that come now wait for the lock, and
// find work/ in its place again, or missing. So they do after a crash before the commit.
func (p *Project) moveAway(root, idle *os.Root, used time.Time, commit func() (bool, error)) (bool, error) {
	for _, name := range []string{workDir, homesDir, inputsDir} {
		if err := tree.CheckMount(root, name); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return false, err
		}
	}
	lock, err := idle.OpenFile(usedFile, os.O_RDWR, 0o600)
	if err != nil {
		return false, err
	}
	defer lockfile.Close(lock)
	if err := lockfile.Try(lock); err != nil {
		if errors.Is(err, lockfile.ErrLocked) { // a pack is being unpacked
			err = nil
		}
		return false, err
	}
	if isThere(root, workDir) {
		if isThere(idle, workDir) {
			_ = p.setAside(idle)
		}
		if err := tree.RenameNew(root, workDir, idle, workDir); err != nil {
			return false, err
		}
	}
	ok := p.stillUnused(idle, used)
	if ok {
		ok, err = commit()
	}
	if !ok || err != nil {
		if isThere(idle, workDir) {
			err = errors.Join(err, tree.RenameNew(idle, workDir, root, workDir))
		}
		return false, err
	}
	moveOut := func(dir *os.Root, name string) {
		if e := tree.RenameNew(dir, name, idle, gonePrefix+p.w.TempName()); !errors.Is(e, fs.ErrNotExist) {
			err = errors.Join(err, e)
		}
	}
	for _, name := range ofWorkspace(idle) {
		moveOut(idle, name)
	}
	moveOut(root, homesDir)
	moveOut(root, inputsDir)
	return true, errors.Join(err, tree.SyncDir(root), tree.SyncDir(idle))
}

// removeGone removes what moveAway moved. It goes on after an error.
func removeGone(ctx context.Context, idle *os.Root) error {
	var failed error
	err := tree.EachName(idle, func(name string) error {
		if !strings.HasPrefix(name, gonePrefix) {
			return nil
		}
		_, err := tree.RemoveTree(ctx, idle, name)
		if mount, is := errors.AsType[*tree.MountedError](err); is {
			mount.Path = idleDir + "/" + mount.Path
		}
		failed = errors.Join(failed, err)
		return context.Cause(ctx)
	})
	return errors.Join(failed, err)
}

// removeInputs removes the files below inputs/ that were last written before the time, and empty
// directories. What is mounted there stays, and is an error. Skills' folders, which have names that
// begin with a dot, are removed by PutFolder.
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

// below removes what is old in a directory, and reports whether the directory is empty then.
// Requests cannot name paths deeper than tree.MaxDepth.
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
