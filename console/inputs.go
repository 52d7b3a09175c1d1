package console

import (
	"io"

	"secbox/audit"
	"secbox/console/ui"
	"secbox/console/view"
	"secbox/runner"
)

var inputKind = fileSource{FileKind: view.FileKind{Files: "inputs", Show: "show-input", View: "view-input"}, what: "input", title: "Input", open: (*Console).openInput}

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
	out := view.FileList{Kind: inputKind.FileKind, ExecID: rec.ExecID, From: from, All: list.All, Total: list.TotalBytes, Truncated: list.Truncated}
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
