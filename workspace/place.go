package workspace

import (
	"io/fs"
	"os"
	"slices"

	"secbox/tree"
)

// Place is what a project has set aside for one exec that is yet to run: its artifacts directory, and what its container mounts. A
// container may wait on it for minutes, so it remembers which directories it was made of.
type Place struct {
	Mounts []Mount

	project *Project
	execID  string
	seen    identity
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

// identity is what tells the directories of a place from others at the same paths. A container that has them mounted holds their inode
// numbers; one that is only being started does not yet, or has failed and does not any more, and then a directory that is made in the place of
// a removed one may get the very same number. So the time at which each was made counts too, where the file system knows it.
type identity struct {
	infos []fs.FileInfo
	made  []int64
}

func (i identity) is(other identity) bool {
	return slices.Equal(i.made, other.made) && slices.EqualFunc(i.infos, other.infos, os.SameFile)
}

// Intact reports whether the project's directories are still those that were set aside. One that was removed and made again has the
// same path and is another: a container that waits would write into the removed one.
func (pl *Place) Intact() bool {
	now, err := pl.identity()
	return err == nil && now.is(pl.seen)
}

// Drop removes the artifacts directory of an exec that never ran, if it is still that one and empty. What is not there is no error.
func (pl *Place) Drop() error { return pl.project.DropUnused(pl.execID) }

// identity looks at the directories of the project, and of the tool.
func (pl *Place) identity() (identity, error) {
	root, err := pl.project.open()
	if err != nil {
		return identity{}, err
	}
	defer root.Close()
	var seen identity
	names := []string{".", inputsDir, workDir, artifactsDir, artifactsDir + "/" + pl.execID}
	for _, name := range names {
		fi, err := root.Lstat(name)
		if err != nil {
			return identity{}, tree.Failed(err, "a directory of project %s is gone", pl.project.id)
		}
		seen.infos = append(seen.infos, fi)
	}
	seen.made = tree.Births(root, names)
	if tool := pl.project.tool(); tool != nil {
		fi, err := tool.Check()
		if err != nil {
			return identity{}, err
		}
		seen.infos = append(seen.infos, fi)
	}
	return seen, nil
}
