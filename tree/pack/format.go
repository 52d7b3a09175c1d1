package pack

import (
	"archive/tar"
	"errors"
	"fmt"
	"io/fs"
	"strconv"
	"strings"

	"secbox/tree"
)

// A pack is a tar archive, compressed with zstd, in the order of a walk: a directory before what is in it, the top, named ".", first. Any
// tar program unpacks it but for the holes of sparse files, of which only what is between them is stored. It begins and ends with a record
// of ours, so that a pack that was cut off is no pack.
const (
	packVersion   = "1"
	recordVersion = "SECBOX.version"
	recordEntries = "SECBOX.entries" // at the end: how many there were
	recordSize    = "SECBOX.size"    // of a file with holes, in bytes
	recordExtents = "SECBOX.extents" // what is stored of it: offset+length, …
)

// maxExtents is how many pieces of a sparse file are told apart; one with more is stored whole.
const maxExtents = 4096

// bounds are what is packed: as many entries as the watchdog counts, and as many directories within each other.
var bounds = tree.Bounds{Entries: tree.MaxUsageEntries, Depth: tree.MaxUsageDepth}

// ErrDamaged is a pack that is not as it was written.
var ErrDamaged = errors.New("the pack is damaged")

func damaged(format string, args ...any) error {
	return fmt.Errorf("%w: %s", ErrDamaged, fmt.Sprintf(format, args...))
}

// Content is what a pack holds.
type Content struct {
	Entries int64 // files, directories and links
	Bytes   int64 // of the files, without holes
}

// extent is a piece of a file that is not a hole.
type extent struct{ offset, length int64 }

func formatExtents(list []extent) string {
	var b strings.Builder
	for i, e := range list {
		if i > 0 {
			b.WriteByte(',')
		}
		fmt.Fprintf(&b, "%d+%d", e.offset, e.length)
	}
	if len(list) == 0 {
		return "none" // an empty value is one that is not there
	}
	return b.String()
}

// parseExtents reads the pieces of a file, which lie in their order and below its size, and are stored in so many bytes.
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

func tarMode(m fs.FileMode) int64 {
	mode := int64(m.Perm())
	for _, bit := range modeBits {
		if m&bit.fs != 0 {
			mode |= bit.tar
		}
	}
	return mode
}

func fileMode(mode int64) fs.FileMode {
	m := fs.FileMode(mode).Perm()
	for _, bit := range modeBits {
		if mode&bit.tar != 0 {
			m |= bit.fs
		}
	}
	return m
}

// packedKind is what an entry of a pack is; 0 for what no pack of ours has.
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
