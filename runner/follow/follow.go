// Package follow lets callers follow an exec from any place of its output: its row, each new piece
// of its output, and its end. However many callers follow an exec, one goroutine reads its row and
// its new output for all of them. The package must not know HTTP, nor the form in which callers
// show the exec.
package follow

import (
	"context"
	"io"
	"strconv"
	"strings"
	"sync"

	"secbox/audit"
	"secbox/runner"
	"secbox/runner/output"
)

// Runner is where execs run; see runner.Runner. It is safe for concurrent use.
type Runner interface {
	// Follow waits until the progress of an exec differs from seen; it returns the zero value at
	// once for an exec that is not here.
	Follow(ctx context.Context, execID string, seen runner.Progress) (runner.Progress, error)

	// Await returns a channel that is closed when an exec is here. The caller must call leave.
	Await(execID string) (here <-chan struct{}, leave func())

	// OpenOutput opens the kept part of "stdout" or "stderr" and returns its size in bytes: what
	// was kept until now of an exec that is here.
	OpenOutput(ctx context.Context, rec audit.Record, stream string) (io.ReadSeekCloser, int64, error)
}

// History reads records; see audit.Log.
type History interface {
	// Newer returns a record that was read before as it is now, without reading the whole row if
	// its status is the same; fault.UnknownExec if there is none.
	Newer(ctx context.Context, r audit.Record) (audit.Record, error)
}

// Streams are the names of the streams of output.
var Streams = [2]string{"stdout", "stderr"}

// Offsets is a number of bytes of each of the Streams: a place from which a caller goes on.
type Offsets [2]int64

// String returns the offsets as ParseOffsets takes them, such as 120-0.
func (o Offsets) String() string {
	return strconv.FormatInt(o[0], 10) + "-" + strconv.FormatInt(o[1], 10)
}

// ParseOffsets reads what String wrote, and nothing else.
func ParseOffsets(text string) (o Offsets, ok bool) {
	first, second, ok := strings.Cut(text, "-")
	for i, word := range []string{first, second} {
		n, err := strconv.ParseUint(word, 10, 63)
		ok = ok && err == nil
		o[i] = int64(n)
	}
	if !ok || o.String() != text {
		return Offsets{}, false
	}
	return o, true
}

// Execs are the execs that are followed now. It is safe for concurrent use.
type Execs struct {
	runner  Runner
	history History

	mu    sync.Mutex
	feeds map[string]*feed // by exec id
}

// New makes an Execs.
func New(runner Runner, history History) *Execs {
	return &Execs{runner: runner, history: history, feeds: map[string]*feed{}}
}

// State is what is known of an exec.
type State struct {
	Record   audit.Record
	Started  bool         // its job has begun, or is about to, on this node
	Usage    output.Usage // of a job that runs on this node
	Ended    bool         // Record is final, and the output is complete
	Gone     error        // its record was removed, or is unknown, while it was followed: nothing more comes
	Watchers int          // callers that follow it
}

// Watch is one caller that follows an exec. Its methods must not be called at the same time.
type Watch struct {
	execs *Execs
	feed  *feed // nil: the exec had ended before
	ended State // if feed is nil
	wake  chan struct{}
	open  [2]openOutput
	notes notes // if feed is nil
}

// openOutput is an open stream of output.
type openOutput struct {
	content  io.ReadSeekCloser // nil: not open
	size, at int64
}

// Watch begins to follow an exec, whose record was read a moment ago. The caller must call Close.
func (e *Execs) Watch(rec audit.Record) *Watch {
	w := &Watch{execs: e, wake: make(chan struct{}, 1)}
	if rec.Status.Final() {
		w.ended = State{Record: rec, Ended: true, Watchers: 1}
		return w
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	f := e.feeds[rec.ExecID]
	if f == nil {
		ctx, stop := context.WithCancel(context.Background())
		f = &feed{execs: e, stop: stop, done: make(chan struct{}), watches: map[*Watch]bool{}, state: State{Record: rec}}
		e.feeds[rec.ExecID] = f
		go f.run(ctx)
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.watches[w] = true
	w.feed = f
	return w
}

// Close ends the watch. The last one of an exec waits for its reader.
func (w *Watch) Close() {
	for i := range w.open {
		w.close(i)
	}
	if w.feed == nil {
		return
	}
	w.execs.mu.Lock()
	w.feed.mu.Lock()
	delete(w.feed.watches, w)
	last := len(w.feed.watches) == 0
	id := w.feed.state.Record.ExecID
	w.feed.mu.Unlock()
	if last && w.execs.feeds[id] == w.feed {
		delete(w.execs.feeds, id)
	}
	w.execs.mu.Unlock()
	if last {
		w.feed.stop()
		<-w.feed.done
	}
}

// Changed is woken by each change of State and of what Read returns.
func (w *Watch) Changed() <-chan struct{} { return w.wake }

// Wake wakes Changed, though nothing has changed. It may be called at any time.
func (w *Watch) Wake() {
	select {
	case w.wake <- struct{}{}:
	default:
	}
}

// State returns what is known now.
func (w *Watch) State() State {
	if w.feed == nil {
		return w.ended
	}
	w.feed.mu.Lock()
	defer w.feed.mu.Unlock()
	now := w.feed.state
	now.Watchers = len(w.feed.watches)
	return now
}

// Note calls record, unless it succeeded for the same key before while the exec was followed.
func (w *Watch) Note(key string, record func() error) error {
	notes := &w.notes
	if w.feed != nil {
		notes = &w.feed.notes
	}
	notes.mu.Lock()
	defer notes.mu.Unlock()
	if notes.known[key] {
		return nil
	}
	if err := record(); err != nil {
		return err
	}
	if notes.known == nil {
		notes.known = map[string]bool{}
	}
	notes.known[key] = true
	return nil
}

// notes are the keys that were recorded.
type notes struct {
	mu    sync.Mutex // also while one is recorded
	known map[string]bool
}
