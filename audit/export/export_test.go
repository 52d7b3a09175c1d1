package export

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/csv"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"testing"
	"time"

	jsonv2 "github.com/go-json-experiment/json"

	"secbox/audit"
	"secbox/audit/admin"
	"secbox/audit/translog"
	"secbox/store/storetest/planprobe"
)

// memory is records and a log in memory.
type memory struct {
	hidden  func(i int) bool // records that the filter does not want; nil: none
	all     []audit.Record   // oldest first
	lacking []string
	failAt  int           // Walk fails from this record on; 0: never
	walked  chan struct{} // one for each Walk that has ended; nil: none
	limits  []int

	events     []string // states of the export
	sha256     string   // of the export that was complete
	eventsFail string   // the state that cannot be recorded
}

func (m *memory) Record(_ context.Context, e admin.Event) error {
	var data struct {
		State, SHA256 string
		Bytes         int64
	}
	if err := json.Unmarshal([]byte(e.Data), &data); err != nil || e.Kind != admin.Export {
		return fmt.Errorf("%+v, %w", e, err)
	}
	if data.State == m.eventsFail {
		return errors.New("the event cannot be recorded")
	}
	m.events, m.sha256 = append(m.events, e.Subject+" "+data.State), data.SHA256
	return nil
}

func (m *memory) Walk(ctx context.Context, f audit.Filter, after *audit.Cursor, limit int, each func(audit.Record) bool) (*audit.Cursor, error) {
	if m.walked != nil {
		defer func() { m.walked <- struct{}{} }()
	}
	m.limits = append(m.limits, limit)
	looked := 0
	for i, r := range m.all {
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		switch {
		case !f.OldestFirst || !f.Until.After(r.CreatedAt):
			return nil, errors.New("not the order or the bound of an export")
		case after != nil && !r.CreatedAt.After(after.CreatedAt) || f.ExecIDs != nil && f.ExecIDs[0] != r.ExecID:
			continue
		case m.failAt > 0 && i >= m.failAt:
			return nil, errors.New("the database is away")
		case m.hidden != nil && m.hidden(i):
			if looked++; looked == 100 {
				return &audit.Cursor{CreatedAt: r.CreatedAt, ExecID: r.ExecID}, nil
			}
			continue
		case limit == 0 || !each(r):
			return nil, nil
		}
		limit--
	}
	return nil, nil
}

func (m *memory) Cover(_ context.Context, _ time.Duration, lacking func([]string) error) (translog.Cover, error) {
	for _, id := range m.lacking {
		if err := lacking([]string{id}); err != nil {
			return translog.Cover{}, err
		}
	}
	return translog.Cover{Checkpoint: "secbox/x\n7\nroot\n\n— signature\n", Size: 7}, nil
}

func many(n int) *memory {
	var m memory
	for r := range planprobe.Execs(n) {
		m.all = append(m.all, r)
	}
	return &m
}

func (m *memory) export(t *testing.T, format string) (string, Counts) {
	t.Helper()
	var out strings.Builder
	counts, err := Exporter{Records: m, Log: m, Events: m}.Write(t.Context(), &out,
		Query{Format: Format{Name: format}, Asked: map[string]string{"format": format}})
	if err != nil {
		t.Fatal(err)
	}
	if !slices.Equal(m.events, []string{format + " begins", format + " complete"}) {
		t.Errorf("events %q", m.events)
	}
	if sum := sha256.Sum256([]byte(out.String())); m.sha256 != hex.EncodeToString(sum[:]) {
		t.Errorf("the event has the digest %q", m.sha256)
	}
	m.events = nil
	return out.String(), counts
}

func TestJSONLHasAllRecordsAndTheEnd(t *testing.T) {
	t.Parallel()
	for _, n := range []int{0, 1, firstPage, firstPage + 1, 2500} {
		m := many(n)
		if n > 0 {
			m.lacking = []string{m.all[0].ExecID, "of another filter"}
		}
		out, counts := m.export(t, "jsonl")
		lines := strings.Split(strings.TrimSuffix(out, "\n"), "\n")
		named := min(n, 1)
		if len(lines) != n+named+1 || counts != (Counts{int64(n), int64(named)}) {
			t.Fatalf("%d lines, %+v", len(lines), counts)
		}
		for i, want := range m.all {
			var got audit.Record
			if err := json.Unmarshal([]byte(lines[i]), &got); err != nil || got.ExecID != want.ExecID || got.Kind == "" || !json.Valid(got.PolicySnapshot) ||
				len(got.Args) != len(want.Args) {
				t.Fatalf("line %d: %+v, %v", i, got, err)
			}
		}
		if n > 0 && lines[n] != `{"type":"secbox/audit-export-not-logged@v1","exec_ids":["`+m.all[0].ExecID+`"]}` {
			t.Error(lines[n])
		}
		var last end
		if err := json.Unmarshal([]byte(lines[n+named]), &last); err != nil || last.Type != typeEnd || last.Records != int64(n) ||
			last.NotLogged != int64(named) ||
			last.LogSize != 7 || !strings.HasPrefix(last.Checkpoint, "secbox/x\n7\n") || last.Asked["format"] != "jsonl" || last.CreatedBefore.IsZero() {
			t.Errorf("%+v, %v", last, err)
		}
	}
}

// TestRareRecordsAreAllExported: a walk that has looked at many other records ends early, and the
// export goes on.
func TestRareRecordsAreAllExported(t *testing.T) {
	t.Parallel()
	m := many(2500)
	m.hidden = func(i int) bool { return i%250 != 249 }
	if out, counts := m.export(t, "jsonl"); counts.Records != 10 || strings.Count(out, "\n") != 11 {
		t.Errorf("%+v", counts)
	}
}

// TestOnly: an export can leave out records of its filter, on each page, and does not name them as
// not logged.
func TestOnly(t *testing.T) {
	t.Parallel()
	m := many(2500)
	m.lacking = []string{m.all[0].ExecID, m.all[7].ExecID}
	wanted := map[string]bool{}
	for i := 7; i < len(m.all); i += 100 {
		wanted[m.all[i].ExecID] = true
	}
	for range 2 {
		var out strings.Builder
		counts, err := Exporter{Records: m, Log: m, Events: m}.Write(t.Context(), &out,
			Query{Format: Format{Name: "jsonl"}, Only: func(r audit.Record) bool { return wanted[r.ExecID] }})
		if err != nil || counts != (Counts{int64(len(wanted)), int64(min(1, len(wanted)))}) {
			t.Fatalf("%+v, %v", counts, err)
		}
		for id := range wanted {
			if !strings.Contains(out.String(), `"exec_id":"`+id+`"`) {
				t.Errorf("%s is missing", id)
			}
		}
		if slices.Max(m.limits) > mostPage {
			t.Errorf("pages of %d records", slices.Max(m.limits))
		}
		clear(wanted) // none at all
	}
}

// TestLinesAreTheRecords: a line is the record's JSON, whatever the policy snapshots of the records
// before were.
func TestLinesAreTheRecords(t *testing.T) {
	t.Parallel()
	lines := newJSONL()
	r := planprobe.Exec(0, 1)
	full := r.PolicySnapshot
	for _, snapshot := range []string{
		string(full), string(full), ``, string(full), `{"a": "\u003c/ü", "b": [1.50, 1e3, null]}`, `null`, `{}`,
		`{"policy_snapshot": null}`, `{}`,
	} {
		if r.PolicySnapshot = nil; snapshot != "" {
			r.PolicySnapshot = []byte(snapshot)
		}
		r.Cmd, r.Args = `"policy_snapshot":null`, []string{`{"policy_snapshot":null}`, ""}
		r.LargeLists = map[string]audit.LargeList{"args": {}, "policy_snapshot": {}}
		r.Request = snapshot
		got, err := lines.record([]byte("before"), r)
		want, wrong := jsonv2.Marshal(&r, jsonv2.Deterministic(true))
		if snapshot != "" {
			asked, _ := jsonv2.Marshal(snapshot)
			want = append(bytes.TrimSuffix(want, []byte("}")), `,"request":`+string(asked)+"}"...)
		}
		if err != nil || wrong != nil || string(got) != "before"+string(want)+"\n" {
			t.Errorf("%v, %v\n%s\nwant\n%s", err, wrong, got, want)
		}
	}
}

func TestCSVIsSafeAndReadsBack(t *testing.T) {
	t.Parallel()
	m := many(3)
	odd := []string{
		`=HYPERLINK("http://x")`, "+1", "-1", "@SUM(A1)", "\tx", "\rx", "\nx", "'", "''=1", "＝1", "a,b", `say "hi"`, "two\nlines", " blank", "x;=1", "",
		"plain",
	}
	for i := range m.all {
		m.all[i].Args, m.all[i].ExitCode = odd, new(-i)
		m.all[i].Kind = audit.KindChange
	}
	m.lacking = []string{m.all[2].ExecID}
	for i, text := range odd {
		m.all[0].Detail, m.all[0].Cmd = text, odd[(i+1)%len(odd)]
		m.all[0].Priority, m.all[0].InputsKept, m.all[0].Request = audit.Low, audit.Kept, text
		out, _ := m.export(t, "csv")
		if !strings.HasSuffix(out, "\r\n") {
			t.Fatal("no CRLF at the end")
		}
		table, err := csv.NewReader(strings.NewReader(out)).ReadAll()
		if err != nil || len(table) != 1+3+1+1 {
			t.Fatalf("%d records, %v", len(table), err)
		}
		cell := func(row int, name string) string {
			for i, column := range table[0] {
				if column == name {
					raw := table[row][i]
					if strings.IndexAny(raw, "=+-@\t\r\n＝＋－＠") == 0 {
						t.Errorf("%s is dangerous: %q", name, raw)
					}
					return strings.TrimPrefix(raw, "'")
				}
			}
			t.Fatalf("no column %s", name)
			return ""
		}
		for name, want := range map[string]string{
			"detail": text, "cmd": odd[(i+1)%len(odd)], "exit_code": "0", "kind": "change", "created_at": m.all[0].CreatedAt.Format(micros),
			"stdout_truncated": "false",
			"priority":         "low", "inputs_kept": "kept", "unreadable": "{}", "request": text,
		} {
			if got := cell(1, name); got != want {
				t.Errorf("%s: %q, want %q", name, got, want)
			}
		}
		if cell(3, "exit_code") != "-2" {
			t.Errorf("exit code %q", cell(3, "exit_code"))
		}
		var args []string
		if err := json.Unmarshal([]byte(cell(1, "args")), &args); err != nil || strings.Join(args, "|") != strings.Join(odd, "|") {
			t.Errorf("args: %q, %v", args, err)
		}
		if cell(4, "kind") != csvNotLogged || cell(4, "exec_id") != m.all[2].ExecID {
			t.Errorf("not logged: %q", table[4])
		}
		var last end
		if err := json.Unmarshal([]byte(cell(5, "detail")), &last); err != nil || cell(5, "kind") != csvEnd || last.Records != 3 || last.Checkpoint == "" {
			t.Errorf("end: %q, %v", table[5], err)
		}
	}
}

// TestColumnsAreTheRecords: each member of a record in JSON is a column of CSV.
func TestColumnsAreTheRecords(t *testing.T) {
	t.Parallel()
	r := planprobe.Exec(0, 1)
	r.LargeLists = map[string]audit.LargeList{"args": {Count: 1}}
	r.Unreadable, r.Request = map[string]string{"cmd": "1"}, "{}"
	text, err := newJSONL().record(nil, r)
	if err != nil {
		t.Fatal(err)
	}
	var members map[string]json.RawMessage
	if err := json.Unmarshal(text, &members); err != nil {
		t.Fatal(err)
	}
	for name := range strings.SplitSeq(strings.TrimSpace(string(csvRecords{}.begin(nil))), ",") {
		if _, ok := members[name]; !ok {
			t.Errorf("%s is a column only", name)
		}
		delete(members, name)
	}
	for name := range members {
		t.Errorf("%s is no column", name)
	}
}

func TestCutExportHasNoEnd(t *testing.T) {
	t.Parallel()
	for _, format := range []string{"jsonl", "csv"} {
		for name, c := range map[string]struct {
			failAt int
			events string // the state that cannot be recorded
			says   string
			want   []string
			bytes  bool
		}{
			"database":    {700, "", "database is away", []string{format + " begins", format + " cut_off"}, true},
			"first page":  {1, "", "database is away", nil, false},
			"first event": {0, "begins", "cannot be recorded", nil, false},
			"last event":  {0, "complete", "cannot be recorded", []string{format + " begins", format + " cut_off"}, true},
		} {
			m := many(1000)
			m.failAt, m.eventsFail = c.failAt, c.events
			var out strings.Builder
			counts, err := Exporter{Records: m, Log: m, Events: m}.Write(t.Context(), &out, Query{Format: Format{Name: format}})
			if err == nil || !strings.Contains(err.Error(), c.says) || strings.Contains(out.String(), typeEnd) || out.Len() > 0 != c.bytes ||
				counts.Records > 0 != c.bytes {
				t.Errorf("%s, %s: %v after %d bytes, %+v", format, name, err, out.Len(), counts)
			}
			if !slices.Equal(m.events, c.want) {
				t.Errorf("%s, %s: events %q", format, name, m.events)
			}
		}
	}
	m := many(10)
	if _, err := (Exporter{Records: m, Log: m, Events: m}).Write(t.Context(), io.Discard, Query{Format: Format{Name: "xml"}}); err == nil || len(m.events) > 0 {
		t.Errorf("an unknown format: %v, %q", err, m.events)
	}
}

// TestSlowReaderHoldsOnePage: while a page is written, the next one is read, and no other.
func TestSlowReaderHoldsOnePage(t *testing.T) {
	t.Parallel()
	m := many(1000)
	m.walked = make(chan struct{})
	in, out := io.Pipe()
	failed := make(chan error)
	go func() {
		_, err := Exporter{Records: m, Log: m, Events: m}.Write(t.Context(), out, Query{Format: Format{Name: "jsonl"}})
		failed <- err
	}()
	<-m.walked
	<-m.walked
	select {
	case <-m.walked:
		t.Error("a third page is read while the first one waits for the reader")
	default:
	}
	in.CloseWithError(errors.New("the client hung up"))
	if err := <-failed; err == nil || !strings.Contains(err.Error(), "hung up") {
		t.Error(err)
	}
}

// TestLargeRecordsMakeSmallPages: the memory is bounded by pages in bytes, however large records
// are.
func TestLargeRecordsMakeSmallPages(t *testing.T) {
	t.Parallel()
	m := many(600)
	for i := range m.all[300:] {
		m.all[300+i].Args = []string{strings.Repeat("x", 100<<10)}
	}
	largest := 0
	counts, err := Exporter{Records: m, Log: m, Events: m}.Write(t.Context(), writer(func(p []byte) { largest = max(largest, len(p)) }),
		Query{Format: Format{Name: "jsonl"}})
	if err != nil || counts.Records != 600 || largest > pageBytes+128<<10 {
		t.Errorf("%+v, %v; the largest page has %d bytes", counts, err, largest)
	}
	if last := m.limits[len(m.limits)-1]; last > 2*pageBytes/(100<<10) {
		t.Errorf("pages of %d large records", last)
	}
}

type writer func(p []byte)

func (w writer) Write(p []byte) (int, error) {
	w(bytes.Clone(p))
	return len(p), nil
}

// TestCanceledExportEnds: the end of the context is an error, not the end of the records.
func TestCanceledExportEnds(t *testing.T) {
	t.Parallel()
	m := many(1000)
	ctx, cancel := context.WithCancel(t.Context())
	var out strings.Builder
	_, err := Exporter{Records: m, Log: m, Events: m}.Write(ctx, io.MultiWriter(&out, writer(func([]byte) { cancel() })), Query{Format: Format{Name: "jsonl"}})
	if !errors.Is(err, context.Canceled) || strings.Contains(out.String(), typeEnd) {
		t.Errorf("%v, %d bytes", err, out.Len())
	}
}
