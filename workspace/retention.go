package workspace

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"strings"
	"time"

	"secbox/fault"
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

// RemoveWorkspace removes a user's workspace that was not used at or after the time: work/, the
// home, and inputs; artifacts are not of the workspace but of execs. It returns the size of what it
// removed or, if dry, would remove, and whether there was anything.
func (w *Workspace) RemoveWorkspace(ctx context.Context, projectID string, before time.Time, dry bool) (bytes int64, found bool,
	err error,
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
		bytes, found, err = p.removeFiles(ctx, root, idle, used, dry)
		if err == nil && (dry || p.stillUnused(idle, used)) {
			var inputs int64
			inputs, err = p.removeInputs(ctx, root, before, dry)
			bytes, found = bytes+inputs, found || inputs > 0
		}
	}
	return bytes, found, wrapFailed(err, "the workspace %s cannot be removed", projectID)
}

// removeFiles removes work/, the home and packs of older versions. It moves work/ and the home to
// .idle first, and back if the workspace is used meanwhile.
func (p *Project) removeFiles(ctx context.Context, root, idle *os.Root, used time.Time, dry bool) (bytes int64, found bool, err error) {
	count := func(dir *os.Root, name string) {
		found = true
		bytes += tree.Measure(ctx, dir, name, tree.MaxUsageEntries).Bytes
	}
	moved := map[string]string{}
	for _, name := range []string{workDir, homesDir} {
		if !isThere(root, name) {
			continue
		}
		count(root, name)
		if to := "gone-" + p.w.TempName(); err == nil && !dry {
			if err = tree.RenameNew(root, name, idle, to); err == nil {
				moved[to] = name
			}
		}
	}
	if err == nil && !p.stillUnused(idle, used) {
		found, bytes, err = false, 0, errBusy
	}
	if err != nil {
		for to, name := range moved {
			if e := tree.RenameNew(idle, to, root, name); e != nil { // it stays in .idle, and is removed with the next use
				err = e
			}
		}
		if errors.Is(err, errBusy) {
			err = nil
		}
		return 0, false, err
	}
	err = tree.EachName(idle, func(name string) error {
		if name == usedFile || name == editFile {
			return nil
		}
		if moved[name] == "" {
			count(idle, name)
		}
		if dry {
			return nil
		}
		_, err := tree.RemoveTree(ctx, idle, name)
		return err
	})
	return bytes, found, err
}

// errBusy reports a workspace that is used again.
var errBusy = errors.New("the workspace is in use")

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
