package report_test

import (
	"bytes"
	"crypto/rand"
	"crypto/sha256"
	"fmt"
	"os"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/transparency-dev/formats/log"
	"golang.org/x/mod/sumdb/note"
	"golang.org/x/mod/sumdb/tlog"

	"secbox/audit"
	"secbox/audit/admin"
	"secbox/audit/report"
	"secbox/audit/translog/proof"
	"secbox/fault"
)

var noon = time.Date(2026, 3, 4, 12, 0, 0, 0, time.UTC)

// fakeLog is a log in memory.
type fakeLog struct {
	t      testing.TB
	signer note.Signer
	key    string
	events []report.Entry
	hashes []tlog.Hash
}

func newLog(t testing.TB) *fakeLog {
	t.Helper()
	private, public, err := note.GenerateKey(rand.Reader, "secbox/test")
	if err != nil {
		t.Fatal(err)
	}
	signer, err := note.NewSigner(private)
	if err != nil {
		t.Fatal(err)
	}
	return &fakeLog{t: t, signer: signer, key: public}
}

func (l *fakeLog) ReadHashes(indexes []int64) (all []tlog.Hash, err error) {
	for _, i := range indexes {
		all = append(all, l.hashes[i])
	}
	return all, nil
}

func (l *fakeLog) add(canonical []byte) {
	l.t.Helper()
	salt := bytes.Repeat([]byte{byte(len(l.events))}, proof.SaltSize)
	entry := proof.Entry(salt, canonical)
	hashes, err := tlog.StoredHashes(int64(len(l.events)), entry[:], l)
	if err != nil {
		l.t.Fatal(err)
	}
	l.events, l.hashes = append(l.events, report.Entry{Event: string(canonical), Salt: salt, Entry: entry[:]}), append(l.hashes, hashes...)
}

// exec adds an event of an exec at a minute after noon.
func (l *fakeLog) exec(id string, minute int, status audit.Status) {
	at := noon.Add(time.Duration(minute) * time.Minute)
	record := fmt.Sprintf(`{"exec_id":%q,"kind":"exec","project_id":"demo","requested_by":"tok","status":%q,"error_reason":"r","detail":"why","created_at":%q}`,
		id, status, at.Format(time.RFC3339Nano))
	l.add(proof.Document{Seq: int64(len(l.events)), ExecID: id, Kind: audit.EventEnded, At: at, LoggedAt: at, Record: record}.Canonical())
}

func (l *fakeLog) admin(minute int, kind admin.Kind, subject, data string) {
	at := noon.Add(time.Duration(minute) * time.Minute)
	l.add(proof.AdminDocument{
		Seq: int64(len(l.events)), At: at, Actor: admin.Actor{Type: admin.ByToken, ID: "tok", Name: "Ada"}, Kind: kind, Subject: subject,
		Data: data, LoggedAt: at,
	}.Canonical())
}

func (l *fakeLog) checkpoint() string {
	root, err := tlog.TreeHash(int64(len(l.events)), l)
	if err != nil {
		l.t.Fatal(err)
	}
	signed, err := note.Sign(&note.Note{Text: string(log.Checkpoint{Origin: "secbox/test", Size: uint64(len(l.events)), Hash: root[:]}.Marshal())}, l.signer)
	if err != nil {
		l.t.Fatal(err)
	}
	return string(signed)
}

// nodes returns the hashes of the largest complete subtrees between two entries.
func (l *fakeLog) nodes(begin, end int64) [][]byte {
	hashes := [][]byte{}
	for begin < end {
		level := 0
		for begin%(2<<level) == 0 && begin+(2<<level) <= end {
			level++
		}
		h := l.hashes[tlog.StoredHashIndex(level, begin>>level)]
		hashes, begin = append(hashes, h[:]), begin+1<<level
	}
	return hashes
}

// bundle returns the lines of a bundle about the hour after noon, with entries from first to end-1,
// and extras. Entries in gone have lost their event.
func (l *fakeLog) bundle(first, end int64, gone []int64, extras ...int64) []any {
	l.t.Helper()
	span := report.Span{Since: noon, Until: noon.Add(time.Hour)}
	b := report.NewBuilder(span)
	lines := []any{report.Header{
		Format: report.Format, Origin: "secbox/test", Span: span, By: admin.Actor{Type: admin.ByToken, ID: "tok"}, CreatedAt: noon, First: first,
		Entries: end - first, Checkpoint: l.checkpoint(),
	}}
	for i := first; i < end; i++ {
		e := l.events[i]
		if slices.Contains(gone, i) {
			entry := proof.Entry(e.Salt, []byte(e.Event))
			b.Without(i)
			lines = append(lines, report.Entry{Entry: entry[:]})
			continue
		}
		if err := b.Add(e.Event); err != nil {
			l.t.Fatal(err)
		}
		lines = append(lines, e)
	}
	for _, i := range extras {
		path, err := tlog.ProveRecord(int64(len(l.events)), i, l)
		if err != nil {
			l.t.Fatal(err)
		}
		x := report.Extra{Index: i, Event: l.events[i].Event, Salt: l.events[i].Salt}
		for _, h := range path {
			x.Path = append(x.Path, append([]byte{}, h[:]...))
		}
		if err := b.Add(x.Event); err != nil {
			l.t.Fatal(err)
		}
		lines = append(lines, x)
	}
	u := report.NewUnproven()
	u.Wait("waits")
	u.Differ(report.Difference{ExecID: "e1", What: "exit_code", Expected: "3", Found: "0"})
	return append(lines, report.End{Report: b.Report(), Unproven: u, Left: l.nodes(0, first), Right: l.nodes(end, int64(len(l.events)))})
}

// sign returns the file of lines.
func (l *fakeLog) sign(lines []any) []byte {
	l.t.Helper()
	var file []byte
	for _, line := range lines {
		var err error
		if file, err = report.AppendLine(file, line); err != nil {
			l.t.Fatal(err)
		}
	}
	last, err := report.Sign(l.signer, sha256.Sum256(file), int64(len(file)))
	if err != nil {
		l.t.Fatal(err)
	}
	return append(file, last...)
}

// hourOfLog has entries before, in and after the hour after noon.
func hourOfLog(t testing.TB) *fakeLog {
	l := newLog(t)
	for i := range 5 {
		l.exec(fmt.Sprint("before", i), -10, audit.Succeeded)
	}
	l.exec("e1", 1, audit.Running)
	l.exec("e2", 2, audit.Rejected)
	l.admin(3, admin.TokenCreated, "t1", `{"name":"ci"}`)
	l.exec("e3", 4, audit.Succeeded)
	l.exec("after", 61, audit.Succeeded)
	l.exec("after", 62, audit.Succeeded)
	l.exec("e1", 1, audit.Failed)
	l.admin(90, admin.ExecsRemoved, "audit.retention_days", `{"part":"record","days":7,"entries":{"e3":[8]}}`)
	l.exec("after", 63, audit.Succeeded)
	return l
}

func check(l *fakeLog, file []byte) (report.Result, error) {
	return report.CheckBundle(bytes.NewReader(file), l.key)
}

func TestBundle(t *testing.T) {
	t.Parallel()
	l := hourOfLog(t)
	file := l.sign(l.bundle(4, 10, []int64{8}, 11, 12))
	if !report.IsBundle(file) || report.IsBundle([]byte(`{"format":"secbox/exec-proof@v1"`)) {
		t.Error("the first bytes decide")
	}
	got, err := check(l, file)
	if err != nil {
		t.Fatal(err)
	}
	r := got.Report
	if r.Execs != 2 || r.ByStatus["failed"] != 1 || r.ByStatus["rejected"] != 1 || len(r.Events) != 1 || r.Events[0].Area != report.Tokens ||
		r.Gaps.Removed != 1 || r.Gaps.Unknown != 0 || len(r.Removed) != 0 {
		t.Errorf("%+v", r)
	}
	if names := got.Names; len(names) != 2 || names["tok"] != "Ada" || names["t1"] != "ci" {
		t.Errorf("names: %q", names)
	}
	if !got.Begins || !got.Ends || got.Entries != 6 || got.Extras != 2 || got.Unproven.NotLogged != 1 || got.Unproven.Altered != 1 {
		t.Errorf("%+v", got)
	}
	if got, err := check(l, l.sign(l.bundle(5, 9, nil))); err != nil || got.Begins || got.Ends {
		t.Errorf("without the entries around the span: %+v, %v", got, err)
	}
	if got, err := check(l, l.sign(l.bundle(4, 10, []int64{4, 8, 9}))); err != nil || got.Begins || got.Ends || got.Report.Gaps.Unknown != 3 {
		t.Errorf("with the hashes around the span: %+v, %v", got, err)
	}
	if got, err := check(l, l.sign(l.bundle(0, 14, nil))); err != nil || !got.Begins || !got.Ends || got.Report.Execs != 3 {
		t.Errorf("the whole log: %+v, %v", got, err)
	}
	l.events, l.hashes = l.events[:7], l.hashes[:tlog.StoredHashCount(7)]
	if got, err := check(l, l.sign(l.bundle(4, 7, nil))); err != nil || !got.Ends || !got.Last.Equal(noon.Add(2*time.Minute)) {
		t.Errorf("with a checkpoint from before the span's end: %+v, %v", got, err)
	}
	after := newLog(t)
	after.exec("e1", 61, audit.Succeeded)
	after.exec("e2", 62, audit.Succeeded)
	if got, err := check(after, after.sign(after.bundle(0, 1, nil))); err != nil || !got.Begins || !got.Ends {
		t.Errorf("a span before the log: %+v, %v", got, err)
	}
	if _, err := report.CheckBundle(bytes.NewReader(file), l.key, newLog(t).key); !fault.Is(err, fault.InvalidRequest) {
		t.Errorf("a witness's key that is none: %v", err)
	}
	if _, err := report.CheckBundle(bytes.NewReader(file), "x"); !fault.Is(err, fault.InvalidRequest) {
		t.Errorf("no key: %v", err)
	}
}

// TestForgedBundles: even the key's owner cannot leave out, add, swap or change an entry of the log
// that was signed, nor report what the entries do not say.
func TestForgedBundles(t *testing.T) {
	t.Parallel()
	l := hourOfLog(t)
	bundle := func() []any { return l.bundle(4, 10, []int64{8}, 11, 12) }
	header := func(lines []any, change func(*report.Header)) []any {
		h := lines[0].(report.Header)
		change(&h)
		lines[0] = h
		return lines
	}
	end := func(lines []any, change func(*report.End)) []any {
		e := lines[len(lines)-1].(report.End)
		change(&e)
		lines[len(lines)-1] = e
		return lines
	}
	changed := l.events[6]
	changed.Event = strings.Replace(changed.Event, "tok", "kot", 1)
	forged, bare := changed, l.events[6]
	entry := proof.Entry(forged.Salt, []byte(forged.Event))
	forged.Entry, bare.Entry = entry[:], nil
	for name, c := range map[string]struct {
		lines []any
		want  string
	}{
		"an entry is missing": {
			header(slices.Delete(bundle(), 3, 4), func(h *report.Header) { h.Entries-- }),
			"line 9 of the report: the hashes of the tree",
		},
		"an entry too many": {header(slices.Insert(bundle(), 3, bundle()[3]), func(h *report.Header) { h.Entries++ }), "the log has other entries"},
		"entries are swapped": {func() []any {
			lines := bundle()
			lines[2], lines[3] = lines[3], lines[2]
			return lines
		}(), "the log has other entries"},
		"an event is changed":        {slices.Replace(bundle(), 3, 4, any(changed)), "line 4 of the report: the file was changed: this event is not"},
		"an entry is changed":        {slices.Replace(bundle(), 3, 4, any(forged)), "the file was changed: the log has other entries"},
		"an event without its hash":  {slices.Replace(bundle(), 3, 4, any(bare)), "line 4 of the report: the file was changed"},
		"another first entry":        {header(bundle(), func(h *report.Header) { h.First-- }), "the hashes of the tree"},
		"another span":               {header(bundle(), func(h *report.Header) { h.Until = h.Until.Add(time.Hour) }), "its report is not what the entries say"},
		"an empty span":              {header(bundle(), func(h *report.Header) { h.Until = h.Since }), "line 1 of the report: its span is empty"},
		"another log":                {header(bundle(), func(h *report.Header) { h.Origin = "secbox/a" }), "line 1"},
		"too many entries":           {header(bundle(), func(h *report.Header) { h.Entries = 1 << 40 }), "line 1"},
		"a negative index":           {header(bundle(), func(h *report.Header) { h.First = -1 }), "line 1"},
		"another checkpoint":         {header(bundle(), func(h *report.Header) { h.Checkpoint = newLogOf(t, 20).checkpoint() }), "the checkpoint"},
		"an extra of the section":    {slices.Insert(bundle(), 7, any(report.Extra{Index: 9})), "line 8 of the report: entry 9 is not to be here"},
		"an extra twice":             {slices.Insert(bundle(), 8, bundle()[7]), "line 9 of the report: entry 11 is not to be here"},
		"an extra of another index":  {slices.Replace(bundle(), 7, 8, any(withIndex(bundle()[7], 10))), "the log does not have this event"},
		"the end of an exec is gone": {slices.Delete(bundle(), 7, 8), "its report is not what the entries say"},
		"another count":              {end(bundle(), func(e *report.End) { e.Report.Execs++ }), "line 10 of the report: its report is not what the entries"},
		"a missing hash":             {end(bundle(), func(e *report.End) { e.Left = e.Left[1:] }), "the hashes of the tree"},
		"a short hash":               {end(bundle(), func(e *report.End) { e.Right[0] = e.Right[0][1:] }), "the hashes of the tree"},
		"an event with its hash": {
			slices.Replace(bundle(), 3, 4, any(report.Entry{Event: "{}", Salt: l.events[6].Salt, Entry: make([]byte, 32)})),
			"line 4 of the report: the file was changed",
		},
		"a short hash of an entry": {
			slices.Replace(bundle(), 3, 4, any(report.Entry{Entry: make([]byte, 31)})),
			"line 4 of the report: it is neither",
		},
		"a short salt": {slices.Replace(bundle(), 3, 4, any(report.Entry{Event: l.events[6].Event, Salt: []byte("x")})), "line 4 of the report: its salt"},
	} {
		if _, err := check(l, l.sign(c.lines)); !fault.Is(err, fault.InvalidProof) || !strings.Contains(fault.From(err).Message, c.want) {
			t.Errorf("%s: %v, not %q", name, err, c.want)
		}
	}
	file := l.sign(bundle())
	for name, other := range map[string][]byte{
		"another key":      newLogOf(t, 14).sign(bundle()),
		"something after":  append(slices.Clone(file), '\n'),
		"without its end":  file[:len(file)-1],
		"a long line":      slices.Concat(file[:40], bytes.Repeat([]byte("x"), 5<<20)),
		"only its first":   file[:bytes.IndexByte(file, '\n')+1],
		"an unknown name":  bytes.Replace(file, []byte(`{"format"`), []byte(`{"x":1,"format"`), 1),
		"another format":   bytes.Replace(file, []byte(report.Format), []byte(`secbox/report@v3`), 1),
		"the old format":   bytes.Replace(file, []byte(report.Format), []byte(`secbox/report@v1`), 1),
		"no signature":     file[:bytes.LastIndex(file, []byte(`{"payloadType"`))],
		"nothing":          nil,
		"an attestation's": bytes.Replace(file, []byte("vnd.secbox.report"), []byte("vnd.in-toto"), 1),
	} {
		if _, err := check(l, other); !fault.Is(err, fault.InvalidProof) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func newLogOf(t testing.TB, entries int) *fakeLog {
	l := newLog(t)
	for range entries {
		l.exec("x", 1, audit.Succeeded)
	}
	return l
}

func withIndex(line any, index int64) report.Extra {
	x := line.(report.Extra)
	x.Index = index
	return x
}

// TestOneChangedBitOfABundle: a file with one changed bit is refused, or says the same.
func TestOneChangedBitOfABundle(t *testing.T) {
	t.Parallel()
	l := hourOfLog(t)
	file := l.sign(l.bundle(4, 10, []int64{8}, 11))
	want, err := check(l, file)
	if err != nil {
		t.Fatal(err)
	}
	for bit := 0; bit < 8*len(file); bit += 7 {
		changed := bytes.Clone(file)
		changed[bit/8] ^= 1 << (bit % 8)
		if got, err := check(l, changed); err == nil && !reflect.DeepEqual(got, want) {
			t.Errorf("bit %d: accepted %q", bit, changed[max(0, bit/8-20):min(len(changed), bit/8+20)])
		} else if err != nil && !fault.Is(err, fault.InvalidProof) {
			t.Errorf("bit %d: %v", bit, err)
		}
	}
}

func FuzzCheckBundle(f *testing.F) {
	good, err := os.ReadFile("testdata/report.jsonl")
	if err != nil {
		f.Fatal(err)
	}
	key, err := os.ReadFile("testdata/report.pub")
	if err != nil {
		f.Fatal(err)
	}
	want, err := report.CheckBundle(bytes.NewReader(good), string(key))
	if err != nil {
		f.Fatal(err)
	}
	f.Add(string(good))
	f.Fuzz(func(t *testing.T, file string) {
		got, err := report.CheckBundle(strings.NewReader(file), string(key))
		if err == nil && !reflect.DeepEqual(got, want) {
			t.Errorf("accepted %q", file)
		}
	})
}
