package workspace

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strings"

	"secbox/fault"
	"secbox/internal/lockfile"
	"secbox/workspace/pack"
	"secbox/workspace/tree"
)

// Older versions of core-api packed idle workspaces. Unpack brings their files back. These files of
// .idle and .home tell how far the older core-api came, also after a crash at any point:
//
//	.idle/work, without work/     packing was interrupted: work goes back to its place, and the pack is removed
//	pack.tar.zst, without work/   packed
//	waking.tar.zst, without work/ unpacking was interrupted before work/ was in place: this is the pack
//	work/ and waking.tar.zst      unpacked: the pack is old and is removed
//	work/, and a pack or work     another program made a work/ meanwhile: an empty one is removed, any other is used, and the packed files
//	                              are set aside under a name that begins with left-, for an administrator
//	.home/saved.tar.zst           the packed home, unless there is a home
//
// All other files are leftovers of interrupted steps, or of a workspace that is removed: moveAway
// also hides work/ as .idle/work until the removal is on record.
const (
	packFile   = "pack.tar.zst"
	wakingFile = "waking.tar.zst"
	leftPrefix = "left-"
	savedFile  = "saved.tar.zst"
	unpacked   = "unpacked" // in .home: the home until it is complete
)

// Unpack brings work/ and the home of a user's workspace back, if an older core-api has packed
// them, and work/ of any project that was not removed after all. After an error the packs are as
// before: fault.DiskFull when there is no room, and fault.Internal when a pack is damaged.
func (p *Project) Unpack(ctx context.Context) error {
	root, err := p.open()
	if err != nil {
		return err
	}
	defer root.Close()
	idle, _, err := tree.OpenDir(root, idleDir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return tree.Failed(err, "the directory %s of project %s cannot be used: remove the link or file in its place", idleDir, p.id)
	}
	defer idle.Close()
	if !isThere(idle, packFile) && !isThere(idle, wakingFile) && !isThere(idle, workDir) && !p.homePacked(root) {
		return nil
	}
	lock, err := idle.OpenFile(usedFile, os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return tree.Failed(err, "the file %s/%s of project %s cannot be opened", idleDir, usedFile, p.id)
	}
	defer lock.Close()
	if err := awaitLock(ctx, lock); err != nil {
		return tree.Failed(err, "the file %s/%s of project %s cannot be locked", idleDir, usedFile, p.id)
	}
	defer lockfile.Unlock(lock)
	return errors.Join(p.unpackWork(ctx, root, idle), p.unpackHome(ctx, root))
}

func (p *Project) unpackWork(ctx context.Context, root, idle *os.Root) error {
	moved, packed, waking := isThere(idle, workDir), isThere(idle, packFile), isThere(idle, wakingFile)
	if moved || packed {
		if err := root.Remove(workDir); errors.Is(err, fs.ErrExist) || err != nil && isThere(root, workDir) { // it is not empty
			return p.setAside(idle)
		}
	}
	var err error
	switch {
	case isThere(root, workDir):
	case moved:
		err = errors.Join(tree.RenameNew(idle, workDir, root, workDir), tree.SyncDir(root), tree.SyncDir(idle))
	case packed:
		err = p.restore(ctx, root, idle)
	case waking:
		if err = tree.RenameNew(idle, wakingFile, idle, packFile); err == nil {
			err = p.restore(ctx, root, idle)
		}
	}
	if err != nil {
		return p.notUnpacked(err, idleDir+"/"+packFile)
	}
	return p.removeLeftovers(ctx, idle) // work/ is in its place and newer than all packs
}

// restore unpacks beside work/ and moves the result to its place. The files are durable before the
// pack is renamed, and the pack is renamed before a work/ exists that may be newer.
func (p *Project) restore(ctx context.Context, root, idle *os.Root) error {
	name := "out-" + p.w.TempName()
	err := unpackFile(idle, packFile, name)
	if err == nil {
		err = errors.Join(tree.RenameInto(idle, packFile, idle, wakingFile), tree.SyncDir(idle))
	}
	if err == nil {
		err = tree.RenameNew(idle, name, root, workDir)
	}
	if err != nil {
		_, _ = tree.RemoveTree(ctx, idle, name) // or the next call does
		return err
	}
	return errors.Join(tree.SyncDir(root), tree.SyncDir(idle))
}

// unpackFile unpacks a file of dir into a new directory of dir, durably.
func unpackFile(dir *os.Root, file, name string) error {
	f, _, err := tree.OpenRegular(dir, file)
	if err != nil {
		return err
	}
	defer f.Close()
	if err := pack.Unpack(f, dir, name); err != nil {
		return err
	}
	if tree.FlushTakesAll { // else every file was synced when it was written
		return tree.Flush(dir)
	}
	return nil
}

func (p *Project) setAside(idle *os.Root) error {
	var names []string
	for _, name := range []string{packFile, workDir} {
		to := leftPrefix + p.w.opts.Now().UTC().Format("20060102T150405") + "-" + p.w.TempName() + "-" + name
		switch err := tree.RenameNew(idle, name, idle, to); {
		case err == nil:
			names = append(names, fmt.Sprintf("%s/%s/%s/%s", projectsDir, p.id, idleDir, to))
		case !errors.Is(err, fs.ErrNotExist):
			return p.notUnpacked(err, idleDir+"/"+name)
		}
	}
	return fault.New(fault.Internal, "workspace %s has a work directory beside packed files; it is used, and the packed files are at %q",
		p.id, names)
}

// removeLeftovers removes everything in .idle except its own files, what was set aside, and what
// RemoveWorkspace removes.
func (p *Project) removeLeftovers(ctx context.Context, idle *os.Root) error {
	return tree.EachName(idle, func(name string) error {
		if name == usedFile || name == editFile || strings.HasPrefix(name, leftPrefix) || strings.HasPrefix(name, gonePrefix) {
			return nil
		}
		_, err := tree.RemoveTree(ctx, idle, name)
		return wrapFailed(err, "%s of the workspace %s cannot be removed", idleDir, p.id)
	})
}

func (p *Project) notUnpacked(err error, file string) error {
	if errors.Is(err, pack.ErrDamaged) {
		return fault.Wrap(fault.Internal, err,
			"the packed files of the workspace %s are damaged, and nothing of it was changed: restore the file %s/%s/%s from a backup",
			p.id, projectsDir, p.id, file)
	}
	return tree.Failed(err, "the packed files of the workspace %s cannot be brought back; nothing of them was changed", p.id)
}

// homePacked reports whether there is a pack of the home.
func (p *Project) homePacked(root *os.Root) bool { return isThere(root, homesDir+"/"+savedFile) }

func (p *Project) unpackHome(ctx context.Context, root *os.Root) error {
	homes, _, err := tree.OpenDir(root, homesDir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err == nil {
		defer homes.Close()
		if !isThere(homes, homeDir) && isThere(homes, savedFile) {
			if _, err = tree.RemoveTree(ctx, homes, unpacked); err == nil {
				err = unpackFile(homes, savedFile, unpacked)
			}
			if err == nil {
				err = tree.RenameNew(homes, unpacked, homes, homeDir)
			}
		}
	}
	if err != nil {
		return p.notUnpacked(err, homesDir+"/"+savedFile)
	}
	for _, name := range []string{savedFile, "saving.tar.zst", unpacked, "given-up"} { // beside a home they are old
		if isThere(homes, homeDir) {
			if _, err := tree.RemoveTree(ctx, homes, name); err != nil {
				return tree.Failed(err, "%s of the workspace %s cannot be removed", homesDir, p.id)
			}
		}
	}
	return tree.SyncDir(homes)
}

func isThere(dir *os.Root, name string) bool {
	_, err := dir.Lstat(name)
	return err == nil
}
