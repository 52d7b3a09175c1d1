package export

import (
	"bytes"
	"errors"
	"slices"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"secbox/audit"
)

// Types of the lines that are not records.
const (
	typeEnd       = "secbox/audit-export-end@v1"
	typeNotLogged = "secbox/audit-export-not-logged@v1"
)

// jsonLines writes a line for each record, as its events and proofs have it, with its request.
type jsonLines struct {
	line *bytes.Buffer
	json *jsontext.Encoder
	last *snapshot
}

// withRequest is a record with its request, which the record's own JSON does not have.
type withRequest struct {
	*audit.Record
	Request string `json:"request,omitempty"`
}

// snapshot is the last policy snapshot, which many records share, as the database has it and as a
// line has it.
type snapshot struct{ from, to []byte }

func newJSONL() jsonLines {
	var line bytes.Buffer
	return jsonLines{&line, jsontext.NewEncoder(&line, jsontext.AllowDuplicateNames(true)), &snapshot{}}
}

// append appends v as a line.
func (j jsonLines) append(b []byte, v any) ([]byte, error) {
	j.line.Reset()
	j.json.Reset(j.line, jsontext.AllowDuplicateNames(true))
	if err := json.MarshalEncode(j.json, v, json.Deterministic(true)); err != nil { // with the newline
		return b, err
	}
	return append(b, j.line.Bytes()...), nil
}

func (j jsonLines) begin(b []byte) []byte { return b }

func (j jsonLines) record(b []byte, r audit.Record) ([]byte, error) {
	r.Kind = kind(r)
	if len(r.PolicySnapshot) == 0 {
		return j.append(b, withRequest{&r, r.Request})
	}
	if !bytes.Equal(r.PolicySnapshot, j.last.from) {
		text, err := j.append(nil, r.PolicySnapshot)
		if err != nil {
			return b, err
		}
		*j.last = snapshot{r.PolicySnapshot, bytes.TrimSuffix(text, []byte("\n"))}
	}
	r.PolicySnapshot = nil
	begin := len(b)
	b, err := j.append(b, withRequest{&r, r.Request})
	if err != nil {
		return b, err
	}
	at := bytes.Index(b[begin:], noSnapshot) // quotes in texts are escaped, so that this is the member
	if at < 0 {
		return b, errors.New("a record without a policy snapshot has no place for one")
	}
	at += begin + len(noSnapshot)
	return slices.Replace(b, at-len("null"), at, j.last.to...), nil
}

var noSnapshot = []byte(`"policy_snapshot":null`)

// notLogged is a line that names execs.
type notLogged struct {
	Type    string   `json:"type"`
	ExecIDs []string `json:"exec_ids"`
}

func (j jsonLines) notLogged(b []byte, execIDs []string) ([]byte, error) {
	return j.append(b, notLogged{typeNotLogged, execIDs})
}

func (j jsonLines) end(b []byte, e end) ([]byte, error) { return j.append(b, e) }
