package console

import (
	"bytes"
	"context"
	"io"
	"net/http"
	"net/url"
	"path"
	"strconv"
	"strings"
	"time"

	"secbox/api/content"
	"secbox/api/visible"
	"secbox/audit"
	"secbox/console/ui"
	"secbox/fault"
	"secbox/runner"
)

// maxArtifacts is how many artifacts a page lists.
const maxArtifacts = 200

// artifactList is a page of the artifacts of an exec, or why they are not known.
type artifactList struct {
	runner.ArtifactList        // Items are those of the page
	execID              string // of the exec
	from, all           int    // Items begin at from, and there are all
	removedAt           time.Time
	problem             string
}

func (l artifactList) more() bool { return l.from+len(l.Items) < l.all }

// page cuts the list to a page.
func (l artifactList) page(from int) artifactList {
	l.from, l.all = from, len(l.Items)
	l.Items = l.Items[min(from, l.all):min(from+maxArtifacts, l.all)]
	return l
}

func (c *Console) artifactsOf(ctx context.Context, rec audit.Record, removedAt time.Time) artifactList {
	out := artifactList{execID: rec.ExecID, removedAt: removedAt}
	all, err := c.cfg.Runner.Artifacts(ctx, rec)
	if err != nil {
		out.problem = reason(c.cfg.Execs.UnlessRemoved(ctx, rec, err))
		return out
	}
	defer all.Close()
	out.ArtifactList = all.List()
	return out.page(0)
}

// artifactsPage lists the artifacts of an exec that has too many for its own page.
func (c *Console) artifactsPage(v *visit) (ui.Page, error) {
	rec, err := c.cfg.Execs.Get(v.ctx(), v.caller, v.Param("id"))
	if err != nil {
		return ui.Page{}, err
	}
	from := 0
	if text := v.query.Get("from"); text != "" {
		if from, err = strconv.Atoi(text); err != nil || from < 0 {
			return ui.Page{}, fault.BadField("from", "must be the number of an artifact, from 0 on")
		}
	}
	all, err := c.cfg.Runner.Artifacts(v.ctx(), rec)
	if err != nil {
		return ui.Page{}, c.cfg.Execs.UnlessRemoved(v.ctx(), rec, err)
	}
	defer all.Close()
	list := artifactList{execID: rec.ExecID, ArtifactList: all.List()}.page(from)
	return ui.Page{Title: "Artifacts", Crumbs: execCrumbs(rec), Actions: archiveAction(list), Body: artifactsBody(list)}, nil
}

// execCrumbs are the pages above one that is about a part of an exec.
func execCrumbs(rec audit.Record) []ui.Crumb {
	return []ui.Crumb{{Label: "History", To: ui.Link("history")}, {Label: rec.ExecID, To: ui.Link("execs", rec.ExecID)}}
}

// artifactLink is the address of an artifact: show is its page, view its content for the frame on that page, artifacts the download.
func artifactLink(execID, what, file string) ui.Address {
	return ui.Link(append([]string{"execs", execID, what}, strings.Split(file, "/")...)...)
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

// artifact is an open artifact.
type artifact struct {
	runner.Artifact
	rec     audit.Record
	content io.ReadSeekCloser
}

// openArtifact opens the artifact that the address names; the caller closes it. Only paths of the exec's manifest are known.
func (c *Console) openArtifact(v *visit) (artifact, error) {
	rec, err := c.cfg.Execs.Get(v.ctx(), v.caller, v.Param("id"))
	if err != nil {
		return artifact{}, err
	}
	file, err := v.tail()
	if err != nil {
		return artifact{}, err
	}
	all, err := c.cfg.Runner.Artifacts(v.ctx(), rec)
	if err != nil {
		return artifact{}, c.cfg.Execs.UnlessRemoved(v.ctx(), rec, err)
	}
	defer all.Close()
	f, info, err := all.Open(v.ctx(), file)
	if err != nil {
		return artifact{}, c.cfg.Execs.UnlessRemoved(v.ctx(), rec, err)
	}
	return artifact{info, rec, f}, nil
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

// downloadArtifact sends an artifact, which browsers save.
func (c *Console) downloadArtifact(v *visit, w http.ResponseWriter) error {
	a, err := c.openArtifact(v)
	if err != nil {
		return err
	}
	return c.serveFile(v, w, a.rec, "artifact", a.Path, content.File{Content: a.content, Type: "application/octet-stream", SaveAs: path.Base(a.Path), SHA256: a.SHA256})
}

// downloadArtifacts sends all artifacts of an exec as a ZIP, as the API does.
func (c *Console) downloadArtifacts(v *visit, w http.ResponseWriter) error {
	rec, err := c.cfg.Execs.Get(v.ctx(), v.caller, v.Param("id"))
	if err != nil {
		return err
	}
	all, err := c.cfg.Runner.Artifacts(v.ctx(), rec)
	if err != nil {
		return c.cfg.Execs.UnlessRemoved(v.ctx(), rec, err)
	}
	defer all.Close()
	if err := visible.CheckArtifacts(v.ctx(), all); err != nil {
		return c.cfg.Execs.UnlessRemoved(v.ctx(), rec, err)
	}
	if err := c.recordDownload(v, rec, "artifacts", ""); err != nil {
		return err
	}
	return content.ServeStream(w, v.Request(), "application/zip", rec.ExecID+".zip", func() error { return visible.WriteArtifacts(v.ctx(), w, all, rec) })
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

// showPage is the page of an artifact.
type showPage struct {
	artifact
	preview preview
}

// showArtifact shows an artifact in a frame of its own, if it is an image or text. The page has nothing of the content itself.
func (c *Console) showArtifact(v *visit) (ui.Page, error) {
	a, p, err := c.previewArtifact(v)
	if err != nil {
		return ui.Page{}, err
	}
	a.content.Close()
	page := showPage{a, p}
	return ui.Page{Title: "Artifact", Crumbs: execCrumbs(a.rec), Actions: artifactActions(page), Body: artifactBody(page)}, nil
}

func (c *Console) previewArtifact(v *visit) (artifact, preview, error) {
	a, err := c.openArtifact(v)
	if err != nil {
		return a, preview{}, err
	}
	p, err := previewOf(a.Path, a.Size, a.content, v.door.Reserve)
	if err != nil {
		a.content.Close()
	}
	return a, p, err
}

// viewCSP is the Content-Security-Policy of content in a frame: nothing runs, nothing is loaded, and only our own pages may frame it. Browsers
// themselves style the documents that they make of images and text.
const viewCSP = "sandbox; default-src 'none'; style-src 'unsafe-inline'; base-uri 'none'; form-action 'none'; frame-ancestors 'self'"

// viewArtifact sends an image or the beginning of a text for the frame of its page. A browser that opens the address itself runs nothing
// either. Content of any other kind is not sent.
func (c *Console) viewArtifact(v *visit, w http.ResponseWriter) error {
	a, p, err := c.previewArtifact(v)
	if err != nil {
		return err
	}
	switch {
	case p.image != "":
		return c.serveFile(v, w, a.rec, "artifact", a.Path, content.File{Content: a.content, Type: p.image, CSP: viewCSP, SHA256: a.SHA256})
	case p.text != nil:
		a.content.Close()
		text := struct {
			io.ReadSeeker
			io.Closer
		}{bytes.NewReader(p.text), io.NopCloser(nil)}
		return c.serveFile(v, w, a.rec, "artifact", a.Path, content.File{Content: text, Type: "text/plain; charset=utf-8", CSP: viewCSP, Whole: true})
	}
	a.content.Close()
	http.Redirect(w, v.Request(), artifactLink(a.rec.ExecID, "show", a.Path).String(), http.StatusSeeOther)
	return nil
}
