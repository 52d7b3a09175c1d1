package proof

import (
	"bytes"
	"crypto/ed25519"
	"encoding/json"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	"golang.org/x/mod/sumdb/note"

	"secbox/audit"
	"secbox/fault"
)

// read returns a file of testdata: proofs of both databases, and the key of their logs. Later
// versions must accept them.
func read(t testing.TB, name string) []byte {
	t.Helper()
	data, err := os.ReadFile(filepath.Join("testdata", name))
	if err != nil {
		t.Fatal(err)
	}
	return data
}

var goldens = []string{"sqlite.json", "postgres.json"}

// newer returns the columns that a file of testdata does not have, in order.
func newer(t *testing.T, file []byte) (names []string) {
	t.Helper()
	var f struct{ Record map[string]any }
	if err := json.Unmarshal(file, &f); err != nil || len(f.Record) < 40 {
		t.Fatalf("%d columns, %v", len(f.Record), err)
	}
	for name := range columnAt {
		if _, ok := f.Record[name]; !ok {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return names
}

func TestCheckAcceptsProofs(t *testing.T) {
	t.Parallel()
	key := string(read(t, "log.pub"))
	for _, name := range goldens {
		result, err := Check(read(t, name), key)
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		var kinds []audit.EventKind
		for _, e := range result.Events {
			kinds = append(kinds, e.Kind)
		}
		if !slices.Equal(kinds, []audit.EventKind{audit.EventCreated, audit.EventStarted, audit.EventEnded, audit.EventCorrected}) ||
			result.Origin != "secbox/test" ||
			result.Size != 19 || result.Record.Status != audit.Failed || !slices.Equal(result.Unproven, newer(t, read(t, name))) {
			t.Errorf("%s: %+v", name, result)
		}
	}
}

// TestOneChangedBit changes every thirteenth byte of a file, and with SECBOX_SOAK=1 each. What is
// still accepted must say the same.
func TestOneChangedBit(t *testing.T) {
	t.Parallel()
	step := 13 // odd, so that each bit gets its turn
	if os.Getenv("SECBOX_SOAK") == "1" {
		step = 1
	}
	key := string(read(t, "log.pub"))
	for _, name := range goldens {
		data := read(t, name)
		want, err := Check(data, key)
		if err != nil {
			t.Fatal(err)
		}
		for i := 0; i < len(data); i += step {
			changed := bytes.Clone(data)
			changed[i] ^= 1 << (i % 8)
			if got, err := Check(changed, key); err == nil && !equal(got, want) {
				t.Errorf("%s: byte %d: accepted %q", name, i, changed[max(0, i-20):min(len(changed), i+20)])
			} else if err != nil && !fault.Is(err, fault.InvalidProof) {
				t.Errorf("%s: byte %d: %v", name, i, err)
			}
		}
	}
}

// TestRecordIsComparedByColumn changes each column of the record.
func TestRecordIsComparedByColumn(t *testing.T) {
	t.Parallel()
	key := string(read(t, "log.pub"))
	var f map[string]any
	if err := json.Unmarshal(read(t, "postgres.json"), &f); err != nil {
		t.Fatal(err)
	}
	record := f["record"].(map[string]any)
	for name, value := range record {
		switch v := value.(type) {
		case string:
			if record[name] = v + "x"; strings.HasSuffix(name, "_at") {
				record[name] = strings.Replace(v, "2026", "2025", 1)
			}
		case float64:
			record[name] = v + 1
		case bool:
			record[name] = !v
		case []any:
			record[name] = []any{}
		case map[string]any:
			record[name] = map[string]any{}
		}
		data, err := json.Marshal(f)
		if err != nil {
			t.Fatal(err)
		}
		_, err = Check(data, key)
		failed := fault.From(err)
		if failed == nil || failed.Code != fault.InvalidProof || len(failed.Fields) != 1 || failed.Fields[0].Field != name {
			t.Errorf("%s: %v", name, err)
		}
		record[name] = value
	}
}

// equal compares what two files say. Records may be written in several ways.
func equal(a, b Result) bool {
	for name := range columnAt {
		if !sameJSON(encoded(a.Record)[name], encoded(b.Record)[name]) {
			return false
		}
	}
	a.Record, b.Record = audit.Record{}, audit.Record{}
	return reflect.DeepEqual(a, b)
}

func TestCheckRefuses(t *testing.T) {
	t.Parallel()
	key := string(read(t, "log.pub"))
	seed := bytes.Repeat([]byte{1}, ed25519.SeedSize)
	foreign, err := note.NewEd25519VerifierKey("secbox/test", ed25519.NewKeyFromSeed(seed).Public().(ed25519.PublicKey))
	if err != nil {
		t.Fatal(err)
	}
	renamed, err := note.NewEd25519VerifierKey("secbox/other", ed25519.NewKeyFromSeed(seed).Public().(ed25519.PublicKey))
	if err != nil {
		t.Fatal(err)
	}
	change := func(edit func(f *File)) []byte {
		f, err := parse(read(t, "sqlite.json"))
		if err != nil {
			t.Fatal(err)
		}
		edit(&f)
		data, err := f.Marshal()
		if err != nil {
			t.Fatal(err)
		}
		return data
	}
	other, err := parse(read(t, "postgres.json"))
	if err != nil {
		t.Fatal(err)
	}
	for name, tc := range map[string]struct {
		data []byte
		key  string
		code fault.Code
		says string
	}{
		"no key":                  {read(t, "sqlite.json"), "", fault.InvalidRequest, "core-api audit key"},
		"a damaged key":           {read(t, "sqlite.json"), key[:len(key)-5], fault.InvalidRequest, "core-api audit key"},
		"a foreign key":           {read(t, "sqlite.json"), foreign, fault.InvalidProof, "not signed by the key"},
		"another installation":    {read(t, "sqlite.json"), renamed, fault.InvalidProof, "not signed by the key"},
		"nothing":                 {nil, key, fault.InvalidProof, "no proof"},
		"too much":                {bytes.Repeat([]byte(" "), MaxBytes+1), key, fault.InvalidProof, "larger than"},
		"another format":          {change(func(f *File) { f.Format = "x" }), key, fault.InvalidProof, "format"},
		"no events":               {change(func(f *File) { f.Events = nil }), key, fault.InvalidProof, "no events"},
		"another exec":            {change(func(f *File) { f.ExecID = "x" }), key, fault.InvalidProof, "is of the exec"},
		"without the first event": {change(func(f *File) { f.Events = f.Events[1:] }), key, fault.InvalidProof, "cannot have the events"},
		"without the last event":  {change(func(f *File) { f.Events = f.Events[:3] }), key, fault.InvalidProof, "differs from its events"},
		"without one between":     {change(func(f *File) { f.Events = slices.Delete(f.Events, 2, 3) }), key, fault.InvalidProof, "cannot have the events"},
		"swapped events":          {change(func(f *File) { f.Events[1], f.Events[2] = f.Events[2], f.Events[1] }), key, fault.InvalidProof, "does not follow"},
		"an event twice":          {change(func(f *File) { f.Events = append(f.Events, f.Events[3]) }), key, fault.InvalidProof, "does not follow"},
		"a foreign event":         {change(func(f *File) { f.Events[3] = other.Events[3] }), key, fault.InvalidProof, "another checkpoint"},
		"a swapped proof": {
			change(func(f *File) { f.Events[3].TLogProof = f.Events[2].TLogProof }), key, fault.InvalidProof,
			"does not have this event",
		},
		"another event": {
			change(func(f *File) { f.Events[0].Event = strings.Replace(f.Events[0].Event, "demo", "dem0", 1) }), key,
			fault.InvalidProof, "does not have this event",
		},
		"another salt": {change(func(f *File) { f.Events[0].Salt[0]++ }), key, fault.InvalidProof, "does not have this event"},
		"a short salt": {change(func(f *File) { f.Events[0].Salt = f.Events[0].Salt[1:] }), key, fault.InvalidProof, "salt has 31 bytes"},
		"a salt that takes a byte": {change(func(f *File) {
			f.Events[0].Salt, f.Events[0].Event = append(f.Events[0].Salt, f.Events[0].Event[0]), f.Events[0].Event[1:]
		}), key, fault.InvalidProof, "salt has 33 bytes"},
		"an unknown member": {
			bytes.Replace(read(t, "sqlite.json"), []byte(`"format"`), []byte(`"more": 1, "format"`), 1), key, fault.InvalidProof,
			"more",
		},
		"a member twice": {
			bytes.Replace(read(t, "sqlite.json"), []byte(`"format"`), []byte(`"exec_id": "x", "format"`), 1), key, fault.InvalidProof,
			"duplicate",
		},
		"an unknown column": {
			bytes.Replace(read(t, "sqlite.json"), []byte(`"kind": "exec"`), []byte(`"kind": "exec", "later": 1`), 1), key,
			fault.InvalidProof, "older than the server",
		},
		"a column in capitals too": {
			bytes.Replace(read(t, "sqlite.json"), []byte(`"kind": "exec"`), []byte(`"kind": "change", "KIND": "exec"`), 1), key,
			fault.InvalidProof, "older than the server",
		},
	} {
		result, err := Check(tc.data, tc.key)
		if !fault.Is(err, tc.code) || !strings.Contains(fault.From(err).Message, tc.says) {
			t.Errorf("%s: %+v, %v", name, result, err)
		}
	}
}

// TestColumnsNewerThanEvents: rows of older versions got columns that their events do not have.
func TestColumnsNewerThanEvents(t *testing.T) {
	t.Parallel()
	old := Document{Record: `{"exec_id":"e","status":"running","args":[],"env_keys":[],"inputs":[]}`}
	history, err := NewHistory([]Document{old})
	if err != nil {
		t.Fatal(err)
	}
	differences, unproven, err := history.Compare(audit.Record{
		ExecID: "e", Status: audit.Running, Kind: audit.KindChange, SHA256After: "aa", Args: []string{}, EnvKeys: []string{}, Inputs: []audit.Input{},
	})
	if err != nil || len(differences) > 0 || !slices.Contains(unproven, "kind") || !slices.Contains(unproven, "sha256_after") ||
		slices.Contains(unproven, "ended_at") {
		t.Errorf("%v, %v, %v", differences, unproven, err)
	}
	if differences, _, _ := history.Compare(audit.Record{ExecID: "e", Status: audit.Failed}); len(differences) == 0 {
		t.Error("a changed status was not found")
	}
}

func TestDocumentIsCanonical(t *testing.T) {
	t.Parallel()
	for _, name := range goldens {
		f, err := parse(read(t, name))
		if err != nil {
			t.Fatal(err)
		}
		for _, e := range f.Events {
			if d, err := ParseDocument(e.Event); err != nil || string(d.Canonical()) != e.Event {
				t.Errorf("%v: %s", err, e.Event)
			}
			for _, other := range []string{
				" " + e.Event, strings.Replace(e.Event, `,"seq":`, `, "seq":`, 1), strings.Replace(e.Event, `"seq":`, `"seq":0`, 1),
				strings.Replace(e.Event, `{"at"`, `{"seq":1,"at"`, 1),
				strings.Replace(e.Event, `Z","exec_id"`, `+00:00","exec_id"`, 1), strings.Replace(e.Event, `@v1"}`, `@v2"}`, 1),
			} {
				if _, err := ParseDocument(other); err == nil {
					t.Errorf("accepted %s", other)
				}
			}
		}
	}
}

// FuzzCheck: a file that is accepted says the same as one of testdata.
func FuzzCheck(f *testing.F) {
	key := string(read(f, "log.pub"))
	var known []Result
	for _, name := range goldens {
		data := read(f, name)
		f.Add(data)
		result, err := Check(data, key)
		if err != nil {
			f.Fatal(err)
		}
		known = append(known, result)
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		result, err := Check(data, key)
		if err == nil && !slices.ContainsFunc(known, func(r Result) bool { return equal(r, result) }) {
			t.Errorf("accepted %+v", result)
		}
	})
}
