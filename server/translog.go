package server

import (
	"context"
	"errors"
	"io/fs"
	"log/slog"
	"path/filepath"
	"sync"
	"time"

	"secbox/audit/translog"
	"secbox/audit/translog/checkpoint"
	"secbox/fault"
	"secbox/health"
	"secbox/settings"
	"secbox/store"
)

// transparencyLog is the log with its sequencer, and what compares it with checkpoints outside the
// database.
type transparencyLog struct {
	translog.Log
	sequencer *translog.Sequencer
	anchor    *translog.Anchor // nil: none
}

// openTransparencyLog makes the sequencer of the transparency log, whose key is read once and kept
// in memory. Nothing to undo.
func (s *Server) openTransparencyLog(ctx context.Context) (err error) {
	s.transparency, err = newTransparencyLog(ctx, s.settings, s.db, s.state.NodeID(), s.log)
	s.evidence = s.transparency.Log
	return err
}

func newTransparencyLog(ctx context.Context, cfg settings.Settings, db store.Database, holder string, log *slog.Logger) (t transparencyLog,
	err error,
) {
	installation, err := db.Audit().InstallationID(ctx)
	if err != nil {
		return t, err
	}
	var witnesses []checkpoint.Witness
	for _, text := range cfg.Audit.Witnesses {
		w, err := checkpoint.ParseWitness(text)
		if err != nil {
			return t, err
		}
		witnesses = append(witnesses, w)
	}
	origin := translog.Origin(installation)
	keys := translog.NewKeys(func(begun bool) (translog.Key, error) { return LogKey(cfg, origin, begun) })
	t.Log = translog.Log{Store: db.TransparencyLog(), Key: keys.Held, Events: db.AdminEvents()}
	t.sequencer = translog.NewSequencer(translog.SequencerConfig{
		Store: t.Store, Origin: origin, Holder: holder, Logger: log,
		Key: keys.Reload,
	})
	t.Cosigner = translog.NewCosigner(translog.CosignerConfig{
		Log: t.Log, Origin: origin, Witnesses: witnesses, Verifier: keys.Verifier, Conflict: t.sequencer.Halt, Logger: log,
	})
	if cfg.Audit.AnchorDir != "" {
		t.anchor = translog.NewAnchor(translog.AnchorConfig{
			Log: t.Log, Origin: origin, Dir: cfg.Audit.AnchorDir, Every: cfg.Audit.AnchorEvery, Verifier: keys.Verifier,
			Conflict: t.sequencer.Halt, Logger: log,
		})
	}
	return t, nil
}

// CompareLog compares the transparency log with the checkpoints of the anchor and the witnesses,
// beside a server or without one, and returns what it found for health. It changes nothing.
func CompareLog(ctx context.Context, cfg settings.Settings, db store.Database) (func(context.Context) (health.AuditLog, error), error) {
	t, err := newTransparencyLog(ctx, cfg, db, "", slog.New(slog.DiscardHandler))
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, compareTimeout)
	defer cancel()
	t.Cosigner.Compare(ctx)
	if t.anchor != nil {
		t.anchor.Compare(ctx)
	}
	return func(ctx context.Context) (health.AuditLog, error) {
		out, err := t.measure(ctx)
		out.BehindEvents, out.BehindMS = 0, 0 // whether a server runs is not known here
		return out, err
	}, nil
}

// LogKey reads the signing key of the transparency log. It creates the key unless the log has
// begun, since the log cannot go on with another.
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
		return key, fault.Wrap(fault.InvalidSettings, err,
			"the transparency log was begun with a key that is not in %s; name its file in audit.log_key_file, or restore it", path)
	}
	if key, err = translog.MakeKey(path, origin); errors.Is(err, fs.ErrExist) { // another node was faster
		return translog.ReadKey(path, origin)
	}
	return key, err
}

// measure measures the log for health and metrics.
func (t transparencyLog) measure(ctx context.Context) (health.AuditLog, error) {
	lag, err := t.Lag(ctx, time.Now())
	out := health.AuditLog{Entries: lag.Size, SignedAt: lag.SignedAt, BehindEvents: lag.Events, BehindMS: lag.Age.Milliseconds()}
	if problem := t.sequencer.Problem(); problem != nil {
		out.Problem = fault.From(problem).Message
	}
	if halted := t.sequencer.Halted(); halted != nil {
		out.Halted, out.HaltedRemedy = fault.From(halted).Message, halted.Remedy
	}
	if t.anchor != nil {
		status := t.anchor.Status()
		out.AnchorDir, out.AnchoredEntries = status.Dir, status.Entries
		if status.Problem != nil {
			out.AnchorProblem = fault.From(status.Problem).Message
		}
	}
	for _, w := range t.Cosigner.Status() {
		peer := health.AuditWitness{Name: w.Name, Entries: w.Entries, Root: w.Root, CosignedAt: w.CosignedAt, Since: w.Since}
		if w.Problem != nil {
			peer.Problem, peer.ProblemFor = fault.From(w.Problem).Message, time.Since(w.Since)
		}
		out.Witnesses = append(out.Witnesses, peer)
	}
	return out, err
}

// compareTimeout is how long the log waits at the start for its comparison with the anchor and the
// witnesses. A conflict that is found later stops it then.
const compareTimeout = 5 * time.Second

// runTransparencyLog extends the log until ctx ends. First it waits for the comparison with
// checkpoints outside the database, so that the log of a database that was rolled back is not
// continued.
func (s *Server) runTransparencyLog(ctx context.Context) {
	watch, stop := context.WithCancel(context.WithoutCancel(ctx))
	var watching, comparing sync.WaitGroup
	run := func(run func(ctx context.Context, ready func())) {
		comparing.Add(1)
		watching.Go(func() { run(watch, sync.OnceFunc(comparing.Done)) })
	}
	run(s.evidence.Cosigner.Run)
	if s.transparency.anchor != nil {
		run(s.transparency.anchor.Run)
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
	s.transparency.sequencer.Run(ctx)
	stop() // after the sequencer's last checkpoint, so that it is anchored
	watching.Wait()
}
