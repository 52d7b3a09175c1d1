package workspace

import (
	"io/fs"
	"os"
)

// Place is what a project has set aside for one exec that is yet to run: its artifacts directory, and what its container mounts. A
// container may wait on it for minutes, so it remembers which directories it was made of.
type Place struct {
	Mounts []Mount

	project *Project
	execID  string
	seen    []fs.FileInfo // of the project's directories, in the order of identity
}

// SetAside makes artifacts/<exec_id>/ and says what the exec's container mounts. The project's directories must exist; see Project.
func (p *Project) SetAside(execID string, a Access) (*Place, error) {
	if err := p.NewArtifacts(execID); err != nil {
		return nil, err
	}
	place := &Place{project: p, execID: execID}
	var err error
	if place.Mounts, err = p.Mounts(execID, a); err == nil {
		place.seen, err = place.identity()
	}
	if err != nil {
		_ = p.DropArtifacts(execID)
		return nil, err
	}
	return place, nil
}

// Intact reports whether the project's directories are still those that were set aside. One that was removed and made again has the
// same path and is another: a container that waits would write into the removed one. While a container holds them mounted their inode
// numbers are not given to others, so the comparison does not err.
func (pl *Place) Intact() bool {
	now, err := pl.identity()
	if err != nil || len(now) != len(pl.seen) {
		return false
	}
	for i := range now {
		if !os.SameFile(now[i], pl.seen[i]) {
			return false
		}
	}
	return true
}

// Drop removes the artifacts directory of an exec that never ran, if it is still that one and empty. What is not there is no error.
func (pl *Place) Drop() error { return pl.project.DropUnused(pl.execID) }

// identity is what tells the project's directories, and the tool's, from others at the same paths.
func (pl *Place) identity() ([]fs.FileInfo, error) {
	root, err := pl.project.open()
	if err != nil {
		return nil, err
	}
	defer root.Close()
	var seen []fs.FileInfo
	for _, name := range []string{".", inputsDir, workDir, artifactsDir, artifactsDir + "/" + pl.execID} {
		fi, err := root.Lstat(name)
		if err != nil {
			return nil, failed(err, "a directory of project %s is gone", pl.project.id)
		}
		seen = append(seen, fi)
	}
	if tool := pl.project.tool(); tool != nil {
		fi, err := tool.look()
		if err != nil {
			return nil, err
		}
		seen = append(seen, fi)
	}
	return seen, nil
}
