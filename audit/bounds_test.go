package audit_test

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"

	"secbox/audit"
	"secbox/fault"
	"secbox/internal/quota"
	"secbox/store"
)

// manyInputs are as many files with long paths as one request can bring.
func manyInputs(n int) []audit.Input {
	inputs := make([]audit.Input, n)
	for i := range inputs {
		inputs[i] = audit.Input{Path: fmt.Sprintf("%s/é\u2028<&>%d", strings.Repeat("x", 3000), i), Size: int64(i), SHA256: strings.Repeat("0a", 32)}
		if i%2 == 1 {
			inputs[i].Mode = audit.ModeExecutable
		}
	}
	return inputs
}

// listDigest is the expected digest of a list's canonical JSON, computed in another way.
func listDigest(t *testing.T, list any) string {
	t.Helper()
	text, err := json.Marshal(list)
	if err != nil {
		t.Fatal(err)
	}
	var plain any // objects in a map have their names sorted
	if err := json.Unmarshal(text, &plain); err != nil {
		t.Fatal(err)
	}
	var b strings.Builder
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	if err := e.Encode(plain); err != nil {
		t.Fatal(err)
	}
	sum := sha256.Sum256([]byte(strings.ReplaceAll(strings.TrimSpace(b.String()), `\u2028`, "\u2028")))
	return hex.EncodeToString(sum[:])
}

// bytesOnRecord is how much a row and each of its events take.
func bytesOnRecord(t *testing.T, db store.Database, id string) (row int, events []int) {
	t.Helper()
	r, err := db.Audit().Get(t.Context(), id)
	if err != nil {
		t.Fatal(err)
	}
	all, err := db.Audit().Events(t.Context(), id)
	if err != nil {
		t.Fatal(err)
	}
	text, err := json.Marshal(r)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range all {
		events = append(events, len(e.Data))
	}
	return len(text), events
}

func TestRecordIsBounded(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	db := openDatabase(t, "", dir)
	l := newLog(t, db.Audit(), dir)

	huge := running()
	huge.Inputs = manyInputs(3000)
	huge.Args = []string{"-lc", strings.Repeat("s", 128<<10-1), strings.Repeat("t", 64<<10)}
	for i := range 20_000 {
		huge.EnvKeys = append(huge.EnvKeys, fmt.Sprintf("NAME_%05d", i))
	}
	if _, err := l.Open(t.Context(), huge); err != nil {
		t.Fatal(err)
	}
	done := ended(huge)
	done.Detail = strings.Repeat("ü", 1<<20)
	if _, err := l.Close(t.Context(), &done); err != nil {
		t.Fatal(err)
	}
	got, err := l.Get(t.Context(), huge.ExecID)
	if err != nil {
		t.Fatal(err)
	}
	if len(got.Args) != 2 || got.Args[1] != huge.Args[1] {
		t.Errorf("%d arguments are kept, want the two that fit", len(got.Args))
	}
	for name, c := range map[string]struct {
		whole        any
		count, kept  int
		least, below int
	}{
		"args":     {huge.Args, 3, len(got.Args), 2, 3},
		"env_keys": {huge.EnvKeys, 20_000, len(got.EnvKeys), 2000, 3000},
		"inputs":   {huge.Inputs, 3000, len(got.Inputs), 9, 12},
	} {
		l := got.LargeLists[name]
		if l.Count != c.count || l.Kept != c.kept || l.Kept < c.least || l.Kept >= c.below || l.SHA256 != listDigest(t, c.whole) {
			t.Errorf("%s: %+v, and %d are kept of %d", name, l, c.kept, c.count)
		}
	}
	if !strings.HasSuffix(got.Detail, "… [cut: 2097152 bytes]") || len(got.Detail) > 4<<10 {
		t.Errorf("a detail of %d bytes ends in %q", len(got.Detail), got.Detail[max(0, len(got.Detail)-40):])
	}
	row, events := bytesOnRecord(t, db, huge.ExecID)
	if row > 220<<10 || len(events) != 3 || events[0] > 220<<10 || events[1] > 8<<10 || events[2] > 8<<10 {
		t.Errorf("the row takes %d bytes, its events %v", row, events)
	}

	// A refusal keeps less.
	refused := huge
	refused.ExecID, refused.Status, refused.StartedAt, refused.EndedAt = uuid.Must(uuid.NewV7()).String(), audit.Rejected, time.Time{}, huge.CreatedAt
	refused.TaskID = strings.Repeat("t", 1<<20)
	if _, recorded, err := l.Refuse(t.Context(), refused); err != nil || !recorded {
		t.Fatalf("%v, %v", recorded, err)
	}
	row, events = bytesOnRecord(t, db, refused.ExecID)
	if row > 16<<10 || len(events) != 2 || slices.Max(events) > 16<<10 {
		t.Errorf("the row of a refusal takes %d bytes, its events %v", row, events)
	}
	if got, err := l.Get(t.Context(), refused.ExecID); err != nil || got.LargeLists["inputs"].SHA256 != listDigest(t, huge.Inputs) || len(got.TaskID) > 255 {
		t.Errorf("%v: %+v, a task of %d bytes", err, got.LargeLists, len(got.TaskID))
	}

	// Nothing is said of lists that are whole.
	if small, err := l.Get(t.Context(), mustOpen(t, l).ExecID); err != nil || small.LargeLists != nil {
		t.Errorf("%v, %+v", err, small.LargeLists)
	}
}

func TestPageIsBounded(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	db := openDatabase(t, "", dir)
	l, err := audit.NewLog(audit.Config{Store: db.Audit(), Dir: filepath.Join(dir, "spool"), Logger: discard, PageBytes: 40 << 10})
	if err != nil {
		t.Fatal(err)
	}
	var want []string
	for i := range 100 {
		r := running()
		if i%10 == 0 {
			r.Args = append(r.Args, strings.Repeat("a", 60<<10)) // more than a page alone
		}
		if _, err := l.Open(t.Context(), r); err != nil {
			t.Fatal(err)
		}
		want = append(want, r.ExecID)
	}
	slices.Reverse(want)
	var got []string
	var sizes []int
	for after := (*audit.Cursor)(nil); ; {
		page, next, err := l.List(t.Context(), audit.Filter{}, after, 90)
		if err != nil {
			t.Fatal(err)
		}
		for _, r := range page {
			got = append(got, r.ExecID)
		}
		sizes = append(sizes, len(page))
		if after = next; next == nil {
			break
		}
	}
	if !slices.Equal(got, want) || slices.Max(sizes) > 9 || slices.Min(sizes) < 1 {
		t.Errorf("%d of %d records on pages of %v", len(got), len(want), sizes)
	}
}

func TestRefusalsBeyondTheRateAreCounted(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	db := openDatabase(t, "", dir)
	now := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	free := uint64(100 << 20)
	l, err := audit.NewLog(audit.Config{
		Store: db.Audit(), Dir: filepath.Join(dir, "spool"), Logger: discard, Refusals: quota.Rate{Burst: 3, PerMinute: 1},
		Now: func() time.Time { return now }, FreeBytes: func() (uint64, error) { return free, nil }, FreeMinBytes: 50 << 20,
	})
	if err != nil {
		t.Fatal(err)
	}
	refuse := func(token string, times int) (recorded int) {
		for range times {
			r := running()
			r.Status, r.StartedAt, r.EndedAt, r.RequestedBy = audit.Rejected, time.Time{}, r.CreatedAt, token
			_, ok, err := l.Refuse(t.Context(), r)
			if err != nil {
				t.Fatal(err)
			}
			if ok {
				recorded++
			}
		}
		return recorded
	}
	if a, b := refuse("a", 10), refuse("b", 2); a != 3 || b != 2 {
		t.Errorf("%d and %d are on record, want 3 and 2", a, b)
	}
	now = now.Add(2 * time.Minute)
	if a := refuse("a", 5); a != 2 {
		t.Errorf("two minutes later %d are on record, want 2", a)
	}
	free = 50<<20 - 1
	if b := refuse("b", 4); b != 0 {
		t.Errorf("%d are on record although the disk is full", b)
	}
	mustOpen(t, l) // running execs may use most of the reserve
	free = 4<<20 - 1
	if _, err := l.Open(t.Context(), running()); !fault.Is(err, fault.DiskFull) {
		t.Errorf("a row is opened although the disk is full: %v", err)
	}
	free = 50 << 20
	run(t, l)() // its end writes the counts
	counted := map[string]int64{}
	rows, _, err := l.List(t.Context(), audit.Filter{Statuses: []audit.Status{audit.Rejected}}, nil, 100)
	if err != nil {
		t.Fatal(err)
	}
	for _, r := range rows {
		if r.ErrorReason == audit.RefusalsOmitted {
			counted[r.RequestedBy] = audit.UnrecordedRefusals(r.ErrorReason, r.Detail)
			for _, other := range []string{"", "1" + r.Detail[1:] + " x", "-" + r.Detail, "0" + r.Detail, "9999999999999" + r.Detail} {
				if n := audit.UnrecordedRefusals(r.ErrorReason, other); n != 1 {
					t.Errorf("%q counts %d", other, n)
				}
			}
		} else if n := audit.UnrecordedRefusals(r.ErrorReason, "10 refused requests of this token"); n != 0 {
			t.Errorf("a row of its own counts %d", n)
		}
	}
	if want := map[string]int64{"a": 10, "b": 4}; !maps.Equal(counted, want) || len(rows) != 9 {
		t.Errorf("%d rows, counted %v, want %v", len(rows), counted, want)
	}
}
