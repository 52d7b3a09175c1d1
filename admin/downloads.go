package admin

import (
	"context"
	"log/slog"
	"time"

	"secbox/tally"
)

const countTimeout = 2 * time.Second // of writing an event that counts downloads

// Downloads records downloads of what other clients' execs left. A token gets so many events at once and so many a minute; Run counts the
// others, so that a client with many downloads cannot fill the disk.
type Downloads struct {
	store  Store
	tally  *tally.Tally
	now    func() time.Time
	logger *slog.Logger
}

// NewDownloads returns a recorder. A zero rate is tally.Default; now may be nil.
func NewDownloads(store Store, rate tally.Rate, now func() time.Time, logger *slog.Logger) *Downloads {
	if now == nil {
		now = time.Now
	}
	return &Downloads{store: store, tally: tally.New(rate), now: now, logger: logger}
}

// Record records a download of the exec's file by the token; what is stdout, stderr, artifact and the like, and path may be empty. If it fails,
// nothing may be sent.
func (d *Downloads) Record(ctx context.Context, token, execID, what, path string) error {
	now := d.now()
	if !d.tally.Take(token, now) {
		d.tally.Omit(token, tally.Once(now))
		return nil
	}
	data := map[string]any{"what": what}
	if path != "" {
		data["path"] = path
	}
	return Record(ctx, d.store, Download, execID, data)
}

// Run writes the counts of downloads without events, each minute and when ctx ends. A count that cannot be written is kept.
func (d *Downloads) Run(ctx context.Context) {
	ticker := time.NewTicker(tally.Period)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			d.Count(context.WithoutCancel(ctx))
			return
		case <-ticker.C:
			d.Count(ctx)
		}
	}
}

// Count writes the counts now.
func (d *Downloads) Count(ctx context.Context) {
	for token, n := range d.tally.Counts(d.now()) {
		if err := d.countOne(ctx, token, n); err != nil {
			d.tally.Omit(token, n)
			d.logger.Warn("cannot record the number of downloads without events; trying again", "token", token, "downloads", n.Omitted, "error", err)
		}
	}
}

func (d *Downloads) countOne(ctx context.Context, token string, n tally.Count) error {
	ctx, cancel := context.WithTimeout(ctx, countTimeout)
	defer cancel()
	return Record(ctx, d.store, DownloadsOmitted, token, map[string]any{"count": n.Omitted, "first": n.First.UTC(), "last": n.Last.UTC()})
}
