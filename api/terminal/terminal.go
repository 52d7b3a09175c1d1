// Package terminal serves the terminals of execs over WebSockets. It must not know tokens or
// records: its caller says who may go on, and what the end is.
//
// Messages to the client are binary, with output as the terminal shows it, or JSON texts:
// "attached" with the offset of the first byte that follows, "lost" where output is no longer kept,
// and "end".
// Messages of the client are binary, with what is typed, or the JSON texts "resize" and "signal".
package terminal

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"strings"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/coder/websocket"

	"secbox/api/decode"
	"secbox/fault"
	"secbox/internal/whole"
	"secbox/runner/terminal"
)

const (
	piece     = 16 << 10        // bytes of output in a message
	maxReason = 123             // bytes of a close frame
	goodbye   = 2 * time.Second // for the answer to a close frame
)

// Client is a client that has asked for a terminal.
type Client struct {
	Terminal *terminal.Terminal
	At       int64 // the offset of the first byte that the client does not have
	// Valid returns why the client may not go on; nil while it may. It is called at every Check.
	Valid func() error
	Check time.Duration
	// Stall is how long a message may take to be sent.
	Stall   time.Duration
	Closing <-chan struct{} // of the server
	// End waits for the end of the exec, after the last output, and returns what the client is
	// told.
	End func(ctx context.Context) (json.RawMessage, error)
}

// message is a text message, in either direction.
type message struct {
	Type   string          `json:"type"`
	Offset *int64          `json:"offset,omitempty"`
	Bytes  int64           `json:"bytes,omitempty"`
	Exec   json.RawMessage `json:"exec,omitempty"`
}

// Serve answers a request with a WebSocket, until the exec ends or the client leaves. The caller
// has checked the request's origin.
func (c Client) Serve(w http.ResponseWriter, r *http.Request) {
	conn, err := websocket.Accept(w, r, nil) // answers bad handshakes itself
	if err != nil {
		return
	}
	defer func() { _ = conn.CloseNow() }()
	conn.SetReadLimit(terminal.MaxTyped)
	ctx, cancel := context.WithCancelCause(context.WithoutCancel(r.Context()))
	defer cancel(nil)
	var typing atomic.Int64
	go func() { cancel(c.read(ctx, conn, &typing)) }()
	go func() { cancel(c.watch(ctx, conn, &typing)) }()
	err = c.write(ctx, conn)
	if ctx.Err() != nil {
		err = context.Cause(ctx)
	}
	status, reason := websocket.StatusNormalClosure, ""
	var closed websocket.CloseError
	switch {
	case err == nil:
	case errors.As(err, &closed): // by the client
		status = closed.Code
	case errors.Is(err, errClosing):
		status, reason = websocket.StatusGoingAway, err.Error()
	case fault.CodeOf(err) != fault.Internal:
		status, reason = websocket.StatusPolicyViolation, fault.From(err).Message
	default:
		status, reason = websocket.StatusInternalError, "the connection broke; come again with the offset"
	}
	timer := time.AfterFunc(goodbye, func() { _ = conn.CloseNow() })
	defer timer.Stop()
	_ = conn.Close(status, string(whole.End([]byte(reason)[:min(len(reason), maxReason)])))
}

var errClosing = errors.New("the server shuts down; come again with the offset")

// write sends what the terminal shows, and its end.
func (c Client) write(ctx context.Context, conn *websocket.Conn) error {
	buf := make([]byte, piece)
	at := min(c.At, c.Terminal.At())
	if err := c.tell(conn, message{Type: "attached", Offset: &at}); err != nil {
		return err
	}
	for {
		from, n, err := c.Terminal.Next(ctx, at, buf)
		if from > at {
			if err := c.tell(conn, message{Type: "lost", Bytes: from - at}); err != nil {
				return err
			}
		}
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return err
		}
		if err := c.send(conn, websocket.MessageBinary, buf[:n]); err != nil {
			return err
		}
		at = from + int64(n)
	}
	exec, err := c.End(ctx)
	if err != nil {
		return err
	}
	return c.tell(conn, message{Type: "end", Exec: exec})
}

func (c Client) tell(conn *websocket.Conn, m message) error {
	text, err := json.Marshal(m)
	if err != nil {
		return err
	}
	return c.send(conn, websocket.MessageText, text)
}

func (c Client) send(conn *websocket.Conn, kind websocket.MessageType, content []byte) error {
	ctx, cancel := context.WithTimeout(context.Background(), c.Stall)
	defer cancel()
	return conn.Write(ctx, kind, content)
}

// unread is how long a message of a client may wait for a job that reads nothing.
const unread = 5 * time.Minute

// watch ends a connection whose client is gone or may not go on, or types what nobody reads. While
// a message of the client waits, since the time typing, nothing reads its answer to a ping.
func (c Client) watch(ctx context.Context, conn *websocket.Conn, typing *atomic.Int64) error {
	ticker := time.NewTicker(c.Check)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-c.Closing:
			return errClosing
		case <-ticker.C:
		}
		if err := c.Valid(); err != nil {
			return err
		}
		if since := typing.Load(); since != 0 {
			if time.Since(time.UnixMilli(since)) > unread {
				return fault.New(fault.InvalidRequest, "the command has read nothing of what was typed for %s; come again with the offset, and "+
					"type nothing, or cancel the exec", unread)
			}
			continue
		}
		alive, cancel := context.WithTimeout(context.WithoutCancel(ctx), c.Stall)
		err := conn.Ping(alive)
		cancel()
		if err != nil {
			return err
		}
	}
}

// read passes on what the client sends. typing is since when a message waits, in Unix milliseconds;
// 0: none does.
func (c Client) read(ctx context.Context, conn *websocket.Conn, typing *atomic.Int64) error {
	for {
		// The end of a context that conn gets would break the connection without a close frame.
		kind, content, err := conn.Read(context.WithoutCancel(ctx))
		if err != nil {
			return err
		}
		typing.Store(time.Now().UnixMilli())
		if kind == websocket.MessageBinary {
			err = c.Terminal.Type(ctx, content)
		} else {
			err = c.command(ctx, content)
		}
		typing.Store(0)
		if err != nil && !errors.Is(err, terminal.ErrEnded) {
			return err
		}
	}
}

// command does what a text message asks.
func (c Client) command(ctx context.Context, content []byte) error {
	var m struct {
		Type string `json:"type"`
		terminal.Size
		Signal string `json:"signal"`
	}
	if err := decode.Strict(content, &m); err != nil {
		return fault.New(fault.InvalidRequest, "a text message must be JSON, such as {\"type\":\"resize\",\"cols\":80,\"rows\":24}")
	}
	switch {
	case m.Type == "resize" && m.Valid():
		return c.Terminal.Resize(ctx, m.Size)
	case m.Type == "resize":
		return fault.New(fault.InvalidRequest, "resize: cols and rows must be from 1 to %d", terminal.MaxSize)
	case m.Type == "signal" && signals[m.Signal] != 0:
		return c.Terminal.Signal(ctx, signals[m.Signal])
	case m.Type == "signal":
		return fault.New(fault.InvalidRequest, "signal: must be SIGHUP, SIGINT, SIGTERM or SIGKILL")
	}
	return fault.New(fault.InvalidRequest, "type: is %q; allowed are resize and signal", whole.Shorten(strings.ToValidUTF8(m.Type, "")))
}

var signals = map[string]syscall.Signal{
	"SIGHUP": syscall.SIGHUP, "SIGINT": syscall.SIGINT, "SIGTERM": syscall.SIGTERM, "SIGKILL": syscall.SIGKILL,
}
