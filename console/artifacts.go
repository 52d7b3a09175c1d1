package console

import (
	"context"
	"io"
	"net/http"
	"time"

	"secbox/api/content"
	"secbox/api/visible"
	"secbox/audit"
	"secbox/console/ui"
	"secbox/console/view"
	"secbox/runner"
)

var artifactKind = fileSource{FileKind: view.FileKind{Files: "artifacts", Show: "show", View: "view"}, what: "artifact", title: "Artifact", open: (*Console).openArtifact}

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
	out := view.FileList{Kind: artifactKind.FileKind, ExecID: rec.ExecID, From: from, All: len(list.Items), Total: list.TotalBytes, Truncated: list.Truncated, NotKept: list.NotKept, NotKeptCount: list.NotKeptCount}
	for _, item := range list.Items[min(from, out.All):min(from+rows, out.All)] {
		out.Rows = append(out.Rows, view.FileRow{Artifact: item, Kept: true})
	}
	return out, nil
}

// artifactsPart returns the first artifacts of an exec for its page, or why they are not known.
func (c *Console) artifactsPart(ctx context.Context, rec audit.Record, removedAt time.Time) view.FileList {
	out, err := c.artifactsOf(ctx, rec, 0, fileRowsOfExec)
	if err != nil {
		out.Problem = reason(err)
	}
	out.RemovedAt = removedAt
	switch {
	case !rec.Status.Final():
		out.Why = "They can be read here when the exec has ended."
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
	return content.ServeStream(w, req.Request(), "application/zip", rec.ExecID+".zip", func() error { return visible.WriteArtifacts(req.ctx(), w, all, rec) })
}
