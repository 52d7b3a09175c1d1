package runner

import (
	"fmt"

	"secbox/workspace"
)

// maxNotKept is how many removed entries, and how many special files, an ArtifactList has at most: a page shows them, and the manifest has more.
const maxNotKept = 25

// NotKept is an entry among the artifacts that has no content to open: it was removed, or is not a regular file.
type NotKept struct {
	Path string // as the manifest has it: cut if it is long, escaped if it is not UTF-8
	Size int64  // bytes, of a removed regular file
	Why  string // a sentence for people
}

// notKept returns the first removed entries of a manifest and its first special files, and the number of all. A removed directory is one entry,
// and counts with everything that was below it.
func notKept(m workspace.Manifest) (first []NotKept, all int64) {
	for _, o := range m.Omitted[:min(len(m.Omitted), maxNotKept)] {
		first = append(first, NotKept{Path: o.Path, Size: o.Size, Why: whyRemoved(o.Reason)})
	}
	special := 0
	for _, f := range m.Files {
		if f.Kind == workspace.KindFile {
			continue
		}
		if special++; special <= maxNotKept {
			first = append(first, NotKept{Path: f.Path, Why: whySpecial(f.Kind)})
		}
	}
	return first, m.OmittedCount + int64(special)
}

func whyRemoved(reason string) string {
	switch reason {
	case workspace.OmitReserved:
		return "core-api writes a file of this name itself: use another name"
	case workspace.OmitOverLimit:
		return "it did not fit into max_artifacts_bytes_total"
	case workspace.OmitTooMany:
		return tooMany()
	case workspace.OmitTooDeep:
		return tooDeep()
	case workspace.OmitNotUTF8:
		return `its name is not UTF-8; \x and two digits stand for a byte`
	case workspace.OmitForeign:
		return "core-api runs on Windows, which has no such name: use another name"
	case workspace.OmitUnreadable:
		return "this system cannot read files of its kind"
	}
	return reason
}

func whySpecial(kind string) string {
	switch kind {
	case workspace.KindSymlink:
		return "a symbolic link: links are not followed, copy the file instead"
	case workspace.KindFIFO:
		return "a named pipe (FIFO): only regular files are kept"
	case workspace.KindSocket:
		return "a socket: only regular files are kept"
	case workspace.KindDevice:
		return "a device: only regular files are kept"
	}
	return kind + ": only regular files are kept"
}

func tooMany() string {
	return fmt.Sprintf("at most %d files and directories with paths of %d bytes in total are kept: pack many files into an archive", workspace.MaxArtifacts, workspace.MaxPathBytes)
}

func tooDeep() string {
	return fmt.Sprintf("at most %d directories below each other are kept: pack them into an archive", workspace.MaxDepth)
}
