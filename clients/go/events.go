package client

import (
	"bufio"
	"bytes"
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"sync"
	"time"
)

// Event is an event of an exec. Data is of stdout and stderr, State of status and end.
type Event struct {
	Type  string // status, stdout, stderr, end
	ID    string // what Follow needs to go on after this event
	Data  []byte
	State *State
}

// maxEvent bounds the data of an event, and each of its lines, in bytes.
const maxEvent = 8 << 20

// Stream runs a command and calls each with its events, as they come. It returns the final state. A
// connection that breaks is opened again, so that each event comes once. An error of each ends the
// stream, not the exec.
func (c *Client) Stream(ctx context.Context, req Request, each func(Event) error) (State, error) {
	req.Stream = true
	if req.Key == "" {
		req.Key = NewKey()
	}
	if in := req.Stdin; in != nil {
		req.Command.Stream = true
		return c.streamWith(ctx, req, in, each)
	}
	return c.stream(ctx, call{
		method: http.MethodPost, path: "/sandbox/execs", body: req,
		header: map[string]string{"Idempotency-Key": req.Key},
	}, "", each)
}

// streamWith is Stream with a standard input.
func (c *Client) streamWith(ctx context.Context, req Request, in io.Reader, each func(Event) error) (State, error) {
	req.Stdin = nil
	var once sync.Once
	sent := make(chan error, 1)
	state, err := c.Stream(ctx, req, func(e Event) error {
		if e.Type == "status" && e.State != nil && e.State.Status == "running" { // while it is queued, the server waits for a while only
			once.Do(func() { go c.sendOrCancel(ctx, e.State.ExecID, in, sent) })
		}
		return each(e)
	})
	select {
	case failed := <-sent: // why the exec was canceled, or lacks its input
		if err == nil && failed != nil && state.Status == "canceled" {
			err = failed
		}
	default:
	}
	return state, err
}

// sendOrCancel sends the outcome of SendStdin to sent, and cancels an exec that would wait for its
// input.
func (c *Client) sendOrCancel(ctx context.Context, execID string, in io.Reader, sent chan<- error) {
	err := c.SendStdin(ctx, execID, in)
	sent <- err
	if err != nil {
		cancelCtx, stop := context.WithTimeout(context.WithoutCancel(ctx), 15*time.Second)
		defer stop()
		_ = c.Cancel(cancelCtx, execID) // if that fails, its timeout ends it
	}
}

// SendStdin sends the standard input of an exec whose command has Stream set, once. An exec that
// has ended, or had another one, is no error.
func (c *Client) SendStdin(ctx context.Context, execID string, in io.Reader) error {
	_, err := c.json(ctx, call{
		method: http.MethodPut, path: segments("sandbox", "execs", execID, "stdin"), content: in,
		header: map[string]string{"Content-Type": "application/octet-stream"}, once: true,
	}, nil)
	switch CodeOf(err) {
	case "exec_ended", "invalid_request": // or takes none
		return nil
	}
	return err
}

// Follow calls each with the events of an exec after the event with the id lastID; empty: all of
// them.
func (c *Client) Follow(ctx context.Context, execID, lastID string, each func(Event) error) (State, error) {
	return c.stream(ctx, call{method: http.MethodGet, path: segments("sandbox", "execs", execID, "events"), header: map[string]string{}},
		lastID, each)
}

func (c *Client) stream(ctx context.Context, req call, lastID string, each func(Event) error) (State, error) {
	var execID string
	for failed := 0; ; {
		if lastID != "" {
			req.header["Last-Event-ID"] = lastID
		}
		resp, err := c.send(ctx, req)
		if err != nil {
			return State{}, err
		}
		var end *State
		var stop error
		seen := lastID
		err = readEvents(resp.Body, func(e Event) error {
			if lastID = e.ID; e.State != nil {
				execID = e.State.ExecID
			}
			if e.Type == "end" {
				end = e.State
			}
			stop = each(e)
			return stop
		})
		resp.Body.Close()
		switch {
		case stop != nil:
			return State{ExecID: execID}, stop
		case end != nil:
			return *end, nil
		case ctx.Err() != nil:
			return State{ExecID: execID}, context.Cause(ctx)
		case resp.StatusCode == http.StatusNoContent: // there is nothing after lastID
			record, err := c.Exec(ctx, execID)
			return record.State, err
		}
		if seen != lastID {
			failed = 0
		}
		if failed++; failed > 5 {
			return State{ExecID: execID}, c.unreachable(err, "the stream of events broke again and again")
		}
		if execID != "" { // resume; without an event the request is repeated with its key
			req = call{method: http.MethodGet, path: segments("sandbox", "execs", execID, "events"), header: map[string]string{}}
		}
		timer := time.NewTimer(time.Duration(failed) * 100 * time.Millisecond)
		select {
		case <-ctx.Done():
		case <-timer.C:
		}
		timer.Stop()
	}
}

// readEvents reads server-sent events to the end of the stream, or to an error of each.
func readEvents(r io.Reader, each func(Event) error) error {
	in := bufio.NewReaderSize(r, 64<<10)
	var e Event
	var data, line []byte
	for {
		piece, err := in.ReadSlice('\n')
		line = append(line, piece...)
		if errors.Is(err, bufio.ErrBufferFull) && len(line) <= maxEvent {
			continue
		}
		if err != nil {
			if errors.Is(err, io.EOF) {
				return io.ErrUnexpectedEOF // after the event end the caller does not look
			}
			return err
		}
		text := bytes.TrimRight(line, "\r\n")
		name, value, _ := bytes.Cut(text, []byte(":"))
		value = bytes.TrimPrefix(value, []byte(" "))
		switch {
		case len(text) == 0 && len(data) > 0:
			if err := e.decode(data); err != nil {
				return err
			}
			if err := each(e); err != nil {
				return err
			}
			if e.Type == "end" {
				return nil
			}
			fallthrough
		case len(text) == 0:
			e, data = Event{}, data[:0]
		case string(name) == "event":
			e.Type = string(value)
		case string(name) == "id":
			e.ID = string(value)
		case string(name) == "data":
			if data = append(data, value...); len(data) > maxEvent {
				return fmt.Errorf("an event has more than %d bytes", maxEvent)
			}
		}
		line = line[:0]
	}
}

func (e *Event) decode(data []byte) error {
	switch e.Type {
	case "stdout", "stderr":
		var piece struct{ Data, Encoding string }
		if err := json.Unmarshal(data, &piece); err != nil {
			return err
		}
		if piece.Encoding != "base64" {
			e.Data = []byte(piece.Data)
			return nil
		}
		var err error
		e.Data, err = base64.StdEncoding.DecodeString(piece.Data)
		return err
	case "status", "end":
		e.State = &State{}
		if err := json.Unmarshal(data, e.State); err != nil {
			return fmt.Errorf("an event %s: %w", e.Type, err)
		}
	}
	return nil
}
