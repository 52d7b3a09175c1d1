package report

import (
	"bytes"
	"crypto/sha256"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	jsonv2 "github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
	"golang.org/x/mod/sumdb/note"
	"golang.org/x/mod/sumdb/tlog"

	"secbox/audit/admin"
	"secbox/audit/translog/proof"
)

// Format is the version of a bundle's form. A bundle is JSON Lines: a Header, an Entry for each
// entry of the log from Header.First on, an Extra for each event that the log has elsewhere, an
// End, and the log's signature over all bytes before it. In a bundle of v1, events do not have
// their entry beside them, and the report counts records only, so too few refused requests.
const (
	Format   = "secbox/report@v2"
	formatV1 = "secbox/report@v1"
)

// payloadType is what the signature is about: a checkpoint or an attestation never has it.
const payloadType = "application/vnd.secbox.report+json"

// Bounds of a bundle.
const (
	MaxEntries = 200_000
	MaxExtras  = 20_000
	MaxBytes   = 1 << 30
	maxLine    = 4 << 20  // bytes
	maxHeld    = 64 << 20 // bytes of what a Builder holds
)

// Header is the first line of a bundle.
type Header struct {
	Format     string      `json:"format"`
	Origin     string      `json:"origin"` // of the log
	Span                   // of the report
	By         admin.Actor `json:"by"`         // who asked for it
	CreatedAt  time.Time   `json:"created_at"` // by the clock of the node
	First      int64       `json:"first"`      // index of the first Entry in the log
	Entries    int64       `json:"entries"`
	Checkpoint string      `json:"checkpoint"`
}

// Entry is an entry of the log: an event with its salt, by which a changed event is found, or only
// the entry, if its event was removed or altered.
type Entry struct {
	Event string `json:"event,omitempty"` // canonical
	Salt  []byte `json:"salt,omitempty"`
	Entry []byte `json:"entry,omitempty"`
}

// Extra is an event that the log has elsewhere: a later event of an exec of the span, or the
// removal of an event. Indexes ascend.
type Extra struct {
	Index int64    `json:"index"`
	Event string   `json:"event"`
	Salt  []byte   `json:"salt"`
	Path  [][]byte `json:"path"` // the audit path of RFC 6962
}

// End is the last line that is signed.
type End struct {
	Report   Report   `json:"report"`
	Unproven Unproven `json:"unproven"`
	Left     [][]byte `json:"left"`  // hashes of the tree before the first entry
	Right    [][]byte `json:"right"` // and after the last
}

// Unproven is what the log cannot show. In a bundle, it is the word of the node that wrote it.
type Unproven struct {
	NotLogged   int64        `json:"not_logged"` // execs and administrative events that the log does not have yet
	Waiting     []string     `json:"waiting"`    // some of them
	Altered     int64        `json:"altered"`    // differences between the database and the log
	Differences []Difference `json:"differences"`
}

// Difference is something of the database that is not as the log says.
type Difference struct {
	ExecID   string `json:"exec_id,omitempty"`
	What     string `json:"what"`
	Expected string `json:"expected"`
	Found    string `json:"found"`
}

// mostUnproven bounds the lists of Unproven.
const mostUnproven = 100

// NewUnproven returns an Unproven without anything.
func NewUnproven() Unproven { return Unproven{Waiting: []string{}, Differences: []Difference{}} }

// Wait adds what the log does not have yet.
func (u *Unproven) Wait(id string) {
	if u.NotLogged++; len(u.Waiting) < mostUnproven {
		u.Waiting = append(u.Waiting, short(id, mostText))
	}
}

// Differ adds a difference, unless it is in the list: an exec is compared on each page with one of
// its events.
func (u *Unproven) Differ(d Difference) {
	d = Difference{short(d.ExecID, mostText), short(d.What, mostText), short(d.Expected, mostMessage), short(d.Found, mostMessage)}
	if slices.Contains(u.Differences, d) {
		return
	}
	if u.Altered++; len(u.Differences) < mostUnproven {
		u.Differences = append(u.Differences, d)
	}
}

// seal is what is signed.
type seal struct {
	Format string `json:"format"`
	SHA256 []byte `json:"sha256"` // of all bytes before the signature
	Bytes  int64  `json:"bytes"`
}

// AppendLine appends a line of a bundle.
func AppendLine(b []byte, line any) ([]byte, error) {
	text, err := encode(line)
	return append(append(b, text...), '\n'), err
}

// encode returns the JSON of a line. The data of an event may have a name twice.
func encode(line any) ([]byte, error) {
	return jsonv2.Marshal(line, jsonv2.Deterministic(true), jsontext.AllowDuplicateNames(true), jsontext.AllowInvalidUTF8(true))
}

// Sign returns the last line of a bundle.
func Sign(signer note.Signer, sum [sha256.Size]byte, size int64) ([]byte, error) {
	body, err := encode(seal{Format, sum[:], size})
	if err != nil {
		return nil, err
	}
	return proof.SignEnvelope(signer, payloadType, body)
}

// Add adds an event in canonical form, as the log has it.
func (b *Builder) Add(canonical string) error {
	if !strings.HasSuffix(canonical, `"type":"`+proof.TypeExecEvent+`"}`) {
		d, err := proof.ParseAdmin(canonical)
		if err != nil {
			return err
		}
		b.Event(admin.Event{Seq: d.Seq, At: d.At, NodeID: d.NodeID, Actor: d.Actor, Kind: d.Kind, Subject: d.Subject, Data: d.Data})
		return nil
	}
	d, err := proof.ParseDocument(canonical)
	if err != nil {
		return err
	}
	var x Exec
	if err := jsonv2.Unmarshal([]byte(d.Record), &x, jsontext.AllowDuplicateNames(true)); err != nil {
		return fmt.Errorf("its record cannot be read: %w", err)
	}
	if x.ExecID != d.ExecID {
		return fmt.Errorf("its record is of another exec")
	}
	b.Exec(x)
	return nil
}

// leaf returns the hash in the tree of an entry in a bundle of a format.
func (e Entry) leaf(format string) (tlog.Hash, error) {
	if e.Event != "" || len(e.Salt) > 0 {
		leaf, err := leafOf(e.Event, e.Salt)
		switch {
		case err != nil:
			return leaf, err
		case format == formatV1 && len(e.Entry) > 0:
			return leaf, fmt.Errorf("an event has no entry beside it in %q", formatV1)
		case format != formatV1 && (len(e.Entry) != sha256.Size || leaf != tlog.RecordHash(e.Entry)):
			return leaf, errors.New("the file was changed: this event is not the one that the log has, whose hash is beside it")
		}
		return leaf, nil
	}
	if len(e.Entry) != sha256.Size {
		return tlog.Hash{}, fmt.Errorf("it is neither an event with its salt nor an entry of %d bytes", sha256.Size)
	}
	return tlog.RecordHash(e.Entry), nil
}

func leafOf(event string, salt []byte) (tlog.Hash, error) {
	if len(salt) != proof.SaltSize {
		return tlog.Hash{}, fmt.Errorf("its salt has %d bytes, not %d", len(salt), proof.SaltSize)
	}
	entry := proof.Entry(salt, []byte(event))
	return tlog.RecordHash(entry[:]), nil
}

// begin is the beginning of every bundle.
var begin = []byte(`{"format":"secbox/report@`)

// IsBundle reports whether a file with these first bytes is a bundle. It needs BeginBytes of them.
func IsBundle(file []byte) bool { return bytes.HasPrefix(file, begin) }

// BeginBytes is how many bytes IsBundle needs.
var BeginBytes = len(begin)
