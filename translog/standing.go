package translog

import (
	"context"
	"crypto/sha256"
	"fmt"

	"secbox/audit"
	"secbox/translog/proof"
	"secbox/translog/verify"
)

// Difference is a piece of evidence that is not as the log says.
type Difference = verify.Difference

// Standing is how the row of an exec and its events stand to the log.
type Standing struct {
	Index       int64        // in the log, of the newest event; -1: the log does not have all events yet
	Differences []Difference // as a verification reports them; they mean that the database was changed
}

// Standing compares a row with the exec's events, and these with their entries. It reads no tree: only a proof shows that the signed checkpoint has
// the entries. A row that changed since it was read differs.
func (l Log) Standing(ctx context.Context, row audit.Record) (Standing, error) {
	events, err := l.Store.History(ctx, row.ExecID)
	if err != nil {
		return Standing{}, err
	}
	state, err := l.Store.State(ctx) // after the events, so that it has their entries
	if err != nil {
		return Standing{}, err
	}
	s := Standing{Index: -1}
	subject := verify.Subject{Source: string(Execs), Key: row.ExecID, Row: &row}
	all := len(events) > 0
	for _, e := range events[:min(len(events), maxHistory)] {
		d := verify.Document{Seq: e.Seq, Index: e.Index, Salt: e.Salt, Event: e.document()}
		subject.Documents = append(subject.Documents, d)
		if logged := e.Index >= 0 && e.Index < state.Size; !logged {
			all = false
			continue
		}
		s.Index = max(s.Index, e.Index)
		found, err := l.compareEntry(ctx, d)
		if err != nil {
			return Standing{}, err
		}
		s.Differences = append(s.Differences, found...)
	}
	if !all {
		s.Index = -1
	}
	s.Differences = append(s.Differences, verify.CompareExec(subject)...)
	return s, nil
}

// compareEntry returns a difference if an event is not the one of its entry.
func (l Log) compareEntry(ctx context.Context, d verify.Document) ([]Difference, error) {
	entries, err := l.Store.Entries(ctx, d.Index, 1)
	if err != nil {
		return nil, err
	}
	found := Difference{ExecID: d.Event.ExecID, What: fmt.Sprintf("event %d (%s)", d.Seq, d.Event.Kind), Expected: fmt.Sprintf("that of entry %d of the log", d.Index), Found: "another one"}
	if len(d.Salt) != proof.SaltSize || len(entries) == 0 {
		found.Found = "one without an entry"
	} else if [sha256.Size]byte(proof.Entry(d.Salt, d.Event.Canonical())) == entries[0] {
		return nil, nil
	}
	return []Difference{found}, nil
}
