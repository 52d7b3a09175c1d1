// Package admin is about administrative events: a token was created, a node started, a baseline
// promoted, the records exported, and the like. They are the second source of the transparency log,
// beside the events of execs.
//
// The store writes the event of a change of the database in the transaction of the change.
// Everything else calls Record before it acts, or before the first byte of its answer, and does not
// act if that fails. The package knows neither SQL (store does) nor HTTP.
package admin

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"
	"unicode"

	jsonv2 "github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"secbox/fault"
)

// Kind is what happened.
type Kind string

// The kinds, and their subjects.
const (
	TokenCreated     Kind = "token_created"     // id of the token
	TokenRevoked     Kind = "token_revoked"     // id of the token
	NodeStarted      Kind = "node_started"      // id of the node
	NodeEnded        Kind = "node_ended"        // id of the node
	NodeLost         Kind = "node_lost"         // id of the node whose lease another one has retired
	NodeDrained      Kind = "node_drained"      // id of the node
	NodeUndrained    Kind = "node_undrained"    // id of the node
	NodeForgotten    Kind = "node_forgotten"    // id of the node
	BaselinePromoted Kind = "baseline_promoted" // agent/skill
	BaselineDeleted  Kind = "baseline_deleted"  // agent/skill
	BackendChosen    Kind = "backend_chosen"    // user
	Export           Kind = "export"            // format of the export
	Download         Kind = "download"          // id of the exec, or Searched
	DownloadsOmitted Kind = "downloads_omitted" // id of the token whose downloads were too many for an event each
	ExportsOmitted   Kind = "exports_omitted"   // id of the token whose exports were too many for events each
	ChangesRefused   Kind = "changes_refused"   // id of the token whose changes were too many
	ExecsRemoved     Kind = "execs_removed"     // the rule of retention by which they were
	RetentionRun     Kind = "retention_run"     // "ended", or "killed" for one whose process died
	WorkspaceRemoved Kind = "workspace_removed" // id of the user's workspace, which was not used for long
	SessionExtended  Kind = "session_extended"  // id of the session of execs
	PortLinked       Kind = "port_linked"       // id of the session; a link to one of its ports was made
	ProjectRemoved   Kind = "project_removed"   // id of the project, whose files were removed by request
	HoldAdded        Kind = "hold_added"        // id of the hold
	HoldRemoved      Kind = "hold_removed"      // id of the hold
	SignedIn         Kind = "signed_in"         // id of the token or person
	SignedOut        Kind = "signed_out"        // id of the token or person
	PersonBlocked    Kind = "person_blocked"    // id of the person
	PersonUnblocked  Kind = "person_unblocked"  // id of the person
	WebhookSecret    Kind = "webhook_secret"    // id of the token that got a new one
	WebhookDefault   Kind = "webhook_default"   // id of the token whose default address was changed
	ImageAllowed     Kind = "image_allowed"     // name of the own image
	ImageRemoved     Kind = "image_removed"     // name of the own image
	SkillsRepair     Kind = "skills_repair"     // empty: of all skills
	SchemaMigrated   Kind = "schema_migrated"   // version of the program
	LogKeyReplaced   Kind = "log_key_replaced"  // name and hash of the former key of the transparency log
)

// Kinds returns every kind.
func Kinds() []Kind {
	return []Kind{
		TokenCreated, TokenRevoked, NodeStarted, NodeEnded, NodeLost, NodeDrained, NodeUndrained, NodeForgotten, BaselinePromoted,
		BaselineDeleted, BackendChosen, Export, Download, DownloadsOmitted, ExportsOmitted, ChangesRefused,
		ExecsRemoved, RetentionRun, WorkspaceRemoved, ProjectRemoved, SessionExtended, PortLinked, HoldAdded,
		HoldRemoved, SignedIn, SignedOut,
		PersonBlocked, PersonUnblocked, WebhookSecret, WebhookDefault, ImageAllowed, ImageRemoved,
		SkillsRepair, SchemaMigrated, LogKeyReplaced,
	}
}

// Valid reports whether k is one of the kinds.
func (k Kind) Valid() bool { return slices.Contains(Kinds(), k) }

// Bounds of an event in bytes. Subjects are in indexes, whose entries PostgreSQL limits to 2,704
// bytes.
const (
	MaxText = 512     // of the subject, and of the actor's id and name
	MaxData = 8 << 10 // 500 events of a page have at most some 5 MiB
)

// Event is an administrative event. New makes one.
type Event struct {
	Seq     int64     // set by the store; the id of the event
	At      time.Time // set by the store, by the database's clock
	NodeID  string    // of the process; empty for a command
	Actor   Actor
	Kind    Kind
	Subject string // at most MaxText bytes, without control characters
	Data    string // a JSON object of at most MaxData bytes

	// Unreadable has the beginnings of the values that the database has in columns of another type,
	// by column; nil when there is none. Only a change of the database behind core-api's back
	// leaves such values; the event has an empty one in their place.
	Unreadable map[string]string
}

// Size returns the bytes that the event takes in memory, about.
func (e Event) Size() int {
	return len(e.Data) + len(e.Subject) + len(e.Actor.ID) + len(e.Actor.Name) + len(e.NodeID) + 256
}

// New returns an event by the actor of the context. data is encoded as a JSON object; nil is an
// empty one. A text of any length and content is accepted: a long one is cut and gets its digest, a
// character that terminals interpret becomes U+FFFD, and data that is too large becomes its size
// and its digest. It fails with fault.Internal for an unknown kind, and for data that is no JSON
// object.
func New(ctx context.Context, kind Kind, subject string, data any) (Event, error) {
	if !kind.Valid() {
		return Event{}, fault.New(fault.Internal, "there is no administrative event %q", kind)
	}
	by := from(ctx)
	e := Event{NodeID: text(by.node), Actor: ActorOf(ctx), Kind: kind, Subject: text(subject), Data: "{}"}
	if data == nil {
		return e, nil
	}
	encoded, err := jsonv2.Marshal(data, jsonv2.Deterministic(true), jsontext.AllowInvalidUTF8(true))
	if err == nil && (len(encoded) == 0 || encoded[0] != '{') {
		err = fmt.Errorf("%T is no JSON object", data)
	}
	if err != nil {
		return Event{}, fault.Wrap(fault.Internal, err, "the %s could not be recorded", kind)
	}
	if len(encoded) > MaxData {
		sum := sha256.Sum256(encoded)
		encoded, _ = json.Marshal(map[string]any{"omitted_bytes": len(encoded), "omitted_sha256": hex.EncodeToString(sum[:])})
	}
	e.Data = string(encoded)
	return e, nil
}

// text makes a text storable, printable and at most MaxText bytes long.
func text(s string) string {
	clean := strings.Map(func(r rune) rune {
		if !unicode.IsPrint(r) {
			return unicode.ReplacementChar
		}
		return r
	}, s)
	if len(clean) <= MaxText {
		return clean
	}
	sum := sha256.Sum256([]byte(s))
	digest := "… sha256:" + hex.EncodeToString(sum[:])
	return strings.ToValidUTF8(clean[:MaxText-len(digest)], "") + digest
}
