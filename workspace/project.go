package workspace

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"time"

	"secbox/fault"
	"secbox/workspace/tree"
)

// Project is one project's directory. It holds no handle; every call opens the directory again. It
// is safe for concurrent use.
type Project struct {
	w     *Workspace
	id    string
	state *projectState
}

// ID is the project's id.
func (p *Project) ID() string { return p.id }

// Owner is the user that files in work/ belong to.
func (p *Project) Owner() tree.Owner { return p.w.owner() }

// ArtifactsPath is the path of an exec's artifacts relative to the workspace root, with slashes.
func (p *Project) ArtifactsPath(execID string) string {
	return projectsDir + "/" + p.id + "/" + artifactsDir + "/" + execID
}

// staleStaging is the age at which files in .staging are leftovers of a crash: writing inputs takes
// seconds.
const staleStaging = time.Hour

func (p *Project) open() (*os.Root, error) {
	root, _, err := tree.OpenDir(p.w.projects, p.id)
	if err != nil {
		if errors.Is(err, fs.ErrNotExist) {
			return nil, fault.Wrap(fault.UnknownArtifact, err, "the project's directory is gone")
		}
		return nil, damaged(err, "the directory of project %s is a link or cannot be opened: remove the link or file in its place", p.id)
	}
	return root, nil
}

// prepare makes the missing directories of the project and refuses links and files in their place.
func (p *Project) prepare() error {
	root, err := p.open()
	if err != nil {
		return err
	}
	defer root.Close()
	for _, name := range []string{inputsDir, workDir, artifactsDir} {
		err := tree.RealDir(root, name)
		if errors.Is(err, fs.ErrNotExist) && name == workDir {
			if err := p.Unpack(context.Background()); err != nil {
				return err
			}
			err = tree.RealDir(root, name)
		}
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
			return damaged(err, "%s of project %s is not a directory: remove the link or file in its place", name, p.id)
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

// openArtifacts opens artifacts/, where every exec has a directory, after it has checked the form
// of an exec's id.
func (p *Project) openArtifacts(execID string) (*os.Root, error) {
	if err := checkExecID(execID); err != nil {
		return nil, err
	}
	return p.openPart(artifactsDir)
}

// openPart opens inputs/, work/ or artifacts/.
func (p *Project) openPart(name string) (*os.Root, error) {
	root, err := p.open()
	if err != nil {
		return nil, err
	}
	defer root.Close()
	dir, err := p.openDir(root, name)
	if name == workDir && errors.Is(err, fs.ErrNotExist) {
		if err := p.Unpack(context.Background()); err != nil {
			return nil, err
		}
		return p.openDir(root, name)
	}
	return dir, err
}

// openDir is openPart with the project open.
func (p *Project) openDir(root *os.Root, name string) (*os.Root, error) {
	dir, _, err := tree.OpenDir(root, name)
	if err != nil {
		return nil, damaged(err, "%s of project %s is not a directory: remove the link or file in its place", name, p.id)
	}
	return dir, nil
}

// NewArtifacts makes artifacts/<exec_id>/, owned by the container's user. An empty one, which a
// node made that died before it could start the exec, is replaced; one with content is an error.
func (p *Project) NewArtifacts(execID string) error {
	artifacts, err := p.openArtifacts(execID)
	if err != nil {
		return err
	}
	defer artifacts.Close()
	err = p.w.owner().MakeDir(artifacts, execID)
	if errors.Is(err, fs.ErrExist) && p.DropUnused(execID) == nil {
		err = p.w.owner().MakeDir(artifacts, execID)
	}
	return wrapFailed(err, "the artifacts directory of exec %s cannot be made, or has content already", execID)
}

// DropArtifacts removes artifacts/<exec_id>/ of an exec that never ran. A missing one is not an
// error.
func (p *Project) DropArtifacts(execID string) error {
	artifacts, err := p.openArtifacts(execID)
	if err != nil {
		return err
	}
	defer artifacts.Close()
	if _, err := tree.RemoveTree(context.Background(), artifacts, execID); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return tree.Failed(err, "the artifacts directory of exec %s cannot be removed", execID)
	}
	return nil
}

// DropUnused removes artifacts/<exec_id>/ if it is empty, as it is before a job has run in it. A
// missing one is not an error.
func (p *Project) DropUnused(execID string) error {
	artifacts, err := p.openArtifacts(execID)
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

// Level is a container's access to one of the three directories.
type Level int

// The levels.
const (
	None      Level = iota // not mounted
	ReadOnly               // mounted read-only
	ReadWrite              // mounted read-write
)

// Access is a container's access to the three directories.
type Access struct{ Inputs, Work, Artifacts Level }

// FullAccess is the access without restrictions by a policy.
var FullAccess = Access{Inputs: ReadOnly, Work: ReadWrite, Artifacts: ReadWrite}

// Mount is one mount. It has the fields of engine.Mount, so that it can be converted.
type Mount struct {
	Source   string `json:"source"` // as docker takes it
	Target   string `json:"target"`
	ReadOnly bool   `json:"read_only"`
}

// Targets returns the targets of Mounts that are not below /workspace.
func (p *Project) Targets() []string {
	if p.tool() != nil {
		return []string{ToolTarget}
	}
	return nil
}

// Mounts returns the mounts of an exec. Every source is inputs, work or artifacts/<exec_id> of
// this project and, from the workspace root down, a real directory now; else there is an error and
// the exec must not start. Inputs are never writable: ReadWrite means ReadOnly for them. A user's
// workspace also mounts the installation's tool.
func (p *Project) Mounts(execID string, a Access) ([]Mount, error) {
	if err := checkExecID(execID); err != nil {
		return nil, err
	}
	if _, err := p.w.checkRoot(); err != nil {
		return nil, err
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
			return nil,
				damaged(err, "%s of project %s is not a directory, so the exec was not started: remove the link or file in its place",
					m.source[0], p.id)
		}
		source, err := p.w.opts.Adapter.DockerMount(append([]string{projectsDir, p.id}, m.source...)...)
		if err != nil {
			return nil, tree.Failed(err, "docker cannot take the path of project %s", p.id)
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
