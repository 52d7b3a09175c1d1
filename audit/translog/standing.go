package translog

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"time"

	"golang.org/x/mod/sumdb/tlog"

	"secbox/audit"
	"secbox/audit/translog/proof"
	"secbox/audit/translog/verify"
	"secbox/fault"
)

// Difference is a piece of evidence that is not as the log says.
type Difference = verify.Difference

// Standing is how the row of an exec and its events stand to the log.
type Standing struct {
	Index       int64        // in the log, of the newest event; -1: the log does not have all events yet
	LoggedAt    time.Time    // since when the log has the newest event
	Witnesses   []Witnessed  // in the order of the settings
	Differences []Difference // as a verification reports them; they mean that the database was changed
	Unsigned    error        // why the checkpoint's signature could not be verified: this node has no key; nil: it was
}

// Witnessed tells whether a witness has cosigned a checkpoint with the newest event, as far as this
// node knows: since its start.
type Witnessed struct {
	Name    string
	Has     bool
	Entries int64     // of the newest checkpoint that it has cosigned
	At      time.Time // of that cosignature, by the witness's clock; zero: none is known
	Key     string    // the public key; empty: a proof has no cosignature of the witness now
}

// Standing compares a row with the exec's events, these with their entries, and the entries with
// the tree that the newest checkpoint signs, all as the database has them now. It reads a few tiles
// for each event. A row that changed since it was read differs.
func (l Log) Standing(ctx context.Context, row audit.Record) (Standing, error) {
	events, err := l.Store.History(ctx, row.ExecID)
	if err != nil {
		return Standing{}, err
	}
	state, err := l.Store.State(ctx) // after the events, so that it has their entries
	if err != nil {
		return Standing{}, err
	}
	s, hashes := Standing{Index: -1, Unsigned: errNoKey}, tree(ctx, l.Store, state)
	var key Key
	if l.Key != nil {
		key, s.Unsigned = l.Key()
	}
	if s.Unsigned == nil && key.check(state) != nil {
		s.Differences = append(s.Differences, Difference{
			What: "checkpoint", Expected: "a signature of " + key.Verifier,
			Found: "another one, or of another size or root",
		})
	}
	subject := verify.Subject{Source: string(Execs), Key: row.ExecID, Row: &row}
	all := len(events) > 0
	for _, e := range events[:min(len(events), maxHistory)] {
		d := verify.Document{Seq: e.Seq, Index: e.Index, Salt: e.Salt, Event: e.document()}
		subject.Documents = append(subject.Documents, d)
		if logged := e.Index >= 0 && e.Index < state.Size; !logged {
			all = false
			continue
		}
		if e.Index > s.Index {
			s.Index, s.LoggedAt = e.Index, e.LoggedAt
		}
		found, err := l.compareEntry(ctx, hashes, d)
		if err != nil {
			return Standing{}, err
		}
		s.Differences = append(s.Differences, found...)
	}
	if !all {
		s.Index = -1
	} else if l.Cosigner != nil {
		s.Witnesses = l.Cosigner.witnessed(s.Index)
	}
	if err := l.addTraffic(ctx, &subject); err != nil {
		return Standing{}, err
	}
	s.Differences = append(s.Differences, verify.CompareExec(subject)...)
	return s, nil
}

// otherEvent is the difference of an event that does not have the hash of its entry.
func otherEvent(execID, kind string, seq, index int64) Difference {
	return Difference{
		ExecID: execID, What: fmt.Sprintf("event %d (%s)", seq, kind), Expected: fmt.Sprintf("the event of entry %d of the log", index),
		Found: "another one",
	}
}

// compareEntry returns a difference if an event does not have the hash of its entry, or the tree
// does not have the entry.
func (l Log) compareEntry(ctx context.Context, hashes tlog.HashReader, d verify.Document) ([]Difference, error) {
	entries, err := l.Store.Entries(ctx, d.Index, 1)
	if err != nil {
		return nil, err
	}
	found := otherEvent(d.Event.ExecID, string(d.Event.Kind), d.Seq, d.Index)
	if len(d.Salt) != proof.SaltSize || len(entries) == 0 {
		found.Found = "one without an entry"
		return []Difference{found}, nil
	}
	entry := [sha256.Size]byte(proof.Entry(d.Salt, d.Event.Canonical()))
	if entry != entries[0] {
		return []Difference{found}, nil
	}
	inTree, err := hashes.ReadHashes([]int64{tlog.StoredHashIndex(0, d.Index)})
	switch want := tlog.RecordHash(entry[:]); {
	case err != nil && (errors.As(err, new(*fault.Error)) || ctx.Err() != nil):
		return nil, err
	case err != nil:
		found.What, found.Expected, found.Found = fmt.Sprintf("tiles of entry %d", d.Index), "the hashes of the signed root", err.Error()
	case inTree[0] != want:
		found.What, found.Expected, found.Found = fmt.Sprintf("hash of entry %d in its tile", d.Index), want.String(), inTree[0].String()
	default:
		return nil, nil
	}
	return []Difference{found}, nil
}
