package verify

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"

	"secbox/audit"
	"secbox/translog/proof"
)

// The JSON Lines of GET /audit/log/documents: subjects, and at last the place where the next page begins.
type (
	wireSubject struct {
		Source    string         `json:"source"`
		Key       string         `json:"key"`
		Row       *audit.Record  `json:"row,omitempty"`
		Documents []wireDocument `json:"documents"`
		Cut       bool           `json:"cut,omitempty"`
		Next      *string        `json:"next,omitempty"` // only of the last line
	}
	wireDocument struct {
		Seq      int64  `json:"seq"`
		Index    int64  `json:"index"`
		Overdue  bool   `json:"overdue,omitempty"`
		Removed  bool   `json:"removed,omitempty"`
		Salt     []byte `json:"salt,omitempty"`
		Document string `json:"document,omitempty"` // the canonical bytes
	}
)

// AppendSubject appends the line of a subject.
func AppendSubject(b []byte, s Subject) ([]byte, error) {
	w := wireSubject{Source: s.Source, Key: s.Key, Row: s.Row, Cut: s.Cut, Documents: make([]wireDocument, len(s.Documents))}
	for i, d := range s.Documents {
		w.Documents[i] = wireDocument{Seq: d.Seq, Index: d.Index, Overdue: d.Overdue, Removed: d.Removed, Salt: d.Salt, Document: string(d.Canonical)}
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

// maxLine bounds a line in bytes: a record has at most some 300 KiB, and its first event the same, in which JSON within JSON may double.
const maxLine = 8 << 20

// ReadSubjects reads a page and calls each for its subjects. It fails if the page has no last line.
func ReadSubjects(r io.Reader, each func(Subject) error) (next string, err error) {
	lines := bufio.NewScanner(r)
	lines.Buffer(make([]byte, 64<<10), maxLine)
	for lines.Scan() {
		var w wireSubject
		if err := json.Unmarshal(lines.Bytes(), &w); err != nil {
			return "", fmt.Errorf("a line is damaged: %w", err)
		}
		if w.Next != nil {
			return *w.Next, nil
		}
		s := Subject{Source: w.Source, Key: w.Key, Row: w.Row, Cut: w.Cut}
		for _, d := range w.Documents {
			document := Document{Seq: d.Seq, Index: max(-1, d.Index), Overdue: d.Overdue, Removed: d.Removed, Salt: d.Salt, Canonical: []byte(d.Document)}
			if w.Source == SourceExec && !d.Removed {
				event, err := proof.ParseDocument(d.Document)
				if err != nil {
					return "", fmt.Errorf("the document of event %d of exec %s cannot be read: %w", d.Seq, Printable(w.Key), err)
				}
				if event.Seq != d.Seq {
					return "", fmt.Errorf("the document of event %d of exec %s has another number", d.Seq, Printable(w.Key))
				}
				document.Event = &event
			}
			s.Documents = append(s.Documents, document)
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
