package proof

import (
	"bytes"
	"fmt"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/transparency-dev/formats/log"
	cosignature "github.com/transparency-dev/formats/note"
	tproof "github.com/transparency-dev/formats/proof"
	"golang.org/x/mod/sumdb/note"
	"golang.org/x/mod/sumdb/tlog"

	"secbox/audit"
	"secbox/audit/translog/checkpoint"
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

	Cosignatures
}

// Cosignatures are the signatures of a checkpoint beside the log's.
type Cosignatures struct {
	Cosigned  []Cosignature // of the witnesses whose keys were given
	Unchecked []string      // names that the others claim, which nothing has verified
}

// Cosignature is a witness's word that it had seen no larger checkpoint at this time, and that this
// one extended all before.
type Cosignature struct {
	Witness string
	At      time.Time // by the witness's clock, in seconds
}

// Logged is an event that is in the log.
type Logged struct {
	Index    int64
	Kind     audit.EventKind
	At       time.Time // by the database's clock
	LoggedAt time.Time // from then on the log holds it
}

// Check verifies a file: the checkpoint's signature by the key, each event's place in the log, and
// each column of the record against what the events say. The key is in the format of `core-api
// audit key`. Each of the witnesses, given by their public keys, must have cosigned the checkpoint.
// It fails with fault.InvalidProof, whose Fields are the columns that differ, and with
// fault.InvalidRequest for a key that is none.
func Check(data []byte, key string, witnesses ...string) (Result, error) {
	verifier, err := NewVerifier(key)
	if err != nil {
		return Result{}, err
	}
	f, err := parse(data)
	if err != nil {
		return Result{}, refuse(err, "the file is no proof of an exec, as GET /sandbox/execs/{id}/proof sends it: %v", err)
	}
	if len(f.Events) == 0 {
		return Result{}, refuse(nil, "the file has no events")
	}
	result := Result{Origin: verifier.Name()}
	var signed []byte
	var documents []Document
	for i, e := range f.Events {
		at, err := e.check(verifier)
		var d Document
		if err == nil {
			d, err = ParseDocument(e.Event)
		}
		if err != nil {
			return Result{}, refuse(err, "event %d: %v", i+1, err)
		}
		if i > 0 && !bytes.Equal(at.checkpoint, signed) {
			return Result{}, refuse(nil, "event %d: its proof is for another checkpoint than the first event's", i+1)
		}
		signed, result.Size, result.Root = at.checkpoint, at.size, at.root
		documents, result.Events = append(documents, d),
			append(result.Events, Logged{Index: at.index, Kind: d.Kind, At: d.At, LoggedAt: d.LoggedAt})
	}
	indexes := make([]int64, len(documents))
	for i, e := range result.Events {
		indexes[i] = e.Index
	}
	history, err := NewHistory(documents)
	if err == nil {
		err = history.Check(f.ExecID, indexes)
	}
	if err != nil {
		return Result{}, refuse(err, "%v", err)
	}
	if err := f.checkRecord(history, &result); err != nil {
		return Result{}, err
	}
	result.Cosignatures, err = CheckCosignatures(signed, verifier, witnesses)
	if err != nil {
		return Result{}, err
	}
	return result, nil
}

// NewVerifier reads the public key of a log: fault.InvalidRequest.
func NewVerifier(key string) (note.Verifier, error) {
	verifier, err := note.NewVerifier(strings.TrimSpace(key))
	if err != nil {
		return nil, fault.Wrap(fault.InvalidRequest, err, "the key is not the public key of a log; `core-api audit key` prints it")
	}
	return verifier, nil
}

// CheckCosignatures verifies that each of the witnesses has cosigned the checkpoint.
func CheckCosignatures(signed []byte, key note.Verifier, witnesses []string) (all Cosignatures, err error) {
	known := []note.Verifier{key}
	for _, text := range witnesses {
		witness, err := checkpoint.CosignerKey(text)
		if err != nil {
			return all, fault.Wrap(fault.InvalidRequest, err, "%s", fault.From(err).Message)
		}
		point, err := checkpoint.Open(signed, key, witness)
		if err != nil {
			return all, refuse(err, "the checkpoint: %v", err)
		}
		i := slices.IndexFunc(point.Sigs, func(s note.Signature) bool { return s.Name == witness.Name() && s.Hash == witness.KeyHash() })
		if i < 0 {
			return all, refuse(nil, "the checkpoint of %d entries is not cosigned by the witness %s; get the proof again in a second, or "+
				"ask the operator whether core-api asks this witness", point.Tree.N, witness.Name())
		}
		at, err := cosignature.CoSigV1Timestamp(point.Sigs[i])
		if err != nil {
			return all, refuse(err, "the cosignature of the witness %s has no time", witness.Name())
		}
		all.Cosigned = append(all.Cosigned, Cosignature{Witness: witness.Name(), At: at.UTC()})
		if !slices.ContainsFunc(known, func(k note.Verifier) bool { return checkpoint.IDOf(k) == checkpoint.IDOf(witness) }) {
			known = append(known, witness)
		}
	}
	n, err := note.Open(signed, note.VerifierList(known...))
	if err != nil {
		return all, refuse(err, "the checkpoint: %v", err)
	}
	for _, s := range n.UnverifiedSigs {
		all.Unchecked = append(all.Unchecked, s.Name)
	}
	return all, nil
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

// checkRecord compares the file's record with the events.
func (f File) checkRecord(history History, result *Result) error {
	// Strictly, as the file: names that differ only in case, or come twice, would show other
	// readers another record.
	if err := json.Unmarshal(f.Record, &result.Record, json.RejectUnknownMembers(true)); err != nil {
		return refuse(err, "the record cannot be read, perhaps because this program is older than the server: %v", err)
	}
	result.Record = inUTC(result.Record)
	differences, unproven, err := history.Compare(result.Record)
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
