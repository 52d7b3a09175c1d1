package verify

import (
	"context"
	"crypto/sha256"
	"fmt"
	"math"
	"strconv"
	"strings"

	"golang.org/x/mod/sumdb/tlog"

	"secbox/audit"
	"secbox/audit/translog/proof"
	"secbox/fault"
)

// Bounds of the subjects that one goroutine compares at once.
const (
	batch      = 64
	batchBytes = 1 << 20
)

// rules compare the documents of a subject with each other and with its row, by source. Documents
// of a source without a rule are only compared with their entries.
var rules = map[string]func(r *run, s Subject, f *findings){
	SourceExec:  compareExec,
	SourceAdmin: compareAdmin,
}

// findings are of some subjects.
type findings struct {
	differences []Difference
	removals    []removal
	begun       int64
	sum         Summary
}

func (f *findings) add(execID, what, expected, found string) {
	f.differences = append(f.differences, Difference{ExecID: execID, What: what, Expected: expected, Found: found})
}

// readSubjects compares all subjects, or only subjects with new entries. Results come in the order
// of subjects.
func (r *run) readSubjects(ctx context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	r.removals.begun = r.leaves.base == 0
	older := r.older(ctx)
	batches, failed := make(chan []Subject), make(chan error, 1)
	go func() {
		defer close(batches)
		failed <- r.produce(ctx, batches)
	}()
	return inOrder(ctx, func(ctx context.Context) (func(context.Context) (findings, error), error) {
		var subjects []Subject
		select {
		case some, more := <-batches:
			if !more {
				return nil, <-failed
			}
			subjects = some
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		}
		return func(ctx context.Context) (findings, error) { return r.compare(ctx, older, subjects) }, nil
	}, func(f findings) error {
		r.begun += f.begun
		r.sum.Execs += f.sum.Execs
		r.sum.Events += f.sum.Events
		r.sum.Pending += f.sum.Pending
		r.sum.ColumnsNewer += f.sum.ColumnsNewer
		r.sum.ArtifactFiles += f.sum.ArtifactFiles
		for _, d := range f.differences {
			r.report(d)
		}
		for _, e := range f.removals {
			r.addRemoval(e)
		}
		r.progress()
		return nil
	})
}

// produce reads the subjects.
func (r *run) produce(ctx context.Context, batches chan<- []Subject) error {
	p := producer{run: r, batches: batches, whole: r.leaves.base == 0}
	p.logged, p.unlogged = r.size, maxUnlogged
	if !p.whole {
		p.logged *= maxTimes
	}
	at := ""
	if !p.whole {
		at = From(r.leaves.base)
	}
	for empty := 0; ; {
		before := p.logged + p.unlogged
		next, err := r.source.Subjects(ctx, at, func(s Subject) error { return p.add(ctx, s) })
		if err != nil {
			return err
		}
		if next == "" || !p.whole && p.beyond(next) {
			return p.send(ctx)
		}
		if empty++; p.logged+p.unlogged < before {
			empty = 0
		}
		if !p.follows(at, next, empty) {
			return fault.New(fault.InvalidProof, "the evidence does not go on after %s", Printable(at))
		}
		at = next
	}
}

// Bounds of the evidence of a whole run, for a server that sends without end.
const (
	// maxTimes is how often a run over new entries may get the document of one entry. An exec with
	// a new entry comes with all its events, at most four, and it comes again for each of them that
	// is new.
	maxTimes = 4

	maxUnlogged   = 10_000_000 // documents that the log does not have yet; after an upgrade, an older version's documents
	maxSubject    = 8 << 20    // bytes of memory: records have at most some 300 KiB, and so has their first event, as JSON
	maxEmptyPages = 3          // in a row
)

// producer passes on subjects in batches.
type producer struct {
	*run
	batches  chan<- []Subject
	logged   int64 // documents with an entry that may still come
	unlogged int64 // the same of other documents, and subjects without one
	whole    bool  // all subjects are asked for, which come in their order
	last     Subject
	subjects []Subject
	bytes    int
}

func (p *producer) add(ctx context.Context, s Subject) error {
	switch last := p.last; {
	case s.Source != SourceExec && s.Source != SourceAdmin:
		return fault.New(fault.InvalidProof, "the evidence has the unknown source %s; use a secbox of the server's version",
			Printable(s.Source))
	case p.whole && (s.Source == last.Source && s.Key <= last.Key || s.Source == SourceExec && last.Source == SourceAdmin):
		return fault.New(fault.InvalidProof, "the evidence is not in order: %s %s comes after %s %s", s.Source, Printable(s.Key),
			last.Source, Printable(last.Key))
	}
	p.last = Subject{Source: s.Source, Key: s.Key}
	size := s.size()
	if len(s.Documents) == 0 {
		p.unlogged--
	}
	for _, d := range s.Documents {
		if d.Index >= 0 && d.Index < p.size {
			p.logged--
		} else {
			p.unlogged--
		}
	}
	if p.logged < 0 || p.unlogged < 0 || size > maxSubject {
		return fault.New(fault.InvalidProof, "the evidence has more than a log of %d entries can have", p.size)
	}
	p.subjects = append(p.subjects, s)
	if p.bytes += size; len(p.subjects) >= batch || p.bytes >= batchBytes {
		return p.send(ctx)
	}
	return nil
}

func (p *producer) send(ctx context.Context) error {
	select {
	case p.batches <- p.subjects:
		p.subjects, p.bytes = make([]Subject, 0, batch), 0
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// follows reports whether a page comes after another. empty is how many pages in a row had no
// subjects: of whole evidence, whose subjects ascend, only the first of a source can be empty.
func (p *producer) follows(at, next string, empty int) bool {
	if p.whole {
		return empty <= maxEmptyPages
	}
	before, ok := place(at)
	after, ascends := place(next)
	return ok && ascends && before < after
}

// beyond reports whether a page is only of entries that the log got after the checkpoint.
func (p *producer) beyond(next string) bool {
	index, ok := place(next)
	return ok && index >= p.size
}

// place is the reverse of From.
func place(at string) (index int64, ok bool) {
	text, ok := strings.CutPrefix(at, FromPrefix)
	index, err := strconv.ParseInt(text, 10, 64)
	return index, ok && err == nil
}

// size is the approximate memory of a subject in bytes.
func (s Subject) size() int {
	n := 1 << 10
	if r := s.Row; r != nil {
		n += r.Size() + 64*(len(r.Inputs)+len(r.Args)+len(r.EnvKeys)+len(r.EnvHMACs))
	}
	for _, d := range s.Documents {
		n += 256 + len(d.Canonical)
		if d.Event != nil {
			n += len(d.Event.Record)
		}
	}
	return n
}

func (r *run) compare(ctx context.Context, older *older, subjects []Subject) (findings, error) {
	var f findings
	var buffer []byte
	for _, s := range subjects {
		if !r.wanted(s) {
			for _, d := range s.Documents {
				r.see(d.Index)
			}
			continue
		}
		before := len(f.differences)
		for _, d := range s.Documents {
			var err error
			if buffer, err = r.compareDocument(older, s, d, &f, buffer[:0]); err != nil {
				return f, err
			}
		}
		if s.Cut {
			f.add(s.Key, "events", "at most four", fmt.Sprintf("%d or more", len(s.Documents)))
			continue
		}
		if rule := rules[s.Source]; rule != nil && (s.Source == SourceExec || len(f.differences) == before) {
			rule(r, s, &f)
		}
		if r.o.Artifacts != nil && s.Row != nil && s.Row.Status.Final() {
			files, err := r.o.Artifacts(ctx, *s.Row, func(what, expected, found string) { f.add(s.Key, what, expected, found) })
			if err != nil {
				return f, err
			}
			f.sum.ArtifactFiles += int64(files)
		}
	}
	return f, nil
}

// wanted reports whether a subject is in the selection by its row, or by its first event: one of
// the two may have been changed.
func (r *run) wanted(s Subject) bool {
	if !r.o.narrowed() || s.Source == SourceAdmin || s.Row != nil && r.selects(*s.Row) {
		return true
	}
	if len(s.Documents) == 0 || s.Documents[0].Event == nil {
		return false
	}
	first, err := s.Documents[0].Event.Decode()
	return err == nil && r.selects(first)
}

func (r *run) selects(x audit.Record) bool {
	return !x.CreatedAt.Before(r.o.Since) && (r.o.Project == "" || x.ProjectID == r.o.Project)
}

// see notes that an entry has a document, and reports whether it had one before.
func (r *run) see(index int64) (again bool) {
	return index >= r.leaves.base && index < r.size && r.seen.set(index-r.leaves.base)
}

// compareDocument compares a document with its entry. It returns the buffer.
func (r *run) compareDocument(older *older, s Subject, d Document, f *findings, buffer []byte) ([]byte, error) {
	execID := ""
	if s.Source == SourceExec {
		execID = s.Key
	}
	name := func() string {
		if d.Event != nil {
			return fmt.Sprintf("event %d (%s)", d.Seq, d.Event.Kind)
		}
		return adminName(d.Seq)
	}
	switch {
	case d.Overdue:
		f.add(execID, name(), "an entry in the log", "none")
		return buffer, nil
	case d.Index < 0 || d.Index >= r.size:
		f.sum.Pending++
		return buffer, nil
	}
	f.sum.Events++
	again := r.see(d.Index)
	if again && r.leaves.base == 0 {
		f.add(execID, name(), "an entry of its own", fmt.Sprintf("entry %d, which has another event", d.Index))
	}
	if d.Event != nil && d.Event.Kind == audit.EventCreated && d.Index >= r.leaves.base && !again {
		f.begun++
	}
	if len(d.Salt) != proof.SaltSize {
		f.add(execID, name(), fmt.Sprintf("a salt of %d bytes", proof.SaltSize), many(int64(len(d.Salt)), "byte"))
		return buffer, nil
	}
	if buffer = append(buffer, d.Salt...); d.Event != nil {
		buffer = d.Event.AppendCanonical(buffer)
	} else {
		buffer = append(buffer, d.Canonical...)
	}
	entry := sha256.Sum256(buffer)
	leaf := tlog.RecordHash(entry[:])
	var want tlog.Hash
	var err error
	if d.Index < r.leaves.base {
		if want, err = older.at(d.Index); err != nil {
			f.add(execID, name(), fmt.Sprintf("entry %d in the tiles of the log", d.Index), err.Error())
			return buffer, nil
		}
	} else if want, err = r.leaves.at(d.Index); err != nil {
		return buffer, err
	}
	if inTile, differs := r.conflicts[d.Index]; differs {
		r.compareConflict(execID, name(), d.Index, f, leaf, want, inTile)
	} else if leaf != want {
		f.add(execID, name(), fmt.Sprintf("entry %d, %s", d.Index, want), leaf.String())
	}
	return buffer, nil
}

// compareConflict names which of document, entry and tile differs from the other two.
func (*run) compareConflict(execID, name string, index int64, f *findings, document, entry, tile tlog.Hash) {
	switch document {
	case entry:
		f.add(execID, fmt.Sprintf("hash of entry %d in its tile", index), entry.String(), tile.String())
	case tile:
		f.add(execID, fmt.Sprintf("entry %d", index), tile.String(), entry.String())
	default:
		f.add(execID, name, fmt.Sprintf("entry %d, %s", index, entry), document.String())
		f.add(execID, fmt.Sprintf("hash of entry %d in its tile", index), entry.String(), tile.String())
	}
}

// CompareExec compares the events of one exec with each other and with its row, as Run does for
// all. It compares no event with its entry.
func CompareExec(s Subject) []Difference {
	var f findings
	compareExec(nil, s, &f)
	return f.differences
}

// compareExec compares the events of an exec with each other and with its row.
func compareExec(_ *run, s Subject, f *findings) {
	f.sum.Execs++
	if len(s.Documents) == 0 {
		f.add(s.Key, "events", "at least one", "none")
		return
	}
	events, indexes := make([]proof.Document, len(s.Documents)), make([]int64, len(s.Documents))
	for i, d := range s.Documents {
		if d.Event == nil {
			f.add(s.Key, fmt.Sprintf("event %d", d.Seq), "an event of an exec", "one of another type")
			return
		}
		events[i], indexes[i] = *d.Event, d.Index
		if d.Index < 0 { // after the events that the log has
			indexes[i] = math.MaxInt64 - int64(len(s.Documents)-i)
		}
	}
	history, err := proof.NewHistory(events)
	if err == nil {
		err = history.Check(s.Key, indexes)
	}
	if err != nil {
		f.add(s.Key, "history", "possible events", err.Error())
	}
	if s.Row == nil {
		f.add(s.Key, "row", "the row of "+many(int64(len(events)), "event"), "none")
		return
	}
	if history.Empty() {
		return
	}
	differences, unproven, err := history.Compare(*s.Row)
	if err != nil {
		f.add(s.Key, "row", "what the events say", err.Error())
	}
	proven := true
	for _, d := range differences {
		f.add(s.Key, d.Column, d.Expected, d.Found)
		proven = proven && d.Column != "net_digest"
	}
	if len(unproven) > 0 {
		f.sum.ColumnsNewer++
	}
	if proven {
		compareTraffic(s, f)
	}
}

// maxChanged is how many changed connections of an exec are named.
const maxChanged = 10

// compareTraffic compares the connections' rows of an exec with the digest in its row.
func compareTraffic(s Subject, f *findings) {
	r := s.Row
	if !r.Status.Final() || r.NetDigest == s.Traffic.Digest {
		return
	}
	for _, place := range audit.ChangedRows(r.NetMarks, s.Traffic.Marks, maxChanged) {
		f.add(s.Key, fmt.Sprintf("connection %d", place), "as it was recorded", "another row, or none")
	}
	f.add(s.Key, "connections", "rows with the digest "+r.NetDigest, "rows with the digest "+s.Traffic.Digest)
}

// reportUnseen reports the entries without a document.
func (r *run) reportUnseen() {
	base := r.leaves.base
	for at := r.seen.next(0, r.size-base); at < r.size-base; {
		end := at + 1
		for end < r.size-base && !r.seen.isSet(end) {
			end++
		}
		r.report(Difference{What: entriesFrom(base+at, base+end), Expected: many(end-at, "event"), Found: "none"})
		at = r.seen.next(end, r.size-base)
	}
}
