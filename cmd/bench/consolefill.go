//go:build linux

package main

import (
	"context"
	"errors"
	"os"
	"path/filepath"

	"golang.org/x/sync/errgroup"

	"secbox/store"
	"secbox/store/storetest/pgcluster"
)

// loggedRows is how many execs have events, and entries of the log. A page reads those of one exec or of one page, by an index, so more would take longer to
// fill and no longer to read.
const loggedRows = 100_000

// fillBoth fills a new database of each kind, at once, and returns where they are, as --filled takes them. remove must be called, also after an error.
func (b *bench) fillBoth(ctx context.Context) (filled []string, remove func() error, err error) {
	lite, pg := filepath.Join(b.dir, "console-sqlite"), filepath.Join(b.dir, "console-postgres")
	remove = func() error { return errors.Join(os.RemoveAll(lite), os.RemoveAll(pg)) }
	if err := errors.Join(os.MkdirAll(lite, 0o700), os.MkdirAll(pg, 0o700)); err != nil {
		return nil, remove, err
	}
	cluster, err := pgcluster.Start(b.tmp) // not below b.dir, which PostgreSQL's user may not pass
	if err != nil {
		return nil, remove, err
	}
	files := remove
	remove = func() error { return errors.Join(cluster.Remove(), files()) }
	database, err := cluster.Database()
	if err != nil {
		return nil, remove, err
	}
	b.logf("console: filling SQLite and PostgreSQL with %d rows", b.rows)
	both, ctx := errgroup.WithContext(ctx)
	both.Go(func() error { return b.fillConsole(ctx, "", lite) })
	both.Go(func() error { return b.fillConsole(ctx, database, pg) })
	return []string{lite, pg + "," + database}, remove, both.Wait()
}

func (b *bench) fillConsole(ctx context.Context, database, state string) error {
	db, err := store.Open(ctx, database, state)
	if err != nil {
		return err
	}
	return errors.Join(fillHistories(ctx, db, state, b.rows, min(b.rows, loggedRows), b.log), db.Close())
}
