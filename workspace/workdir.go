package workspace

import (
	"context"
	"errors"
	"os"
	"path/filepath"

	"secbox/workspace/tree"
)

// WorkDir is work/ of a project for a sandbox: by its handle for files, by its path for commands.
type WorkDir struct {
	Dir      *os.Root
	Path     string // as this process sees it
	Mount    string // as docker takes it
	UID, GID int    // owner of new files; -1: this process's user

	project *Project
	seen    directories
}

// WorkDir opens work/.
func (p *Project) WorkDir() (*WorkDir, error) {
	p.mark()
	d := &WorkDir{UID: -1, GID: -1, project: p}
	if err := d.open(); err != nil {
		d.Close()
		return nil, err
	}
	return d, nil
}

func (d *WorkDir) open() error {
	p := d.project
	top, err := p.w.checkRoot()
	if err != nil {
		return err
	}
	d.Path = filepath.Join(top, p.id, workDir)
	if d.Mount, err = p.w.opts.Adapter.DockerMount(projectsDir, p.id, workDir); err != nil {
		return tree.Failed(err, "docker cannot take the path of project %s", p.id)
	}
	if p.w.opts.UID >= 0 && os.Geteuid() == 0 {
		d.UID, d.GID = p.w.opts.UID, p.w.opts.GID
	}
	if d.Dir, err = p.openPart(workDir); err != nil {
		return err
	}
	if d.seen, err = p.directories(".", workDir); err != nil {
		return err
	}
	if held, err := d.Dir.Stat("."); err != nil || !os.SameFile(held, d.seen.infos[1]) {
		return tree.Failed(errors.Join(tree.ErrSwapped, err), "work of project %s was exchanged while it was opened; try again", p.id)
	}
	return nil
}

// LockEdits is tree.Tree.LockEdits.
func (d *WorkDir) LockEdits(ctx context.Context) (release func(), err error) {
	return host{d.project}.LockEdits(ctx)
}

// Intact reports whether Path is still the directory that Dir has open.
func (d *WorkDir) Intact() bool {
	now, err := d.project.directories(".", workDir)
	return err == nil && now.equal(d.seen)
}

// Close closes Dir. It may be called twice.
func (d *WorkDir) Close() {
	if d.Dir != nil {
		d.Dir.Close()
	}
}
