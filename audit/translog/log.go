// Package translog is the transparency log of an installation: a Merkle tree (RFC 6962) over the
// events of execs and the administrative events, with signed checkpoints. A client that has seen a
// checkpoint can prove later that an event was changed, removed or inserted.
//
// The events are written through packages audit and admin; the Sequencer puts them into the log
// within a second. An entry is the SHA-256 of a random salt and the event's canonical bytes, so
// that the log reveals nothing about an event, and stays whole when the event is deleted. The
// formats are C2SP's tlog-checkpoint, tlog-tiles and tlog-proof. The package knows neither SQL
// (store does) nor HTTP.
package translog

import (
	"context"
	"encoding/binary"
	"strings"
	"time"

	tproof "github.com/transparency-dev/formats/proof"
	"golang.org/x/mod/sumdb/tlog"

	"secbox/audit"
	"secbox/audit/admin"
	"secbox/audit/translog/proof"
	"secbox/fault"
)

// Log reads the log.
type Log struct {
	Store    Store
	Key      func() (Key, error) // the log's key, for Attest
	Cosigner *Cosigner           // nil: no witness is asked
	Events   Events              // nil: no key was ever replaced
}

// Events reads administrative events.
type Events interface {
	List(ctx context.Context, f admin.Filter, after *admin.Cursor, limit int) ([]admin.Event, error)
}

// State returns the state of the log. An empty log's state has no checkpoint. ErrNoState if the
// database has lost it.
func (l Log) State(ctx context.Context) (State, error) { return l.Store.State(ctx) }

// Checkpoint returns the newest checkpoint, with the cosignatures that have arrived;
// fault.NotLogged for an empty log.
func (l Log) Checkpoint(ctx context.Context) (string, error) {
	state, err := l.Store.State(ctx)
	if err == nil && state.Size == 0 {
		err = notLogged("the transparency log is empty yet; try again when a first exec has been recorded")
	}
	return l.Cosigner.Add(state.Checkpoint), err
}

// Tile returns a resource of C2SP tlog-tiles by its path below tile/, such as 0/x001/234.p/5 or
// entries/000; fault.UnknownFile if the log does not have it.
func (l Log) Tile(ctx context.Context, path string) ([]byte, error) {
	unknown := fault.New(fault.UnknownFile, "the transparency log has no tile %.60q", path)
	coordinates, entries := "tile/8/"+path, false
	if rest, ok := strings.CutPrefix(path, "entries/"); ok {
		coordinates, entries = "tile/8/data/"+rest, true
	}
	t, err := tlog.ParseTilePath(coordinates)
	if err != nil || (t.L < 0) != entries || t.N > maxTile {
		return nil, unknown
	}
	if entries {
		return l.bundle(ctx, t, unknown)
	}
	hashes, err := l.Store.Tile(ctx, t.L, t.N)
	if err != nil {
		return nil, err
	}
	if len(hashes) < t.W*tlog.HashSize {
		return nil, unknown
	}
	return hashes[:t.W*tlog.HashSize], nil
}

// maxTile is beyond the last tile of any log, and keeps indexes from overflowing.
const maxTile = 1 << 40

// bundle returns entries, each after its length in two bytes.
func (l Log) bundle(ctx context.Context, t tlog.Tile, unknown error) ([]byte, error) {
	entries, err := l.Store.Entries(ctx, t.N<<TileHeight, t.W)
	if err != nil {
		return nil, err
	}
	if len(entries) < t.W {
		return nil, unknown
	}
	var b []byte
	for _, e := range entries {
		b = binary.BigEndian.AppendUint16(b, uint16(len(e)))
		b = append(b, e[:]...)
	}
	return b, nil
}

// Prove returns a file that proves the record's events; fault.NotLogged while the log does not have
// all of them. Its checkpoint is a cosigned one if that has the events, else the newest.
func (l Log) Prove(ctx context.Context, r audit.Record) ([]byte, error) {
	events, err := l.Store.History(ctx, r.ExecID)
	if err != nil {
		return nil, err
	}
	// After the events, so that it has their entries.
	state, err := l.Store.State(ctx)
	if err != nil {
		return nil, err
	}
	if len(events) > 0 {
		state = l.cosigned(state, events[len(events)-1].Index)
	}
	hashes := tree(ctx, l.Store, state)
	var proofs []proof.Event
	for _, e := range events {
		p, err := prove(state, hashes, e)
		if err != nil {
			return nil, err
		}
		proofs = append(proofs, p)
	}
	if len(proofs) == 0 {
		return nil, noEvents()
	}
	f, err := proof.NewFile(r, proofs)
	if err != nil {
		return nil, err
	}
	return f.Marshal()
}

// cosigned returns the state of a cosigned checkpoint that has the entry with this index, or else
// the newest one.
func (l Log) cosigned(newest State, index int64) State {
	if best, found := l.Cosigner.Best(index + 1); found && best.Tree.N <= newest.Size {
		newest.Size, newest.Root, newest.Checkpoint = best.Tree.N, best.Tree.Hash, best.Signed
	}
	return newest
}

// prove returns the proof of one event at the state's checkpoint.
func prove(state State, hashes tlog.HashReader, e Event) (proof.Event, error) {
	if e.Index < 0 || e.Index >= state.Size {
		return proof.Event{}, notYet()
	}
	if len(e.Salt) == 0 {
		return proof.Event{}, fault.New(fault.Internal, "the salt of the event is missing")
	}
	path, err := tlog.ProveRecord(state.Size, e.Index, hashes)
	if err != nil {
		return proof.Event{}, damaged(err)
	}
	p := tproof.TLogProof{Index: uint64(e.Index), Checkpoint: []byte(state.Checkpoint)}
	for _, h := range path {
		p.Hashes = append(p.Hashes, h)
	}
	return proof.Event{Event: string(e.Canonical()), Salt: e.Salt, TLogProof: string(p.Marshal())}, nil
}

// ProveAdmin returns a file that proves an administrative event; fault.UnknownEvent if there is
// none with this seq, and fault.NotLogged while the log does not have it.
func (l Log) ProveAdmin(ctx context.Context, seq int64) ([]byte, error) {
	e, err := l.Store.AdminEvent(ctx, seq)
	if err != nil {
		return nil, err
	}
	state, err := l.Store.State(ctx)
	if err != nil {
		return nil, err
	}
	state = l.cosigned(state, e.Index)
	p, err := prove(state, tree(ctx, l.Store, state), e)
	if err != nil {
		return nil, err
	}
	return proof.NewAdminFile(p).Marshal()
}

func noEvents() error { return notLogged("the exec has no events yet; try again in a second") }

func notYet() error {
	return notLogged("the transparency log does not have the newest event yet; try again in a second")
}

func notLogged(message string) error {
	return &fault.Error{Code: fault.NotLogged, Message: message, RetryAfter: time.Second}
}

// Lag is how far the log is behind the events.
type Lag struct {
	Size     int64         // entries of the log
	SignedAt time.Time     // of the newest checkpoint
	Events   int           // that the log does not have; no more than MaxLag are counted
	Age      time.Duration // of the first of them
}

// MaxLag bounds Lag.Events.
const MaxLag = 10_000

// Lag returns how far the log is behind.
func (l Log) Lag(ctx context.Context, now time.Time) (Lag, error) {
	state, err := l.Store.State(ctx)
	if err != nil {
		return Lag{}, err
	}
	n, oldest, err := l.Store.Behind(ctx, MaxLag)
	lag := Lag{Size: state.Size, SignedAt: state.SignedAt, Events: n}
	if n > 0 {
		lag.Age = max(0, now.Sub(oldest))
	}
	return lag, err
}
