package workspace

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strings"
	"time"

	"secbox/fault"
	"secbox/workspace/pack"
	"secbox/workspace/tree"
)

// A project's .idle, which no container sees, holds packed files. work/ is packed and unpacked in steps of one rename each, so that the files
// present show how far that went, also after a crash at any point:
//
//	work/ alone                    in use, or waiting to be packed
//	.idle/work alone, or a pack    packing was interrupted: work goes back to its place, and the pack is removed
//	.idle/pack.tar.zst alone       packed
//	.idle/waking.tar.zst alone     unpacking was interrupted before work/ was in place: this is the pack
//	work/ and waking.tar.zst       unpacked and in use: the pack is old and is removed
//	work/, and a pack or work      another program made a work/ meanwhile: an empty one is removed, any other is used, and the packed files
//	                               are set aside under a name that begins with left-, for an administrator
//
// All other files in it are leftovers of interrupted steps.
const (
	idleDir    = ".idle"
	usedFile   = "used"           // locked by users of work/; its modification time is that of the last use
	editFile   = "edit"           // locked by an editor of files in work/
	packFile   = "pack.tar.zst"   // packed files
	wakingFile = "waking.tar.zst" // the same after it was unpacked
	leftPrefix = "left-"          // of files set aside
)

// IdleEvent reports packing and unpacking of an idle workspace, for logs and metrics.
type IdleEvent struct {
	Kind        IdleKind
	ProjectID   string
	Entries     int64 // files, directories and links in the pack
	Bytes       int64 // of the files in it
	PackedBytes int64 // of the pack on the disk
	LeftOut     []string
	Took        time.Duration
	Err         error // the reason for IdleKept, IdleDamaged and IdleSetAside
}

// IdleKind is the kind of an IdleEvent.
type IdleKind string

// The kinds.
const (
	IdlePacked   IdleKind = "packed"
	IdleRestored IdleKind = "restored"
	IdleKept     IdleKind = "kept"      // it cannot be packed, or the disk is full: it is unchanged
	IdleDamaged  IdleKind = "damaged"   // the pack cannot be read; it stays, and every use of the workspace fails
	IdleSetAside IdleKind = "set_aside" // there was another work/ beside the packed files
)

func (p *Project) report(e IdleEvent) {
	e.ProjectID = p.id
	if p.w.opts.Idle != nil {
		p.w.opts.Idle(e)
	}
}

// idleState is how far packing or unpacking of a project went.
type idleState struct {
	work, empty         bool // work/ exists, and is empty; empty is determined only beside a pack
	moved, pack, waking bool
	leftovers           []string
}

func readIdleState(root, idle *os.Root) (idleState, error) {
	var there idleState
	err := tree.EachName(idle, func(name string) error {
		switch {
		case name == workDir:
			there.moved = true
		case name == packFile:
			there.pack = true
		case name == wakingFile:
			there.waking = true
		case name != usedFile && name != editFile && !strings.HasPrefix(name, leftPrefix):
			there.leftovers = append(there.leftovers, name)
		}
		return nil
	})
	if err != nil {
		return idleState{}, err
	}
	switch _, err := root.Lstat(workDir); {
	case err == nil:
		there.work = true
	case !errors.Is(err, fs.ErrNotExist):
		return idleState{}, err
	}
	if there.work && (there.pack || there.moved) {
		there.empty, err = emptyDir(root, workDir)
	}
	return there, err
}

// packed reports whether work/ must be unpacked before it can be used.
func (s idleState) packed() bool {
	if s.work {
		return s.empty
	}
	return s.pack || s.waking || s.moved
}

func emptyDir(root *os.Root, name string) (bool, error) {
	dir, _, err := tree.OpenDir(root, name)
	if err != nil {
		return false, nil //nolint:nilerr // a link or a file is not empty; opening work/ reports it
	}
	defer dir.Close()
	empty := true
	err = tree.EachName(dir, func(string) error { empty = false; return errStop })
	if errors.Is(err, errStop) {
		err = nil
	}
	return empty, err
}

var errStop = errors.New("enough was seen")

// wake brings work/ back and removes old packs and leftovers. The caller holds the lock exclusively.
func (p *Project) wake(root, idle *os.Root) error {
	there, err := readIdleState(root, idle)
	if err == nil && there.work && there.empty {
		if err = root.Remove(workDir); err == nil {
			there.work = false
		}
	}
	if err == nil && there.work && (there.pack || there.moved) {
		if err = p.setAside(idle, there); err == nil {
			there.pack, there.moved = false, false
		}
	}
	if err == nil && !there.work && there.moved {
		if err = putBack(root, idle); err == nil {
			there.work = true
		}
	}
	if err == nil && !there.work && there.waking && !there.pack {
		if err = tree.RenameNew(idle, wakingFile, idle, packFile); err == nil {
			there.pack, there.waking = true, false
		}
	}
	if err == nil && !there.work && there.pack {
		if err = p.restore(root, idle); err == nil {
			there.pack, there.waking = false, true
		}
	}
	if err != nil {
		var known *fault.Error
		if errors.As(err, &known) {
			return err
		}
		return tree.Failed(err, "the files of the workspace %s cannot be brought back; nothing of them was changed", p.id)
	}
	// From here on work/ is in its place and newer than all packs.
	for _, name := range []string{wakingFile, packFile} {
		if err := idle.Remove(name); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return tree.Failed(err, "an old pack of the workspace %s cannot be removed", p.id)
		}
	}
	for _, name := range there.leftovers {
		_, _ = tree.RemoveTree(context.Background(), idle, name) // the rest is removed later
	}
	return nil
}

// putBack undoes the first step of packing.
func putBack(root, idle *os.Root) error {
	if err := tree.RenameNew(idle, workDir, root, workDir); err != nil {
		return err
	}
	return errors.Join(tree.SyncDir(root), tree.SyncDir(idle))
}

func (p *Project) setAside(idle *os.Root, there idleState) error {
	for name, is := range map[string]bool{packFile: there.pack, workDir: there.moved} {
		if !is {
			continue
		}
		to := leftPrefix + p.w.opts.Now().UTC().Format("20060102T150405") + "-" + p.w.TempName() + "-" + name
		if err := tree.RenameNew(idle, name, idle, to); err != nil {
			return err
		}
		p.report(IdleEvent{Kind: IdleSetAside, Err: fmt.Errorf(
			"there is another work/ beside the packed files: work/ is used, and the packed files are at %s/%s/%s/%s", projectsDir, p.id, idleDir, to)})
	}
	return nil
}

// restore unpacks beside work/ and moves the result to its place. The pack stays as waking.tar.zst.
func (p *Project) restore(root, idle *os.Root) error {
	began := time.Now()
	f, packed, err := tree.OpenRegular(idle, packFile)
	if err != nil {
		return err
	}
	defer f.Close()
	name := "out-" + p.w.TempName()
	content, err := pack.Unpack(f, idle, name)
	if err == nil {
		err = p.settle(root, idle, name)
	}
	if err != nil {
		_, _ = tree.RemoveTree(context.Background(), idle, name) // or the next one does
	}
	if errors.Is(err, pack.ErrDamaged) {
		p.report(IdleEvent{Kind: IdleDamaged, PackedBytes: packed.Size(), Err: err})
		return fault.Wrap(fault.Internal, err,
			"the packed files of the workspace %s are damaged, and nothing of it was changed: restore the file projects/%s/%s/%s from a backup", p.id, p.id, idleDir, packFile)
	}
	if err != nil {
		return err
	}
	p.report(IdleEvent{
		Kind: IdleRestored, Entries: content.Entries, Bytes: content.Bytes, PackedBytes: packed.Size(), Took: time.Since(began),
	})
	return nil
}

// settle moves the unpacked files to work/. They are durable before the pack is renamed, and the pack is renamed before a work/
// exists that may be newer.
func (p *Project) settle(root, idle *os.Root, name string) error {
	if tree.FlushTakesAll { // else every file was synced when it was written
		if err := tree.Flush(idle); err != nil {
			return err
		}
	}
	if err := errors.Join(tree.RenameInto(idle, packFile, idle, wakingFile), tree.SyncDir(idle)); err != nil {
		return err
	}
	if err := tree.RenameNew(idle, name, root, workDir); err != nil {
		return err
	}
	return errors.Join(tree.SyncDir(root), tree.SyncDir(idle))
}
