package proof

import (
	"fmt"
	"strconv"
	"time"

	jsonv2 "github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"secbox/audit/admin"
	"secbox/internal/whole"
)

// typeAdminEvent is the type of the documents of administrative events.
const typeAdminEvent = "secbox/admin-event@v1"

// AdminDocument is an administrative event as the log has it.
type AdminDocument struct {
	Seq      int64
	At       time.Time // by the database's clock
	NodeID   string
	Actor    admin.Actor
	Kind     admin.Kind
	Subject  string
	Data     string    // JSON, byte for byte as the database stores it
	LoggedAt time.Time // by the clock of the node that put it into the log
}

// Canonical returns the bytes that are hashed: a JSON object with its members in the order of RFC
// 8785, in which Data stands unchanged.
func (d AdminDocument) Canonical() []byte {
	b := make([]byte, 0, len(d.Data)+len(d.Subject)+len(d.Actor.ID)+len(d.Actor.Name)+len(d.NodeID)+320)
	b = appendText(append(b, `{"actor_id":`...), d.Actor.ID)
	b = appendText(append(b, `,"actor_name":`...), d.Actor.Name)
	b = appendText(append(b, `,"actor_type":`...), string(d.Actor.Type))
	b = append(b, `,"at":"`...)
	b = d.At.UTC().AppendFormat(b, micros)
	b = append(append(b, `","data":`...), d.Data...)
	b = appendText(append(b, `,"kind":`...), string(d.Kind))
	b = append(b, `,"logged_at":"`...)
	b = d.LoggedAt.UTC().AppendFormat(b, micros)
	b = appendText(append(b, `","node_id":`...), d.NodeID)
	b = strconv.AppendInt(append(b, `,"seq":`...), d.Seq, 10)
	b = appendText(append(b, `,"subject":`...), d.Subject)
	return append(b, `,"type":"`+typeAdminEvent+`"}`...)
}

// ParseAdmin is the reverse of Canonical. It refuses bytes that Canonical would not return.
func ParseAdmin(canonical string) (AdminDocument, error) {
	var raw struct {
		ActorID   string          `json:"actor_id"`
		ActorName string          `json:"actor_name"`
		ActorType admin.ActorType `json:"actor_type"`
		At        time.Time       `json:"at"`
		Data      jsontext.Value  `json:"data"`
		Kind      admin.Kind      `json:"kind"`
		LoggedAt  time.Time       `json:"logged_at"`
		NodeID    string          `json:"node_id"`
		Seq       int64           `json:"seq"`
		Subject   string          `json:"subject"`
		Type      string          `json:"type"`
	}
	if err := jsonv2.Unmarshal([]byte(canonical), &raw, jsonv2.RejectUnknownMembers(true)); err != nil {
		return AdminDocument{}, fmt.Errorf("its document cannot be read: %w", err)
	}
	if raw.Type != typeAdminEvent {
		return AdminDocument{}, fmt.Errorf("it has the type %q, not %q", whole.Shorten(raw.Type), typeAdminEvent)
	}
	d := AdminDocument{
		Seq: raw.Seq, At: raw.At, NodeID: raw.NodeID, Actor: admin.Actor{Type: raw.ActorType, ID: raw.ActorID, Name: raw.ActorName},
		Kind:    raw.Kind,
		Subject: raw.Subject, Data: string(raw.Data), LoggedAt: raw.LoggedAt,
	}
	if string(d.Canonical()) != canonical {
		return AdminDocument{}, fmt.Errorf("it is not in canonical form")
	}
	return d, nil
}

// AdminFormat is the version of the form of AdminFile.
const AdminFormat = "secbox/admin-event-proof@v1"

// AdminFile proves one administrative event.
type AdminFile struct {
	Format    string `json:"format"`
	Event     string `json:"event"` // the canonical bytes of the AdminDocument
	Salt      []byte `json:"salt"`
	TLogProof string `json:"tlog_proof"` // C2SP tlog-proof of the Entry of both
}

// NewAdminFile returns a file with the event.
func NewAdminFile(e Event) AdminFile {
	return AdminFile{Format: AdminFormat, Event: e.Event, Salt: e.Salt, TLogProof: e.TLogProof}
}

// Marshal returns the file's bytes.
func (f AdminFile) Marshal() ([]byte, error) { return marshal(f) }

// IsAdmin reports whether a file says that it is an AdminFile.
func IsAdmin(data []byte) bool {
	var f struct {
		Format string `json:"format"`
	}
	return len(data) <= MaxBytes && jsonv2.Unmarshal(data, &f) == nil && f.Format == AdminFormat
}

// AdminResult is what an AdminFile proves.
type AdminResult struct {
	Origin string // of the log
	Size   int64  // of the log at the checkpoint
	Root   string // base64
	Index  int64  // of the event
	Event  AdminDocument

	Cosignatures
}

// CheckAdmin is Check for an AdminFile.
func CheckAdmin(data []byte, key string, witnesses ...string) (AdminResult, error) {
	verifier, err := NewVerifier(key)
	if err != nil {
		return AdminResult{}, err
	}
	var f AdminFile
	if err := decodeFile(data, &f, AdminFormat); err != nil {
		return AdminResult{}, refuse(err, "the file is no proof of an administrative event: %v", err)
	}
	at, err := Event{Event: f.Event, Salt: f.Salt, TLogProof: f.TLogProof}.check(verifier)
	if err != nil {
		return AdminResult{}, refuse(err, "%v", err)
	}
	d, err := ParseAdmin(f.Event)
	if err != nil {
		return AdminResult{}, refuse(err, "%v", err)
	}
	cosigned, err := CheckCosignatures(at.checkpoint, verifier, witnesses)
	if err != nil {
		return AdminResult{}, err
	}
	return AdminResult{Origin: verifier.Name(), Size: at.size, Root: at.root, Index: at.index, Event: d, Cosignatures: cosigned}, nil
}
