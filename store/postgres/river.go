package postgres

import (
	"context"
	"crypto/rand"
	"database/sql"
	"log/slog"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/riverqueue/river"
	"github.com/riverqueue/river/riverdriver/riverpgxv5"
	"github.com/riverqueue/river/rivermigrate"

	"secbox/migrations"
	"secbox/runner/jobs"
)

// River carries the news that an exec waits from the node that was asked to a node that has a
// place. A job of River is such a ring, inserted in the transaction of the row. It names no exec:
// which one is next is decided when a node takes it, by priority and in turns, and the row decides
// who runs it. So a ring that comes twice, or late after the death of its node, does no harm, and
// one that is lost is made up for by polling.

// ring is the arguments of a job of River.
type ring struct{}

// Kind implements river.JobArgs.
func (ring) Kind() string { return "secbox_exec_waits" }

const ringQueue = "secbox_execs"

// Of River's own: its defaults find a job in 60 to 460 ms, these in one.
const (
	fetchCooldown = time.Millisecond
	fetchHeard    = time.Second            // notifications arrive; a fetch costs this process and the database a millisecond of CPU time
	fetchUnheard  = 100 * time.Millisecond // they do not
	// how long a node without a free place keeps a ring from others; River rescues no job without a
	// limit
	ringTime      = 30 * time.Second
	riverKeeps    = time.Minute // jobs that have ended, and jobs of a node that died
	riverConns    = 3           // beside the one that listens
	riverStop     = 5 * time.Second
	carryRetry    = 2 * time.Second
	notifyTimeout = 2 * time.Second
)

// ringer inserts rings and runs none.
func newRinger() (*river.Client[pgx.Tx], error) {
	return river.NewClient(riverpgxv5.New(nil), &river.Config{Logger: slog.New(slog.DiscardHandler)})
}

// migrateRiver brings River's tables to its version, on one node at a time.
func migrateRiver(ctx context.Context, pool *pgxpool.Pool, one *sql.DB) error {
	m, err := rivermigrate.New(riverpgxv5.New(pool), &rivermigrate.Config{Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		return err
	}
	if present, err := m.Validate(ctx, nil); err == nil && present.OK {
		return nil
	}
	return migrations.Alone(ctx, one, func(ctx context.Context) error {
		_, err := m.Migrate(ctx, rivermigrate.DirectionUp, nil)
		return err
	})
}

// Carrier returns the carrier of rings between nodes.
func (db *DB) Carrier() jobs.Carrier { return carrier{db.pool.Config(), db.pooled} }

type carrier struct {
	cfg    *pgxpool.Config
	pooled bool
}

// Carry implements jobs.Carrier.
func (c carrier) Carry(ctx context.Context, answer func(context.Context), log *slog.Logger) {
	for ctx.Err() == nil {
		err := c.carry(ctx, answer, log)
		if err == nil {
			continue
		}
		log.Debug("River does not start; trying again", "error", err)
		select {
		case <-ctx.Done():
		case <-time.After(carryRetry):
		}
	}
}

// carry runs River until ctx ends.
func (c carrier) carry(ctx context.Context, answer func(context.Context), log *slog.Logger) error {
	cfg := c.cfg.Copy()
	cfg.MaxConns, cfg.MinConns = riverConns, 0
	pool, err := pgxpool.NewWithConfig(ctx, cfg)
	if err != nil {
		return err
	}
	defer pool.Close()
	heard, err := notifies(ctx, pool)
	if err != nil {
		return err
	}
	if c.pooled {
		log.Info("a connection pooler answers at database_url: this node keeps no prepared statements and sets up each transaction, " +
			"which costs the server more CPU time; to save it, name the server itself in database_url")
	}
	poll := fetchHeard
	if !heard {
		poll = fetchUnheard
		log.Warn("the database's notifications do not arrive, as behind a pooler that pools transactions: asynchronous execs are found " +
			"by polling; " +
			"let the pooler pool sessions, or name the server itself in database_url")
	}
	workers := river.NewWorkers()
	river.AddWorker(workers, &listener{answer: answer})
	client, err := river.NewClient(riverpgxv5.New(pool), &river.Config{
		Queues: map[string]river.QueueConfig{ringQueue: {MaxWorkers: 1}}, Workers: workers, PollOnly: !heard,
		FetchCooldown: fetchCooldown, FetchPollInterval: poll, JobTimeout: ringTime, RescueStuckJobsAfter: riverKeeps,
		CompletedJobRetentionPeriod: riverKeeps, CancelledJobRetentionPeriod: riverKeeps, DiscardedJobRetentionPeriod: riverKeeps,
		Logger: slog.New(quiet{log.Handler()}),
	})
	if err != nil {
		return err
	}
	if err := client.Start(context.WithoutCancel(ctx)); err != nil {
		return err
	}
	<-ctx.Done()
	stopping, cancel := context.WithTimeout(context.WithoutCancel(ctx), riverStop)
	defer cancel()
	return client.StopAndCancel(stopping)
}

// listener hears rings, one at a time: while this node has no place, others hear them.
type listener struct {
	river.WorkerDefaults[ring]
	answer func(context.Context)
}

// Work implements river.Worker. A ring that ringTime or the end of this node interrupts is heard by
// another.
func (l *listener) Work(ctx context.Context, _ *river.Job[ring]) error {
	l.answer(ctx)
	if ctx.Err() != nil {
		return river.JobSnooze(0)
	}
	return nil
}

// notifies reports whether a session gets the notifications that it listens for.
func notifies(ctx context.Context, pool *pgxpool.Pool) (bool, error) {
	ctx, cancel := context.WithTimeout(ctx, connectTimeout+2*notifyTimeout)
	defer cancel()
	listening, err := pool.Acquire(ctx)
	if err != nil {
		return false, err
	}
	defer listening.Release()
	channel := "secbox_" + rand.Text()
	name := pgx.Identifier{channel}.Sanitize()
	if _, err := listening.Exec(ctx, "LISTEN "+name); err != nil {
		return false, err
	}
	defer func() { _, _ = listening.Exec(ctx, "UNLISTEN "+name) }()
	if _, err := pool.Exec(ctx, "SELECT pg_notify($1, '')", channel); err != nil {
		return false, err
	}
	waiting, done := context.WithTimeout(ctx, notifyTimeout)
	defer done()
	_, err = listening.Conn().WaitForNotification(waiting)
	return err == nil, nil //nolint:nilerr // none came in time
}

// quiet logs what River says only for debugging: a database that does not answer is reported
// elsewhere.
type quiet struct{ slog.Handler }

// Enabled implements slog.Handler.
func (q quiet) Enabled(ctx context.Context, _ slog.Level) bool {
	return q.Handler.Enabled(ctx, slog.LevelDebug)
}

// Handle implements slog.Handler.
func (q quiet) Handle(ctx context.Context, r slog.Record) error {
	r.Level = slog.LevelDebug
	return q.Handler.Handle(ctx, r)
}

// WithAttrs implements slog.Handler.
func (q quiet) WithAttrs(attrs []slog.Attr) slog.Handler { return quiet{q.Handler.WithAttrs(attrs)} }

// WithGroup implements slog.Handler.
func (q quiet) WithGroup(name string) slog.Handler { return quiet{q.Handler.WithGroup(name)} }
