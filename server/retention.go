package server

import (
	"context"
	"log/slog"
	"time"

	"secbox/audit/retention"
	"secbox/health"
	"secbox/settings"
	"secbox/store"
	"secbox/workspace"
)

// makeRetention makes the runs that remove what the settings no longer keep. Nothing to undo.
func (s *Server) makeRetention(context.Context) error {
	s.retention = NewRetention(s.settings, s.db, s.workspace, s.state.NodeID(), s.audit.SpooledIDs, s.log)
	return nil
}

// NewRetention returns the runs of the settings.
func NewRetention(cfg settings.Settings, db store.Database, files *workspace.Workspace, holder string, spooled func() []string,
	log *slog.Logger,
) *retention.Runner {
	return retention.New(retention.Config{
		Store: db.Retention(), Files: files, Holder: holder, Logger: log, Spooled: spooled,
		RecordDays: cfg.Audit.RetentionDays, ArtifactDays: cfg.Audit.ArtifactsRetentionDays, WorkspaceHours: cfg.Sandbox.WorkspaceTTLHours,
	})
}

// retained tells health and metrics what was removed.
func (s *Server) retained(ctx context.Context) (health.Retention, error) {
	r, err := s.retention.Report(ctx)
	return health.Retention{
		Enabled: r.Enabled, Running: r.Running, BeganAt: unlessZero(r.BeganAt), Records: r.Done.Records, Artifacts: r.Done.Artifacts,
		Projects: r.Done.Projects, Held: r.Done.Held, Altered: r.Done.Altered,
		Queued: r.Queued, Holds: r.Holds, NextAt: unlessZero(r.Next), Problem: r.Problem,
		TotalRecords: r.Totals.Records, TotalArtifacts: r.Totals.Artifacts, TotalProjects: r.Totals.Projects,
	}, err
}

func unlessZero(t time.Time) *time.Time {
	if t.IsZero() {
		return nil
	}
	return new(t.UTC())
}
