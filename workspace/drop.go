package workspace

import (
	"context"
	"errors"
	"io/fs"
)

// DropArtifacts removes artifacts/<exec_id>/ of an exec that was never run. A directory that is not there is no error.
func (p *Project) DropArtifacts(execID string) error {
	if err := checkExecID(execID); err != nil {
		return err
	}
	root, err := p.open()
	if err != nil {
		return err
	}
	defer root.Close()
	artifacts, _, err := openDir(root, artifactsDir)
	if err != nil {
		return failed(err, "artifacts of project %s is a link or no directory: remove what is in its place", p.id)
	}
	defer artifacts.Close()
	if _, err := RemoveTree(context.Background(), artifacts, execID); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return failed(err, "the artifacts directory of exec %s cannot be removed", execID)
	}
	return nil
}
