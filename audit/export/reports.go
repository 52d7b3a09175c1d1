package export

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"io"
	"slices"
	"strconv"
	"time"

	"secbox/audit"
	"secbox/audit/admin"
	"secbox/audit/report"
	"secbox/audit/translog"
	"secbox/fault"
	"secbox/internal/admission"
)

// ReportName is the subject of the events of a report's bundle, where exports have their format.
const ReportName = "report"

// AdminEvents reads and records administrative events; admin.Store implements it.
type AdminEvents interface {
	Events
	List(ctx context.Context, f admin.Filter, after *admin.Cursor, limit int) ([]admin.Event, error)
}

// Reports makes reports about a span of time, and writes them with their evidence. It is safe for
// concurrent use.
type Reports struct {
	Log     translog.Log
	Records Records
	Events  AdminEvents

	Limits *admin.Limits // say whether an export gets events; nil: every one does

	Denied func(message string) []string // the fields that policy refused, by a record's message

	Patience time.Duration    // for the log to have the newest events; 0: 5 s
	Now      func() time.Time // nil: time.Now
}

// ReportMemory is the memory that the writing of a bundle takes at most, in bytes: what its report
// is made of, and a page of the log.
const ReportMemory = 32 << 20

// mostReported bounds what a Builder holds of a bundle; mostRemovals the events of retention in
// which the reason of a missing event is looked for.
const (
	mostReported  = 24 << 20
	mostRemovals  = 5000
	adminPageSize = 500
)

// WriteBundle writes the bundle of a span with an end. It is recorded as exports are. It fails
// before the first byte with fault.NotLogged for an empty log, and with fault.InvalidRequest for a
// span with too many entries. When it fails afterwards, the output has no signature.
func (x Reports) WriteBundle(ctx context.Context, w io.Writer, span report.Span) (err error) {
	b := &bundle{x: x, ctx: ctx, span: span, out: &output{w: w, digest: sha256.New()}, unproven: report.NewUnproven()}
	if _, err := x.Log.Cover(ctx, cmp.Or(x.Patience, patience), func([]string) error { return nil }); err != nil {
		return err
	}
	if b.section, err = x.Log.Section(ctx, b.span.Since, b.span.Until, cmp.Or(x.Patience, patience)); err != nil {
		return err
	}
	if n := b.section.End - b.section.First; n > report.MaxEntries {
		return fault.BadField("since", "gives a span with %d entries of the log, and a report may have %d; give a narrower one", n,
			report.MaxEntries)
	}
	recorded := x.Limits == nil || x.Limits.Take(admin.ActorOf(ctx), admin.Export)
	if recorded {
		if err := b.record(begins); err != nil {
			return err
		}
	}
	last, err := b.write()
	if err == nil {
		b.out.add(last)
		if recorded {
			err = b.record(complete)
		}
		if err == nil {
			_, err = w.Write(last)
		}
		return err
	}
	if recorded {
		limited, cancel := context.WithTimeout(context.WithoutCancel(ctx), patience)
		defer cancel()
		b.ctx = limited
		_ = b.record(cutOff) // err says more
	}
	return err
}

// Read reports about the newest records of a span with an end. It reads at most most records, and a
// page of administrative events.
func (x Reports) Read(ctx context.Context, span report.Span, most int) (report.Answer, error) {
	built := report.NewBuilder(span)
	a := report.Answer{
		Complete: true, CountedSince: span.Since, EventsSince: span.Since, Unproven: report.NewUnproven(), Denied: map[string]int64{},
	}
	filter := audit.Filter{Since: span.Since, Until: span.Until, OnlyCallers: true}
	walked, err := walk(ctx, x.Records, filter, most+1, func(r audit.Record, n int) {
		if n > most {
			a.Complete = false
			return
		}
		built.Exec(report.ExecOf(r))
		if r.Status == audit.Rejected && r.ErrorReason == audit.PolicyDenied {
			for _, field := range x.Denied(r.Detail) {
				a.Denied[field]++
			}
		}
		if n == most {
			a.CountedSince = r.CreatedAt.UTC()
		}
	})
	if err != nil {
		return a, err
	}
	if walked <= most {
		a.CountedSince = span.Since
	}
	events, err := x.Events.List(ctx, admin.Filter{Since: span.Since, Until: span.Until}, nil, adminPageSize)
	if err != nil {
		return a, err
	}
	for _, e := range events {
		built.Event(e)
		if e.Kind == admin.Export && stateOf(e) == begins {
			a.Exports++
		}
	}
	if n := len(events); n == adminPageSize {
		a.Complete, a.EventsSince = false, events[n-1].At.UTC()
	}
	a.Report = built.Report()
	return a, x.compare(ctx, span, &a)
}

// stateOf returns the state in an event of an export.
func stateOf(e admin.Event) string {
	var data struct {
		State string `json:"state"`
	}
	_ = json.Unmarshal([]byte(e.Data), &data) // without a state if it was altered
	return data.State
}

// compared is how many of the newest entries until the end of a span Read compares with the
// database.
const compared = 64

// compare finds what the log does not have, and compares its newest entries of the span, or before
// it, with the database.
func (x Reports) compare(ctx context.Context, span report.Span, a *report.Answer) error {
	lag, err := x.Log.Lag(ctx, x.now())
	if err != nil {
		return unlessLost(err, a)
	}
	a.Unproven.NotLogged = int64(lag.Events)
	if lag.Size == 0 {
		return nil
	}
	section, err := x.Log.Until(ctx, span.Until, compared)
	if err != nil || section.End == 0 {
		return unlessLost(err, a)
	}
	page, err := section.Page(ctx, section.First)
	if err != nil {
		return unlessLost(err, a)
	}
	a.Compared = page.Next - section.First
	for _, d := range page.Differences {
		a.Unproven.Differ(report.Difference(d))
	}
	return nil
}

// unlessLost makes the loss or the alteration of the log a difference.
func unlessLost(err error, a *report.Answer) error {
	if err == nil || !fault.Is(err, fault.Internal) {
		return err
	}
	a.Unproven.Differ(report.Difference{What: "log", Expected: "the log that was signed", Found: fault.From(err).Message})
	return nil
}

func (x Reports) now() time.Time {
	if x.Now != nil {
		return x.Now()
	}
	return time.Now()
}

// walk calls each for at most most records, with their number from 1 on, and returns how many.
func walk(ctx context.Context, records Records, f audit.Filter, most int, each func(r audit.Record, n int)) (walked int, err error) {
	for after := (*audit.Cursor)(nil); walked < most; {
		page, limit := 0, min(mostPage, most-walked)
		next, err := records.Walk(ctx, f, after, limit, func(r audit.Record) bool {
			after = &audit.Cursor{CreatedAt: r.CreatedAt, ExecID: r.ExecID}
			page++
			walked++
			each(r, walked)
			return true
		})
		if err != nil || next == nil && page < limit {
			return walked, err
		}
		if next != nil {
			after = next
		}
	}
	return walked, nil
}

// bundle is a bundle that is being written.
type bundle struct {
	x        Reports
	ctx      context.Context // of one use
	span     report.Span
	section  translog.Section
	out      *output
	text     []byte
	built    *report.Builder
	seen     map[int64]bool // administrative events of the section
	extras   map[int64]bool // indexes
	unproven report.Unproven
}

func (b *bundle) record(state string) error {
	data := map[string]any{"state": state, "parameters": map[string]string{
		"since": b.span.Since.Format(time.RFC3339Nano), "until": b.span.Until.Format(time.RFC3339Nano),
	}}
	if state != begins {
		data["bytes"] = b.out.bytes
	}
	if state == complete {
		data["sha256"] = hex.EncodeToString(b.out.digest.Sum(nil))
	}
	return recordExport(b.ctx, b.x.Events, ReportName, data)
}

// write writes all lines but the signature, and returns that.
func (b *bundle) write() ([]byte, error) {
	b.built, b.seen, b.extras = report.NewBuilder(b.span), map[int64]bool{}, map[int64]bool{}
	for _, step := range []func() error{b.header, b.entries, b.stragglers, b.adminStragglers, b.removals, b.extraLines, b.end} {
		if err := step(); err != nil {
			return nil, err
		}
	}
	key, err := b.x.Log.Key()
	if err != nil {
		return nil, err
	}
	return report.Sign(key.Signer, [sha256.Size]byte(b.out.digest.Sum(nil)), b.out.bytes)
}

func (b *bundle) header() error {
	return b.add(report.Header{
		Format: report.Format, Origin: b.section.Origin, Span: b.span, By: admin.ActorOf(b.ctx), CreatedAt: b.x.now().UTC(),
		First: b.section.First, Entries: b.section.End - b.section.First, Checkpoint: b.section.Checkpoint,
	})
}

// add appends a line to the text that flush writes.
func (b *bundle) add(line any) error {
	var err error
	b.text, err = report.AppendLine(b.text, line)
	return err
}

func (b *bundle) flush() error {
	_, err := b.out.Write(b.text)
	b.text = b.text[:0]
	switch {
	case err != nil:
		return err
	case b.out.bytes > report.MaxBytes || b.built.Size() > mostReported || len(b.extras) > report.MaxExtras:
		return fault.New(fault.InvalidRequest, "the report of this span is too large; give a narrower one")
	}
	return nil
}

// entries writes the entries of the section.
func (b *bundle) entries() error {
	for at := b.section.First; at < b.section.End; {
		err := admission.Do(b.ctx, func() error {
			page, err := b.section.Page(b.ctx, at)
			if err != nil {
				return err
			}
			for i, e := range page.Entries {
				if err := b.entry(at+int64(i), e); err != nil {
					return err
				}
			}
			for _, d := range page.Differences {
				b.unproven.Differ(report.Difference(d))
			}
			for _, later := range page.Later {
				if b.built.Knows(later.ExecID) {
					b.extras[later.Index] = true
				}
			}
			at = page.Next
			return nil
		})
		if err == nil {
			err = b.flush()
		}
		if err != nil {
			return err
		}
	}
	return nil
}

func (b *bundle) entry(index int64, e translog.SectionEntry) error {
	if e.Event == "" {
		b.built.Without(index)
		return b.add(report.Entry{Entry: e.Hash[:]})
	}
	if e.AdminSeq != 0 {
		b.seen[e.AdminSeq] = true
	}
	if err := b.built.Add(e.Event); err != nil {
		return fault.Wrap(fault.Internal, err, "entry %d of the transparency log cannot be read", index)
	}
	return b.add(report.Entry{Event: e.Event, Salt: e.Salt, Entry: e.Hash[:]})
}

// stragglers finds execs of the span whose events are elsewhere in the log, or not in it.
func (b *bundle) stragglers() error {
	filter := audit.Filter{Since: b.span.Since, Until: b.span.Until, OldestFirst: true, OnlyCallers: true}
	var unseen []string
	if _, err := walk(b.ctx, b.x.Records, filter, report.MaxEntries, func(r audit.Record, _ int) {
		if !b.built.Knows(r.ExecID) {
			unseen = append(unseen, r.ExecID)
		}
	}); err != nil {
		return err
	}
	if len(unseen) > report.MaxExtras {
		return fault.New(fault.NotLogged, "the transparency log is too far behind: it does not have %d execs of this span in their place; "+
			"give a narrower span, or try again when it has caught up", len(unseen))
	}
	for _, id := range unseen {
		indexes, lacking, err := b.section.Indexes(b.ctx, id)
		if err != nil {
			return err
		}
		for _, index := range indexes {
			b.extra(index)
		}
		if lacking > 0 {
			b.unproven.Wait(id)
		} else if len(indexes) == 0 {
			b.unproven.Differ(report.Difference{ExecID: id, What: "row", Expected: "events of the exec", Found: "none"})
		}
	}
	return nil
}

// extra notes an entry outside the section.
func (b *bundle) extra(index int64) {
	if index < b.section.First || index >= b.section.End {
		b.extras[index] = true
	}
}

// adminStragglers finds administrative events of the span that are elsewhere in the log, or not in
// it.
func (b *bundle) adminStragglers() error {
	return b.eachEvent(admin.Filter{Since: b.span.Since, Until: b.span.Until}, report.MaxEntries, func(e admin.Event) error {
		if b.seen[e.Seq] {
			return nil
		}
		index, has, err := b.section.AdminIndex(b.ctx, e.Seq)
		if err != nil {
			return err
		}
		if has {
			b.extra(index)
		} else {
			b.unproven.Wait(string(e.Kind))
		}
		return nil
	})
}

// removals finds the events of retention that say why an entry has no event.
func (b *bundle) removals() error {
	if b.built.Report().Gaps.Unknown == 0 {
		return nil
	}
	f := admin.Filter{Kind: admin.ExecsRemoved, Since: b.span.Since}
	return b.eachEvent(f, mostRemovals, func(e admin.Event) error {
		if b.seen[e.Seq] || !b.built.Explains(e) {
			return nil
		}
		index, has, err := b.section.AdminIndex(b.ctx, e.Seq)
		if has {
			b.extra(index)
		}
		return err
	})
}

// eachEvent calls each for at most most events, newest first.
func (b *bundle) eachEvent(f admin.Filter, most int, each func(admin.Event) error) error {
	for after := (*admin.Cursor)(nil); most > 0; most -= adminPageSize {
		events, err := b.x.Events.List(b.ctx, f, after, adminPageSize)
		if err != nil {
			return err
		}
		for _, e := range events {
			if err := each(e); err != nil {
				return err
			}
		}
		if len(events) < adminPageSize {
			return nil
		}
		last := events[len(events)-1]
		after = &admin.Cursor{At: last.At, Seq: last.Seq}
	}
	return nil
}

// extraLines writes the events outside the section. One that is not as the log says is a
// difference.
func (b *bundle) extraLines() error {
	indexes := make([]int64, 0, len(b.extras))
	for index := range b.extras {
		indexes = append(indexes, index)
	}
	slices.Sort(indexes)
	for _, index := range indexes {
		e, path, differences, err := b.section.At(b.ctx, index)
		if err == nil && e.Event == "" && len(differences) == 0 { // removed since it was found
			differences = []translog.Difference{{What: "entry " + strconv.FormatInt(index, 10), Expected: "the event of the log", Found: "none any more"}}
		}
		for _, d := range differences {
			b.unproven.Differ(report.Difference(d))
		}
		if err == nil && e.Event == "" {
			continue
		}
		if err == nil {
			err = b.built.Add(e.Event)
		}
		if err == nil {
			err = b.add(report.Extra{Index: index, Event: e.Event, Salt: e.Salt, Path: path})
		}
		if err == nil {
			err = b.flush()
		}
		if err != nil {
			return err
		}
	}
	return nil
}

func (b *bundle) end() error {
	left, right, err := b.section.Sides()
	if err == nil {
		err = b.add(report.End{Report: b.built.Report(), Unproven: b.unproven, Left: left, Right: right})
	}
	if err == nil {
		err = b.flush()
	}
	return err
}
