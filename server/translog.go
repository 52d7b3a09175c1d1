package server

import (
	"context"
	"errors"
	"io/fs"
	"path/filepath"
	"time"

	"secbox/fault"
	"secbox/health"
	"secbox/settings"
	"secbox/translog"
)

// openTransparencyLog makes the sequencer of the transparency log, which reads its key when it needs it. Nothing to undo.
func (s *Server) openTransparencyLog(ctx context.Context) error {
	installation, err := s.db.Audit().InstallationID(ctx)
	if err != nil {
		return err
	}
	origin := translog.Origin(installation)
	s.evidence = translog.Log{
		Store: s.db.TransparencyLog(),
		Key:   func() (translog.Key, error) { return LogKey(s.settings, origin, true) },
	}
	s.sequencer = translog.NewSequencer(translog.SequencerConfig{
		Store: s.evidence.Store, Origin: origin, Holder: s.state.NodeID(), Logger: s.log,
		Key: func(begun bool) (translog.Key, error) { return LogKey(s.settings, origin, begun) },
	})
	return nil
}

// LogKey reads the signing key of the transparency log. It creates the key unless the log has begun, since the log cannot go on with another.
func LogKey(cfg settings.Settings, origin string, begun bool) (translog.Key, error) {
	path := cfg.Audit.LogKeyFile
	if path == "" {
		path = filepath.Join(cfg.StateDir, translog.KeyFile)
	}
	key, err := translog.ReadKey(path, origin)
	if !errors.Is(err, fs.ErrNotExist) {
		return key, err
	}
	if begun {
		return key, fault.Wrap(fault.InvalidSettings, err, "the transparency log was begun with a key that is not in %s; name its file in audit.log_key_file, or restore it", path)
	}
	if key, err = translog.MakeKey(path, origin); errors.Is(err, fs.ErrExist) { // another node was faster
		return translog.ReadKey(path, origin)
	}
	return key, err
}

// auditLog measures the transparency log for health and metrics.
func (s *Server) auditLog(ctx context.Context) (health.AuditLog, error) {
	lag, err := s.evidence.Lag(ctx, time.Now())
	out := health.AuditLog{Entries: lag.Size, BehindEvents: lag.Events, BehindMS: lag.Age.Milliseconds()}
	if problem := s.sequencer.Problem(); problem != nil {
		out.Problem = fault.From(problem).Message
	}
	return out, err
}
