package library

import (
	"secbox/packages/archive"
	"secbox/workspace/diskspace"
)

// blockBytes is the block size of common file systems: files take their size rounded up to it, and
// directories one block.
const blockBytes = 4096

// checkRoom refuses skills that do not fit on the disk unpacked, before anything is written, so
// that the space reserved for execs stays free. It is a forecast, as others write at the same time;
// writes fail on a disk that is full after all.
func (l *Library) checkRoom(all []*archive.Archive) error {
	var size, entries uint64
	for _, a := range all {
		skill := a.Skill()
		size, entries = size+uint64(skill.Bytes), entries+uint64(skill.Files)+uint64(a.Folders())+1
	}
	return l.checkRoomFor(size, entries)
}

// checkRoomFor is checkRoom for this many bytes, files and directories.
func (l *Library) checkRoomFor(size, entries uint64) error {
	free, err := l.Workspace.Free()
	if err != nil {
		return err
	}
	needed := diskspace.Space{Bytes: size + entries*blockBytes, Inodes: entries}
	return diskspace.Workspace(l.FreeMinBytes, l.FreeMinInodes).Check(free, needed)
}
