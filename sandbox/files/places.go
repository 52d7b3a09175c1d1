package files

import (
	"context"

	"secbox/sandbox"
	"secbox/workspace"
)

// Workspaces are the users' workspaces on this machine, as a sandbox's Places.
type Workspaces struct{ *workspace.Workspace }

// Open implements sandbox.Places.
func (w Workspaces) Open(_ context.Context, user sandbox.User) (*sandbox.Place, error) {
	project, err := w.Project(user.ProjectID())
	if err != nil {
		return nil, err
	}
	place, err := project.WorkPlace()
	if err != nil {
		return nil, err
	}
	return &sandbox.Place{
		Dir: place.Dir, Path: place.Path, Mount: place.Mount, UID: place.UID, GID: place.GID, Intact: place.Intact, Close: place.Close,
	}, nil
}
