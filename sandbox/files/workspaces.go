package files

import (
	"context"

	"secbox/sandbox"
	"secbox/workspace"
)

// Workspaces implements sandbox.Directories with the users' workspaces on this machine.
type Workspaces struct{ *workspace.Workspace }

// Open implements sandbox.Directories.
func (w Workspaces) Open(_ context.Context, user sandbox.User) (*sandbox.Directory, error) {
	project, err := w.Project(user.ProjectID())
	if err != nil {
		return nil, err
	}
	work, err := project.WorkDir()
	if err != nil {
		return nil, err
	}
	return &sandbox.Directory{
		Root: work.Dir, Path: work.Path, Mount: work.Mount, UID: work.UID, GID: work.GID, LockEdits: work.LockEdits, Intact: work.Intact,
		Close: work.Close,
	}, nil
}
