package library

import (
	"secbox/diskspace"
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
	free, err := l.Workspace.Free()
	if err != nil {
		return err
	}
	needed := diskspace.Space{Bytes: size + entries*blockBytes, Inodes: entries}
	return diskspace.Workspace(l.FreeMinBytes, l.FreeMinInodes).Check(free, needed)
}
