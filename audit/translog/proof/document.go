package proof

import (
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"strconv"
	"time"

	jsonv2 "github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"secbox/audit"
	"secbox/internal/whole"
)

// TypeExecEvent is the type of the documents of events of execs. Each form of a document has its
// own type.
const TypeExecEvent = "secbox/exec-event@v1"

// micros is the format of times in documents: UTC with microseconds, the precision of both
// databases.
const micros = "2006-01-02T15:04:05.000000Z"

// SaltSize is the length of salts in bytes.
const SaltSize = 32

// Document is an event of an exec as the log has it.
type Document struct {
	Seq      int64
	ExecID   string
	Kind     audit.EventKind
	At       time.Time // by the database's clock
	NodeID   string
	LoggedAt time.Time // by the clock of the node that put it into the log
	Record   string    // JSON: the record after the event, byte for byte as the database stores it
}

// Canonical returns the bytes that are hashed: a JSON object with its members in the order of RFC
// 8785, in which Record stands unchanged.
func (d Document) Canonical() []byte {
	return d.AppendCanonical(make([]byte, 0, len(d.Record)+len(d.ExecID)+len(d.NodeID)+256))
}

// AppendCanonical appends the bytes of Canonical to b.
func (d Document) AppendCanonical(b []byte) []byte {
	b = append(b, `{"at":"`...)
	b = d.At.UTC().AppendFormat(b, micros)
	b = appendText(append(b, `","exec_id":`...), d.ExecID)
	b = appendText(append(b, `,"kind":`...), string(d.Kind))
	b = append(b, `,"logged_at":"`...)
	b = d.LoggedAt.UTC().AppendFormat(b, micros)
	b = appendText(append(b, `","node_id":`...), d.NodeID)
	b = append(append(b, `,"record":`...), d.Record...)
	b = strconv.AppendInt(append(b, `,"seq":`...), d.Seq, 10)
	return append(b, `,"type":"`+TypeExecEvent+`"}`...)
}

func appendText(b []byte, s string) []byte {
	b, _ = jsontext.AppendQuote(b, s) // the error reports invalid UTF-8, which no database stores
	return b
}

// Entry returns the log's entry of a document: the SHA-256 of the salt and the canonical bytes.
func Entry(salt, canonical []byte) [sha256.Size]byte {
	h := sha256.New()
	h.Write(salt)
	h.Write(canonical)
	return [sha256.Size]byte(h.Sum(nil))
}

// ParseDocument is the reverse of Canonical. It refuses bytes that Canonical would not return.
func ParseDocument(canonical string) (Document, error) {
	var raw struct {
		At       time.Time       `json:"at"`
		ExecID   string          `json:"exec_id"`
		Kind     audit.EventKind `json:"kind"`
		LoggedAt time.Time       `json:"logged_at"`
		NodeID   string          `json:"node_id"`
		Record   jsontext.Value  `json:"record"`
		Seq      int64           `json:"seq"`
		Type     string          `json:"type"`
	}
	if err := jsonv2.Unmarshal([]byte(canonical), &raw, jsonv2.RejectUnknownMembers(true)); err != nil {
		return Document{}, fmt.Errorf("its document cannot be read: %w", err)
	}
	if raw.Type != TypeExecEvent {
		return Document{}, fmt.Errorf("it has the type %q, and this program knows only %q", whole.Shorten(raw.Type), TypeExecEvent)
	}
	d := Document{
		Seq: raw.Seq, ExecID: raw.ExecID, Kind: raw.Kind, At: raw.At, NodeID: raw.NodeID, LoggedAt: raw.LoggedAt,
		Record: string(raw.Record),
	}
	if string(d.Canonical()) != canonical {
		return Document{}, fmt.Errorf("it is not in canonical form")
	}
	return d, nil
}

// Decode returns the document's record.
func (d Document) Decode() (audit.Record, error) {
	var r audit.Record
	if err := json.Unmarshal([]byte(d.Record), &r); err != nil {
		return audit.Record{}, err
	}
	return inUTC(r), nil
}

func inUTC(r audit.Record) audit.Record {
	r.CreatedAt, r.StartedAt, r.EndedAt = r.CreatedAt.UTC(), r.StartedAt.UTC(), r.EndedAt.UTC()
	return r
}
