package main

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"sync"

	"secbox/fault"
)

// maxMessage is the longest message to pass on, in bytes. The limit of core-api is lower unless its
// operator raised it.
const maxMessage = 64 << 20

var errTooLong = errors.New("the message is too long")

// message is a message and the fields needed to pass it on.
type message struct {
	raw    []byte
	ID     json.RawMessage `json:"id"`
	Method string          `json:"method"`
	Params json.RawMessage `json:"params"`
}

// isCall reports whether the sender waits for an answer.
func (m message) isCall() bool { return m.Method != "" && len(m.ID) > 0 && string(m.ID) != "null" }

func (m message) isAnswer() bool { return m.Method == "" && len(m.ID) > 0 }

// isAnsweredBy reports whether a message is the answer to the call m.
func (m message) isAnsweredBy(raw []byte) bool {
	got, err := parseMessage(raw)
	return m.isCall() && err == nil && got.isAnswer() && idKey(got.ID) == idKey(m.ID)
}

func parseMessage(raw []byte) (message, error) {
	m := message{raw: raw}
	err := json.Unmarshal(raw, &m)
	return m, err
}

// protocolVersion returns the version named in a message; most name none.
func (m message) protocolVersion() string {
	var params struct {
		Meta map[string]json.RawMessage `json:"_meta"`
	}
	var version string
	if json.Unmarshal(m.Params, &params) == nil {
		_ = json.Unmarshal(params.Meta["io.modelcontextprotocol/protocolVersion"], &version)
	}
	return version
}

// canceled returns the id of the request that a notification cancels; nil for other messages.
func (m message) canceled() json.RawMessage {
	if m.Method != "notifications/cancelled" {
		return nil
	}
	var params struct {
		RequestID json.RawMessage `json:"requestId"`
	}
	_ = json.Unmarshal(m.Params, &params)
	return params.RequestID
}

// idKey makes an id, a number or a string, the key of a map.
func idKey(id json.RawMessage) string { return string(bytes.TrimSpace(id)) }

// Codes of the bridge's own errors.
const (
	codeParse  = -32700
	codeBroken = -32000 // no answer from the server
)

// errorFor returns an error as the answer to a call. The reason of a refusal is in its data; empty:
// none.
func errorFor(id json.RawMessage, code int, reason fault.Code, text string) []byte {
	if len(id) == 0 {
		id = json.RawMessage("null")
	}
	e := map[string]any{"code": code, "message": text}
	if reason != "" {
		e["data"] = map[string]any{"code": reason}
	}
	b, _ := json.Marshal(map[string]any{"jsonrpc": "2.0", "id": id, "error": e})
	return b
}

// lines reads messages, one per line.
type lines struct{ r *bufio.Reader }

func newLines(r io.Reader) lines { return lines{bufio.NewReaderSize(r, 64<<10)} }

// next returns the next line that is not empty. After errTooLong, which skips a line, reading may
// go on; any other error is final.
func (l lines) next() ([]byte, error) {
	for {
		line, err := readLine(l.r, maxMessage)
		line = bytes.TrimSpace(line)
		if errors.Is(err, errTooLong) || len(line) > 0 {
			return line, err // the last line may lack its newline
		}
		if err != nil {
			return nil, err
		}
	}
}

// readLine reads to the next newline. A line that is too long is read and dropped.
func readLine(r *bufio.Reader, most int) ([]byte, error) {
	var line []byte
	tooLong := false
	for {
		part, err := r.ReadSlice('\n')
		if len(line)+len(part) > most {
			tooLong, line = true, nil
		}
		if !tooLong {
			line = append(line, part...)
		}
		switch {
		case errors.Is(err, bufio.ErrBufferFull):
			continue
		case errors.Is(err, io.EOF) && len(line) > 0:
			return line, nil // the next read returns EOF
		case err == nil && tooLong:
			return nil, errTooLong
		}
		return line, err
	}
}

// output writes messages, one per line. Safe for concurrent use.
type output struct {
	mu sync.Mutex
	w  io.Writer
}

// write writes a message on one line. A message that is not JSON is dropped, because it would break
// the lines after it.
func (o *output) write(raw []byte) error {
	var line bytes.Buffer
	if err := json.Compact(&line, raw); err != nil {
		return err
	}
	line.WriteByte('\n')
	o.mu.Lock()
	defer o.mu.Unlock()
	_, err := o.w.Write(line.Bytes())
	return err
}
