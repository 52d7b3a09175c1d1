package translog

import (
	"context"
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"

	"secbox/audit"
	"secbox/audit/translog/proof"
	"secbox/audit/translog/verify"
	"secbox/fault"
)

// overdueAfter is how long an event may wait for a log that is not extended at all, before its
// absence is a difference. The sequencer takes a second, and ten when another node takes over.
const overdueAfter = time.Minute

// Subjects implements verify.Source: one page of the database. Places are a source and the key
// after which the page begins. Execs come before administrative events, so that an exec which
// retention removes meanwhile is found, or else the event that says so.
func (l Log) Subjects(ctx context.Context, at string, each func(verify.Subject) error) (next string, err error) {
	source, after, ok := strings.Cut(at, ":")
	switch {
	case at == "":
		return l.execSubjects(ctx, "", each)
	case ok && source+":" == verify.FromPrefix:
		index, err := strconv.ParseInt(after, 10, 64)
		if err == nil && index >= 0 {
			return l.subjectsFrom(ctx, index, each)
		}
	case ok && source == string(Admin):
		seq, err := strconv.ParseInt(after, 10, 64)
		if err == nil {
			return l.adminSubjects(ctx, seq, each)
		}
	case ok && source == string(Execs):
		return l.execSubjects(ctx, after, each)
	}
	return "", fault.New(fault.InvalidRequest, "%.60q is not a place in the evidence; use the next of an answer, or %sINDEX", at,
		verify.FromPrefix)
}

func (l Log) execSubjects(ctx context.Context, after string, each func(verify.Subject) error) (next string, err error) {
	page, err := l.Store.ExecPage(ctx, after)
	next = string(Execs) + ":" + page.Next
	if page.Next == "" {
		next = adminPlace(math.MinInt64)
	}
	return next, l.each(ctx, page, err, each)
}

func (l Log) adminSubjects(ctx context.Context, from int64, each func(verify.Subject) error) (next string, err error) {
	page, err := l.Store.AdminPage(ctx, from)
	if page.NextSeq != math.MinInt64 {
		next = adminPlace(page.NextSeq)
	}
	return next, l.each(ctx, page, err, each)
}

func adminPlace(from int64) string { return fmt.Sprintf("%s:%d", Admin, from) }

func (l Log) subjectsFrom(ctx context.Context, index int64, each func(verify.Subject) error) (next string, err error) {
	state, err := l.Store.State(ctx)
	if err != nil || index > state.Size {
		return "", err
	}
	page, err := l.Store.Logged(ctx, index, state.Size)
	if page.NextIndex < state.Size {
		next = verify.From(page.NextIndex)
	}
	return next, l.each(ctx, page, err, each)
}

// each calls each for the subjects of a page, unless the page could not be read.
func (l Log) each(ctx context.Context, p EventPage, err error, each func(verify.Subject) error) error {
	if err != nil {
		return err
	}
	now := time.Now()
	for _, x := range p.Execs {
		s := verify.Subject{Source: string(Execs), Key: x.ID, Row: x.Row, Cut: len(x.Events) > maxHistory}
		s.Documents = make([]verify.Document, len(x.Events))
		for i, e := range x.Events {
			s.Documents[i] = p.evidence(e, now)
		}
		if err := l.addTraffic(ctx, &s); err != nil {
			return err
		}
		if err := each(s); err != nil {
			return err
		}
	}
	for _, e := range p.Admin {
		s := verify.Subject{Source: string(Admin), Key: adminKey(e.Seq), Documents: []verify.Document{p.evidence(e, now)}}
		if err := each(s); err != nil {
			return err
		}
	}
	return nil
}

// addTraffic sums up the connections of an ended exec whose row has a digest of them.
func (l Log) addTraffic(ctx context.Context, s *verify.Subject) (err error) {
	if s.Row != nil && s.Row.Status.Final() && s.Row.NetDigest != "" {
		s.Traffic, err = l.Store.Traffic(ctx, s.Key)
	}
	return err
}

// adminKey returns a key that is in the order of seq. A negative seq is no event's that this
// program wrote.
func adminKey(seq int64) string {
	if seq < 0 {
		return fmt.Sprintf("-%019d", seq-math.MinInt64)
	}
	return fmt.Sprintf("%019d", seq)
}

// maxHistory is more events than an exec can have.
const maxHistory = 16

// evidence returns an event of the page with its entry. Without a state, none is overdue: the
// missing state is the difference.
func (p EventPage) evidence(e Event, now time.Time) verify.Document {
	d := verify.Document{Seq: e.Seq, Index: e.Index, Overdue: !p.NoState && e.overdue(p.State, now), Salt: e.Salt}
	if e.Source == Execs {
		d.Event = e.document()
	} else {
		d.Canonical = e.Canonical()
	}
	return d
}

// overdue reports whether the log should have the event by now. A log that is being extended may
// still have to catch up, after an upgrade for example.
func (e Event) overdue(state State, now time.Time) bool {
	if e.Index >= 0 {
		return e.Index >= state.Size
	}
	return e.Seq <= state.Floors[e.Source] || now.Sub(e.At) > overdueAfter && now.Sub(state.SignedAt) > overdueAfter
}

func (e Event) document() *proof.Document {
	return &proof.Document{
		Seq: e.Seq, ExecID: e.ExecID, Kind: audit.EventKind(e.Kind), At: e.At, NodeID: e.NodeID, LoggedAt: e.LoggedAt,
		Record: e.Data,
	}
}

// Holds implements verify.HoldSource.
func (l Log) Holds(ctx context.Context) ([]verify.Hold, []proof.AdminDocument, error) {
	holds, events, err := l.Store.Holds(ctx)
	documents := make([]proof.AdminDocument, len(events))
	for i, e := range events {
		documents[i] = e.adminDocument()
	}
	return holds, documents, err
}
