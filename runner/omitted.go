package runner

import (
	"fmt"
	"strconv"
	"strings"

	"secbox/workspace"
	"secbox/workspace/tree"
)

// maxNotKept is how many removed entries, and how many special files, an ArtifactList has at most:
// a page shows them, and the manifest has more.
const maxNotKept = 25

// NotKept is an entry among the artifacts that has no content to open: it was removed, or is not a
// regular file.
type NotKept struct {
	Path   string `json:"path"`   // as the manifest has it: cut if it is long, escaped if it is not UTF-8
	Size   int64  `json:"size"`   // bytes, of a removed regular file
	Reason string `json:"reason"` // as in the manifest, or the kind of a special file
	Why    string `json:"detail"` // a sentence for people
}

// LeftOut is what an exec left among its artifacts and has no content to open.
type LeftOut struct {
	NotKept      []NotKept // the first 25 removed entries and the first 25 special files
	NotKeptCount int64     // of all; a removed directory counts with everything that was below it
}

// omittedOf returns what a manifest has without content. A removed directory is one entry.
func omittedOf(m workspace.Manifest) (out LeftOut) {
	for _, o := range m.Omitted[:min(len(m.Omitted), maxNotKept)] {
		out.NotKept = append(out.NotKept, NotKept{Path: o.Path, Size: o.Size, Reason: o.Reason, Why: whyRemoved(o.Reason)})
	}
	special := 0
	for _, f := range m.Files {
		if f.Kind == workspace.KindFile {
			continue
		}
		if special++; special <= maxNotKept {
			out.NotKept = append(out.NotKept, NotKept{Path: f.Path, Reason: f.Kind, Why: whySpecial(f.Kind)})
		}
	}
	out.NotKeptCount = m.OmittedCount + int64(special)
	return out
}

// shownNotKept is how many entries the detail of an exec names.
const shownNotKept = 3

// detail names what was left out, except because of a limit, which the record's detail names by
// itself; empty if nothing was.
func (l LeftOut) detail() string {
	var shown []string
	left := l.NotKeptCount
	for _, one := range l.NotKept {
		switch one.Reason {
		case workspace.OmitOverLimit, workspace.OmitTooMany, workspace.OmitTooDeep:
			continue
		}
		if len(shown) < shownNotKept {
			shown = append(shown, strconv.QuoteToGraphic(tree.CutName(one.Path, 64))+" ("+one.Why+")")
			left--
		}
	}
	if len(shown) == 0 {
		return ""
	}
	text := "not among the artifacts: " + strings.Join(shown, ", ")
	if left > 0 {
		text += fmt.Sprintf(" and %d more, see omitted", left)
	}
	return text
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
		return `its name is not UTF-8, and its bytes as %XX give a name that is taken or too long; \x and two digits stand for a byte`
	case workspace.OmitForeign:
		return "core-api runs on Windows, which has no such name: use another name"
	case workspace.OmitUnreadable:
		return "it cannot be read: it is of a kind that this system does not know, or it changed while it was copied"
	}
	return reason
}

func whySpecial(kind string) string {
	switch kind {
	case workspace.KindSymlink:
		return "a symbolic link, which leads to no regular file of this project that the job could read, or on too long a way: copy the " +
			"file instead"
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
	return fmt.Sprintf("at most %d files and directories with paths of %d bytes in total are kept: pack many files into an archive",
		workspace.MaxArtifacts, workspace.MaxPathBytes)
}

func tooDeep() string {
	return fmt.Sprintf("at most %d directories below each other are kept: pack them into an archive", workspace.MaxDepth)
}
