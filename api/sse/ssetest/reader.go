// Package ssetest reads server-sent events in tests, more strictly than browsers: what the HTML
// standard lets a client ignore is an error.
package ssetest

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"
	"unicode/utf8"
)

// Event is one event.
type Event struct{ Name, ID, Data string }

// Reader reads a stream.
type Reader struct {
	in *bufio.Reader

	LastID   string // with which a client would come again
	RetryMS  int
	Comments int
}

// NewReader reads from the body of an answer.
func NewReader(body io.Reader) *Reader { return &Reader{in: bufio.NewReader(body)} }

// Next returns the next event that a client would dispatch; io.EOF at an end between two events.
func (r *Reader) Next() (Event, error) {
	var e Event
	var lines []string
	seen := map[string]int{}
	for {
		line, err := r.in.ReadString('\n')
		if err != nil {
			if errors.Is(err, io.EOF) && (line != "" || len(seen) > 0) {
				err = fmt.Errorf("the stream ended within an event: %q after %v", line, seen)
			}
			return Event{}, err
		}
		line = strings.TrimSuffix(line, "\n")
		if !utf8.ValidString(line) || strings.ContainsAny(line, "\r\x00\ufeff") {
			return Event{}, fmt.Errorf("a line that is no text: %q", line)
		}
		if line == "" {
			if len(seen) == 0 {
				return Event{}, fmt.Errorf("an empty block")
			}
			if seen["id"] > 0 {
				r.LastID = e.ID
			}
			if seen["data"] > 0 {
				e.Data = strings.Join(lines, "\n")
				return e, nil
			}
			if seen["event"] > 0 {
				return Event{}, fmt.Errorf("the event %q has no data: clients do not see it", e.Name)
			}
			e, seen = Event{}, map[string]int{}
			continue
		}
		if strings.HasPrefix(line, ":") {
			r.Comments++
			seen["comment"]++
			continue
		}
		field, value, ok := strings.Cut(line, ": ")
		if !ok {
			return Event{}, fmt.Errorf("the line %q has no field", line)
		}
		if seen[field]++; seen[field] > 1 && field != "data" {
			return Event{}, fmt.Errorf("%s comes twice in an event", field)
		}
		switch field {
		case "event":
			e.Name = value
		case "id":
			e.ID = value
		case "data":
			lines = append(lines, value)
		case "retry":
			if r.RetryMS, err = strconv.Atoi(value); err != nil || r.RetryMS < 0 {
				return Event{}, fmt.Errorf("retry is %q", value)
			}
		default:
			return Event{}, fmt.Errorf("the field %q is unknown", field)
		}
	}
}
