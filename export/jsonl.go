package export

import (
	"bytes"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"secbox/audit"
)

// Types of the lines that are not records.
const (
	typeEnd       = "secbox/audit-export-end@v1"
	typeNotLogged = "secbox/audit-export-not-logged@v1"
)

// jsonLines writes a line for each record, as its events and proofs have it.
type jsonLines struct {
	line *bytes.Buffer
	json *jsontext.Encoder
}

func newJSONL() jsonLines {
	var line bytes.Buffer
	return jsonLines{&line, jsontext.NewEncoder(&line)}
}

// append appends v as a line.
func (j jsonLines) append(b []byte, v any) ([]byte, error) {
	j.line.Reset()
	j.json.Reset(j.line)
	if err := json.MarshalEncode(j.json, v, json.Deterministic(true)); err != nil { // with the newline
		return b, err
	}
	return append(b, j.line.Bytes()...), nil
}

func (j jsonLines) begin(b []byte) []byte { return b }

func (j jsonLines) record(b []byte, r audit.Record) ([]byte, error) {
	r.Kind = kind(r)
	return j.append(b, &r)
}

// notLogged is a line that names execs.
type notLogged struct {
	Type    string   `json:"type"`
	ExecIDs []string `json:"exec_ids"`
}

func (j jsonLines) notLogged(b []byte, execIDs []string) ([]byte, error) {
	return j.append(b, notLogged{typeNotLogged, execIDs})
}

func (j jsonLines) end(b []byte, e end) ([]byte, error) { return j.append(b, e) }
