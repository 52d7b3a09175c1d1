package admin

import (
	"context"
	"log/slog"
	"time"

	"secbox/tally"
)

const countTimeout = 2 * time.Second // of writing an event that counts others

// Limit limits the events of reads, which cost a client nothing: a token gets so many at once and so many a minute. Run counts the others, so that
// a client with many requests cannot fill the disk.
type Limit struct {
	store   Store
	omitted Kind // of the events that count
	tally   *tally.Tally
	now     func() time.Time
	logger  *slog.Logger
}

// NewLimit returns a limit whose counts are events of the kind omitted. A zero rate is tally.Default; now may be nil.
func NewLimit(store Store, omitted Kind, rate tally.Rate, now func() time.Time, logger *slog.Logger) *Limit {
	if now == nil {
		now = time.Now
	}
	return &Limit{store: store, omitted: omitted, tally: tally.New(rate), now: now, logger: logger}
}

// Take reports whether what the actor of the context does now gets an event; if not, it is counted.
func (l *Limit) Take(ctx context.Context) bool {
	token, now := from(ctx).actor.ID, l.now()
	if l.tally.Take(token, now) {
		return true
	}
	l.tally.Omit(token, tally.Once(now))
	return false
}

// Run writes the counts each minute and when ctx ends. A count that cannot be written is kept.
func (l *Limit) Run(ctx context.Context) {
	ticker := time.NewTicker(tally.Period)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			l.Count(context.WithoutCancel(ctx))
			return
		case <-ticker.C:
			l.Count(ctx)
		}
	}
}

// Count writes the counts now.
func (l *Limit) Count(ctx context.Context) {
	for token, n := range l.tally.Counts(l.now()) {
		if err := l.countOne(ctx, token, n); err != nil {
			l.tally.Omit(token, n)
			l.logger.Warn("cannot record how many requests got no event; trying again", "kind", string(l.omitted), "token", token, "requests", n.Omitted, "error", err)
		}
	}
}

func (l *Limit) countOne(ctx context.Context, token string, n tally.Count) error {
	ctx, cancel := context.WithTimeout(ctx, countTimeout)
	defer cancel()
	return Record(ctx, l.store, l.omitted, token, map[string]any{"count": n.Omitted, "first": n.First.UTC(), "last": n.Last.UTC()})
}

// Downloads records downloads of what other clients' execs left, within a limit.
type Downloads struct{ *Limit }

// NewDownloads returns a recorder. A zero rate is tally.Default; now may be nil.
func NewDownloads(store Store, rate tally.Rate, now func() time.Time, logger *slog.Logger) Downloads {
	return Downloads{NewLimit(store, DownloadsOmitted, rate, now, logger)}
}

// Record records that the actor of the context downloads the exec's file; what is stdout, stderr, artifact and the like, and path may be empty. If
// it fails, nothing may be sent.
func (d Downloads) Record(ctx context.Context, execID, what, path string) error {
	if !d.Take(ctx) {
		return nil
	}
	data := map[string]any{"what": what}
	if path != "" {
		data["path"] = path
	}
	return Record(ctx, d.store, Download, execID, data)
}
