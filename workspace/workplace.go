package workspace

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"

	"secbox/tree"
)

// WorkPlace is work/ of a project as a sandbox holds it: in use, so that it stays in its place, by a handle for files and by its path for
// commands.
type WorkPlace struct {
	Dir      *os.Root
	Path     string // the same directory as this process sees it
	Mount    string // the same as docker takes it
	UID, GID int    // whom new files are given to; -1: they stay with us

	project *Project
	seen    identity
	release func()
}

// WorkPlace opens work/ of the project; Close ends its use. Errors as those of Use.
func (p *Project) WorkPlace() (*WorkPlace, error) {
	release, err := p.Use()
	if err != nil {
		return nil, err
	}
	place := &WorkPlace{UID: -1, GID: -1, project: p, release: release}
	if err := place.open(); err != nil {
		place.Close()
		return nil, err
	}
	return place, nil
}

func (pl *WorkPlace) open() error {
	p := pl.project
	top, err := p.w.opts.Adapter.Native(projectsDir)
	if err == nil {
		// Commands and docker go by the path, we by a handle: they must lead to one place.
		var now fs.FileInfo
		if now, err = os.Lstat(top); err == nil && (!now.IsDir() || !os.SameFile(now, p.w.info)) {
			err = tree.ErrNotDir
		}
	}
	if err != nil {
		return tree.Failed(err, "%s is not the directory that it was when core-api started: restart core-api", top)
	}
	pl.Path = filepath.Join(top, p.id, workDir)
	if pl.Mount, err = p.w.opts.Adapter.DockerMount(projectsDir, p.id, workDir); err != nil {
		return tree.Failed(err, "the project's path cannot be given to docker")
	}
	if p.w.opts.UID >= 0 && os.Geteuid() == 0 {
		pl.UID, pl.GID = p.w.opts.UID, p.w.opts.GID
	}
	if pl.Dir, err = p.openWork(); err != nil {
		return err
	}
	if pl.seen, err = pl.identity(); err != nil {
		return err
	}
	if held, err := pl.Dir.Stat("."); err != nil || !os.SameFile(held, pl.seen.infos[1]) {
		return tree.Failed(errors.Join(tree.ErrSwapped, err), "work of project %s was exchanged while it was opened; try again", p.id)
	}
	return nil
}

func (pl *WorkPlace) identity() (identity, error) {
	root, err := pl.project.open()
	if err != nil {
		return identity{}, err
	}
	defer root.Close()
	names := []string{".", workDir}
	var seen identity
	for _, name := range names {
		fi, err := root.Lstat(name)
		if err != nil {
			return identity{}, tree.Failed(err, "a directory of project %s is gone", pl.project.id)
		}
		seen.infos = append(seen.infos, fi)
	}
	seen.made = tree.Births(root, names)
	return seen, nil
}

// Intact reports whether what lies at Path is still what Dir has open: work/ that was removed and made again has the same path and is
// another directory.
func (pl *WorkPlace) Intact() bool {
	now, err := pl.identity()
	return err == nil && now.is(pl.seen)
}

// Close gives it up. Safe to call twice.
func (pl *WorkPlace) Close() {
	if pl.Dir != nil {
		pl.Dir.Close()
	}
	pl.release()
}
