package terminal

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"time"

	"secbox/engine/initproto"
	"secbox/internal/whole"
)

// Recording is a file in the format asciicast v2 (docs.asciinema.org): a header, then a line for
// each event. Kinds of events are "o" for output, "i" for what was typed, "r" for a new size, and
// "m" for signals and the place where the recording is cut. It is not safe for concurrent use.
type Recording struct {
	path  string
	limit int64
	typed bool
	began time.Time

	file    *os.File
	out     *bufio.Writer
	written int64
	halves  map[string][]byte // the beginning of a character, by the kind of event
	cut     bool
	failed  error
}

// Record begins a recording of at most some limit bytes in a new file, which Remove removes. What
// is typed is left out unless typed is set.
func Record(path, title string, size Size, typed bool, limit int64) *Recording {
	r := &Recording{path: path, limit: limit, typed: typed, began: time.Now(), halves: map[string][]byte{}}
	r.file, r.failed = os.OpenFile(path, os.O_RDWR|os.O_CREATE|os.O_EXCL, 0o600)
	r.out = bufio.NewWriter(r.file)
	header, err := json.Marshal(struct {
		Version   int               `json:"version"`
		Width     int               `json:"width"`
		Height    int               `json:"height"`
		Timestamp int64             `json:"timestamp"`
		Title     string            `json:"title"`
		Env       map[string]string `json:"env"`
	}{2, size.Cols, size.Rows, r.began.Unix(), title, map[string]string{"TERM": initproto.Term}})
	if r.failed == nil {
		r.failed = err
	}
	r.line(header)
	return r
}

// add adds an event. A character that ends in a later one of its kind goes there.
func (r *Recording) add(kind string, data []byte) {
	if kind == "i" && !r.typed || r.cut || r.failed != nil {
		return
	}
	data = slices.Concat(r.halves[kind], data)
	text := whole.End(data)
	r.halves[kind] = data[len(text):]
	if len(text) > 0 {
		r.event(kind, text)
	}
}

// event writes an event, unless the limit is reached.
func (r *Recording) event(kind string, text []byte) {
	var line bytes.Buffer
	fmt.Fprintf(&line, "[%.6f, %q, ", time.Since(r.began).Seconds(), kind)
	encoder := json.NewEncoder(&line)
	encoder.SetEscapeHTML(false)
	if err := encoder.Encode(string(text)); err != nil { // invalid UTF-8 becomes U+FFFD
		r.failed = err
		return
	}
	line.Truncate(line.Len() - len("\n"))
	line.WriteByte(']')
	if r.written+int64(line.Len()) <= r.limit {
		r.line(line.Bytes())
		return
	}
	r.cut = true
	mark, _ := json.Marshal(fmt.Sprintf("the recording is cut here, at its limit of %d bytes", r.limit))
	r.line(fmt.Appendf(nil, "[%.6f, \"m\", %s]", time.Since(r.began).Seconds(), mark))
}

func (r *Recording) line(line []byte) {
	if r.failed == nil {
		_, r.failed = r.out.Write(append(line, '\n'))
		r.written += int64(len(line)) + 1
	}
}

// Finish ends the recording and returns it; cut is set if it lacks events after its limit.
func (r *Recording) Finish() (content io.ReadSeeker, cut bool, err error) {
	for _, kind := range []string{"o", "i"} {
		if half := r.halves[kind]; len(half) > 0 && !r.cut {
			r.event(kind, half)
		}
		delete(r.halves, kind)
	}
	if r.failed == nil {
		r.failed = r.out.Flush()
	}
	if r.failed != nil {
		return nil, r.cut, r.failed
	}
	return io.NewSectionReader(r.file, 0, r.written), r.cut, nil
}

// Remove removes the file.
func (r *Recording) Remove() error {
	if r.file == nil {
		return nil
	}
	return errors.Join(r.file.Close(), os.Remove(r.path))
}
