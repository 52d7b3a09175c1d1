package sqlite

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"
	"slices"
	"sync"

	"secbox/store/internal/row"
)

// maxBatch is the most transactions in one commit: enough for all requests that a server admits at
// once, and few enough that the first does not wait long for the last.
const maxBatch = 32

// writer is the one connection that writes: SQLite has one writer anyway, and waiting here is
// cheaper than SQLITE_BUSY.
//
// The caller that gets the write lock writes for all that wait: their transactions share one commit
// and its flush of the disk, so that 16 concurrent callers do not wait for 16 flushes. Each
// transaction is a savepoint: one that is refused rolls back only its own changes. A single caller
// gets the lock at once, and its transaction needs no savepoint.
//
// Statements are never interrupted. A caller whose context ends before its turn withdraws without
// having written anything; later it waits for the outcome, which takes a moment.
type writer struct {
	pool      *sql.DB // of the one connection
	watch     *row.Watch
	writeLock chan struct{}

	mu      sync.Mutex
	waiting []*job

	// The fields below need the write lock.
	conn          *sql.Conn // nil: none yet, or the last one was discarded
	prepared      map[string]*sql.Stmt
	pages         int  // written into the WAL since the last checkpoint
	checkpointing bool // a checkpoint waits for the write lock
	closed        bool
}

// job is one transaction.
type job struct {
	do   func(tx) error
	done chan struct{} // closed when err is final
	err  error

	panicked any // the value that do panicked with; run panics with it in the caller's goroutine
}

func newWriter(pool *sql.DB, watch *row.Watch) *writer {
	return &writer{pool: pool, watch: watch, writeLock: make(chan struct{}, 1), prepared: map[string]*sql.Stmt{}}
}

// run runs do in one durable transaction. An error of do rolls it back and is returned.
func (w *writer) run(ctx context.Context, do func(tx) error) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	j := &job{do: do, done: make(chan struct{})}
	w.mu.Lock()
	w.waiting = append(w.waiting, j)
	w.mu.Unlock()
	select {
	case <-j.done:
	case w.writeLock <- struct{}{}:
		for !j.isDone() {
			w.write(w.take())
		}
		<-w.writeLock
	case <-ctx.Done():
		if w.withdraw(j) {
			return ctx.Err()
		}
		<-j.done
	}
	if j.panicked != nil {
		panic(j.panicked)
	}
	return j.err
}

func (j *job) isDone() bool {
	select {
	case <-j.done:
		return true
	default:
		return false
	}
}

// take returns the next batch, in order of arrival.
func (w *writer) take() []*job {
	w.mu.Lock()
	defer w.mu.Unlock()
	n := min(len(w.waiting), maxBatch)
	batch := w.waiting[:n:n]
	w.waiting = w.waiting[n:]
	if len(w.waiting) == 0 {
		w.waiting = nil // the array may go
	}
	return batch
}

// withdraw removes a waiting job; false when it is being written.
func (w *writer) withdraw(j *job) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	at := slices.Index(w.waiting, j)
	if at < 0 {
		return false
	}
	w.waiting = slices.Delete(w.waiting, at, at+1)
	return true
}

// write runs every job of a batch and commits them together.
func (w *writer) write(batch []*job) {
	err := w.begin()
	good := 0
	for _, j := range batch {
		if err != nil {
			break
		}
		if err = w.runOne(j, len(batch) == 1); err == nil && j.err == nil {
			good++
		}
	}
	switch {
	case err == nil && good > 0:
		if err = w.exec("COMMIT"); err != nil {
			w.rollback()
		}
	case w.conn != nil:
		w.rollback()
	}
	for _, j := range batch {
		if j.err == nil {
			j.err = err // a refused job keeps its own error
		}
		close(j.done)
	}
	if err == nil && good > 0 {
		w.afterCommit()
	}
}

// runOne runs one job in the batch's transaction. An error means that the whole transaction is
// lost: SQLite rolls it back when the disk is full or fails.
func (w *writer) runOne(j *job, alone bool) error {
	if alone {
		j.work(tx{w})
		return nil
	}
	if err := w.exec("SAVEPOINT one"); err != nil {
		return err
	}
	if j.work(tx{w}); j.err != nil {
		if err := w.exec("ROLLBACK TO one"); err != nil {
			return errors.Join(j.err, err)
		}
	}
	return w.exec("RELEASE one")
}

func (j *job) work(tx tx) {
	defer func() {
		if j.panicked = recover(); j.panicked != nil {
			j.err = fmt.Errorf("panic: %v", j.panicked)
		}
	}()
	j.err = j.do(tx)
}

// begin takes SQLite's write lock now, since waiting for it is not possible later in a transaction.
// A connection that cannot begin although no other process has the lock is replaced, because its
// state is unknown.
func (w *writer) begin() error {
	if err := w.connect(); err != nil {
		return err
	}
	err := w.exec("BEGIN IMMEDIATE")
	if err == nil || busy(err) {
		return err
	}
	w.discard()
	if err := w.connect(); err != nil {
		return err
	}
	return w.exec("BEGIN IMMEDIATE")
}

func (w *writer) connect() (err error) {
	if w.closed {
		return isClosed()
	}
	if w.conn == nil {
		w.conn, err = w.pool.Conn(context.Background())
	}
	return err
}

// rollback ends a failed transaction. Its error is ignored: often SQLite has rolled back already,
// and the next begin finds other problems.
func (w *writer) rollback() { _ = w.exec("ROLLBACK") }

func (w *writer) discard() {
	for _, s := range w.prepared {
		s.Close()
	}
	clear(w.prepared)
	_ = w.conn.Raw(func(any) error { return driver.ErrBadConn }) // so that the pool does not keep it
	w.conn.Close()
	w.conn = nil
}

// exclusively runs fn with the write lock and the connection, outside a transaction.
func (w *writer) exclusively(ctx context.Context, fn func(conn *sql.Conn) error) error {
	select {
	case w.writeLock <- struct{}{}:
		defer func() { <-w.writeLock }()
	case <-ctx.Done():
		return ctx.Err()
	}
	if err := w.connect(); err != nil {
		return err
	}
	return fn(w.conn)
}

// close waits for the running batch and closes the connection; later jobs are refused.
func (w *writer) close() error {
	w.writeLock <- struct{}{}
	defer func() { <-w.writeLock }()
	if w.closed {
		return nil
	}
	w.closed = true
	for _, s := range w.prepared {
		s.Close()
	}
	if w.conn != nil {
		w.conn.Close()
	}
	return w.pool.Close()
}

func (w *writer) exec(statement string, args ...any) error {
	_, err := tx{w}.exec(statement, args...)
	return err
}

// tx is a running transaction. It must not be used after the function that got it has returned.
//
// Every statement is prepared once and kept, since parsing and planning cost more than running. So
// their texts must be constant. Statements run without a context, for which the driver would start
// a goroutine each.
type tx struct{ w *writer }

func (t tx) prepare(statement string) (*sql.Stmt, error) {
	if s, ok := t.w.prepared[statement]; ok {
		return s, nil
	}
	s, err := t.w.conn.PrepareContext(context.Background(), statement)
	if err != nil {
		return nil, err
	}
	t.w.prepared[statement] = s
	return s, nil
}

// exec runs a statement and returns how many rows it changed.
func (t tx) exec(statement string, args ...any) (changed int64, err error) {
	s, err := t.prepare(statement)
	if err != nil {
		return 0, err
	}
	t.w.watch.Saw(statement, args)
	result, err := s.ExecContext(context.Background(), args...)
	if err != nil {
		return 0, err
	}
	return result.RowsAffected()
}

// each runs a statement and calls each for each row. It is a row.Run, and ignores its context.
func (t tx) each(_ context.Context, each func(row.Scan) error, statement string, args ...any) error {
	s, err := t.prepare(statement)
	if err != nil {
		return err
	}
	t.w.watch.Saw(statement, args)
	rows, err := s.QueryContext(context.Background(), args...)
	return every(rows, err, each)
}
