package translog

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"time"

	"github.com/transparency-dev/formats/log"
	"golang.org/x/mod/sumdb/note"
	"golang.org/x/mod/sumdb/tlog"

	"secbox/audit/admin"
	"secbox/audit/translog/checkpoint"
	"secbox/audit/translog/proof"
	"secbox/fault"
)

const (
	defaultPoll  = 500 * time.Millisecond
	defaultLease = 10 * time.Second

	// batch is the most entries of one transaction: on SQLite, commits of execs wait for it.
	// batchPause leaves room for them while there are more.
	batch      = 256
	batchPause = 20 * time.Millisecond

	// otherNodes is how long a node without the log's key waits for a node with the key before it
	// reports a problem.
	otherNodes = 30 * time.Second

	stepTimeout = 15 * time.Second
)

// SequencerConfig configures a Sequencer.
type SequencerConfig struct {
	Store  Store
	Origin string
	Holder string // unique among running processes, and the same after a restart: the node id
	Logger *slog.Logger

	// Key returns the signing key; made reports whether the log has one already. An error is logged
	// once, and Key is called again later.
	Key func(made bool) (Key, error)

	Poll  time.Duration    // between two searches for events; 0: 500 ms
	Lease time.Duration    // for which other sequencers wait after an append; 0: 10 s
	Now   func() time.Time // nil: time.Now
}

// Sequencer puts events into the log. Several may run at once: a lease in the database keeps them
// from doing the same work, and Store.Append lets only one of them extend a state of the log, so
// that they cannot fork it.
type Sequencer struct {
	cfg SequencerConfig

	mu      sync.Mutex
	problem error     // of the last step; nil: none
	halted  *Conflict // why no step does anything any more; nil: steps go on
	key     *Key
	newest  checkpoint.Checkpoint // that this process has signed
}

// NewSequencer returns a Sequencer. It does nothing until Run.
func NewSequencer(cfg SequencerConfig) *Sequencer {
	if cfg.Poll == 0 {
		cfg.Poll = defaultPoll
	}
	if cfg.Lease == 0 {
		cfg.Lease = defaultLease
	}
	if cfg.Now == nil {
		cfg.Now = time.Now
	}
	return &Sequencer{cfg: cfg}
}

// Run puts events into the log until ctx ends, and then the events that were written before that.
func (s *Sequencer) Run(ctx context.Context) {
	for {
		pause := s.cfg.Poll
		if s.stepAndReport(ctx) {
			pause = batchPause
		}
		select {
		case <-ctx.Done():
			s.stepAndReport(context.WithoutCancel(ctx))
			return
		case <-time.After(pause):
		}
	}
}

// Problem returns why the last attempt to extend the log failed; nil if it did not.
func (s *Sequencer) Problem() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.problem
}

// Halt ends the extension of the log until the next start, because the database does not have the
// log that was signed before.
func (s *Sequencer) Halt(why *Conflict) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.halted == nil {
		s.cfg.Logger.Error("the transparency log is not extended any more; execs go on, and their events wait", "err", why, "remedy",
			why.Remedy,
			"signed", why.Kept.Signed, "database", why.Found.Checkpoint)
		s.halted = why
	}
}

// Halted returns why the log is not extended until the next start; nil if it is.
func (s *Sequencer) Halted() *Conflict {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.halted
}

// stepAndReport logs when a problem comes and goes, not at every attempt. It returns whether there
// may be more events.
func (s *Sequencer) stepAndReport(ctx context.Context) bool {
	limited, cancel := context.WithTimeout(ctx, stepTimeout)
	defer cancel()
	_, more, err := s.step(limited)
	if err != nil && ctx.Err() != nil {
		return false
	}
	s.mu.Lock()
	before := s.problem
	s.problem = err
	s.mu.Unlock()
	switch {
	case err != nil && (before == nil || before.Error() != err.Error()):
		s.cfg.Logger.Error("the transparency log cannot be extended; execs go on, and their events wait", "err", err)
	case err == nil && before != nil:
		s.cfg.Logger.Info("the transparency log is extended again")
	}
	return more
}

// Step puts at most 256 events into the log, and returns how many. Another sequencer's turn is no
// error.
func (s *Sequencer) Step(ctx context.Context) (int, error) {
	n, _, err := s.step(ctx)
	return n, err
}

// step also returns whether there may be more events.
func (s *Sequencer) step(ctx context.Context) (n int, more bool, err error) {
	if why := s.Halted(); why != nil {
		return 0, false, why
	}
	state, err := s.cfg.Store.State(ctx)
	if err != nil {
		return 0, false, err
	}
	if newest := s.newest.Tree; state.Size < newest.N || newest.N > 0 && state.Size == newest.N && state.Root != newest.Hash {
		err := Log{Store: s.cfg.Store}.Compare(ctx, s.newest, "this process", "restart")
		if conflict := (*Conflict)(nil); errors.As(err, &conflict) {
			s.Halt(conflict)
		}
		return 0, false, err
	}
	if state.Leased && state.Holder != s.cfg.Holder {
		return 0, false, nil
	}
	found, err := s.cfg.Store.Unlogged(ctx, state.Floors, batch)
	if err != nil || len(found.Events) == 0 {
		return 0, false, err
	}
	key, err := s.signingKey(state)
	if err != nil {
		oldest := slices.MinFunc(found.Events, func(a, b Event) int { return a.At.Compare(b.At) })
		if s.cfg.Now().Sub(oldest.At) < otherNodes {
			err = nil
		}
		return 0, false, err
	}
	if err := key.check(state); err != nil {
		return 0, false, err
	}
	change, err := s.extend(ctx, state, found, key)
	if err != nil {
		return 0, false, err
	}
	appended, err := s.cfg.Store.Append(ctx, change)
	if err != nil || !appended {
		return 0, false, err
	}
	s.newest = checkpoint.Checkpoint{
		Origin: s.cfg.Origin, Tree: tlog.Tree{N: state.Size + int64(len(found.Events)), Hash: change.Root},
		Signed: change.Checkpoint,
	}
	return len(found.Events), found.More, nil
}

// signingKey returns the key, if it is the log's.
func (s *Sequencer) signingKey(state State) (Key, error) {
	if s.key == nil {
		key, err := s.cfg.Key(state.VerifierKey != "")
		if err != nil {
			return Key{}, err
		}
		s.key = &key
	}
	if key := *s.key; state.VerifierKey == "" || state.VerifierKey == key.Verifier {
		return key, nil
	}
	s.key = nil // the operator may replace the file
	return Key{}, fault.New(fault.InvalidSettings,
		"the transparency log was begun with another key (%s); restore that key, or let the node that has it run", state.VerifierKey)
}

// check refuses a state that the key has not signed.
func (k Key) check(state State) error {
	if state.Size == 0 {
		return nil
	}
	verifier, err := note.NewVerifier(k.Verifier)
	if err != nil {
		return err
	}
	signed, _, _, err := log.ParseCheckpoint([]byte(state.Checkpoint), verifier.Name(), verifier)
	if err != nil || signed.Size != uint64(state.Size) || string(signed.Hash) != string(state.Root[:]) {
		return fault.Wrap(fault.Internal, err,
			"the state of the transparency log in the database is not the one that was signed; it was altered")
	}
	return nil
}

// extend computes and signs the log with the events.
func (s *Sequencer) extend(ctx context.Context, state State, found Unlogged, key Key) (Append, error) {
	a := Append{
		Old: state, Floors: found.Floors, LoggedAt: s.cfg.Now().UTC().Truncate(time.Microsecond), VerifierKey: key.Verifier,
		Holder: s.cfg.Holder, Lease: s.cfg.Lease,
	}
	grown := &growing{old: tree(ctx, s.cfg.Store, state), hashes: map[int64]tlog.Hash{}, size: state.Size}
	for _, e := range found.Events {
		salt := make([]byte, proof.SaltSize)
		if _, err := rand.Read(salt); err != nil {
			return a, err
		}
		e.LoggedAt = a.LoggedAt
		entry := proof.Entry(salt, e.Canonical())
		if err := grown.add(entry[:]); err != nil {
			return a, damaged(err)
		}
		a.Entries = append(a.Entries, Entry{Source: e.Source, Seq: e.Seq, Salt: salt, Hash: entry})
	}
	var err error
	if a.Tiles, err = grown.tiles(state.Size); err != nil {
		return a, damaged(err)
	}
	if a.Root, err = tlog.TreeHash(grown.size, grown); err != nil {
		return a, damaged(err)
	}
	point := log.Checkpoint{Origin: s.cfg.Origin, Size: uint64(grown.size), Hash: a.Root[:]}
	signed, err := note.Sign(&note.Note{Text: string(point.Marshal())}, key.Signer)
	if err != nil {
		return a, fmt.Errorf("sign the checkpoint: %w", err)
	}
	a.Checkpoint = string(signed)
	return a, nil
}

// damaged is the error of tiles that do not match the signed root. An error of the database passes
// as it is.
func damaged(err error) error {
	if known := (*fault.Error)(nil); errors.As(err, &known) || errors.Is(err, context.Canceled) {
		return err
	}
	return fault.Wrap(fault.Internal, err, "the transparency log's tiles in the database do not match its signed root; they were altered")
}

// Canonical returns the bytes of the event that are hashed.
func (e Event) Canonical() []byte {
	if e.Source == Admin {
		return e.adminDocument().Canonical()
	}
	return e.document().Canonical()
}

func (e Event) adminDocument() proof.AdminDocument {
	return proof.AdminDocument{
		Seq: e.Seq, Kind: admin.Kind(e.Kind), At: e.At, NodeID: e.NodeID, Actor: e.Actor, Subject: e.Subject, Data: e.Data,
		LoggedAt: e.LoggedAt,
	}
}
