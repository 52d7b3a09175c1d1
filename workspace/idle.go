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
	"secbox/tree"
	"secbox/tree/pack"
)

// What lies in a project's .idle, which no container sees. work/ is packed and comes back in steps of one rename each, and what lies
// where says how far that went, also after a crash at any point:
//
//	work/ alone                    it is in use, or waits to be packed
//	.idle/work alone, or a pack    it was being packed, and is whole: it goes back to its place, and the pack goes
//	.idle/pack.tar.zst alone       it is packed
//	.idle/waking.tar.zst alone     it was being unpacked, and is not in its place yet: this is the pack
//	work/ and waking.tar.zst       it was unpacked and is in use: the pack is old and goes
//	work/, and a pack or work      somebody else has made a work/ meanwhile: an empty one goes, any other is used, and what was packed is
//	                               set aside under a name that begins with left-, for people to look at
//
// Whatever else lies there is litter.
const (
	idleDir    = ".idle"
	usedFile   = "used"           // is locked by whoever uses work/; its time is that of the last access
	editFile   = "edit"           // an editor of files in work/ holds its lock
	packFile   = "pack.tar.zst"   // what was packed
	wakingFile = "waking.tar.zst" // the same, once it is unpacked whole
	leftPrefix = "left-"          // of what was set aside
)

// IdleEvent is something that happened to a workspace that nobody had used, for logs and metrics.
type IdleEvent struct {
	Kind        IdleKind
	ProjectID   string
	Entries     int64 // files, directories and links in the pack
	Bytes       int64 // of the files in it
	PackedBytes int64 // of the pack on the disk
	LeftOut     []string
	Took        time.Duration
	Err         error // why, of IdleKept, IdleDamaged and IdleSetAside
}

// IdleKind is what happened.
type IdleKind string

// The kinds.
const (
	IdlePacked   IdleKind = "packed"
	IdleRestored IdleKind = "restored"
	IdleKept     IdleKind = "kept"      // it holds what no pack can, or the disk is full: it stays as it is
	IdleDamaged  IdleKind = "damaged"   // the pack cannot be read; it stays, and so does the error of whoever wants to use the workspace
	IdleSetAside IdleKind = "set_aside" // there was another work/ beside what was packed
)

func (p *Project) tell(e IdleEvent) {
	e.ProjectID = p.id
	if p.w.opts.Idle != nil {
		p.w.opts.Idle(e)
	}
}

// lies is what lies in a project, as far as it matters here.
type lies struct {
	work, empty         bool // work/ is there, and nothing is in it; empty is only looked for beside a pack
	moved, pack, waking bool
	litter              []string
}

func look(root, idle *os.Root) (lies, error) {
	var there lies
	err := tree.EachName(idle, func(name string) error {
		switch {
		case name == workDir:
			there.moved = true
		case name == packFile:
			there.pack = true
		case name == wakingFile:
			there.waking = true
		case name != usedFile && name != editFile && !strings.HasPrefix(name, leftPrefix):
			there.litter = append(there.litter, name)
		}
		return nil
	})
	if err != nil {
		return lies{}, err
	}
	switch _, err := root.Lstat(workDir); {
	case err == nil:
		there.work = true
	case !errors.Is(err, fs.ErrNotExist):
		return lies{}, err
	}
	if there.work && (there.pack || there.moved) {
		there.empty, err = emptyDir(root, workDir)
	}
	return there, err
}

// asleep reports whether work/ must be brought back before it can be used.
func (l lies) asleep() bool {
	if l.work {
		return l.empty
	}
	return l.pack || l.waking || l.moved
}

func emptyDir(root *os.Root, name string) (bool, error) {
	dir, _, err := tree.OpenDir(root, name)
	if err != nil {
		return false, nil //nolint:nilerr // a link or a file is not empty; whoever opens work/ says what is wrong with it
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

// wake brings everything into the state in which work/ can be used, or packed. The lock is held exclusively.
func (p *Project) wake(root, idle *os.Root) error {
	there, err := look(root, idle)
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
	// From here on work/ is in its place, and newer than all that follows.
	for _, name := range []string{wakingFile, packFile} {
		if err := idle.Remove(name); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return tree.Failed(err, "an old pack of the workspace %s cannot be removed", p.id)
		}
	}
	for _, name := range there.litter {
		_, _ = tree.RemoveTree(context.Background(), idle, name) // what stays is litter the next time, too
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

func (p *Project) setAside(idle *os.Root, there lies) error {
	for name, is := range map[string]bool{packFile: there.pack, workDir: there.moved} {
		if !is {
			continue
		}
		to := leftPrefix + p.w.opts.Now().UTC().Format("20060102T150405") + "-" + p.w.TempName() + "-" + name
		if err := tree.RenameNew(idle, name, idle, to); err != nil {
			return err
		}
		p.tell(IdleEvent{Kind: IdleSetAside, Err: fmt.Errorf(
			"there is another work/ beside what was packed: work/ is used, and the other lies at %s/%s/%s/%s", projectsDir, p.id, idleDir, to)})
	}
	return nil
}

// restore unpacks beside, and puts the result in the place of work/. It leaves the pack as waking.
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
		p.tell(IdleEvent{Kind: IdleDamaged, PackedBytes: packed.Size(), Err: err})
		return fault.Wrap(fault.Internal, err,
			"the packed files of the workspace %s are damaged, and nothing of it was changed: restore the file projects/%s/%s/%s from a backup", p.id, p.id, idleDir, packFile)
	}
	if err != nil {
		return err
	}
	p.tell(IdleEvent{
		Kind: IdleRestored, Entries: content.Entries, Bytes: content.Bytes, PackedBytes: packed.Size(), Took: time.Since(began),
	})
	return nil
}

// settle makes what was unpacked work/. All of it is on the disk before the pack has its new name, and the pack has that before there is
// a work/ which may be newer than it.
func (p *Project) settle(root, idle *os.Root, name string) error {
	if tree.FlushTakesAll { // where it takes single files, they were synced as they came
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
