package pack

import (
	"archive/tar"
	"errors"
	"fmt"
	"io/fs"
	"strconv"
	"strings"

	"secbox/workspace/tree"
)

// A pack is a tar archive compressed with zstd, in the order of a walk; the first entry is the top
// directory, named ".". Any tar program can unpack it, except for sparse files: a pack stores only
// their data between the holes. Records at the beginning and the end show that a pack is complete.
const (
	packVersion   = "1"
	recordVersion = "SECBOX.version"
	recordEntries = "SECBOX.entries" // at the end: how many there were
	recordSize    = "SECBOX.size"    // of a file with holes, in bytes
	recordExtents = "SECBOX.extents" // the stored extents: offset+length, …
)

// maxExtents is how many extents of a sparse file a pack may have.
const maxExtents = 4096

// bounds limit a pack: as many entries as tree.Measure counts, as deep.
var bounds = tree.Bounds{Entries: tree.MaxUsageEntries, Depth: tree.MaxUsageDepth}

// ErrDamaged reports a pack that is not as it was written.
var ErrDamaged = errors.New("the pack is damaged")

func damaged(format string, args ...any) error {
	return fmt.Errorf("%w: %s", ErrDamaged, fmt.Sprintf(format, args...))
}

// extent is a piece of a file between holes.
type extent struct{ offset, length int64 }

// parseExtents reads the extents of a file, which must be in order, within its size, and take as
// many bytes as are stored.
func parseExtents(text, size string, stored int64) (list []extent, total int64, err error) {
	total, err = strconv.ParseInt(size, 10, 64)
	if err != nil || total < 0 {
		return nil, 0, damaged("a size is %.40q", size)
	}
	at, sum := int64(0), int64(0)
	if text != "none" {
		for part := range strings.SplitSeq(text, ",") {
			offset, length, _ := strings.Cut(part, "+")
			var e extent
			if e.offset, err = strconv.ParseInt(offset, 10, 64); err == nil {
				e.length, err = strconv.ParseInt(length, 10, 64)
			}
			if err != nil || len(list) == maxExtents || e.offset < at || e.length <= 0 || e.length > total || e.offset > total-e.length {
				return nil, 0, damaged("a file has the piece %.80q", part)
			}
			at, sum = e.offset+e.length, sum+e.length
			list = append(list, e)
		}
	}
	if sum != stored {
		return nil, 0, damaged("the pieces of a file are %d bytes, and %d are stored", sum, stored)
	}
	return list, total, nil
}

// The special bits of a mode, as tar has them.
var modeBits = []struct {
	tar int64
	fs  fs.FileMode
}{{0o4000, fs.ModeSetuid}, {0o2000, fs.ModeSetgid}, {0o1000, fs.ModeSticky}}

func fileMode(mode int64) fs.FileMode {
	m := fs.FileMode(mode).Perm()
	for _, bit := range modeBits {
		if mode&bit.tar != 0 {
			m |= bit.fs
		}
	}
	return m
}

// packedKind is the kind of an entry; 0 for kinds that packs do not have.
func packedKind(h *tar.Header) fs.FileMode {
	for key := range h.PAXRecords {
		if strings.HasPrefix(key, "GNU.sparse.") { // holes as others write them, of any size
			return 0
		}
	}
	switch h.Typeflag {
	case tar.TypeDir:
		return fs.ModeDir
	case tar.TypeSymlink:
		return fs.ModeSymlink
	case tar.TypeReg, tar.TypeLink:
		return fs.ModePerm
	}
	return 0
}
