package storetest

import (
	"encoding/json"
	"fmt"
	"math"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"secbox/audit"
	"secbox/fault"
)

func roundTrip(t *testing.T, f Fixture) {
	s := f.Audit()
	r := ended(record())
	r.Warm = true
	r.IdempotencyKey = "key"
	mustOpen(t, s, r)
	same(t, "Get", mustGet(t, s, r.ExecID), r)
	list, _, err := s.List(t.Context(), audit.Filter{}, nil, 10)
	if err != nil || len(list) != 1 {
		t.Fatalf("List = %v, %v", list, err)
	}
	same(t, "List", list[0], r)

	bare := audit.Record{
		ExecID: newID(), Status: audit.Queued, CreatedAt: base, Args: []string{}, EnvKeys: []string{},
		EnvHMACs: []string{}, Inputs: []audit.Input{},
	}
	mustOpen(t, s, bare)
	bare.Kind = audit.KindExec
	same(t, "a bare record", mustGet(t, s, bare.ExecID), bare)

	code := math.MinInt32
	extreme := in(record(), func(r *audit.Record) {
		r.ExitCode, r.StdoutBytes, r.DurationMS = &code, math.MaxInt64, math.MaxInt64
		r.PolicySnapshot = json.RawMessage(`{"big": 9007199254740993, "nested": [[[{"a": null}]]], "text": "ü\n"}`)
		r.Args = []string{strings.Repeat("x", 1<<20)}
	})
	mustOpen(t, s, extreme)
	got := mustGet(t, s, extreme.ExecID)
	same(t, "extremes", got, extreme)
	if !strings.Contains(string(got.PolicySnapshot), "9007199254740993") {
		t.Errorf("a large number was rounded: %s", got.PolicySnapshot)
	}
}

func oddStrings(t *testing.T, f Fixture) {
	s := f.Audit()
	for in, want := range map[string]string{
		"a\x00b":                               "a␀b",
		"\x00":                                 "␀",
		"broken \xff\xfe.":                     "broken \uFFFD.",
		"half \xed\xa0\x80":                    "half \uFFFD",
		"'; DROP TABLE x--":                    "'; DROP TABLE x--",
		"\u0001\u001f\u007f\u0085\u2028\u202e": "\u0001\u001f\u007f\u0085\u2028\u202e",
		"e\u0301 is not é":                     "e\u0301 is not é",
		`\u0000 as six characters`:             `\u0000 as six characters`,
		"😀\U0010FFFF\uFFFE":                    "😀\U0010FFFF\uFFFE",
		" \t trailing \n":                      " \t trailing \n",
		`"quoted\"`:                            `"quoted\"`,
	} {
		r := record()
		r.TaskID, r.Cmd, r.Detail, r.UserID, r.IdempotencyKey = in, in, in, in, in
		r.Args, r.EnvKeys = []string{in, in}, []string{in}
		r.Inputs = []audit.Input{{Path: in, SHA256: in}}
		snapshot, _ := json.Marshal(map[string]any{"v": in, "k" + in: []string{in}})
		r.PolicySnapshot = snapshot
		mustOpen(t, s, r)

		expected := r
		expected.TaskID, expected.Cmd, expected.Detail, expected.UserID, expected.IdempotencyKey = want, want, want, want, want
		expected.Args, expected.EnvKeys = []string{want, want}, []string{want}
		expected.Inputs = []audit.Input{{Path: want, SHA256: want}}
		got := mustGet(t, s, r.ExecID)
		if strings.Contains(string(got.PolicySnapshot), `\u0000`) && !strings.Contains(in, "six characters") {
			t.Errorf("%q: an escaped NUL stayed in the snapshot: %s", in, got.PolicySnapshot)
		}
		expected.PolicySnapshot, got.PolicySnapshot = nil, nil
		same(t, in, got, expected)

		list, _, err := s.List(t.Context(), audit.Filter{TaskID: in, UserID: in, Users: []string{in}}, nil, 10)
		if err != nil || len(list) != 1 || list[0].ExecID != r.ExecID {
			t.Errorf("%q as a filter: %v, %v", in, list, err)
		}
		again := record()
		again.IdempotencyKey = in
		taken, err := s.Open(t.Context(), again)
		if err != nil || taken == nil || taken.ExecID != r.ExecID {
			t.Errorf("%q as an idempotency key: %v, %v", in, taken, err)
		}
	}

	for _, raw := range []string{
		`{"a": "\u0000"}`, `{"\u0000": 1}`, `{"a": "\ud800"}`, `"\udc00\ud800"`, "\"\xff\"",
		`{"a": "\ud83d\ude00 \u00e9"}`,
	} {
		r := record()
		r.PolicySnapshot = json.RawMessage(raw)
		mustOpen(t, s, r)
		if got := mustGet(t, s, r.ExecID).PolicySnapshot; !json.Valid(got) || strings.Contains(string(got), `\u0000`) {
			t.Errorf("snapshot %s came back as %s", raw, got)
		}
		if data := mustEvents(t, s, r.ExecID)[0].Data; !json.Valid(data) {
			t.Errorf("snapshot %s made the event %s", raw, data)
		}
	}

	for _, id := range []string{"\x00", "\xff", "'", strings.Repeat("x", 10000), "%", ""} {
		if _, err := s.Get(t.Context(), id); !fault.Is(err, fault.UnknownExec) {
			t.Errorf("Get(%.20q): %v", id, err)
		}
		if events, err := s.Events(t.Context(), id); err != nil || len(events) != 0 {
			t.Errorf("Events(%.20q) = %v, %v", id, events, err)
		}
	}
}

func emptyLists(t *testing.T, f Fixture) {
	s := f.Audit()
	for _, r := range []audit.Record{
		in(record(), func(r *audit.Record) { r.Args, r.EnvKeys, r.Inputs, r.PolicySnapshot = nil, nil, nil, nil }),
		in(record(), func(r *audit.Record) {
			r.Args, r.EnvKeys, r.Inputs, r.PolicySnapshot = []string{}, []string{}, []audit.Input{}, json.RawMessage("null")
		}),
	} {
		mustOpen(t, s, r)
		for what, got := range map[string]audit.Record{"row": mustGet(t, s, r.ExecID), "event": inEvent(t, mustEvents(t, s, r.ExecID)[0])} {
			if got.Args == nil || got.EnvKeys == nil || got.Inputs == nil || len(got.Args)+len(got.EnvKeys)+len(got.Inputs) != 0 {
				t.Errorf("%s: %#v %#v %#v, want empty lists that are not nil", what, got.Args, got.EnvKeys, got.Inputs)
			}
		}
		if got := mustGet(t, s, r.ExecID).PolicySnapshot; got != nil {
			t.Errorf("a snapshot of null came back as %q", got)
		}
	}
	if list, _, err := s.List(t.Context(), audit.Filter{TaskID: "none"}, nil, 10); err != nil || list == nil || len(list) != 0 {
		t.Errorf("an empty list is %#v, %v", list, err)
	}
	if events, err := s.Events(t.Context(), "none"); err != nil || events == nil || len(events) != 0 {
		t.Errorf("empty events are %#v, %v", events, err)
	}
}

func times(t *testing.T, f Fixture) {
	s := f.Audit()
	zone := time.FixedZone("somewhere", 5*3600+1800)
	r := record()
	r.CreatedAt = time.Date(2026, 10, 25, 2, 30, 0, 123456789, zone)
	r.StartedAt, r.EndedAt = time.Date(1969, 12, 31, 23, 59, 59, 999999999, time.UTC), time.Date(9998, 1, 1, 0, 0, 0, 1000, time.UTC)
	mustOpen(t, s, r)
	for what, got := range map[string]audit.Record{"row": mustGet(t, s, r.ExecID), "event": inEvent(t, mustEvents(t, s, r.ExecID)[0])} {
		if want := time.Date(2026, 10, 24, 21, 0, 0, 123456000, time.UTC); got.CreatedAt != want {
			t.Errorf("%s: created_at %v, want %v", what, got.CreatedAt, want)
		}
		if want := time.Date(1969, 12, 31, 23, 59, 59, 999999000, time.UTC); got.StartedAt != want {
			t.Errorf("%s: started_at %v, want %v", what, got.StartedAt, want)
		}
		if got.EndedAt != r.EndedAt {
			t.Errorf("%s: ended_at %v, want %v", what, got.EndedAt, r.EndedAt)
		}
	}
	queued := in(record(), func(r *audit.Record) { r.Status, r.StartedAt = audit.Queued, time.Time{} })
	mustOpen(t, s, queued)
	if got := mustGet(t, s, queued.ExecID); !got.StartedAt.IsZero() || !got.EndedAt.IsZero() {
		t.Errorf("times that are not yet came back as %v and %v", got.StartedAt, got.EndedAt)
	}
}

func openingEvents(t *testing.T, f Fixture) {
	s := f.Audit()
	for status, want := range map[audit.Status][]audit.EventKind{
		audit.Queued:   {audit.EventCreated},
		audit.Running:  {audit.EventCreated, audit.EventStarted},
		audit.Rejected: {audit.EventCreated, audit.EventEnded},
		audit.Errored:  {audit.EventCreated, audit.EventEnded},
	} {
		r := record()
		r.Status = status
		mustOpen(t, s, r)
		events := mustEvents(t, s, r.ExecID)
		if got := kinds(t, s, r.ExecID); !slices.Equal(got, want) {
			t.Fatalf("%s: events %v, want %v", status, got, want)
		}
		for i, e := range events {
			if e.ExecID != r.ExecID || e.NodeID != r.NodeID || e.At.IsZero() || e.At.Location() != time.UTC {
				t.Errorf("%s: event %+v", status, e)
			}
			if i > 0 && e.Seq <= events[i-1].Seq {
				t.Errorf("%s: seq %d after %d", status, e.Seq, events[i-1].Seq)
			}
			same(t, "event data", inEvent(t, e), r)
		}
	}
}

func largeLists(t *testing.T, f Fixture) {
	s := f.Audit()
	large := map[string]audit.LargeList{"args": {Count: 2, Kept: 2, SHA256: "aa"}, "inputs": {Count: 900, Kept: 1, SHA256: "bb"}}
	brief := func(r audit.Record) audit.Record {
		r.Args, r.Inputs = []string{}, []audit.Input{}
		r.LargeLists = map[string]audit.LargeList{"args": {Count: 2, SHA256: "aa"}, "inputs": {Count: 900, SHA256: "bb"}}
		return r
	}

	waiting := in(queued(), func(r *audit.Record) { r.LargeLists, r.Backend = large, audit.BackendRemote })
	mustOpen(t, s, waiting)
	going := in(waiting, func(r *audit.Record) { r.Status, r.NodeID = audit.Running, "n1" })
	if ok, err := s.Start(t.Context(), going); err != nil || !ok {
		t.Fatal(ok, err)
	}
	if _, err := s.LoseOpen(t.Context(), "n1", nil); err != nil {
		t.Fatal(err)
	}
	lost := mustGet(t, s, waiting.ExecID)
	done := in(ended(going), func(r *audit.Record) { r.LargeLists, r.Args, r.Inputs = nil, nil, nil }) // an ending does not change them
	if _, err := s.Close(t.Context(), done); err != nil {
		t.Fatal(err)
	}
	done.LargeLists, done.Args, done.Inputs = large, going.Args, going.Inputs
	same(t, "row", mustGet(t, s, waiting.ExecID), done)
	for i, want := range []audit.Record{waiting, brief(going), brief(lost), brief(done)} {
		same(t, fmt.Sprint("event ", i), inEvent(t, mustEvents(t, s, waiting.ExecID)[i]), want)
	}

	refused := in(ended(record()), func(r *audit.Record) { r.Status, r.LargeLists = audit.Rejected, large })
	mustOpen(t, s, refused)
	for i, want := range []audit.Record{refused, brief(refused)} {
		same(t, fmt.Sprint("event of a refusal ", i), inEvent(t, mustEvents(t, s, refused.ExecID)[i]), want)
	}
}

func openingRefused(t *testing.T, f Fixture) {
	s := f.Audit()
	long := strings.Repeat("x", 513)
	for name, c := range map[string]struct {
		change func(*audit.Record)
		code   fault.Code
	}{
		"no id":         {func(r *audit.Record) { r.ExecID = "" }, fault.Internal},
		"no time":       {func(r *audit.Record) { r.CreatedAt = time.Time{} }, fault.Internal},
		"no status":     {func(r *audit.Record) { r.Status = "" }, fault.Internal},
		"odd status":    {func(r *audit.Record) { r.Status = "done" }, fault.Internal},
		"broken policy": {func(r *audit.Record) { r.PolicySnapshot = json.RawMessage(`{"a"`) }, fault.Internal},
		"long task":     {func(r *audit.Record) { r.TaskID = long }, fault.InvalidRequest},
		"long key":      {func(r *audit.Record) { r.IdempotencyKey = long }, fault.InvalidRequest},
		"long project":  {func(r *audit.Record) { r.ProjectID = long }, fault.InvalidRequest},
	} {
		if _, err := s.Open(t.Context(), in(record(), c.change)); !fault.Is(err, c.code) {
			t.Errorf("%s: %v, want %s", name, err, c.code)
		}
	}
	longest := strings.Repeat("\U0001F600", 128) // 512 bytes that do not compress into an index entry by luck
	mustOpen(t, s, in(record(), func(r *audit.Record) {
		r.ProjectID, r.TaskID, r.ConversationID, r.SkillID, r.SkillDigest, r.AgentID, r.UserID, r.RequestedBy, r.IdempotencyKey, r.NodeID,
			r.Runner, r.ReplayOf, r.TraceID = longest, longest, longest, longest, longest, longest, longest, longest, longest, longest,
			longest, longest, longest
	}))
	if list, _, err := s.List(t.Context(), audit.Filter{}, nil, 100); err != nil || len(list) != 1 {
		t.Errorf("%d rows, %v; want only the one that was right", len(list), err)
	}
}

func idUsedTwice(t *testing.T, f Fixture) {
	s := f.Audit()
	for _, key := range []string{"", "k1"} {
		r := record()
		r.IdempotencyKey = key
		mustOpen(t, s, r)
		for _, again := range []audit.Record{r, in(r, func(r *audit.Record) { r.Detail, r.IdempotencyKey = "other", "other" })} {
			if taken, err := s.Open(t.Context(), again); !fault.Is(err, fault.Internal) || taken != nil {
				t.Errorf("second Open = %v, %v", taken, err)
			}
		}
		same(t, "the first", mustGet(t, s, r.ExecID), r)
		if got := len(mustEvents(t, s, r.ExecID)); got != 2 {
			t.Errorf("%d events after a refused opening", got)
		}
	}
}

func idempotency(t *testing.T, f Fixture) {
	s := f.Audit()
	first := in(record(), func(r *audit.Record) { r.IdempotencyKey = "k" })
	mustOpen(t, s, first)
	second := in(record(), func(r *audit.Record) { r.IdempotencyKey, r.RequestDigest = "k", "another body" })
	taken, err := s.Open(t.Context(), second)
	if err != nil || taken == nil {
		t.Fatalf("Open = %v, %v", taken, err)
	}
	same(t, "the holder", *taken, first)
	if _, err := s.Get(t.Context(), second.ExecID); !fault.Is(err, fault.UnknownExec) {
		t.Errorf("the second was written: %v", err)
	}
	if events := mustEvents(t, s, second.ExecID); len(events) != 0 {
		t.Errorf("the second has events: %v", events)
	}
	mustOpen(t, s, in(record(), func(r *audit.Record) { r.IdempotencyKey, r.RequestedBy = "k", "another" }))
	mustOpen(t, s, in(record(), func(r *audit.Record) { r.IdempotencyKey = "K" }))
	mustOpen(t, s, record()) // no key
	mustOpen(t, s, record())

	if _, err := s.Close(t.Context(), ended(first)); err != nil {
		t.Fatal(err)
	}
	taken, err = f.Reopen(t).Audit().Open(t.Context(), in(record(), func(r *audit.Record) { r.IdempotencyKey = "k" }))
	if err != nil || taken == nil {
		t.Fatalf("after the end and from another process: %v, %v", taken, err)
	}
	same(t, "the holder after its end", *taken, ended(first))

	found, err := s.OfKey(t.Context(), first.RequestedBy, "k")
	if err != nil || found == nil {
		t.Fatalf("OfKey = %v, %v", found, err)
	}
	same(t, "the holder by its key", *found, ended(first))
	for _, of := range [][2]string{{first.RequestedBy, "other"}, {"nobody", "k"}, {first.RequestedBy, ""}} {
		if found, err := s.OfKey(t.Context(), of[0], of[1]); err != nil || found != nil {
			t.Errorf("%q has %v, %v", of, found, err)
		}
	}
}

func idempotencyRace(t *testing.T, f Fixture) {
	s := f.Audit()
	const rivals = 12
	won, holders := make([]string, rivals), make([]string, rivals)
	var all sync.WaitGroup
	for i := range rivals {
		all.Go(func() {
			r := in(record(), func(r *audit.Record) { r.IdempotencyKey = "race" })
			taken, err := s.Open(t.Context(), r)
			switch {
			case err != nil:
				t.Error(err)
			case taken == nil:
				won[i], holders[i] = r.ExecID, r.ExecID
			default:
				holders[i] = taken.ExecID
			}
		})
	}
	all.Wait()
	winners := slices.DeleteFunc(won, func(id string) bool { return id == "" })
	if len(winners) != 1 {
		t.Fatalf("%d openings won", len(winners))
	}
	for _, holder := range holders {
		if holder != winners[0] {
			t.Errorf("a loser was told %q, the winner is %q", holder, winners[0])
		}
	}
	if list, _, err := s.List(t.Context(), audit.Filter{}, nil, 100); err != nil || len(list) != 1 {
		t.Errorf("%d rows, %v", len(list), err)
	}
}
