package main

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"sync"
)

// maxMessage is the longest message that is passed on, in bytes. core-api's own limit is lower unless its operator raised it.
const maxMessage = 64 << 20

var errTooLong = errors.New("the message is too long")

// message is what must be known of a message to pass it on; raw is the message itself.
type message struct {
	raw    []byte
	ID     json.RawMessage `json:"id"`
	Method string          `json:"method"`
	Params json.RawMessage `json:"params"`
}

// isCall reports whether the sender waits for an answer.
func (m message) isCall() bool { return m.Method != "" && len(m.ID) > 0 && string(m.ID) != "null" }

func (m message) isAnswer() bool { return m.Method == "" && len(m.ID) > 0 }

func parseMessage(raw []byte) (message, error) {
	m := message{raw: raw}
	err := json.Unmarshal(raw, &m)
	return m, err
}

// protocolVersion is the version that a message says it is written in; empty for most.
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

// canceled is the request that a notification takes back; nil for any other message.
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

// The codes of the errors that the bridge itself answers with.
const (
	codeParse  = -32700
	codeBroken = -32000 // the server could not be asked, or did not answer
)

func errorFor(id json.RawMessage, code int, text string) []byte {
	if len(id) == 0 {
		id = json.RawMessage("null")
	}
	b, _ := json.Marshal(map[string]any{
		"jsonrpc": "2.0", "id": id, "error": map[string]any{"code": code, "message": text},
	})
	return b
}

// lines reads messages, one on each line.
type lines struct{ r *bufio.Reader }

func newLines(r io.Reader) lines { return lines{bufio.NewReaderSize(r, 64<<10)} }

// next is the next line that is not empty. errTooLong skips one; any other error ends.
func (l lines) next() ([]byte, error) {
	for {
		line, err := readLine(l.r, maxMessage)
		line = bytes.TrimSpace(line)
		if errors.Is(err, errTooLong) || len(line) > 0 {
			return line, err // what stands before the end without a newline is a line, too
		}
		if err != nil {
			return nil, err
		}
	}
}

// readLine reads to the next newline. A longer line is read to its end and not kept.
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
			return line, nil // the next read ends
		case err == nil && tooLong:
			return nil, errTooLong
		}
		return line, err
	}
}

// output writes messages, one on each line, from any goroutine.
type output struct {
	mu sync.Mutex
	w  io.Writer
}

// write puts a message on one line; what is no JSON is dropped, because a client could not read what follows it either.
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
