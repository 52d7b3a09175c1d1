// Package proof is the form of the log's entries, and of the file that proves an exec. Check
// verifies such a file with nothing but the log's public key. The package knows neither databases
// nor the network; package translog makes the log and the files.
package proof

import (
	"bytes"
	"encoding/json"
	"fmt"

	jsonv2 "github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"secbox/audit"
	"secbox/internal/whole"
)

// Format is the version of the file's form.
const Format = "secbox/exec-proof@v1"

// MaxBytes is the size of the largest file that Check reads. Events have bounds, so that files of
// execs are much smaller.
const MaxBytes = 16 << 20

// File proves the events of one exec. All proofs in it are for the same checkpoint.
type File struct {
	Format string         `json:"format"`
	ExecID string         `json:"exec_id"`
	Record jsontext.Value `json:"record"` // the row, an audit.Record
	Events []Event        `json:"events"` // oldest first
}

// Event is an event of the exec with the proof that it is in the log.
type Event struct {
	Event     string `json:"event"` // the canonical bytes of the Document
	Salt      []byte `json:"salt"`
	TLogProof string `json:"tlog_proof"` // C2SP tlog-proof of the Entry of both
}

// NewFile returns a file with the record.
func NewFile(r audit.Record, events []Event) (File, error) {
	record, err := json.Marshal(inUTC(r))
	return File{Format: Format, ExecID: r.ExecID, Record: record, Events: events}, err
}

// Marshal returns the file's bytes.
func (f File) Marshal() ([]byte, error) {
	return marshal(f)
}

func marshal(f any) ([]byte, error) {
	var b bytes.Buffer
	err := jsonv2.MarshalWrite(&b, f, jsontext.WithIndent("  "))
	b.WriteByte('\n')
	return b.Bytes(), err
}

// parse reads the file of an exec.
func parse(data []byte) (File, error) {
	var f File
	err := decodeFile(data, &f, Format)
	return f, err
}

// decodeFile reads a file strictly: a member that is unknown or comes twice is an error.
func decodeFile(data []byte, f any, want string) error {
	if len(data) > MaxBytes {
		return fmt.Errorf("it is larger than %d bytes", MaxBytes)
	}
	var is struct {
		Format string `json:"format"`
	}
	if err := jsonv2.Unmarshal(data, &is); err != nil {
		return err
	}
	if is.Format != want {
		return fmt.Errorf("its format is %q, and this program knows only %q", whole.Shorten(is.Format), want)
	}
	return jsonv2.Unmarshal(data, f, jsonv2.RejectUnknownMembers(true))
}
