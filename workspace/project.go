package workspace

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"time"

	"secbox/fault"
	"secbox/tree"
)

// Project is one project's directory. It holds no handle, so there is nothing to close; every call looks at the disk anew. It is safe
// for concurrent use.
type Project struct {
	w     *Workspace
	id    string
	state *projectState
}

// ID is the project's id.
func (p *Project) ID() string { return p.id }

// Owner is the user that files in work/ belong to.
func (p *Project) Owner() tree.Owner { return p.w.owner() }

// ArtifactsPath is where an exec's artifacts are, relative to the workspace root, with slashes.
func (p *Project) ArtifactsPath(execID string) string {
	return projectsDir + "/" + p.id + "/" + artifactsDir + "/" + execID
}

// staleStaging is after how long a file in .staging belongs to nobody: writing inputs takes seconds.
const staleStaging = time.Hour

func (p *Project) open() (*os.Root, error) {
	root, _, err := tree.OpenDir(p.w.projects, p.id)
	if err != nil {
		if errors.Is(err, fs.ErrNotExist) {
			return nil, fault.Wrap(fault.UnknownArtifact, err, "the project's directory is gone")
		}
		return nil, displaced(err, "the directory of project %s is a link or cannot be opened: remove what is in its place", p.id)
	}
	return root, nil
}

// prepare makes what is missing of the project's directories and refuses what is no directory.
func (p *Project) prepare() error {
	root, err := p.open()
	if err != nil {
		return err
	}
	defer root.Close()
	for _, name := range []string{inputsDir, workDir, artifactsDir} {
		err := tree.RealDir(root, name)
		if errors.Is(err, fs.ErrNotExist) {
			if name == workDir {
				err = p.w.owner().MakeDir(root, name)
			} else {
				err = tree.MakeDir(root, name)
			}
			if err == nil || errors.Is(err, fs.ErrExist) {
				err = tree.RealDir(root, name)
			}
		}
		if errors.Is(err, tree.ErrNotDir) {
			return displaced(err, "%s of project %s is a link or no directory: remove what is in its place", name, p.id)
		}
		if err == nil && name == workDir {
			err = p.w.owner().GiveBack(root, name)
		}
		if err != nil {
			return tree.Failed(err, "%s of project %s cannot be made", name, p.id)
		}
	}
	return nil
}

// openArtifacts opens artifacts/, where every exec has a directory.
func (p *Project) openArtifacts() (*os.Root, error) {
	root, err := p.open()
	if err != nil {
		return nil, err
	}
	defer root.Close()
	artifacts, _, err := tree.OpenDir(root, artifactsDir)
	if err != nil {
		return nil, displaced(err, "artifacts of project %s is a link or no directory: remove what is in its place", p.id)
	}
	return artifacts, nil
}

// NewArtifacts makes artifacts/<exec_id>/, owned by the container's user. It must not exist yet.
func (p *Project) NewArtifacts(execID string) error {
	if err := checkExecID(execID); err != nil {
		return err
	}
	artifacts, err := p.openArtifacts()
	if err != nil {
		return err
	}
	defer artifacts.Close()
	if err := p.w.owner().MakeDir(artifacts, execID); err != nil {
		return tree.Failed(err, "the artifacts directory of exec %s cannot be made, or exists already", execID)
	}
	return nil
}

// DropArtifacts removes artifacts/<exec_id>/ of an exec that was never run. A directory that is not there is no error.
func (p *Project) DropArtifacts(execID string) error {
	if err := checkExecID(execID); err != nil {
		return err
	}
	artifacts, err := p.openArtifacts()
	if err != nil {
		return err
	}
	defer artifacts.Close()
	if _, err := tree.RemoveTree(context.Background(), artifacts, execID); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return tree.Failed(err, "the artifacts directory of exec %s cannot be removed", execID)
	}
	return nil
}

// DropUnused removes artifacts/<exec_id>/ when it is empty, as it is when no job has run in it. A project or directory that is not there
// is no error, and neither is one that somebody has put something into: it stays.
func (p *Project) DropUnused(execID string) error {
	if err := checkExecID(execID); err != nil {
		return err
	}
	artifacts, err := p.openArtifacts()
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	defer artifacts.Close()
	if fi, err := artifacts.Lstat(execID); err != nil || !fi.IsDir() {
		return nil
	}
	if err := artifacts.Remove(execID); err != nil && !errors.Is(err, fs.ErrNotExist) && !errors.Is(err, fs.ErrExist) {
		return tree.Failed(err, "the unused artifacts directory of exec %s cannot be removed", execID)
	}
	return nil
}

// Level is what a container may do with one of the three directories.
type Level int

// The levels.
const (
	None      Level = iota // not mounted
	ReadOnly               // mounted read-only
	ReadWrite              // mounted read-write
)

// Access says which directories a container gets, and how.
type Access struct{ Inputs, Work, Artifacts Level }

// FullAccess is what an exec gets when its policy takes nothing away.
var FullAccess = Access{Inputs: ReadOnly, Work: ReadWrite, Artifacts: ReadWrite}

// Mount is one bind mount; its fields are those of the engine's, so that one converts into the other.
type Mount struct {
	Source   string `json:"source"` // in the form that docker takes here
	Target   string `json:"target"`
	ReadOnly bool   `json:"read_only"`
}

// Mounts gives the bind mounts of an exec. Every source is inputs, work or artifacts/<exec_id> of this project, and is now, all the
// way down from the workspace root, a real directory and no link; otherwise there is an error and the exec must not start. Inputs are
// never writable: ReadWrite means ReadOnly for them. A workspace has one mount more, the installation's tool, by the same rule.
func (p *Project) Mounts(execID string, a Access) ([]Mount, error) {
	if err := checkExecID(execID); err != nil {
		return nil, err
	}
	// Docker goes by the path, we by a handle: they must lead to one place.
	path, err := p.w.opts.Adapter.Native(projectsDir)
	if err != nil {
		return nil, tree.Failed(err, "the workspace root cannot be used")
	}
	if now, err := os.Lstat(path); err != nil || !now.IsDir() || !os.SameFile(now, p.w.info) {
		return nil, tree.Failed(err, "%s is not the directory that it was when core-api started: restart core-api", path)
	}
	root, err := p.open()
	if err != nil {
		return nil, err
	}
	defer root.Close()

	var mounts []Mount
	for _, m := range []struct {
		level  Level
		target string
		source []string
	}{
		{min(a.Inputs, ReadOnly), "/workspace/inputs", []string{inputsDir}},
		{a.Work, "/workspace/work", []string{workDir}},
		{a.Artifacts, "/workspace/artifacts", []string{artifactsDir, execID}},
	} {
		if m.level == None {
			continue
		}
		if err := tree.RealDir(root, m.source...); err != nil {
			return nil, displaced(err, "%s of project %s is a link or no directory, so the exec was not started: remove what is in its place", m.source[0], p.id)
		}
		source, err := p.w.opts.Adapter.DockerMount(append([]string{projectsDir, p.id}, m.source...)...)
		if err != nil {
			return nil, tree.Failed(err, "the project's path cannot be given to docker")
		}
		mounts = append(mounts, Mount{Source: source, Target: m.target, ReadOnly: m.level == ReadOnly})
	}
	if tool := p.tool(); tool != nil {
		m, err := tool.Mount()
		if err != nil {
			return nil, err
		}
		mounts = append(mounts, m)
	}
	return mounts, nil
}
