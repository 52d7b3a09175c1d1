package relay

import (
	"bytes"
	"context"
	"encoding/gob"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"sync"
	"syscall"
	"time"

	"github.com/coder/websocket"

	"secbox/fault"
	"secbox/sandbox"
	"secbox/sandbox/remote/wire"
)

// A call is a WebSocket between two nodes. The caller sends the call, then frames until it has the
// answer. Both sides send binary messages: the first byte is the kind. Content flows by credit, so
// that a cancel is never behind it.
const (
	// From the caller.
	kindContent = 'd' // a piece of the content, at most maxPiece bytes
	kindEnd     = 'e' // it ends
	kindAbort   = 'a' // it breaks off: the file stays as it was
	kindSignal  = 's' // and the number
	kindCancel  = 'c'

	// To the caller.
	kindTaken  = 't' // bytes of content that were used, in decimal
	kindStdout = 'o' // or content of a file
	kindStderr = 'x'
	kindAnswer = 'r' // the last one
)

const (
	maxPiece    = 32 << 10
	window      = 256 << 10           // bytes of content under way
	maxCall     = 2 * wire.MaxMessage // bytes of a call
	maxAnswer   = 64 << 20            // bytes of an answer: a directory with sandbox.MaxDirEntries long names
	dialTimeout = 5 * time.Second     // for a connection, and for a call beside its bytes
	cancelGrace = 15 * time.Second    // for the answer to a canceled call; the hub waits 10 for the runner
)

// The operations.
const (
	opExec      = "exec"
	opRead      = "read"
	opWrite     = "write"
	opReplace   = "replace"
	opStat      = "stat"
	opReadDir   = "read_dir"
	opMkdirAll  = "mkdir_all"
	opRemove    = "remove"
	opRemoveAll = "remove_all"
	opClose     = "close"
)

// sendTimeout is how long a call of so many bytes may take to arrive: both sides wait as long.
func sendTimeout(bytes int) time.Duration {
	return dialTimeout + time.Duration(bytes)*time.Second/(1<<20)
}

// call is what a node asks another node to do on a user's machine.
type call struct {
	Op      string
	User    sandbox.User
	Path    string
	Perm    fs.FileMode
	Was     string            // of replace
	Spec    *sandbox.ExecSpec // of exec
	Input   bool              // its StdinFrom is the content
	Signals bool              // it takes signals
}

// changes reports whether the outcome is unknown without an answer.
func (c call) changes() bool {
	switch c.Op {
	case opRead, opStat, opReadDir, opClose:
		return false
	}
	return true
}

// answer is the outcome of a call.
type answer struct {
	Failure *failure
	Result  *sandbox.ExecResult
	Info    *sandbox.FileInfo
	Entries []sandbox.DirEntry
	N       int64 // bytes of content
}

// streams are the content and the output of a call.
type streams struct {
	content        io.Reader // nil: none
	interactive    bool      // it may block for ever in Read, and an error of it is its end
	stdout, stderr io.Writer
	signals        <-chan syscall.Signal
}

// call makes a call to another node, and waits for its end.
func (m *Machines) call(ctx context.Context, nodeID string, c call, s streams) (got *answer, err error) {
	err = m.outbound.Do(ctx, c.User, func(ctx context.Context) (err error) {
		got, err = m.callIn(ctx, nodeID, c, s)
		if fault.Is(err, fault.RunnerOffline) { // it may have moved
			m.mu.Lock()
			m.asked = time.Time{}
			m.mu.Unlock()
		}
		return err
	})
	return got, err
}

func (m *Machines) callIn(ctx context.Context, nodeID string, c call, s streams) (*answer, error) {
	var message bytes.Buffer
	if err := gob.NewEncoder(&message).Encode(c); err != nil {
		return nil, fault.Wrap(fault.Internal, err, "cannot encode the call of another node")
	}
	if message.Len() > maxCall {
		return nil,
			fault.BadField("stdin", "the command, its variables and its input together exceed the %d bytes of a message to a runner",
				wire.MaxMessage)
	}
	conn, err := m.dial(ctx, nodeID, callPath)
	if err != nil {
		if ctx.Err() != nil {
			return nil, ctx.Err()
		}
		return nil, notThere(nodeID, err)
	}
	defer func() { _ = conn.CloseNow() }()
	conn.SetReadLimit(maxAnswer)

	live, end := m.peers.While(context.WithoutCancel(ctx), nodeID)
	defer end()
	lost := func(err error) error {
		if cause := context.Cause(live); cause != nil {
			err = cause
		}
		if ctx.Err() != nil {
			err = errors.Join(ctx.Err(), err)
		}
		if !c.changes() {
			return fault.Wrap(fault.RunnerOffline, err,
				"node %s, which the user's machine is connected to, has not answered; nothing was changed", nodeID)
		}
		return fault.Wrap(fault.OutcomeUnknown, err, "node %s, which the user's machine is connected to, has not answered; the request "+
			"may be done in part or whole, check there before you try again", nodeID)
	}
	sent, stop := context.WithTimeout(live, sendTimeout(message.Len()))
	err = conn.Write(sent, websocket.MessageBinary, message.Bytes())
	stop()
	if err != nil {
		return nil, lost(err)
	}

	f := &feeder{conn: conn, ctx: live, room: window}
	f.cond.L = &f.mu
	defer context.AfterFunc(live, f.close)()
	fed := make(chan struct{})
	if s.content == nil {
		close(fed)
	} else {
		go func() {
			defer close(fed)
			f.feed(s.content, s.interactive)
		}()
	}
	if s.signals != nil {
		go f.pass(s.signals)
	}
	canceled := context.AfterFunc(ctx, func() {
		give := time.AfterFunc(cancelGrace, end)
		f.send([]byte{kindCancel}) // waits while content is being written
		<-live.Done()
		give.Stop()
	})
	defer canceled()

	got, err := f.await(c, s)
	f.close()
	if err != nil && !errors.Is(err, errWriter) {
		err = lost(err)
	}
	if err != nil {
		end()
	}
	if s.content != nil && !s.interactive {
		<-fed // the caller's reader is not used afterwards
	}
	switch {
	case err != nil:
		return nil, err
	case f.failed != nil && got.Failure != nil && !s.interactive:
		return nil, f.failed
	case got.Failure != nil:
		return nil, got.Failure.err(ctx)
	}
	return got, nil
}

// dial opens a connection to another node.
func (m *Machines) dial(ctx context.Context, nodeID, uri string) (*websocket.Conn, error) {
	ctx, cancel := context.WithTimeout(ctx, dialTimeout)
	defer cancel()
	url, err := m.peers.URL(ctx, nodeID, uri)
	if err != nil {
		return nil, err
	}
	conn, resp, err := websocket.Dial(ctx, url, &websocket.DialOptions{HTTPClient: &http.Client{Transport: m.peers.Transport()}})
	if err == nil {
		return conn, nil
	}
	if resp != nil {
		defer resp.Body.Close()
		reason, _ := io.ReadAll(io.LimitReader(resp.Body, 500))
		err = fmt.Errorf("%w: %s", err, bytes.TrimSpace(reason))
	}
	return nil, err
}

// feeder sends content and signals of a call, and receives its output.
type feeder struct {
	conn *websocket.Conn
	ctx  context.Context

	mu     sync.Mutex
	cond   sync.Cond
	room   int // bytes of content that may be sent now
	over   bool
	failed error // of the content; read after it was fed
}

func (f *feeder) send(message []byte) bool {
	return f.conn.Write(f.ctx, websocket.MessageBinary, message) == nil
}

// close ends the sending.
func (f *feeder) close() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.over = true
	f.cond.Broadcast()
}

// take waits for room, and returns how much of n bytes may be sent; 0 when the call is over.
func (f *feeder) take(n int) int {
	f.mu.Lock()
	defer f.mu.Unlock()
	for f.room == 0 && !f.over {
		f.cond.Wait()
	}
	if f.over {
		return 0
	}
	n = min(n, f.room)
	f.room -= n
	return n
}

// feed sends the content to its end.
func (f *feeder) feed(r io.Reader, interactive bool) {
	buf := make([]byte, 1+maxPiece)
	buf[0] = kindContent
	for {
		n, err := r.Read(buf[1:])
		for at := 0; at < n; {
			piece := f.take(n - at)
			if piece == 0 {
				return
			}
			copy(buf[1:], buf[1+at:1+at+piece]) // moves what was not sent yet to the front
			if !f.send(buf[:1+piece]) {
				return
			}
			at += piece
		}
		switch {
		case err == nil:
			continue
		case errors.Is(err, io.EOF) || interactive:
			f.send([]byte{kindEnd})
		default:
			f.failed = err
			f.send([]byte{kindAbort})
		}
		return
	}
}

// pass sends signals until the call is over.
func (f *feeder) pass(signals <-chan syscall.Signal) {
	for {
		select {
		case sig, ok := <-signals:
			if !ok || !f.send([]byte{kindSignal, byte(sig)}) {
				return
			}
		case <-f.ctx.Done():
			return
		}
	}
}

// errWriter is in the chain when the caller's writer failed.
var errWriter = errors.New("write the content")

// await receives output until the answer.
func (f *feeder) await(c call, s streams) (*answer, error) {
	for {
		_, message, err := f.conn.Read(f.ctx)
		if err != nil {
			return nil, err
		}
		if len(message) == 0 {
			return nil, errors.New("an empty message")
		}
		kind, message := message[0], message[1:]
		switch kind {
		case kindTaken:
			var n int
			if _, err := fmt.Sscanf(string(message), "%d", &n); err != nil || n < 0 || n > window {
				return nil, fmt.Errorf("credit of %q", message)
			}
			f.mu.Lock()
			f.room = min(window, f.room+n)
			f.cond.Broadcast()
			f.mu.Unlock()
		case kindStdout, kindStderr:
			w := &s.stdout
			if kind == kindStderr {
				w = &s.stderr
			}
			if *w == nil {
				continue
			}
			if _, err := (*w).Write(message); err != nil {
				*w = nil
				if c.Op == opRead {
					return nil, fmt.Errorf("%w: %w", errWriter, err)
				}
			}
		case kindAnswer:
			var a answer
			if err := gob.NewDecoder(bytes.NewReader(message)).Decode(&a); err != nil {
				return nil, err
			}
			return &a, nil
		default:
			return nil, fmt.Errorf("a message of kind %q", kind)
		}
	}
}
