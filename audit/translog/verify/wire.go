package verify

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"

	jsonv2 "github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
	"golang.org/x/mod/sumdb/tlog"

	"secbox/audit"
	"secbox/audit/translog/proof"
)

// The JSON Lines of GET /audit/log/documents: subjects, and at last the place where the next page
// begins.
type (
	wireSubject struct {
		Source    string        `json:"source"`
		Key       string        `json:"key"`
		Row       *audit.Record `json:"row,omitempty"`
		Documents wireDocuments `json:"documents"`
		Cut       bool          `json:"cut,omitempty"`
		NetDigest string        `json:"net_digest,omitempty"` // of the connections' rows
		NetMarks  string        `json:"net_marks,omitempty"`
		Next      *string       `json:"next,omitempty"` // only of the last line
	}
	wireDocument struct {
		Seq      int64  `json:"seq"`
		Index    int64  `json:"index"`
		Overdue  bool   `json:"overdue,omitempty"`
		Salt     []byte `json:"salt,omitempty"`
		Document string `json:"document,omitempty"` // the canonical bytes
	}
)

// AppendSubject appends the line of a subject.
func AppendSubject(b []byte, s Subject) ([]byte, error) {
	w := wireSubject{Source: s.Source, Key: s.Key, Row: s.Row, Cut: s.Cut, Documents: make(wireDocuments, len(s.Documents))}
	w.NetDigest, w.NetMarks = s.Traffic.Digest, s.Traffic.Marks
	for i, d := range s.Documents {
		w.Documents[i] = wireDocument{Seq: d.Seq, Index: d.Index, Overdue: d.Overdue, Salt: d.Salt, Document: string(d.Canonical)}
		if d.Event != nil {
			w.Documents[i].Document = string(d.Event.Canonical())
		}
	}
	text, err := json.Marshal(w)
	return append(append(b, text...), '\n'), err
}

// AppendEnd appends the last line of a page.
func AppendEnd(b []byte, next string) []byte {
	text, _ := json.Marshal(map[string]string{"next": next}) // text cannot fail
	return append(append(b, text...), '\n')
}

// Bounds in bytes of what a server may send.
const (
	MaxCheckpoint = 64 << 10                        // with cosignatures
	MaxTile       = tileWidth * (2 + tlog.HashSize) // of entries, each after its length in two bytes
	// 4 MiB of rows and 4 MiB of events, in which JSON within JSON may take six times as much
	MaxPage = 64 << 20
	maxLine = 8 << 20 // a record has at most some 300 KiB, and its first event the same
)

// maxPage bounds the subjects and documents of a page. A page of core-api has at most 2048
// documents, and a row or an administrative event for each.
const maxPage = 5 * 1024

// ReadSubjects reads a page and calls each for its subjects. It fails if the page has no last line,
// or more subjects than a page can have.
func ReadSubjects(r io.Reader, each func(Subject) error) (next string, err error) {
	lines := bufio.NewScanner(r)
	lines.Buffer(make([]byte, 64<<10), maxLine)
	for left := maxPage; lines.Scan(); {
		var w wireSubject
		if err := jsonv2.Unmarshal(lines.Bytes(), &w); err != nil {
			return "", fmt.Errorf("a line is damaged: %s", Printable(err.Error()))
		}
		if w.Next != nil {
			return *w.Next, nil
		}
		if left -= 1 + len(w.Documents); left < 0 {
			return "", errTooMany
		}
		s, err := w.subject()
		if err != nil {
			return "", err
		}
		if err := each(s); err != nil {
			return "", err
		}
	}
	if err := lines.Err(); err != nil {
		return "", err
	}
	return "", errors.New("the page was cut off")
}

var errTooMany = fmt.Errorf("a page has more than %d subjects and documents", maxPage)

func (w wireSubject) subject() (Subject, error) {
	s := Subject{
		Source: w.Source, Key: w.Key, Row: w.Row, Cut: w.Cut, Traffic: audit.Traffic{Digest: w.NetDigest, Marks: w.NetMarks},
	}
	for _, d := range w.Documents {
		document := Document{Seq: d.Seq, Index: max(-1, d.Index), Overdue: d.Overdue, Salt: d.Salt, Canonical: []byte(d.Document)}
		if w.Source == SourceExec {
			event, err := proof.ParseDocument(d.Document)
			if err != nil {
				return s, fmt.Errorf("the document of event %d of exec %s cannot be read: %w", d.Seq, Printable(w.Key), err)
			}
			if event.Seq != d.Seq {
				return s, fmt.Errorf("the document of event %d of exec %s has another number", d.Seq, Printable(w.Key))
			}
			document.Event, document.Canonical = &event, nil
		}
		s.Documents = append(s.Documents, document)
	}
	return s, nil
}

// wireDocuments is read up to the bound of a page: the shortest document takes 2 bytes in a line,
// and more than 60 in memory.
type wireDocuments []wireDocument

// UnmarshalJSONFrom implements json.UnmarshalerFrom.
func (all *wireDocuments) UnmarshalJSONFrom(d *jsontext.Decoder) error {
	if begin, err := d.ReadToken(); err != nil || begin.Kind() != '[' {
		return errors.Join(err, errors.New("documents are no list"))
	}
	for d.PeekKind() != ']' {
		var w wireDocument
		if err := jsonv2.UnmarshalDecode(d, &w); err != nil {
			return err
		}
		if *all = append(*all, w); len(*all) > maxPage {
			return errTooMany
		}
	}
	_, err := d.ReadToken()
	return err
}
