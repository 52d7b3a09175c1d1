package console

import (
	"bytes"
	"io"
	"math"
	"net/http"
	"net/url"
	"path"
	"strconv"
	"strings"
	"time"

	"secbox/api/content"
	"secbox/audit"
	"secbox/console/ui"
	"secbox/fault"
	"secbox/runner"
)

// execCrumbs are the pages above one that is about a part of an exec.
func execCrumbs(rec audit.Record) []ui.Crumb {
	return []ui.Crumb{{Label: "History", To: ui.Link("history")}, {Label: rec.ExecID, To: ui.Link("execs", rec.ExecID)}}
}

// fileKind is the artifacts or the inputs of an exec: what their addresses have for the download, for the page, and for the content in the frame on the page.
type fileKind struct {
	files, show, view string
}

// fileSource opens the files of a kind.
type fileSource struct {
	fileKind
	what  string // in the event of a download
	title string // of the page of a file

	// open opens a file, whose content is that of its digest. The caller closes it.
	open func(c *Console, v *visit, rec audit.Record, path string) (io.ReadSeekCloser, runner.Artifact, error)
}

// fileLink is the address of a file; part is one of the kind's.
func fileLink(execID, part, file string) ui.Address {
	return ui.Link(append([]string{"execs", execID, part}, strings.Split(file, "/")...)...)
}

// How many files a page lists: a row is some 600 bytes, and a page with its style sheet and its scripts at most 150 KiB.
const (
	maxFileRows    = 100
	fileRowsOfExec = 30 // on the page of an exec, of its artifacts and of its inputs
)

// fileRow is a file of a list.
type fileRow struct {
	runner.Artifact
	kept bool // there is a content to show
}

// fileList is a page of the files of an exec, or why they are not known.
type fileList struct {
	kind      fileKind
	execID    string
	rows      []fileRow
	from, all int   // rows begin at from, and there are all
	total     int64 // bytes of all
	truncated bool  // there were more

	notKept      []runner.NotKept // artifacts without a content, and the number of all
	notKeptCount int64

	removedAt time.Time
	problem   string
	why       string // there are none, in a sentence; empty: see the kind
}

func (l fileList) more() bool { return l.from+len(l.rows) < l.all }

// page is the address of a page of the list.
func (l fileList) page(from int) ui.Address {
	to := ui.Link("execs", l.execID, l.kind.files)
	if from > 0 {
		to = to.With("from", strconv.Itoa(from))
	}
	return to
}

// filesFrom returns the exec of the address of a list, and the number of its first file.
func (c *Console) filesFrom(v *visit) (audit.Record, int, error) {
	rec, err := c.cfg.Execs.Get(v.ctx(), v.caller, v.Param("id"))
	if err != nil {
		return rec, 0, err
	}
	from := 0
	if text := v.query.Get("from"); text != "" {
		if from, err = strconv.Atoi(text); err != nil || from < 0 || from > math.MaxInt32 {
			return rec, 0, fault.BadField("from", "must be the number of a file, from 0 on")
		}
	}
	return rec, from, nil
}

// tail returns the rest of the path, which may have slashes.
func (v *visit) tail() (string, error) {
	tail := v.Param("*")
	if v.Request().URL.RawPath == "" { // then echo matched the path without escapes
		return tail, nil
	}
	tail, err := url.PathUnescape(tail)
	if err != nil {
		return "", fault.New(fault.NotFound, "the address is malformed; open the file from the page of its exec")
	}
	return tail, nil
}

// file is an open file of an exec.
type file struct {
	runner.Artifact
	rec     audit.Record
	content io.ReadSeekCloser
}

// openFile opens the file that the address names; the caller closes it.
func (c *Console) openFile(v *visit, kind fileSource) (file, error) {
	rec, err := c.cfg.Execs.Get(v.ctx(), v.caller, v.Param("id"))
	if err != nil {
		return file{}, err
	}
	path, err := v.tail()
	if err != nil {
		return file{}, err
	}
	f, info, err := kind.open(c, v, rec, path)
	if err != nil {
		return file{}, c.cfg.Execs.UnlessRemoved(v.ctx(), rec, err)
	}
	return file{info, rec, f}, nil
}

// serveFile sends a file of an exec after its event, and closes it.
func (c *Console) serveFile(v *visit, w http.ResponseWriter, rec audit.Record, what, path string, f content.File) error {
	if err := c.recordDownload(v, rec, what, path); err != nil {
		f.Content.Close()
		return err
	}
	f.Modified = rec.EndedAt
	return f.Serve(w, v.Request())
}

// downloadFile sends a file, which browsers save.
func (c *Console) downloadFile(kind fileSource) func(*visit, http.ResponseWriter) error {
	return func(v *visit, w http.ResponseWriter) error {
		f, err := c.openFile(v, kind)
		if err != nil {
			return err
		}
		return c.serveFile(v, w, f.rec, kind.what, f.Path, content.File{Content: f.content, Type: "application/octet-stream", SaveAs: path.Base(f.Path), SHA256: f.SHA256})
	}
}

// downloadOutput sends all that was kept of a stream of output.
func (c *Console) downloadOutput(v *visit, w http.ResponseWriter) error {
	rec, err := c.cfg.Execs.Get(v.ctx(), v.caller, v.Param("id"))
	if err != nil {
		return err
	}
	name, err := v.streamName()
	if err != nil {
		return err
	}
	f, _, err := c.cfg.Runner.OpenOutput(v.ctx(), rec, name)
	if err != nil {
		return c.cfg.Execs.UnlessRemoved(v.ctx(), rec, err)
	}
	return c.serveFile(v, w, rec, name, "", content.File{Content: f, Type: "text/plain; charset=utf-8", SaveAs: rec.ExecID + "." + name + ".txt"})
}

// shownFile is a file of an exec, and how it is shown.
type shownFile struct {
	runner.Artifact
	kind    fileKind
	execID  string
	preview preview
}

// showFile shows a file in a frame of its own, if it is an image or text. The page has nothing of the content itself.
func (c *Console) showFile(kind fileSource) func(*visit) (ui.Page, error) {
	return func(v *visit) (ui.Page, error) {
		f, p, err := c.previewFile(v, kind)
		if err != nil {
			return ui.Page{}, err
		}
		f.content.Close()
		shown := shownFile{Artifact: f.Artifact, kind: kind.fileKind, execID: f.rec.ExecID, preview: p}
		return ui.Page{Title: kind.title, Crumbs: execCrumbs(f.rec), Actions: fileActions(shown), Body: shownFileBody(shown)}, nil
	}
}

func (c *Console) previewFile(v *visit, kind fileSource) (file, preview, error) {
	f, err := c.openFile(v, kind)
	if err != nil {
		return f, preview{}, err
	}
	p, err := previewOf(f.Path, f.Size, f.content, v.door.Reserve)
	if err != nil {
		f.content.Close()
	}
	return f, p, err
}

// viewCSP is the Content-Security-Policy of content in a frame: nothing runs, nothing is loaded, and only our own pages may frame it. Browsers
// themselves style the documents that they make of images and text.
const viewCSP = "sandbox; default-src 'none'; style-src 'unsafe-inline'; base-uri 'none'; form-action 'none'; frame-ancestors 'self'"

// viewFile sends an image or the beginning of a text for the frame of its page. A browser that opens the address itself runs nothing
// either. Content of any other kind is not sent.
func (c *Console) viewFile(kind fileSource) func(*visit, http.ResponseWriter) error {
	return func(v *visit, w http.ResponseWriter) error {
		f, p, err := c.previewFile(v, kind)
		if err != nil {
			return err
		}
		if p.image != "" {
			return c.serveFile(v, w, f.rec, kind.what, f.Path, content.File{Content: f.content, Type: p.image, CSP: viewCSP, SHA256: f.SHA256})
		}
		f.content.Close()
		if p.text == nil {
			http.Redirect(w, v.Request(), fileLink(f.rec.ExecID, kind.show, f.Path).String(), http.StatusSeeOther)
			return nil
		}
		text := struct {
			io.ReadSeeker
			io.Closer
		}{bytes.NewReader(p.text), io.NopCloser(nil)}
		return c.serveFile(v, w, f.rec, kind.what, f.Path, content.File{Content: text, Type: "text/plain; charset=utf-8", CSP: viewCSP, Whole: true})
	}
}
