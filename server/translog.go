package server

import (
	"context"
	"errors"
	"io/fs"
	"path/filepath"
	"sync"
	"time"

	"golang.org/x/mod/sumdb/note"

	"secbox/fault"
	"secbox/health"
	"secbox/settings"
	"secbox/translog"
	"secbox/translog/checkpoint"
)

// openTransparencyLog makes the sequencer of the transparency log, whose key is read once and kept in memory. Nothing to undo.
func (s *Server) openTransparencyLog(ctx context.Context) error {
	installation, err := s.db.Audit().InstallationID(ctx)
	if err != nil {
		return err
	}
	origin := translog.Origin(installation)
	keys := translog.NewKeys(func(begun bool) (translog.Key, error) { return LogKey(s.settings, origin, begun) })
	s.evidence = translog.Log{Store: s.db.TransparencyLog(), Key: keys.Held, Events: s.db.AdminEvents()}
	s.sequencer = translog.NewSequencer(translog.SequencerConfig{
		Store: s.evidence.Store, Origin: origin, Holder: s.state.NodeID(), Logger: s.log,
		Key: keys.Reload,
	})
	return s.watchTransparencyLog(origin, keys.Verifier)
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
	if halted := s.sequencer.Halted(); halted != nil {
		out.Halted, out.HaltedRemedy = fault.From(halted).Message, halted.Remedy
	}
	if s.anchor != nil {
		status := s.anchor.Status()
		out.AnchoredEntries = status.Entries
		if status.Problem != nil {
			out.AnchorProblem = fault.From(status.Problem).Message
		}
	}
	for _, w := range s.evidence.Cosigner.Status() {
		peer := health.AuditWitness{Name: w.Name, Entries: w.Entries}
		if w.Problem != nil {
			peer.Problem, peer.ProblemFor = fault.From(w.Problem).Message, time.Since(w.Since)
		}
		out.Witnesses = append(out.Witnesses, peer)
	}
	return out, err
}

// compareTimeout is how long the log waits at the start for its comparison with the anchor and the witnesses. A conflict that is found later
// stops it then.
const compareTimeout = 5 * time.Second

// watchTransparencyLog makes the anchor and the cosigner of the settings. Nothing to undo.
func (s *Server) watchTransparencyLog(origin string, verifier func() (note.Verifier, error)) error {
	cfg := s.settings.Audit
	var witnesses []checkpoint.Witness
	for _, text := range cfg.Witnesses {
		w, err := checkpoint.ParseWitness(text)
		if err != nil {
			return err
		}
		witnesses = append(witnesses, w)
	}
	s.evidence.Cosigner = translog.NewCosigner(translog.CosignerConfig{
		Log: s.evidence, Origin: origin, Witnesses: witnesses, Verifier: verifier, Conflict: s.sequencer.Halt, Logger: s.log,
	})
	if cfg.AnchorDir != "" {
		s.anchor = translog.NewAnchor(translog.AnchorConfig{
			Log: s.evidence, Origin: origin, Dir: cfg.AnchorDir, Every: cfg.AnchorEvery, Verifier: verifier, Conflict: s.sequencer.Halt, Logger: s.log,
		})
	}
	return nil
}

// runTransparencyLog extends the log until ctx ends. First it waits for the comparison with checkpoints outside the database, so that the log
// of a database that was rolled back is not continued.
func (s *Server) runTransparencyLog(ctx context.Context) {
	watch, stop := context.WithCancel(context.WithoutCancel(ctx))
	var watching, comparing sync.WaitGroup
	run := func(run func(ctx context.Context, ready func())) {
		comparing.Add(1)
		watching.Go(func() { run(watch, sync.OnceFunc(comparing.Done)) })
	}
	run(s.evidence.Cosigner.Run)
	if s.anchor != nil {
		run(s.anchor.Run)
	}
	compared := make(chan struct{})
	go func() {
		comparing.Wait()
		close(compared)
	}()
	select {
	case <-compared:
	case <-time.After(compareTimeout):
	case <-ctx.Done():
	}
	s.sequencer.Run(ctx)
	stop() // after the sequencer's last checkpoint, so that it is anchored
	watching.Wait()
}
