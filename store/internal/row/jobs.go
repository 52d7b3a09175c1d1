package row

import (
	"context"
	"slices"
	"time"

	"secbox/audit"
	"secbox/runner/jobs"
)

// ranks are the priorities in the order in which their jobs are taken, each by its rank.
var ranks = []audit.Priority{audit.High, audit.Normal, audit.Low}

func rank(p audit.Priority) int64 {
	for i, known := range ranks {
		if p == known {
			return int64(i)
		}
	}
	return int64(len(ranks) - 1)
}

// Statements on the job of an exec, $1, within a transaction that changes its row.
const (
	HoldJob   = "UPDATE sandbox_exec_jobs SET taken_by = $2 WHERE exec_id = $1"
	DeleteJob = "DELETE FROM sandbox_exec_jobs WHERE exec_id = $1"
)

const (
	insertJob = "INSERT INTO sandbox_exec_jobs (exec_id, rank, requested_by, queued_at, expires_at, size, sealed) VALUES ($1, $2, $3, " +
		"$4, $5, $6, $7)"

	countJobs = "SELECT count(*) FILTER (WHERE taken_by = ''), count(*) FILTER (WHERE taken_by = '' AND requested_by = $1), " +
		"CAST(coalesce(sum(size), 0) AS bigint)," +
		" CAST(coalesce(sum(size) FILTER (WHERE requested_by = $1), 0) AS bigint) FROM sandbox_exec_jobs"

	// JobTokens finds the tokens after one whose jobs wait. It jumps in the index from one to the
	// next.
	JobTokens = "WITH RECURSIVE heads (token) AS (SELECT (SELECT requested_by FROM sandbox_exec_jobs WHERE taken_by = '' AND " +
		"requested_by > $1 ORDER BY requested_by LIMIT 1)" +
		" UNION ALL SELECT (SELECT j.requested_by FROM sandbox_exec_jobs AS j WHERE j.taken_by = '' AND j.requested_by > heads.token" +
		" ORDER BY j.requested_by LIMIT 1) FROM heads WHERE heads.token IS NOT NULL)" +
		" SELECT token FROM heads WHERE token IS NOT NULL LIMIT 20"

	jobTokensPage = 20 // as in JobTokens

	// NextJob finds the job of a token that is next.
	NextJob = "SELECT exec_id FROM sandbox_exec_jobs WHERE taken_by = '' AND requested_by = $1 ORDER BY rank, queued_at, exec_id LIMIT 1"
)

// Jobs implements jobs.Store.
type Jobs struct {
	Database
	Lock string // ends a query for jobs that its statement changes: it skips those that another transaction has locked
}

// Enqueue inserts the rows and jobs of audit.Store.Enqueue in a transaction. insert inserts a row
// of values with its events, or returns the record that has the key of r.
func (db Database) Enqueue(ctx context.Context, run Run, execs []audit.Waiting, limits audit.JobLimits,
	insert func(r audit.Record, values []any) (taken *audit.Record, err error),
) ([]audit.Enqueued, error) {
	if len(execs) == 0 {
		return nil, nil
	}
	c, _, err := One(ctx, run, scanJobCounts, countJobs, Text(execs[0].Record.RequestedBy))
	out := make([]audit.Enqueued, len(execs))
	for i, w := range execs {
		if err != nil {
			return nil, err
		}
		out[i], err = db.enqueueOne(ctx, run, w, &c, limits, insert)
	}
	return out, err
}

func (db Database) enqueueOne(ctx context.Context, run Run, w audit.Waiting, c *jobCounts, limits audit.JobLimits,
	insert func(audit.Record, []any) (*audit.Record, error),
) (audit.Enqueued, error) {
	r, values, err := InsertArgs(w.Record, db.EncodeTime)
	if err != nil {
		return audit.Enqueued{}, err
	}
	size := int64(len(w.Job.Sealed))
	next := jobCounts{c.waiting + 1, c.ofToken + 1, c.bytes + size, c.bytesOfToken + size}
	if refused := limits.Check(size, next.waiting, next.ofToken, next.bytes, next.bytesOfToken); refused != nil {
		taken, _, err := FindHolder(ctx, run, r) // of an exec that is on record already, the limits do not matter
		if taken != nil {
			refused = nil
		}
		return audit.Enqueued{Taken: taken, Err: refused}, err
	}
	taken, err := insert(r, values)
	if err != nil || taken != nil {
		return audit.Enqueued{Taken: taken}, err
	}
	*c = next
	return audit.Enqueued{}, run(ctx, nil, insertJob, r.ExecID, rank(r.Priority), r.RequestedBy, db.EncodeTime(r.CreatedAt),
		db.stored(w.Job.ExpiresAt), size, w.Job.Sealed)
}

// jobCounts are the columns of countJobs.
type jobCounts struct {
	waiting, ofToken    int
	bytes, bytesOfToken int64
}

func scanJobCounts(scan Scan) (c jobCounts, err error) {
	err = scan(&c.waiting, &c.ofToken, &c.bytes, &c.bytesOfToken)
	return c, err
}

// raced is how often Take looks again after another node was faster.
const raced = 9

// Take implements jobs.Store.
func (db Jobs) Take(ctx context.Context, node, after string, mayRun func(token string) bool) (*jobs.Taken, error) {
	slower, round := 0, after == ""
	for slower < raced {
		tokens, err := All(ctx, db.Query, Value[string], JobTokens, after)
		if err != nil {
			return nil, err
		}
		i := slices.IndexFunc(tokens, mayRun)
		switch {
		case i >= 0:
			taken, found, err := One(ctx, db.Write, scanTaken,
				"UPDATE sandbox_exec_jobs SET taken_by = $2 WHERE taken_by = '' AND exec_id = ("+NextJob+db.Lock+")"+
					" RETURNING exec_id, requested_by, expires_at, sealed", tokens[i], Text(node))
			if err != nil {
				return nil, err
			}
			if found {
				return &taken, nil
			}
			slower++
		case len(tokens) == jobTokensPage:
			after = tokens[len(tokens)-1]
		case round:
			return nil, nil
		default:
			after, round = "", true
		}
	}
	return nil, nil
}

func scanTaken(scan Scan) (t jobs.Taken, err error) {
	err = scan(&t.ExecID, &t.RequestedBy, timeInto{&t.ExpiresAt}, &t.Sealed)
	return t, err
}

// TakeExpired implements jobs.Store.
func (db Jobs) TakeExpired(ctx context.Context, node string, most int) ([]string, error) {
	args := Params{Text(node), int64(most)}
	return All(ctx, db.Write, Value[string], "UPDATE sandbox_exec_jobs SET taken_by = $1 WHERE taken_by = '' AND exec_id IN ("+
		"SELECT exec_id FROM sandbox_exec_jobs WHERE taken_by = '' AND expires_at <= "+db.Now(&args)+
		" ORDER BY expires_at, exec_id LIMIT $2"+db.Lock+") RETURNING exec_id", args...)
}

// Return implements jobs.Store.
func (db Jobs) Return(ctx context.Context, node, execID string) error {
	return db.Write(ctx, nil, "UPDATE sandbox_exec_jobs SET taken_by = '' WHERE exec_id = $1 AND taken_by = $2"+queuedOnly, execID,
		Text(node))
}

// ReturnAll implements jobs.Store.
func (db Jobs) ReturnAll(ctx context.Context, node string, except []string) (int, error) {
	returned, err := All(ctx, db.Write, Value[string], returnTaken+" AND NOT exec_id"+db.In("$2")+" RETURNING exec_id", Text(node),
		db.Set(Texts(except)))
	return len(returned), err
}

const (
	// queuedOnly is the condition that the row of a job has not started. It is no EXISTS, so that
	// no plan begins with all rows that are queued.
	queuedOnly = " AND (SELECT e.status FROM sandbox_execs AS e WHERE e.exec_id = sandbox_exec_jobs.exec_id) = 'queued'"

	// returnTaken gives the jobs back that the node $1 has taken.
	returnTaken = "UPDATE sandbox_exec_jobs SET taken_by = '' WHERE taken_by <> '' AND taken_by = $1" + queuedOnly
)

// Waiting implements jobs.Store.
func (db Jobs) Waiting(ctx context.Context) (n int, oldest time.Time, err error) {
	type state struct {
		n      int
		oldest time.Time
	}
	s, _, err := One(ctx, db.Query, func(scan Scan) (s state, err error) {
		err = scan(&s.n, timeInto{&s.oldest})
		return s, err
	}, "SELECT count(*), min(queued_at) FROM sandbox_exec_jobs WHERE taken_by = ''")
	return s.n, s.oldest, err
}
