package view

import (
	"image"
	"path"
	"strconv"
	"strings"
	"time"

	"secbox/audit"
	"secbox/console/ui"
	"secbox/runner"
)

// ExecCrumbs are the pages above one that is about a part of an exec.
func ExecCrumbs(rec audit.Record) []ui.Crumb {
	return []ui.Crumb{{Label: "History", To: ui.Link("history")}, {Label: rec.ExecID, To: ui.Link("execs", rec.ExecID)}}
}

// FileKind is the artifacts or the inputs of an exec: what their addresses have for the download,
// for the page, and for the content in the frame on the page.
type FileKind struct {
	Files, Show, View string
}

// FileLink is the address of a file; part is one of the kind's.
func FileLink(execID, part, file string) ui.Address {
	return ui.Link(append([]string{"execs", execID, part}, strings.Split(file, "/")...)...)
}

// MaxFileRows is how many files a page lists: a row is some 600 bytes, and a page with its style
// sheet and its scripts at most 150 KiB.
const MaxFileRows = 100

// FileRow is a file of a list.
type FileRow struct {
	runner.Artifact
	Kept bool // there is a content to show
}

// FileList is a page of the files of an exec, or why they are not known.
type FileList struct {
	Kind      FileKind
	ExecID    string
	Rows      []FileRow
	From, All int   // rows begin at from, and there are all
	Total     int64 // bytes of all
	Truncated bool  // there were more
	InPlace   bool  // the page has a place where files are shown, with the id shown

	NotKept      []runner.NotKept // artifacts without a content, and the number of all
	NotKeptCount int64

	RemovedAt time.Time
	Problem   string
	Why       string // there are none, in a sentence; empty: see the kind
}

// hasContent reports whether there is more to say of the list than that it is empty.
func (l FileList) hasContent() bool {
	return len(l.Rows) > 0 || l.NotKeptCount > 0 || l.Truncated || l.Problem != "" || !l.RemovedAt.IsZero()
}

func (l FileList) more() bool { return l.From+len(l.Rows) < l.All }

// page is the address of a page of the list.
func (l FileList) page(from int) ui.Address {
	to := ui.Link("execs", l.ExecID, l.Kind.Files)
	if from > 0 {
		to = to.With("from", strconv.Itoa(from))
	}
	return to
}

// FilePage is a file of an exec, and how it is shown.
type FilePage struct {
	runner.Artifact
	Kind    FileKind
	ExecID  string
	Preview Preview
	AsText  bool // the reader asked for the text of a format that has a rendering
}

// link is the address of the page, or of the content in its frame.
func (p FilePage) link(part string, asText bool) ui.Address {
	to := FileLink(p.ExecID, part, p.Path)
	if asText {
		to = to.With("as", "text")
	}
	return to
}

func (p FilePage) frameTitle() string { return "Content of " + ui.Cut(path.Base(p.Path), 200) }

// MaxPreview is how many bytes of a text are shown.
const MaxPreview = 1 << 20

// Preview is how an artifact is shown.
type Preview struct {
	Kind   string // for readers; empty: it is not shown
	Image  string // the media type of an image; empty for others
	PDF    bool
	Text   []byte       // of a text, with all characters visible; nil for others
	Raw    []byte       // of a text, as it is
	Format string       // of a text, the extension of a format that has a rendering; empty: it is shown as text only
	Cut    bool         // there is more text
	Size   image.Config // of an image, in pixels
	Why    string       // it is not shown
}
