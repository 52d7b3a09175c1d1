package server

import (
	"context"
	"errors"
	"io/fs"

	"secbox/api"
	"secbox/audit"
	"secbox/fault"
	"secbox/sandbox/places"
	"secbox/workspace"
	"secbox/workspace/tree"
)

// projects implements api.Projects.
type projects struct{ *Server }

// Files implements api.Projects.
func (p projects) Files(projectID string, create bool) (places.Files, error) {
	open := p.workspace.Existing
	if create {
		open = p.workspace.Project
	}
	project, err := open(projectID)
	if err != nil {
		return nil, unknownProject(err, projectID)
	}
	return places.Project{Of: project, Room: p.disk.Room}, nil
}

// mostMeasured is how many files and directories one list of projects measures.
const mostMeasured = 100_000

// List implements api.Projects.
func (p projects) List(ctx context.Context, after string, limit int, may func(string) bool) (list []api.Project, more bool, err error) {
	ids, more, err := p.workspace.ProjectIDs(after, limit, may)
	if err != nil {
		return nil, false, err
	}
	left := int64(mostMeasured)
	for _, id := range ids {
		one := api.Project{ID: id}
		newest, _, err := p.audit.List(ctx, audit.Filter{ProjectID: id}, nil, 1)
		if err != nil {
			return nil, false, err
		}
		if len(newest) > 0 {
			one.UsedAt = newest[0].CreatedAt
		}
		if project, err := p.workspace.Existing(id); err == nil && left > 0 {
			usage, err := project.FilesUsage(ctx, left)
			if left -= usage.Entries; err == nil && usage.Cut == tree.CutNone {
				one.Bytes = &usage.Bytes
			}
		}
		list = append(list, one)
	}
	return list, more, context.Cause(ctx)
}

// Remove implements api.Projects. It goes on if the client hangs up.
func (p projects) Remove(ctx context.Context, projectID string) (int64, error) {
	ctx = context.WithoutCancel(ctx)
	_, user, _ := workspace.SplitWorkspaceID(projectID)
	project, err := p.workspace.Existing(projectID)
	if err != nil {
		return 0, unknownProject(err, projectID)
	}
	refused := project.ExecRuns()
	bytes, found, err := p.workspace.RemoveProject(ctx, projectID, func(bytes int64) (ok bool, err error) {
		ok, err = p.db.Retention().RemoveProject(ctx, projectID, user, bytes)
		refused = refused || !ok
		return ok, err
	})
	if err == nil && !found && (refused || project.ExecRuns()) {
		err = fault.New(fault.ProjectInUse,
			"project %s has execs or sessions that run or wait, or is held, and nothing was removed; end them, and see GET /audit/holds", projectID)
	}
	return bytes, err
}

func unknownProject(err error, projectID string) error {
	if errors.Is(err, fs.ErrNotExist) {
		return fault.Wrap(fault.UnknownFile, err, "there is no project %s on the disk; an exec in it makes it, and so does a file that is written",
			projectID)
	}
	return err
}
