package library

import (
	"context"

	"secbox/packages/repair"
	"secbox/workspace/tree"
)

// Repair makes the registry and the versions on disk agree again; see repair.Run.
func (l *Library) Repair(ctx context.Context, opts repair.Options) (repair.Report, error) {
	return repair.Run(ctx, repair.Config{
		Workspace: l.Workspace, Versions: l.Versions, Registry: l.Registry, MaxBytes: l.Limits.Bytes,
		Copy: func(agentID, userID, skillID string) (*tree.Tree, error) {
			return l.openCopy(Owner{AgentID: agentID, UserID: userID}, skillID)
		},
	}, opts)
}
