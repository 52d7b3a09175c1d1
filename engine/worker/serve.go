//go:build linux

package worker

import (
	"bufio"
	"encoding/json"
	"io"
	"os"
	"sync"

	"golang.org/x/sys/unix"

	"secbox/engine/initproto"
)

// Exit codes of a worker.
const (
	exitLease    = 137 // its standard input closed
	exitProtocol = 2
	exitNoReaper = 3
)

// Link writes whole frames to a stream, one at a time.
type Link struct {
	mu  sync.Mutex
	w   io.Writer
	buf []byte
}

// NewLink makes a Link that writes to w.
func NewLink(w io.Writer) *Link { return &Link{w: w} }

// Send writes a frame.
func (l *Link) Send(t initproto.Type, payload []byte) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.buf = initproto.Append(l.buf[:0], t, payload)
	_, err := l.w.Write(l.buf)
	return err
}

// SendExit writes a report.
func (l *Link) SendExit(e initproto.Exit) error { return l.SendJSON(initproto.TypeExit, e) }

// SendJSON writes a frame whose payload is v as JSON.
func (l *Link) SendJSON(t initproto.Type, v any) error {
	payload, err := json.Marshal(v)
	if err != nil {
		return err
	}
	return l.Send(t, payload)
}

// Serve makes this process a worker and serves jobs until in ends; it returns the process's exit
// code. When it returns, no process of a command is alive. The process must have no other children,
// because all are killed. Serve must be called once.
func Serve(in io.Reader, out io.Writer, o Options) int {
	o.Alone = false
	if unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) != nil {
		return exitNoReaper
	}
	if o.Hardened && unix.Prctl(unix.PR_SET_DUMPABLE, 0, 0, 0, 0) != nil {
		return exitNoReaper
	}
	w := &server{link: NewLink(out), o: o}
	if w.link.Send(initproto.TypeHello, []byte(initproto.MagicWorker)) != nil {
		return exitLease
	}
	code := w.handleFrames(initproto.NewReader(bufio.NewReaderSize(in, initproto.MaxChunk), initproto.ToWorker))
	if c := w.running(); c != nil {
		c.Kill()
		<-c.Dead() // not for the output, whose reader may be gone
	}
	return code
}

type server struct {
	link *Link
	o    Options

	mu      sync.Mutex
	command *Command // nil between two jobs
}

func (w *server) running() *Command {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.command
}

func (w *server) set(c *Command) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.command = c
}

// handleFrames handles frames until the lease ends.
func (w *server) handleFrames(frames *initproto.Reader) int {
	for {
		t, payload, err := frames.Next()
		if err != nil {
			return exitLease
		}
		c := w.running()
		switch {
		case t == initproto.TypeJob && c == nil:
			spec, err := initproto.DecodeJob(payload)
			if err != nil {
				return exitProtocol
			}
			if !w.start(spec) {
				return exitLease
			}
		case t == initproto.TypeJob:
			return exitProtocol
		case c == nil: // sent before the exit of its command was received
		case t == initproto.TypeStdin:
			if !c.Push(payload) {
				return exitProtocol
			}
		case t == initproto.TypeStdinEnd:
			c.EndStdin()
		case t == initproto.TypeSignal:
			s, err := initproto.DecodeSignal(payload)
			if err != nil {
				return exitProtocol
			}
			c.Signal(s)
		case t == initproto.TypeKill:
			c.Kill()
		}
	}
}

// start starts a command and sends its report in the background; false when a report cannot be
// sent.
func (w *server) start(spec initproto.Job) bool {
	c, err := Start(spec, w.link, w.o)
	if err != nil {
		return w.link.SendExit(Refusal(err)) == nil
	}
	w.set(c)
	go func() {
		exit := c.Wait()
		if spec.CodeFile != "" {
			_ = os.Remove(spec.CodeFile) // it would fill /tmp, which stays
		}
		w.set(nil) // before the report, which the next job may follow at once
		_ = w.link.SendExit(exit)
	}()
	return true
}
