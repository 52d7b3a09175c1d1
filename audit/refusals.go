package audit

import (
	"context"
	"fmt"
	"regexp"
	"strconv"
	"time"

	"github.com/google/uuid"

	"secbox/internal/quota"
)

const countTimeout = 2 * time.Second // of writing a row that counts refusals

// Refuse records a request that never started: r is final. recorded is false when it writes no row,
// because the token was refused too often lately or the disk has no room; Run writes a row with the
// count of such refusals within a minute. taken is as in Store.Open.
func (l *Log) Refuse(ctx context.Context, r Record) (taken *Record, recorded bool, err error) {
	now := l.cfg.Now()
	if l.room(l.cfg.FreeMinBytes) != nil || !l.refusals.Take(r.RequestedBy, now) {
		l.refusals.Omit(r.RequestedBy, quota.Once(now))
		return nil, false, nil
	}
	taken, err = l.open(ctx, bounded(r, true), l.store.Open)
	return taken, err == nil, err
}

// countRefusals writes a row for each token with refusals without rows. A count that cannot be
// written is kept.
func (l *Log) countRefusals(ctx context.Context) {
	if l.room(l.cfg.FreeMinBytes) != nil {
		return
	}
	now := l.cfg.Now()
	for token, n := range l.refusals.Counts(now) {
		if err := l.countOne(ctx, token, n, now); err != nil {
			l.refusals.Omit(token, n)
		}
	}
}

func (l *Log) countOne(ctx context.Context, token string, n quota.Count, now time.Time) error {
	ctx, cancel := context.WithTimeout(ctx, countTimeout)
	defer cancel()
	id, err := uuid.NewV7()
	if err != nil {
		return err
	}
	now = now.UTC().Truncate(time.Microsecond)
	const second = "2006-01-02T15:04:05Z"
	_, err = l.store.Open(ctx, Record{ // UnrecordedRefusals reads Detail
		ExecID: id.String(), Status: Rejected, ErrorReason: RefusalsOmitted, CreatedAt: now, EndedAt: now, NodeID: l.cfg.NodeID,
		RequestedBy: token,
		Detail: fmt.Sprintf("%d refused requests of this token from %s to %s have no rows: a token gets %d such rows at once, and %g a minute",
			n.Omitted, n.First.UTC().Format(second), n.Last.UTC().Format(second), l.refusals.Rate.Burst, l.refusals.Rate.PerMinute),
	})
	return err
}

// omitted is a Detail that countOne writes. Sums of twelve digits do not overflow.
var omitted = regexp.MustCompile(`^([1-9][0-9]{0,11}) refused requests of this token from [-:0-9TZ]{20} to [-:0-9TZ]{20} have no rows: ` +
	`a token gets [0-9]+ such rows at once, and [-+.0-9e]+ a minute$`)

// UnrecordedRefusals returns how many refused requests without rows of their own a record counts,
// by its reason and Detail: zero unless the reason is RefusalsOmitted. A record with that reason
// and another text counts one, the least that countOne writes a row for.
func UnrecordedRefusals(reason Reason, detail string) int64 {
	if reason != RefusalsOmitted {
		return 0
	}
	found := omitted.FindStringSubmatch(detail)
	if found == nil {
		return 1
	}
	n, _ := strconv.ParseInt(found[1], 10, 64) // twelve digits at most
	return n
}
