package translog

import (
	"context"
	"crypto/sha256"
	"fmt"
	"sort"
	"time"

	"github.com/transparency-dev/merkle/compact"
	"golang.org/x/mod/sumdb/tlog"

	"secbox/audit/translog/proof"
	"secbox/audit/translog/verify"
)

// Section is a part of the log at a checkpoint: the entries from First to End-1.
type Section struct {
	Origin     string
	Checkpoint string
	Tree       tlog.Tree
	First, End int64

	log    Log
	hashes tlog.HashReader
}

// sectionMargin is how far the clocks of nodes may differ, and how long an event may wait for its
// entry, so that a section has the events of its time.
const sectionMargin = time.Minute

// Section returns the part of the log that was made in a time, from an entry before it to an entry
// after it, if there are such. Its checkpoint is a cosigned one if that has the section, else the
// newest. Section waits for a cosigned one, but no longer than patience. fault.NotLogged for an
// empty log.
func (l Log) Section(ctx context.Context, since, until time.Time, patience time.Duration) (Section, error) {
	state, err := l.Store.State(ctx)
	if err == nil && state.Size == 0 {
		err = notLogged("the transparency log is empty yet; try again when a first exec has been recorded")
	}
	if err != nil {
		return Section{}, err
	}
	s := Section{log: l}
	if s.First, err = l.loggedFrom(ctx, state.Size, since.Add(-sectionMargin)); err == nil {
		s.End, err = l.loggedFrom(ctx, state.Size, until.Add(sectionMargin))
	}
	if err != nil {
		return Section{}, err
	}
	if err := s.widen(ctx, state.Size); err != nil {
		return Section{}, err
	}
	if err := l.Cosigner.await(ctx, s.End, patience); err != nil {
		return Section{}, err
	}
	state = l.cosigned(state, s.End-1)
	s.Checkpoint, s.Tree, s.hashes = state.Checkpoint, tlog.Tree{N: state.Size, Hash: state.Root}, tree(ctx, l.Store, state)
	key, err := l.Key()
	if err != nil {
		return Section{}, err
	}
	s.Origin = key.Signer.Name()
	return s, nil
}

// Until returns the newest entries that were made until a time, at most most; none of an empty
// log.
func (l Log) Until(ctx context.Context, until time.Time, most int64) (Section, error) {
	state, err := l.Store.State(ctx)
	if err != nil {
		return Section{}, err
	}
	s := Section{log: l, Tree: tlog.Tree{N: state.Size, Hash: state.Root}, End: state.Size}
	if until = until.Add(sectionMargin); until.Before(state.SignedAt) {
		s.End, err = l.loggedFrom(ctx, state.Size, until)
	}
	s.First = max(0, s.End-most)
	return s, err
}

// sectionEdge is how far an entry is looked for that has not lost its event.
const sectionEdge = 4096

// widen adds the nearest entries before and after the section that still have their event, and so
// tell when they were made; if there are none, any.
func (s *Section) widen(ctx context.Context, size int64) error {
	first, end := min(s.First, s.End), max(s.First, s.End) // times fall when a clock is set back
	_, before, err := s.log.Store.Kept(ctx, max(0, first-sectionEdge), first)
	if err != nil {
		return err
	}
	after, _, err := s.log.Store.Kept(ctx, end, min(size, end+sectionEdge))
	if err != nil {
		return err
	}
	if s.First = before; before < 0 {
		s.First = max(0, first-1)
	}
	if s.End = after + 1; after < 0 {
		s.End = min(size, end+1)
	}
	return nil
}

// loggedFrom returns the index of the first entry that was made at a time or later.
func (l Log) loggedFrom(ctx context.Context, size int64, at time.Time) (int64, error) {
	var failed error
	index := sort.Search(int(size), func(i int) bool {
		if failed != nil {
			return false
		}
		logged, err := l.Store.LoggedAt(ctx, int64(i))
		failed = err
		return !logged.Before(at)
	})
	return int64(index), failed
}

// SectionEntry is an entry of a section. Its event is empty if the database does not have the one
// that the log has.
type SectionEntry struct {
	Hash     [sha256.Size]byte // of the entry, not of the leaf
	Event    string            // canonical
	Salt     []byte
	AdminSeq int64 // of an administrative event; 0: it is of an exec
}

// SectionPage is a page of a section.
type SectionPage struct {
	Entries     []SectionEntry // from the page's first index on
	Next        int64          // the first index of the next page
	Later       []Later        // events of the page's execs after the section
	Differences []Difference   // of the page's execs and events
}

// Later is an event of an exec.
type Later struct {
	ExecID string
	Index  int64
}

// Page returns entries from an index on, and compares their execs as a verification does.
func (s Section) Page(ctx context.Context, from int64) (SectionPage, error) {
	return s.page(ctx, from, s.End)
}

// page returns entries from an index on and before another one.
func (s Section) page(ctx context.Context, from, end int64) (SectionPage, error) {
	read, err := s.log.Store.Logged(ctx, from, s.End)
	if err != nil {
		return SectionPage{}, err
	}
	page := SectionPage{Next: min(read.NextIndex, end)}
	stored, err := s.log.Store.Entries(ctx, from, int(page.Next-from))
	if err != nil {
		return SectionPage{}, err
	}
	if page.Next <= from || int64(len(stored)) != page.Next-from {
		return SectionPage{}, damaged(fmt.Errorf("the database has %d entries from %d on", len(stored), from))
	}
	page.Entries = make([]SectionEntry, len(stored))
	for i, hash := range stored {
		page.Entries[i].Hash = hash
	}
	for _, x := range read.Execs {
		if page.addExec(x, from, s) {
			subject := verify.Subject{Source: string(Execs), Key: x.ID, Row: x.Row}
			for _, e := range x.Events[:min(len(x.Events), maxHistory)] {
				d := verify.Document{Seq: e.Seq, Index: e.Index, Salt: e.Salt, Event: e.document()}
				subject.Documents = append(subject.Documents, d)
			}
			if err := s.log.addTraffic(ctx, &subject); err != nil {
				return SectionPage{}, err
			}
			page.Differences = append(page.Differences, verify.CompareExec(subject)...)
		}
	}
	for _, e := range read.Admin {
		page.add(e, from)
	}
	return page, nil
}

// addExec adds the events of an exec, and reports whether the page has one of them.
func (p *SectionPage) addExec(x Exec, from int64, s Section) (has bool) {
	var later []Later
	for _, e := range x.Events[:min(len(x.Events), maxHistory)] {
		has = p.add(e, from) || has
		if e.Index >= s.End && e.Index < s.Tree.N {
			later = append(later, Later{x.ID, e.Index})
		}
	}
	if has {
		p.Later = append(p.Later, later...)
	}
	return has
}

// add adds an event, if it is of the page and the one that its entry has.
func (p *SectionPage) add(e Event, from int64) bool {
	if e.Index < from || e.Index >= p.Next {
		return false
	}
	canonical := e.Canonical()
	entry := &p.Entries[e.Index-from]
	if len(e.Salt) == proof.SaltSize && proof.Entry(e.Salt, canonical) == entry.Hash {
		entry.Event, entry.Salt = string(canonical), e.Salt
		if e.Source == Admin {
			entry.AdminSeq = e.Seq
		}
		return true
	}
	p.Differences = append(p.Differences, otherEvent(e.ExecID, e.Kind, e.Seq, e.Index))
	return true
}

// Sides returns the hashes of the tree before and after the section, which give its root together
// with the entries.
func (s Section) Sides() (left, right [][]byte, err error) {
	if left, err = s.nodes(0, s.First); err == nil {
		right, err = s.nodes(s.End, s.Tree.N)
	}
	return left, right, err
}

func (s Section) nodes(begin, end int64) ([][]byte, error) {
	hashes := [][]byte{}
	for _, id := range compact.RangeNodes(uint64(begin), uint64(end), nil) {
		read, err := s.hashes.ReadHashes([]int64{tlog.StoredHashIndex(int(id.Level), int64(id.Index))})
		if err != nil {
			return nil, damaged(err)
		}
		hashes = append(hashes, read[0][:])
	}
	return hashes, nil
}

// Proven is an event with its place in the log.
type Proven struct {
	Index int64
	Event string // canonical
	Salt  []byte
	Path  [][]byte
}

// Indexes returns where the log of the section has the events of an exec, and how many it does not
// have.
func (s Section) Indexes(ctx context.Context, execID string) (indexes []int64, lacking int, err error) {
	events, err := s.log.Store.History(ctx, execID)
	for _, e := range events[:min(len(events), maxHistory)] {
		if e.Index < 0 || e.Index >= s.Tree.N {
			lacking++
		} else {
			indexes = append(indexes, e.Index)
		}
	}
	return indexes, lacking, err
}

// AdminIndex returns where the log of the section has an administrative event, and false if it does
// not have it.
func (s Section) AdminIndex(ctx context.Context, seq int64) (index int64, has bool, err error) {
	e, err := s.log.Store.AdminEvent(ctx, seq)
	return e.Index, err == nil && e.Index >= 0 && e.Index < s.Tree.N, err
}

// At returns an entry of the log, also outside the section, with the audit path of its event, and
// compares its exec or event as Page does.
func (s Section) At(ctx context.Context, index int64) (SectionEntry, [][]byte, []Difference, error) {
	one := s
	one.End = min(index+2, s.Tree.N) // the last page of a section has more to read
	page, err := one.page(ctx, index, index+1)
	if err != nil || page.Entries[0].Event == "" {
		return SectionEntry{}, nil, page.Differences, err
	}
	path, err := tlog.ProveRecord(s.Tree.N, index, s.hashes)
	if err != nil {
		return SectionEntry{}, nil, nil, damaged(err)
	}
	hashes := make([][]byte, len(path))
	for i, hash := range path {
		hashes[i] = append([]byte{}, hash[:]...)
	}
	return page.Entries[0], hashes, page.Differences, nil
}
