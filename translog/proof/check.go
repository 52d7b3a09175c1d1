package proof

import (
	"bytes"
	"encoding/json"
	"fmt"
	"iter"
	"math"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/transparency-dev/formats/log"
	tproof "github.com/transparency-dev/formats/proof"
	"golang.org/x/mod/sumdb/note"
	"golang.org/x/mod/sumdb/tlog"

	"secbox/audit"
	"secbox/fault"
)

// Result is what a file proves.
type Result struct {
	Origin string // of the log
	Size   int64  // of the log at the checkpoint
	Root   string // base64
	Record audit.Record
	Events []Logged

	Unproven []string // columns of the record that are newer than its last event
}

// Logged is an event that is in the log.
type Logged struct {
	Index    int64
	Kind     audit.EventKind
	At       time.Time // by the database's clock
	LoggedAt time.Time // from then on the log holds it
}

// Check verifies a file: the checkpoint's signature by the key, each event's place in the log, and each column of the record against what
// the events say. The key is in the format of `core-api audit key`. It fails with fault.InvalidProof, whose Fields are the columns that
// differ, and with fault.InvalidRequest for a key that is none.
func Check(data []byte, key string) (Result, error) {
	verifier, err := newVerifier(key)
	if err != nil {
		return Result{}, err
	}
	f, err := parse(data)
	if err != nil {
		return Result{}, refuse(err, "the file is no proof of an exec: %v", err)
	}
	if len(f.Events) == 0 {
		return Result{}, refuse(nil, "the file has no events")
	}
	result := Result{Origin: verifier.Name()}
	var checkpoint []byte
	var documents []Document
	for i, e := range f.Events {
		at, err := e.check(verifier)
		var d Document
		if err == nil {
			d, err = parseDocument(e.Event)
		}
		if err != nil {
			return Result{}, refuse(err, "event %d: %v", i+1, err)
		}
		if i > 0 && !bytes.Equal(at.checkpoint, checkpoint) {
			return Result{}, refuse(nil, "event %d: its proof is for another checkpoint than the first event's", i+1)
		}
		checkpoint, result.Size, result.Root = at.checkpoint, at.size, at.root
		documents, result.Events = append(documents, d), append(result.Events, Logged{Index: at.index, Kind: d.Kind, At: d.At, LoggedAt: d.LoggedAt})
	}
	if err := inOrder(f.ExecID, documents, result.Events); err != nil {
		return Result{}, refuse(err, "%v", err)
	}
	if err := f.checkRecord(documents, &result); err != nil {
		return Result{}, err
	}
	return result, nil
}

func newVerifier(key string) (note.Verifier, error) {
	verifier, err := note.NewVerifier(strings.TrimSpace(key))
	if err != nil {
		return nil, fault.Wrap(fault.InvalidRequest, err, "the key is not the public key of a log; `core-api audit key` prints it")
	}
	return verifier, nil
}

func refuse(cause error, format string, args ...any) *fault.Error {
	return fault.Wrap(fault.InvalidProof, cause, format, args...)
}

// place is an event's place in the log.
type place struct {
	index, size int64
	root        string // base64
	checkpoint  []byte
}

// check verifies one event's place in the log.
func (e Event) check(verifier note.Verifier) (place, error) {
	if len(e.Salt) != SaltSize {
		return place{}, fmt.Errorf("its salt has %d bytes, not %d", len(e.Salt), SaltSize)
	}
	var p tproof.TLogProof
	if err := p.Unmarshal([]byte(e.TLogProof)); err != nil {
		return place{}, err
	}
	if string(p.Marshal()) != e.TLogProof {
		return place{}, fmt.Errorf("its tlog-proof is not in the form of C2SP")
	}
	point, _, _, err := log.ParseCheckpoint(p.Checkpoint, verifier.Name(), verifier)
	if err != nil {
		return place{}, fmt.Errorf("the checkpoint is not signed by the key %s: %w", verifier.Name(), err)
	}
	if point.Size > math.MaxInt64 || p.Index >= point.Size || len(point.Hash) != tlog.HashSize {
		return place{}, fmt.Errorf("index %d is not in a log of %d entries", p.Index, point.Size)
	}
	hashes := make(tlog.RecordProof, len(p.Hashes))
	for i, h := range p.Hashes {
		hashes[i] = h
	}
	root := tlog.Hash(point.Hash)
	entry := Entry(e.Salt, []byte(e.Event))
	if err := tlog.CheckRecord(hashes, int64(point.Size), root, int64(p.Index), tlog.RecordHash(entry[:])); err != nil {
		return place{}, fmt.Errorf("the log does not have this event at index %d: %w", p.Index, err)
	}
	return place{int64(p.Index), int64(point.Size), root.String(), p.Checkpoint}, nil
}

// histories are the kinds of events that an exec can have.
var histories = regexp.MustCompile(`^ created( started)?( ended( corrected)?)?$`)

// inOrder refuses events that cannot be the history of the exec.
func inOrder(execID string, documents []Document, logged []Logged) error {
	kinds := ""
	for i, d := range documents {
		if d.ExecID != execID {
			return fmt.Errorf("event %d is of the exec %q, not of %q", i+1, clip(d.ExecID), clip(execID))
		}
		if i > 0 && (d.Seq <= documents[i-1].Seq || logged[i].Index <= logged[i-1].Index) {
			return fmt.Errorf("event %d does not follow event %d", i+1, i)
		}
		kinds += " " + string(d.Kind)
	}
	if !histories.MatchString(kinds) {
		return fmt.Errorf("an exec cannot have the events %q", clip(kinds))
	}
	return nil
}

// checkRecord compares the file's record with the events.
func (f File) checkRecord(documents []Document, result *Result) error {
	decoder := json.NewDecoder(bytes.NewReader(f.Record))
	decoder.DisallowUnknownFields()
	if err := decoder.Decode(&result.Record); err != nil {
		return refuse(err, "the record cannot be read, perhaps because this program is older than the server: %v", err)
	}
	result.Record = inUTC(result.Record)
	differences, unproven, err := Compare(documents, result.Record)
	if err != nil {
		return refuse(err, "%v", err)
	}
	result.Unproven = unproven
	if len(differences) == 0 {
		return nil
	}
	failed := refuse(nil, "the record of exec %q differs from its events: %s", f.ExecID, differences[0])
	for _, d := range differences {
		failed.Fields = append(failed.Fields, fault.Field{Field: d.Column, Reason: d.String()})
	}
	return failed
}

// Difference is a column of a row that is not as its events say. Values are JSON.
type Difference struct{ Column, Expected, Found string }

func (d Difference) String() string {
	return fmt.Sprintf("%s: expected %s, found %s", d.Column, clip(d.Expected), clip(d.Found))
}

// Compare compares the columns of a row with its events, oldest first, of which there is at least one. The last event has all columns,
// except for large lists, which only the first one has. unproven are the columns that did not exist when the last event was written. Both
// are in the order of names.
func Compare(events []Document, row audit.Record) (differences []Difference, unproven []string, err error) {
	last := events[len(events)-1]
	want, err := last.record()
	if err != nil {
		return nil, nil, fmt.Errorf("the record of event %d cannot be read: %w", len(events), err)
	}
	if len(events) > 1 {
		first, err := events[0].record()
		if err != nil {
			return nil, nil, fmt.Errorf("the record of event 1 cannot be read: %w", err)
		}
		if !reflect.DeepEqual(first.Brief().LargeLists, want.LargeLists) {
			return nil, nil, fmt.Errorf("the first and the last event do not agree about large_lists")
		}
		want = withLists(want, first)
	}
	var written map[string]json.RawMessage
	if err := json.Unmarshal([]byte(last.Record), &written); err != nil {
		return nil, nil, err
	}
	expected, found := columns(want), columns(row)
	for name := range columnNames() {
		if _, ok := written[name]; !ok && !leftOut[name] {
			unproven = append(unproven, name)
		} else if !sameJSON(expected[name], found[name]) {
			differences = append(differences, Difference{name, show(expected[name]), show(found[name])})
		}
	}
	slices.Sort(unproven)
	slices.SortFunc(differences, func(a, b Difference) int { return strings.Compare(a.Column, b.Column) })
	return differences, unproven, nil
}

// leftOut are the columns that an event leaves out if they are empty.
var leftOut = map[string]bool{"started_at": true, "ended_at": true, "large_lists": true}

// columnNames returns the names of all columns.
func columnNames() iter.Seq[string] {
	return func(yield func(string) bool) {
		for field := range reflect.TypeFor[audit.Record]().Fields() {
			name, _, _ := strings.Cut(field.Tag.Get("json"), ",")
			if !yield(name) {
				return
			}
		}
	}
}

// withLists returns the record with the large lists of the first event.
func withLists(r, first audit.Record) audit.Record {
	for name := range first.LargeLists {
		switch name {
		case "args":
			r.Args = first.Args
		case "env_keys":
			r.EnvKeys = first.EnvKeys
		case "env_hmacs":
			r.EnvHMACs = first.EnvHMACs
		case "inputs":
			r.Inputs = first.Inputs
		}
	}
	r.LargeLists = first.LargeLists
	return r
}

// columns returns a record's columns as JSON.
func columns(r audit.Record) map[string]json.RawMessage {
	var all map[string]json.RawMessage
	text, _ := json.Marshal(r) // it was read from JSON
	_ = json.Unmarshal(text, &all)
	return all
}

// sameJSON compares values by their meaning: the databases may order the members of a policy snapshot differently.
func sameJSON(a, b json.RawMessage) bool {
	if bytes.Equal(a, b) {
		return true
	}
	x, errX := decode(a)
	y, errY := decode(b)
	return errX == nil && errY == nil && reflect.DeepEqual(x, y)
}

func decode(text json.RawMessage) (v any, err error) {
	d := json.NewDecoder(bytes.NewReader(text))
	d.UseNumber()
	err = d.Decode(&v)
	return v, err
}

func show(text json.RawMessage) string {
	if text == nil {
		return "nothing"
	}
	return string(text)
}
