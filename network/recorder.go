package network

import (
	"context"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"secbox/audit"
)

// recorder stores the rows of an exec's connections. Rows that come at about the same time share a
// transaction. Of more than audit.MaxConnections it stores none.
type recorder struct {
	store audit.Connections
	log   *slog.Logger

	denied atomic.Int64

	mu      sync.Mutex
	rows    []audit.Connection // the latest of each seq, at the index seq-1
	waiting map[int64]chan error
	dirty   map[int64]bool
	closed  bool

	wake chan struct{}
	over chan struct{}
}

func newRecorder(store audit.Connections, log *slog.Logger) *recorder {
	r := &recorder{
		store: store, log: log, waiting: map[int64]chan error{}, dirty: map[int64]bool{}, wake: make(chan struct{}, 1),
		over: make(chan struct{}),
	}
	go r.run()
	return r
}

// open stores the row of a connection that is about to be dialed.
func (r *recorder) open(ctx context.Context, c audit.Connection) error {
	if c.Seq > audit.MaxConnections {
		return nil
	}
	stored := make(chan error, 1)
	r.put(c, stored)
	select {
	case err := <-stored:
		return err
	case <-ctx.Done():
		return ctx.Err()
	}
}

// save stores a row soon.
func (r *recorder) save(c audit.Connection, denied bool) {
	if denied {
		r.denied.Add(1)
	}
	if c.Seq <= audit.MaxConnections {
		r.put(c, nil)
	}
}

func (r *recorder) put(c audit.Connection, stored chan error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for int64(len(r.rows)) < c.Seq {
		r.rows = append(r.rows, audit.Connection{})
	}
	c.Host, c.Detail = storable(c.Host), storable(c.Detail)
	r.rows[c.Seq-1] = c
	r.dirty[c.Seq] = true
	if stored != nil {
		r.waiting[c.Seq] = stored
	}
	r.signal()
}

// storable is a text as both databases keep it.
func storable(s string) string { return strings.ReplaceAll(strings.ToValidUTF8(s, "?"), "\x00", "?") }

func (r *recorder) signal() {
	select {
	case r.wake <- struct{}{}:
	default:
	}
}

// run stores rows until close.
func (r *recorder) run() {
	defer close(r.over)
	for range r.wake {
		if r.flush() {
			return
		}
	}
}

// storeTimeout is how long a transaction may take.
const storeTimeout = 10 * time.Second

// flush stores the rows that have changed, and reports whether that was the end.
func (r *recorder) flush() (end bool) {
	r.mu.Lock()
	var rows []audit.Connection
	for seq := range r.dirty {
		rows = append(rows, r.rows[seq-1])
	}
	waiting := r.waiting
	r.waiting, r.dirty = map[int64]chan error{}, map[int64]bool{}
	closed := r.closed
	r.mu.Unlock()
	var err error
	if len(rows) > 0 {
		ctx, cancel := context.WithTimeout(context.Background(), storeTimeout)
		err = r.store.SaveConnections(ctx, rows)
		cancel()
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, stored := range waiting {
		stored <- err
	}
	if err != nil {
		r.log.Error("the connections of an exec could not be stored", "exec", rows[0].ExecID, "rows", len(rows), "error", err)
		for _, c := range rows {
			r.dirty[c.Seq] = r.dirty[c.Seq] || waiting[c.Seq] == nil // of a connection that was not made the refusal comes
		}
	}
	return closed
}

// close stores what is left, and sums up. What cannot be stored goes with the exec's record.
func (r *recorder) close() audit.Traffic {
	r.mu.Lock()
	r.closed = true
	r.signal()
	r.mu.Unlock()
	<-r.over
	t := audit.TrafficOf(r.rows)
	for _, seq := range slices.Sorted(maps.Keys(r.dirty)) {
		t.Unstored = append(t.Unstored, r.rows[seq-1])
	}
	return t
}
