package transfer

import "io/fs"

// fileStat is the stat data by which changes are found.
type fileStat struct {
	size     int64
	modified int64 // Unix time, nanoseconds
	changed  int64 // the same, of the inode
	inode    uint64
	mode     fs.FileMode
}

func statOf(fi fs.FileInfo) fileStat {
	s := fileStat{size: fi.Size(), modified: fi.ModTime().UnixNano(), mode: fi.Mode()}
	s.changed, s.inode = changeOf(fi)
	return s
}

// same reports whether nothing has to be sent. What is in a directory counts by itself.
func (s fileStat) same(now fileStat) bool {
	if s.mode.IsDir() {
		return s.mode == now.mode
	}
	return s == now
}
