// Package export writes audit records as JSON Lines, as CSV for spreadsheets, or as OCSF events,
// oldest first and in constant memory, and ends with the checkpoint of the transparency log that
// covers them. It knows neither SQL nor HTTP.
//
// Records are read in pages, each with a query of its own, while the page before is written. A slow
// reader holds one page in memory, and neither a connection nor a snapshot of the database.
package export

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"hash"
	"io"
	"time"

	"secbox/audit"
	"secbox/audit/admin"
	"secbox/audit/translog"
	"secbox/fault"
	"secbox/internal/admission"
)

// Bounds of a page. A page is written to the reader under the deadline of its connection, and is
// short work for the database, so that execs do not wait for it.
const (
	firstPage = 64              // records, while their size is not known
	mostPage  = 1000            // records
	pageBytes = 2 << 20         // of output, at which a page ends
	patience  = 5 * time.Second // for the log to have the newest events
)

// MaxMemory is the memory that an export takes at most, in bytes: two pages, each with its largest
// record, and what encoding makes of that one.
const MaxMemory = 12 << 20

// Records reads audit records; audit.Store implements it.
type Records interface {
	Walk(ctx context.Context, f audit.Filter, after *audit.Cursor, limit int, each func(audit.Record) bool) (next *audit.Cursor, err error)
}

// Log is the transparency log; translog.Log implements it.
type Log interface {
	Cover(ctx context.Context, patience time.Duration, lacking func(execIDs []string) error) (translog.Cover, error)
}

// Query is what to export.
type Query struct {
	Filter audit.Filter // its order is ignored
	Format Format
	Asked  map[string]string // the parameters of the request that are not empty, for the end of the export

	Only func(audit.Record) bool // nil: all that match Filter
}

// Events are the administrative events; admin.Store implements it.
type Events interface {
	Record(ctx context.Context, e admin.Event) error
}

// Exporter writes exports. It is safe for concurrent use.
type Exporter struct {
	Records Records
	Log     Log

	Events Events
	Limits *admin.Limits // say whether an export gets events; nil: every one does

	Patience time.Duration    // for the log to have the newest events; 0: 5 s
	Now      func() time.Time // nil: time.Now
}

// Counts are the results of an export.
type Counts struct {
	Records   int64
	NotLogged int64 // execs that the checkpoint does not cover completely
}

// end is the last element of an export: an export without it was cut off.
type end struct {
	Type          string            `json:"type"`
	Records       int64             `json:"records"`
	NotLogged     int64             `json:"not_logged"` // execs named before
	CreatedBefore time.Time         `json:"created_before"`
	Asked         map[string]string `json:"parameters"`
	LogSize       int64             `json:"log_size"`
	Checkpoint    string            `json:"checkpoint"`
	Problem       string            `json:"problem,omitempty"`
}

// An encoder appends the elements of a format to b.
type encoder interface {
	begin(b []byte) []byte
	record(b []byte, r audit.Record) ([]byte, error)
	notLogged(b []byte, execIDs []string) ([]byte, error)
	end(b []byte, e end) ([]byte, error)
}

// Write writes the records that were created before now and match the query. It reads the first
// page before it writes anything. When it fails afterwards, the output has no end. It returns the
// errors of the records, the log, the events and w. The context names the actor.
func (x Exporter) Write(ctx context.Context, w io.Writer, q Query) (counts Counts, err error) {
	recorded := false
	out := &output{w: w, digest: sha256.New()}
	defer func() {
		if recorded && err != nil {
			ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), patience)
			defer cancel()
			_ = x.record(ctx, q, cutOff, counts, out) // err says more
		}
	}()
	newEncoder := q.Format.info().encoder
	if newEncoder == nil {
		return counts, fault.BadField("format", "must be %s", anyOf(DefaultFormat))
	}
	enc := newEncoder(q.Format)
	now := time.Now
	if x.Now != nil {
		now = x.Now
	}
	began := now().UTC().Truncate(time.Microsecond)
	filter := q.Filter
	filter.OldestFirst = true
	if filter.Until.IsZero() || filter.Until.After(began) {
		filter.Until = began
	}
	ctx, cancel := context.WithCancel(ctx)
	pages := make(chan page)
	done := make(chan struct{})
	go func() {
		defer close(done)
		read(ctx, x.Records, filter, q.Only, enc, pages)
	}()
	defer func() { cancel(); <-done }()

	first := true
	for {
		p, ok := <-pages
		if !ok {
			break
		}
		if p.err != nil {
			return counts, p.err
		}
		if first {
			if x.Limits == nil || x.Limits.Take(admin.ActorOf(ctx), admin.Export) {
				if err := x.record(ctx, q, begins, counts, out); err != nil {
					return counts, err
				}
				recorded = true
			}
			p.text, first = append(enc.begin(nil), p.text...), false
		}
		if _, err := out.Write(p.text); err != nil {
			return counts, err
		}
		counts.Records += int64(p.records)
	}
	if err := ctx.Err(); err != nil {
		return counts, err
	}

	// The state of an exec may have changed since it was exported.
	filter.Statuses, filter.ErrorReason, filter.ExitCodeNot, filter.Summary = nil, "", nil, q.Only == nil
	cover, err := x.Log.Cover(ctx, cmp.Or(x.Patience, patience), func(execIDs []string) error {
		var exported []string
		only := filter
		only.ExecIDs = execIDs
		if _, err := x.Records.Walk(ctx, only, nil, len(execIDs), func(r audit.Record) bool {
			if q.Only == nil || q.Only(r) {
				exported = append(exported, r.ExecID)
			}
			return true
		}); err != nil || len(exported) == 0 {
			return err
		}
		counts.NotLogged += int64(len(exported))
		text, err := enc.notLogged(nil, exported)
		if err == nil {
			_, err = out.Write(text)
		}
		return err
	})
	if err != nil {
		return counts, err
	}
	problem := ""
	if cover.NoState {
		problem = "no checkpoint covers these records: the database has lost the state of its transparency log"
	}
	text, err := enc.end(nil, end{
		Type: typeEnd, Records: counts.Records, NotLogged: counts.NotLogged, CreatedBefore: filter.Until, Asked: q.Asked,
		LogSize: cover.Size, Checkpoint: cover.Checkpoint, Problem: problem,
	})
	if err != nil {
		return counts, err
	}
	out.add(text)
	if recorded {
		if err := x.record(ctx, q, complete, counts, out); err != nil {
			return counts, err
		}
	}
	_, err = w.Write(text)
	return counts, err
}

// output is a writer that knows what was written, for the events.
type output struct {
	w      io.Writer
	digest hash.Hash // SHA-256
	bytes  int64
}

func (o *output) Write(p []byte) (int, error) {
	n, err := o.w.Write(p)
	o.add(p[:n])
	return n, err
}

func (o *output) add(p []byte) {
	o.digest.Write(p) // never fails
	o.bytes += int64(len(p))
}

// States of an export in its events. One that begins and has no other event ended with its server.
const (
	begins   = "begins"
	complete = "complete" // but for its last element, which is in the digest
	cutOff   = "cut_off"
)

// record records that an export begins or ends.
func (x Exporter) record(ctx context.Context, q Query, state string, c Counts, out *output) error {
	data := map[string]any{"state": state, "parameters": q.Asked}
	if state != begins {
		data["records"], data["not_logged"], data["bytes"] = c.Records, c.NotLogged, out.bytes
	}
	if state == complete {
		data["sha256"] = hex.EncodeToString(out.digest.Sum(nil))
	}
	return recordExport(ctx, x.Events, q.Format.Name, data)
}

func recordExport(ctx context.Context, events Events, subject string, data map[string]any) error {
	e, err := admin.New(ctx, admin.Export, subject, data)
	if err == nil {
		err = events.Record(ctx, e)
	}
	return err
}

// page is a part of the output.
type page struct {
	text    []byte
	records int
	err     error // the last page's
}

// read sends pages until there are no more records, an error, or ctx ends. It closes the channel.
func read(ctx context.Context, records Records, f audit.Filter, only func(audit.Record) bool, enc encoder, pages chan<- page) {
	defer close(pages)
	var after *audit.Cursor
	// The receiver of a page is done with the page before.
	var buffers [2][]byte
	for limit, turn := firstPage, 0; ; turn = 1 - turn {
		p := page{text: buffers[turn][:0]}
		var bad error
		full, walked, skipped := false, 0, 0 // bytes of records that are not exported
		var next *audit.Cursor
		each := func(r audit.Record) bool {
			if only != nil && !only(r) {
				skipped += r.Size()
			} else if p.text, bad = enc.record(p.text, r); bad != nil {
				return false
			} else {
				p.records++
			}
			after = &audit.Cursor{CreatedAt: r.CreatedAt, ExecID: r.ExecID}
			walked++
			full = len(p.text)+skipped >= pageBytes
			return !full
		}
		err := admission.Do(ctx, func() (err error) {
			next, err = records.Walk(ctx, f, after, limit, each)
			return err
		})
		buffers[turn] = p.text
		if bad != nil {
			err = fault.Wrap(fault.Internal, bad, "an audit record cannot be encoded")
		}
		p.err = err
		select {
		case pages <- p:
		case <-ctx.Done():
			return
		}
		if err != nil || next == nil && !full && walked < limit {
			return
		}
		if next != nil {
			after = next
		}
		limit = min(mostPage, max(1, pageBytes*walked/max(1, len(p.text)+skipped)))
	}
}
