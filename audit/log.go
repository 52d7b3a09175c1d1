package audit

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"time"

	"secbox/fault"
	"secbox/internal/quota"
	"secbox/workspace/diskspace"
)

// closeTimeout bounds how long Close waits for the database before the result goes to the spool,
// since a client waits for the answer meanwhile.
const closeTimeout = 5 * time.Second

// Defaults of Config.
const (
	defaultRetry     = time.Second
	defaultPageBytes = 8 << 20

	reservedForEnds = 4 << 20 // bytes of the disk that no new row may use

	chunk = 64 // records that List reads at once, so that it does not read a whole page of large ones
)

// Config configures a Log.
type Config struct {
	Store  Store
	Dir    string // the spool's directory in the state dir; created, private, used by this process only
	NodeID string
	Logger *slog.Logger

	Retry time.Duration // between two attempts to empty the spool; 0: 1 s

	// FreeBytes returns the free bytes of the state dir's disk. Refusals leave FreeMinBytes free,
	// other rows leave a little for ends. Nil or an error: not checked.
	FreeBytes    func() (uint64, error)
	FreeMinBytes uint64

	Refusals  quota.Rate       // of refusals of each token that get rows; zero: 60 at once, 10 a minute
	PageBytes int              // approximate size of one list; 0: 8 MiB
	StatsRows int              // that statistics read; 0: 100,000
	Now       func() time.Time // nil: time.Now
}

// Log is the audit log of one node: the store, and a spool on this node's disk for results that the
// store refuses. All methods are safe for concurrent use.
//
// The life of a node: Recover once, before anything runs; then Run in the background until the end,
// while execs are opened and closed. A result is never given up, whatever the store's error is:
// Close puts it into the store, else into the spool, else it stays in memory and Run goes on trying
// both. Unstored tells of the results that wait.
type Log struct {
	store Store
	cfg   Config
	spool *spool
	kick  chan struct{} // wakes Run

	replaying sync.Mutex // one replay at a time

	mu        sync.Mutex
	waiting   map[string]*result   // results that the store does not have, by exec id
	damaged   map[string]error     // files of the spool that no record can be read from, by name
	uncertain map[string]time.Time // openings without an answer, by exec id, and their time; nothing ran, but the row may exist
	down      bool                 // the last call of the store failed

	refusals *quota.Limiter
}

// NewLog returns the log of a node, with the results in its spool.
func NewLog(cfg Config) (*Log, error) {
	cfg.Retry = cmp.Or(max(0, cfg.Retry), defaultRetry)
	cfg.PageBytes = cmp.Or(max(0, cfg.PageBytes), defaultPageBytes)
	cfg.StatsRows = cmp.Or(max(0, cfg.StatsRows), defaultStatsRows)
	if cfg.Now == nil {
		cfg.Now = time.Now
	}
	sp, err := openSpool(cfg.Dir)
	if err != nil {
		return nil, err
	}
	l := &Log{
		store: cfg.Store, cfg: cfg, spool: sp, kick: make(chan struct{}, 1),
		waiting: map[string]*result{}, uncertain: map[string]time.Time{}, refusals: quota.New(cfg.Refusals),
	}
	return l, l.load()
}

// Open writes the row of an exec; see Store.Open. When it fails, nothing may run: fault.DiskFull
// when there is no room for the row. If the database wrote the row without an answer, Run ends the
// row as soon as the database answers.
func (l *Log) Open(ctx context.Context, r Record) (taken *Record, err error) {
	if err := l.room(min(reservedForEnds, l.cfg.FreeMinBytes)); err != nil {
		return nil, err
	}
	return l.open(ctx, bounded(r, false), l.store.Open)
}

// Enqueue writes the rows and the jobs of asynchronous execs; see Store.Enqueue. When it fails,
// nothing will run, except that the jobs of rows that the database wrote without an answer may be
// taken before Run ends the rows.
func (l *Log) Enqueue(ctx context.Context, execs []Waiting, limits JobLimits) ([]Enqueued, error) {
	size := uint64(0)
	execs = slices.Clone(execs)
	for i := range execs {
		size += uint64(len(execs[i].Job.Sealed))
		execs[i].Record = bounded(execs[i].Record, false)
	}
	if err := l.room(l.cfg.FreeMinBytes + size); err != nil {
		return nil, err
	}
	out, err := l.store.Enqueue(ctx, execs, limits)
	if err != nil {
		for _, w := range execs {
			l.maybeWritten(w.Record.ExecID, err)
		}
		return nil, err
	}
	for i, e := range out {
		if e.Taken != nil {
			if out[i].Taken, err = l.current(ctx, e.Taken); err != nil {
				out[i].Err = err
			}
		}
	}
	return out, nil
}

// room fails when the disk has less than this free.
func (l *Log) room(least uint64) error {
	if l.cfg.FreeBytes == nil {
		return nil
	}
	free, err := l.cfg.FreeBytes()
	if err != nil {
		return nil //nolint:nilerr // unknown: the database may find out
	}
	return diskspace.StateDir(least, "or lower sandbox.disk_free_min_bytes").Check(diskspace.Space{Bytes: free}, diskspace.Space{})
}

func (l *Log) open(ctx context.Context, r Record, open func(context.Context, Record) (*Record, error)) (taken *Record, err error) {
	taken, err = open(ctx, r)
	switch {
	case err != nil:
		l.maybeWritten(r.ExecID, err)
	case taken != nil:
		return l.current(ctx, taken)
	}
	return taken, err
}

// maybeWritten lets Run end the row of an exec if the error of its opening leaves open whether
// there is one.
func (l *Log) maybeWritten(execID string, err error) {
	if !outcomeUnknown(err) {
		return
	}
	l.mu.Lock()
	l.uncertain[execID] = time.Now()
	l.mu.Unlock()
	l.wake()
}

// current is a record that was found by its key, with its end. A request may repeat one that failed
// a moment ago, whose row must not look as if it were running.
func (l *Log) current(ctx context.Context, taken *Record) (*Record, error) {
	if err := l.endUncertain(ctx, taken.ExecID); err != nil {
		return nil, err
	}
	current, err := l.Get(ctx, taken.ExecID)
	if err != nil {
		return nil, err
	}
	return &current, nil
}

// OfKey returns the exec that has the idempotency key of the token, with its spooled end; nil if
// none has.
func (l *Log) OfKey(ctx context.Context, requestedBy, key string) (*Record, error) {
	taken, err := l.store.OfKey(ctx, requestedBy, key)
	if err != nil || taken == nil {
		return nil, err
	}
	return l.current(ctx, taken)
}

// outcomeUnknown reports whether a failed write may have been committed: the connection broke, or
// the time was over.
func outcomeUnknown(err error) bool {
	return fault.Is(err, fault.DatabaseUnavailable) || errors.Is(err, context.Canceled)
}

// Start changes a row from queued to running; see Store.Start.
func (l *Log) Start(ctx context.Context, r Record) (bool, error) {
	return l.store.Start(ctx, boundedTexts(r))
}

// Close ends a row durably. When the store does not accept it within some seconds, the record goes
// to the spool, spooled is true, and Run writes it later. An error means that it is in neither, so
// not durable: fault.DiskFull when the state dir has no room. Even then it is kept in memory, and
// Run tries again. The end of ctx does not stop the writing. When the row has another status then,
// since it had ended before, the record becomes the row: the caller is told what stays on record.
func (l *Log) Close(ctx context.Context, ending *Record) (spooled bool, err error) {
	r := *ending
	if !r.Status.Final() || !r.Status.Valid() || r.EndedAt.IsZero() || !validSpoolID(r.ExecID) {
		return false, fault.Wrap(fault.Internal, fmt.Errorf("closing exec %q with status %q, ended at %v", r.ExecID, r.Status, r.EndedAt),
			"the end of the exec could not be recorded")
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), closeTimeout)
	defer cancel()
	r = boundedTexts(r)
	status, storeErr := l.store.Close(ctx, r)
	if storeErr == nil {
		if status == r.Status && status != Lost { // another node records less of a lost one
			return false, nil
		}
		stored, err := l.store.Get(ctx, r.ExecID)
		if err == nil {
			*ending = stored
		}
		return false, err
	}
	r = bounded(r, false)

	// The result must not be lost for any reason; Run handles the error.
	l.cfg.Logger.Error("the database did not accept the end of an exec; it goes to the spool", "exec_id", r.ExecID, "err", storeErr)
	defer l.wake()
	l.mu.Lock()
	defer l.mu.Unlock()
	if known := l.waiting[r.ExecID]; known != nil && !known.held {
		return true, nil // the first ending wins
	}
	w := &result{Record: r}
	l.waiting[r.ExecID] = w
	if err := l.spool.write(r); err != nil {
		w.held = true
		l.cfg.Logger.Error("the spool did not accept the end of an exec either; it is in memory only", "exec_id", r.ExecID, "err", err)
		return false, err
	}
	return true, nil
}

// Get returns one record. While the database does not have its end yet, cannot return the row or
// has lost it, a spooled end is returned.
func (l *Log) Get(ctx context.Context, execID string) (Record, error) {
	r, err := l.store.Get(ctx, execID)
	if err != nil {
		if ending, ok := l.ending(execID); ok {
			return ending, nil
		}
		return r, err
	}
	return l.newest(r), nil
}

// Newer returns a record that was read before as it is now. It reads the whole row only if its
// status has changed: nothing else of an open row changes alone.
func (l *Log) Newer(ctx context.Context, r Record) (Record, error) {
	if _, ended := l.ending(r.ExecID); !ended {
		status, err := l.store.Status(ctx, r.ExecID)
		if err != nil || status == r.Status {
			return r, err
		}
	}
	return l.Get(ctx, r.ExecID)
}

// mostOfTask is how many execs of a task are counted.
const mostOfTask = 100_000

// Task counts the execs of a task; see Store.Task. An end that the database does not have yet does
// not count.
func (l *Log) Task(ctx context.Context, taskID, requestedBy string) (Task, error) {
	return l.store.Task(ctx, taskID, requestedBy, mostOfTask)
}

// ending is a result that the database does not have yet.
func (l *Log) ending(execID string) (Record, bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if w := l.waiting[execID]; w != nil {
		return w.Record, true
	}
	return Record{}, false
}

// newest is the record, or its end that the database does not have yet.
func (l *Log) newest(r Record) Record {
	if r.Status.Final() && r.Status != Lost {
		return r
	}
	if ending, ok := l.ending(r.ExecID); ok {
		ending.Request = r.Request // the spool does not have it
		return ending
	}
	return r
}

// List returns at most limit records, newest first; see Store.List. A page of large records ends
// early, and so does one that has looked at many records; next is the start of the next page, and
// nil on the last one. Like Get, List uses the ends that the database does not have yet, and leaves
// out records that no longer have a requested status because of them. (A record that has it only
// now appears when the database has its end.)
func (l *Log) List(ctx context.Context, f Filter, after *Cursor, limit int) (items []Record, next *Cursor, err error) {
	items = []Record{}
	for bytes := 0; limit > 0; {
		asked := min(limit+1-len(items), chunk)
		page, next, err := l.store.List(ctx, f, after, asked)
		if err != nil {
			return nil, nil, err
		}
		for _, r := range page {
			size := r.Size()
			if len(items) >= limit || len(items) > 0 && bytes+size > l.cfg.PageBytes {
				return items, after, nil
			}
			after = &Cursor{CreatedAt: r.CreatedAt, ExecID: r.ExecID}
			if r = l.newest(r); len(f.Statuses) == 0 || slices.Contains(f.Statuses, r.Status) {
				items, bytes = append(items, r), bytes+size
			}
		}
		if len(page) < asked {
			return items, next, nil
		}
	}
	return items, nil, nil
}

// Search calls each for at most most records of a filter, in its order, with nothing but what
// OnlyCommands names, until each returns false. next is where to go on, before the record
// that each refused; nil at the end. The function must not call the log.
func (l *Log) Search(ctx context.Context, f Filter, after *Cursor, most int, each func(Record) bool) (next *Cursor, err error) {
	f.OnlyCommands = true
	n, more := 0, false
	next, err = l.store.Walk(ctx, f, after, most+1, func(r Record) bool {
		if n == most || !each(l.newest(r)) {
			more = true
			return false
		}
		n++
		after = &Cursor{CreatedAt: r.CreatedAt, ExecID: r.ExecID}
		return true
	})
	if more {
		next = after
	}
	return next, err
}

// Events returns the history of an exec, oldest first, as the database has it.
func (l *Log) Events(ctx context.Context, execID string) ([]Event, error) {
	return l.store.Events(ctx, execID)
}

// Ping reports whether a row could be written now.
func (l *Log) Ping(ctx context.Context) error { return l.store.Ping(ctx) }

func (l *Log) wake() {
	select {
	case l.kick <- struct{}{}:
	default:
	}
}
