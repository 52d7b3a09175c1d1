package library

import (
	"secbox/fault"
	"secbox/skills/archive"
)

// blockBytes is what file systems give out, so that a file takes its size rounded up to that, and a folder one.
const blockBytes = 4096

// checkRoom refuses an archive that has no room unpacked, before anything of it is written: what is kept free for execs stays so. Others
// write at the same time, so this is a forecast; a disk that fills up all the same is noticed by who writes to it.
func (l *Library) checkRoom(a *archive.Archive) error {
	skill := a.Skill()
	return l.checkRoomFor(uint64(skill.Bytes), uint64(skill.Files)+uint64(a.Folders())+1)
}

// checkRoomFor does that for files of so many bytes and so many files and folders.
func (l *Library) checkRoomFor(size, entries uint64) error {
	needs := size + entries*blockBytes
	bytes, inodes, err := l.Workspace.Free()
	if err != nil {
		return err
	}
	if bytes < needs+l.FreeMinBytes || inodes < entries+l.FreeMinInodes {
		return fault.New(fault.DiskFull, "the skill takes %d bytes and %d inodes unpacked, and the workspace's disk has %d and %d free, of which %d and %d are kept: "+
			"make room, or use a smaller skill (sandbox.disk_free_min_bytes and disk_free_min_inodes say what is kept)",
			needs, entries, bytes, inodes, l.FreeMinBytes, l.FreeMinInodes)
	}
	return nil
}
