package verify

import (
	"context"
	"fmt"
	"time"

	jsonv2 "github.com/go-json-experiment/json"

	"secbox/audit/admin"
	"secbox/audit/translog/proof"
)

// removal is what an administrative event says about retention. An entry whose document is missing
// must be named by a removal that is in the log.
type removal struct {
	seq, index int64 // index is -1 for an event that the verified log does not have
	kind       admin.Kind

	execs   map[string][]int64 // of ExecsRemoved: the entries that lost their documents, by exec; none if only artifacts were removed
	part    string
	counted counted // of RetentionRun
}

// counted is how many execs lost their records, or their artifacts only.
type counted struct {
	Records   int64 `json:"records"`
	Artifacts int64 `json:"artifacts"`
}

// The parts of an exec that retention removes.
const (
	partRecord    = "record"
	partArtifacts = "artifacts"
)

// removals are the removals that were read.
type removals struct {
	since   counted // since the last RetentionRun
	begun   bool    // there was one, or the log was read from its begin
	claimed bitmap  // entries from leaves.base on, of events that the verified log does not have
	earlier *run    // this run settles the entries of that one; nil: none
}

// compareAdmin reads administrative events that are as the log says, or that it does not have yet.
func compareAdmin(r *run, s Subject, f *findings) {
	for _, d := range s.Documents {
		e, err := proof.ParseAdmin(string(d.Canonical))
		if err != nil || e.Seq != d.Seq {
			f.add("", adminName(d.Seq), "an event with this number", "something else")
			continue
		}
		got := removal{seq: e.Seq, index: d.Index, kind: e.Kind}
		if d.Index >= r.size {
			got.index = -1
		}
		switch e.Kind {
		case admin.ExecsRemoved:
			var data struct {
				Part    string             `json:"part"`
				Days    int64              `json:"days"`
				Entries map[string][]int64 `json:"entries"`
			}
			if err := jsonv2.Unmarshal([]byte(e.Data), &data); err != nil || data.Part != partRecord && data.Part != partArtifacts ||
				data.Days <= 0 || e.Subject == "" {
				f.add("", got.name(), "a rule of retention and what it removed", e.Data)
				continue
			}
			got.part, got.execs = data.Part, data.Entries
		case admin.RetentionRun:
			if err := jsonv2.Unmarshal([]byte(e.Data), &got.counted); err != nil {
				f.add("", got.name(), "what it removed", e.Data)
				continue
			}
		default:
			continue
		}
		f.removals = append(f.removals, got)
	}
}

func (e removal) name() string { return fmt.Sprintf("%s (%s)", adminName(e.seq), e.kind) }

// addRemoval notes which entries need no document, and compares the runs' counts. Removals come in
// the order of the log.
func (r *run) addRemoval(e removal) {
	switch {
	case e.index < 0:
		r.claim(e)
	case e.kind == admin.RetentionRun:
		if since := r.removals.since; r.removals.begun && since != e.counted {
			r.report(Difference{
				What: e.name(), Expected: fmt.Sprintf("%s and the artifacts of %s, as the events before it say",
					many(since.Records, "record"), many(since.Artifacts, "exec")),
				Found: fmt.Sprintf("%d and %d", e.counted.Records, e.counted.Artifacts),
			})
		}
		r.removals.since, r.removals.begun = counted{}, true
	case e.part == partArtifacts:
		r.removals.since.Artifacts += int64(len(e.execs))
	default:
		r.removals.since.Records += int64(len(e.execs))
		for execID, entries := range e.execs {
			for _, index := range entries {
				r.cover(e, execID, index)
			}
		}
	}
}

// cover notes that an entry needs no document.
func (r *run) cover(e removal, execID string, index int64) {
	earlier := r.removals.earlier
	switch {
	case index < 0 || index >= e.index:
		r.report(Difference{ExecID: execID, What: e.name(), Expected: "entries before its own", Found: fmt.Sprintf("entry %d", index)})
	case index >= r.leaves.base:
		if r.see(index) {
			r.report(Difference{
				ExecID: execID, What: fmt.Sprintf("entry %d", index),
				Expected: "its event, or one that says that it was removed", Found: "another one beside " + e.name(),
			})
			return
		}
		r.sum.Removed++
	case earlier != nil && index >= earlier.leaves.base && !earlier.see(index):
		earlier.sum.Removed++
	}
}

// claim notes the entries of a removal that the verified log does not have.
func (r *run) claim(e removal) {
	if r.removals.claimed == nil {
		r.removals.claimed = newBitmap(r.size - r.leaves.base)
	}
	for _, entries := range e.execs {
		for _, index := range entries {
			if index >= r.leaves.base && index < r.size {
				r.removals.claimed.set(index - r.leaves.base)
			}
		}
	}
}

// unsettled reports whether an entry has no document, and an event that the verified log does not
// have says that it was removed.
func (r *run) unsettled() bool {
	end := r.size - r.leaves.base
	for at := int64(0); r.removals.claimed != nil && at < end; at++ {
		if at = r.seen.next(at, end); at < end && r.removals.claimed.isSet(at) {
			return true
		}
	}
	return false
}

// The log gets an event within a second, and when another node takes over within ten.
const (
	settlePause    = time.Second / 2
	settleAttempts = 40
)

// settle waits until the log has the removals of execs that retention removed during this run, and
// believes them if the log extends the verified one. The entries of others have no document.
func (r *run) settle(ctx context.Context) error {
	for range settleAttempts {
		if !r.unsettled() {
			break
		}
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-time.After(settlePause):
		}
		if extends, err := r.settleOnce(ctx); err != nil || !extends {
			return err
		}
	}
	return nil
}

// settleOnce reads what the log has got since. It returns false if that does not extend the
// verified log.
func (r *run) settleOnce(ctx context.Context) (extends bool, err error) {
	later := &run{source: r.source, size: -1, o: Options{
		Key: r.o.Key, Kept: r.keep(), NewOnly: true, TempDir: r.o.TempDir,
		Report: func(Difference) {},
	}}
	defer later.leaves.close()
	if err := later.readCheckpoint(ctx); err != nil || later.size <= r.size {
		return later.size == r.size, err
	}
	if err := later.readLog(ctx); err != nil || later.sum.Differences > 0 || later.leaves.base != r.size {
		return false, err
	}
	later.removals.earlier = r
	return true, later.readSubjects(ctx)
}
