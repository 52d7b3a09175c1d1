package pack

import (
	"errors"
	"io/fs"
	"os"

	"golang.org/x/sys/unix"

	"secbox/workspace/tree"
)

// dataOf returns the extents of a sparse file; false when it has no holes, or too many extents.
func dataOf(f *os.File, fi fs.FileInfo) ([]extent, bool) {
	if bytes, _, _ := tree.OnDisk(fi); bytes >= fi.Size() {
		return nil, false
	}
	fd, list := int(f.Fd()), []extent{}
	for at := int64(0); at < fi.Size(); {
		start, err := unix.Seek(fd, at, unix.SEEK_DATA)
		if errors.Is(err, unix.ENXIO) { // a hole to the end
			break
		}
		if err != nil || len(list) == maxExtents {
			return nil, false
		}
		end, err := unix.Seek(fd, start, unix.SEEK_HOLE)
		if err != nil || end <= start {
			return nil, false
		}
		list = append(list, extent{start, min(end, fi.Size()) - start})
		at = end
	}
	return list, true
}
