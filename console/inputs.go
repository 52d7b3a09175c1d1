package console

import (
	"io"

	"secbox/audit"
	"secbox/console/ui"
	"secbox/runner"
)

var inputKind = fileSource{fileKind: fileKind{files: "inputs", show: "show-input", view: "view-input"}, what: "input", title: "Input", open: (*Console).openInput}

// openInput opens the kept content of an input, which is in memory.
func (c *Console) openInput(v *visit, rec audit.Record, path string) (io.ReadSeekCloser, runner.Artifact, error) {
	f, in, err := c.cfg.Replayer.OpenInput(v.ctx(), rec, path, v.door.Reserve)
	return f, runner.Artifact{Path: in.Path, Size: in.Size, SHA256: in.SHA256}, err
}

// inputsOf returns a page of the inputs of an exec.
func (c *Console) inputsOf(v *visit, rec audit.Record, from, rows int) (fileList, error) {
	list, err := c.cfg.Replayer.Inputs(v.ctx(), rec, from, rows, v.door.Reserve)
	if err != nil {
		return fileList{}, c.cfg.Execs.UnlessRemoved(v.ctx(), rec, err)
	}
	out := fileList{kind: inputKind.fileKind, execID: rec.ExecID, from: from, all: list.All, total: list.TotalBytes, truncated: list.Truncated}
	for _, in := range list.Items {
		out.rows = append(out.rows, fileRow{Artifact: runner.Artifact{Path: in.Path, Size: in.Size, SHA256: in.SHA256}, kept: in.Kept})
	}
	return out, nil
}

// inputsPart returns the first inputs of an exec for its page, or why they are not known.
func (c *Console) inputsPart(v *visit, rec audit.Record) fileList {
	out, err := c.inputsOf(v, rec, 0, fileRowsOfExec)
	if err != nil {
		out.problem = reason(err)
	}
	return out
}

// inputsPage lists the inputs of an exec that has too many for its own page.
func (c *Console) inputsPage(v *visit) (ui.Page, error) {
	rec, from, err := c.filesFrom(v)
	if err != nil {
		return ui.Page{}, err
	}
	list, err := c.inputsOf(v, rec, from, maxFileRows)
	if err != nil {
		return ui.Page{}, err
	}
	return ui.Page{Title: "Inputs", Crumbs: execCrumbs(rec), Body: filesBody(list)}, nil
}
