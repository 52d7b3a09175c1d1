package console

import (
	"bytes"
	"context"
	"io"
	"math"
	"net/http"
	"net/url"
	"path"
	"strconv"
	"time"

	"secbox/api/content"
	"secbox/api/visible"
	"secbox/audit"
	"secbox/console/ui"
	"secbox/console/view"
	"secbox/fault"
	"secbox/internal/admission"
	"secbox/runner"
)

// fileSource opens the files of a kind.
type fileSource struct {
	view.FileKind
	what string // in the event of a download

	// open opens a file, whose content has the digest on record. The caller closes it.
	open func(c *Console, req *request, rec audit.Record, path string) (io.ReadSeekCloser, runner.Artifact, error)
}

// fileRowsOfExec is how many artifacts and how many inputs the page of an exec lists; see
// view.MaxFileRows.
const fileRowsOfExec = 30

// filesFrom returns the exec of the address of a list, and the number of its first file.
func (c *Console) filesFrom(req *request) (audit.Record, int, error) {
	rec, err := c.execOf(req)
	if err != nil {
		return rec, 0, err
	}
	from := 0
	if text := req.query.Get("from"); text != "" {
		if from, err = strconv.Atoi(text); err != nil || from < 0 || from > math.MaxInt32 {
			return rec, 0, fault.BadField("from", "must be the number of a file, from 0 on")
		}
	}
	return rec, from, nil
}

// filePath returns the rest of the path, which may have slashes.
func (req *request) filePath() (string, error) {
	tail := req.Param("*")
	if req.Request().URL.RawPath == "" { // then echo matched the path without escapes
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
func (c *Console) openFile(req *request, kind fileSource) (file, error) {
	rec, err := c.execOf(req)
	if err != nil {
		return file{}, err
	}
	path, err := req.filePath()
	if err != nil {
		return file{}, err
	}
	f, info, err := kind.open(c, req, rec, path)
	if err != nil {
		return file{}, c.cfg.Execs.UnlessRemoved(req.ctx(), rec, err)
	}
	return file{info, rec, f}, nil
}

// serveFile sends a file of an exec after its event, and closes it.
func (c *Console) serveFile(req *request, w http.ResponseWriter, rec audit.Record, what, path string, f content.File) error {
	if err := c.recordDownload(req, rec, what, path); err != nil {
		f.Content.Close()
		return err
	}
	f.Modified = rec.EndedAt
	return f.Serve(w, req.Request())
}

// downloadFile sends a file, which browsers save.
func (c *Console) downloadFile(kind fileSource) func(*request, http.ResponseWriter) error {
	return func(req *request, w http.ResponseWriter) error {
		f, err := c.openFile(req, kind)
		if err != nil {
			return err
		}
		return c.serveFile(req, w, f.rec, kind.what, f.Path,
			content.File{Content: f.content, Type: "application/octet-stream", SaveAs: path.Base(f.Path), SHA256: f.SHA256})
	}
}

// downloadOutput sends all that was kept of a stream of output.
func (c *Console) downloadOutput(req *request, w http.ResponseWriter) error {
	rec, err := c.execOf(req)
	if err != nil {
		return err
	}
	name, err := req.streamName()
	if err != nil {
		return err
	}
	f, _, err := c.cfg.Runner.OpenOutput(req.ctx(), rec, name)
	if err != nil {
		return c.cfg.Execs.UnlessRemoved(req.ctx(), rec, err)
	}
	return c.serveFile(req, w, rec, name, "", content.File{
		Content: f, Type: "text/plain; charset=utf-8",
		SaveAs: rec.ExecID + "." + name + ".txt",
	})
}

// downloadCast sends the recording of a terminal, to be saved or for the player.
func (c *Console) downloadCast(req *request, w http.ResponseWriter) error {
	rec, err := c.execOf(req)
	if err != nil {
		return err
	}
	f, info, err := c.cfg.Runner.OpenPublished(req.ctx(), rec, runner.CastFile)
	if err != nil {
		return c.cfg.Execs.UnlessRemoved(req.ctx(), rec, err)
	}
	return c.serveFile(req, w, rec, runner.CastFile, "", content.File{
		Content: f, Type: "application/x-asciicast", SaveAs: rec.ExecID + ".cast", SHA256: info.SHA256,
	})
}

// showFile shows a file in a frame of its own, if it is an image, PDF or text. The page has nothing
// of the content itself.
func (c *Console) showFile(kind fileSource) func(*request) (ui.Page, error) {
	return func(req *request) (ui.Page, error) {
		f, p, err := c.previewFile(req, kind)
		if err != nil {
			return ui.Page{}, err
		}
		f.content.Close()
		shown := view.FilePage{
			Artifact: f.Artifact, Kind: kind.FileKind, ExecID: f.rec.ExecID, Preview: p, AsText: req.query.Has("as"),
		}
		title := ui.Cut(path.Base(f.Path), 80)
		return ui.Page{Title: title, Crumbs: view.ExecCrumbs(f.rec), Actions: view.FileActions(shown), Body: view.File(shown)}, nil
	}
}

func (c *Console) previewFile(req *request, kind fileSource) (file, view.Preview, error) {
	if as := req.query.Get("as"); as != "" && as != "text" {
		return file{}, view.Preview{}, fault.BadField("as", "must be text or left out")
	}
	f, err := c.openFile(req, kind)
	if err != nil {
		return f, view.Preview{}, err
	}
	p, err := previewOf(f.Path, f.Size, f.content, req.door.Reserve)
	if err != nil {
		f.content.Close()
	}
	return f, p, err
}

// viewCSP is the Content-Security-Policy of content in a frame: nothing runs, nothing is loaded,
// and only our own pages may frame it. Browsers themselves style the documents that they make of
// images and text.
const viewCSP = "sandbox; default-src 'none'; style-src 'unsafe-inline'; base-uri 'none'; form-action 'none'; frame-ancestors 'self'"

// pdfCSP is viewCSP for a PDF. Browsers have no viewer in a sandbox. Theirs runs in a process of
// its own, gives a PDF nothing of the page around it, and decides about scripts in it.
const pdfCSP = "default-src 'none'; object-src 'self'; style-src 'unsafe-inline'; base-uri 'none'; form-action 'none'; frame-ancestors 'self'"

// viewFile sends an image, a PDF, or the beginning of a text or its rendering for the frame of its
// page. A browser that opens the address itself runs nothing either. Content of any other kind is
// not sent.
func (c *Console) viewFile(kind fileSource) func(*request, http.ResponseWriter) error {
	return func(req *request, w http.ResponseWriter) error {
		f, p, err := c.previewFile(req, kind)
		if err != nil {
			return err
		}
		if p.Image != "" {
			return c.serveFile(req, w, f.rec, kind.what, f.Path,
				content.File{Content: f.content, Type: p.Image, CSP: viewCSP, SHA256: f.SHA256})
		}
		if p.PDF {
			return c.serveFile(req, w, f.rec, kind.what, f.Path,
				content.File{Content: f.content, Type: "application/pdf", CSP: pdfCSP, SHA256: f.SHA256})
		}
		f.content.Close()
		if p.Text == nil {
			http.Redirect(w, req.Request(), view.FileLink(f.rec.ExecID, kind.Show, f.Path).String(), http.StatusSeeOther)
			return nil
		}
		shown, media := p.Text, "text/plain; charset=utf-8"
		if !req.query.Has("as") {
			err = admission.Do(req.ctx(), func() error {
				if document, ok := render(p); ok {
					shown, media = document, "text/html; charset=utf-8"
				}
				return nil
			})
			if err != nil {
				return err
			}
		}
		text := struct {
			io.ReadSeeker
			io.Closer
		}{bytes.NewReader(shown), io.NopCloser(nil)}
		return c.serveFile(req, w, f.rec, kind.what, f.Path, content.File{Content: text, Type: media, CSP: viewCSP, Whole: true})
	}
}

var artifactKind = fileSource{
	FileKind: view.FileKind{Files: "artifacts", Show: "show", View: "view"}, what: "artifact",
	open: (*Console).openArtifact,
}

// openArtifact opens an artifact. Only paths of the exec's manifest are known.
func (c *Console) openArtifact(req *request, rec audit.Record, path string) (io.ReadSeekCloser, runner.Artifact, error) {
	all, err := c.cfg.Runner.Artifacts(req.ctx(), rec)
	if err != nil {
		return nil, runner.Artifact{}, err
	}
	defer all.Close()
	return all.Open(req.ctx(), path)
}

// artifactsOf returns a page of the artifacts of an exec.
func (c *Console) artifactsOf(ctx context.Context, rec audit.Record, from, rows int) (view.FileList, error) {
	all, err := c.cfg.Runner.Artifacts(ctx, rec)
	if err != nil {
		return view.FileList{}, c.cfg.Execs.UnlessRemoved(ctx, rec, err)
	}
	defer all.Close()
	list := all.List()
	out := view.FileList{
		Kind: artifactKind.FileKind, ExecID: rec.ExecID, From: from, All: len(list.Items), Total: list.TotalBytes,
		Truncated: list.Truncated, NotKept: list.NotKept, NotKeptCount: list.NotKeptCount,
	}
	for _, item := range list.Items[min(from, out.All):min(from+rows, out.All)] {
		out.Rows = append(out.Rows, view.FileRow{Artifact: item, Kept: true})
	}
	return out, nil
}

// artifactsPart returns the first artifacts of an exec for its page, or why they are not known.
func (c *Console) artifactsPart(ctx context.Context, rec audit.Record, removedAt time.Time) view.FileList {
	if !rec.Status.Final() {
		return view.FileList{Why: "Artifacts can be read here when the exec has ended."}
	}
	out, err := c.artifactsOf(ctx, rec, 0, fileRowsOfExec)
	if err != nil {
		out.Problem = reason(err)
	}
	out.RemovedAt, out.InPlace = removedAt, true
	switch {
	case view.EndUnknown(rec):
		out.Why = "It is not known whether the job left artifacts: none were kept."
	case rec.ErrorReason == audit.ArtifactsLost:
		out.Why = "The artifacts could not be collected: see the detail of the outcome."
	}
	return out
}

// artifactsPage lists the artifacts of an exec that has too many for its own page.
func (c *Console) artifactsPage(req *request) (ui.Page, error) {
	rec, from, err := c.filesFrom(req)
	if err != nil {
		return ui.Page{}, err
	}
	list, err := c.artifactsOf(req.ctx(), rec, from, view.MaxFileRows)
	if err != nil {
		return ui.Page{}, err
	}
	return ui.Page{Title: "Artifacts", Crumbs: view.ExecCrumbs(rec), Actions: view.ArtifactsActions(list), Body: view.Files(list)}, nil
}

// downloadArtifacts sends all artifacts of an exec as a ZIP, as the API does.
func (c *Console) downloadArtifacts(req *request, w http.ResponseWriter) error {
	rec, err := c.execOf(req)
	if err != nil {
		return err
	}
	all, err := c.cfg.Runner.Artifacts(req.ctx(), rec)
	if err != nil {
		return c.cfg.Execs.UnlessRemoved(req.ctx(), rec, err)
	}
	defer all.Close()
	if err := visible.CheckArtifacts(req.ctx(), all); err != nil {
		return c.cfg.Execs.UnlessRemoved(req.ctx(), rec, err)
	}
	if err := c.recordDownload(req, rec, "artifacts", ""); err != nil {
		return err
	}
	return content.ServeStream(w, req.Request(), "application/zip", rec.ExecID+".zip",
		func() error { return visible.WriteArtifacts(req.ctx(), w, all, rec) })
}

var inputKind = fileSource{
	FileKind: view.FileKind{Files: "inputs", Show: "show-input", View: "view-input"}, what: "input",
	open: (*Console).openInput,
}

// openInput opens the kept content of an input, which is in memory.
func (c *Console) openInput(req *request, rec audit.Record, path string) (io.ReadSeekCloser, runner.Artifact, error) {
	f, in, err := c.cfg.Replayer.OpenInput(req.ctx(), rec, path, req.door.Reserve)
	return f, runner.Artifact{Path: in.Path, Size: in.Size, SHA256: in.SHA256}, err
}

// inputsOf returns a page of the inputs of an exec.
func (c *Console) inputsOf(req *request, rec audit.Record, from, rows int) (view.FileList, error) {
	list, err := c.cfg.Replayer.Inputs(req.ctx(), rec, from, rows, req.door.Reserve)
	if err != nil {
		return view.FileList{}, c.cfg.Execs.UnlessRemoved(req.ctx(), rec, err)
	}
	out := view.FileList{
		Kind: inputKind.FileKind, ExecID: rec.ExecID, From: from, All: list.All, Total: list.TotalBytes,
		Truncated: list.Truncated,
	}
	for _, in := range list.Items {
		out.Rows = append(out.Rows, view.FileRow{Artifact: runner.Artifact{Path: in.Path, Size: in.Size, SHA256: in.SHA256}, Kept: in.Kept})
	}
	return out, nil
}

// inputsPart returns the first inputs of an exec for its page, or why they are not known.
func (c *Console) inputsPart(req *request, rec audit.Record) view.FileList {
	out, err := c.inputsOf(req, rec, 0, fileRowsOfExec)
	if err != nil {
		out.Problem = reason(err)
	}
	out.InPlace = true
	return out
}

// inputsPage lists the inputs of an exec that has too many for its own page.
func (c *Console) inputsPage(req *request) (ui.Page, error) {
	rec, from, err := c.filesFrom(req)
	if err != nil {
		return ui.Page{}, err
	}
	list, err := c.inputsOf(req, rec, from, view.MaxFileRows)
	if err != nil {
		return ui.Page{}, err
	}
	return ui.Page{Title: "Inputs", Crumbs: view.ExecCrumbs(rec), Body: view.Files(list)}, nil
}
