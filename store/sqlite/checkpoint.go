package sqlite

import (
	"context"
	"database/sql"

	"modernc.org/sqlite"
)

// A commit appends pages to the WAL; a checkpoint copies them into the database file, so that the
// next commit restarts the WAL. SQLite would do that inside the commit that exceeds the bound,
// whose caller would wait for two more flushes and a thousand pages. Here it runs after the commit,
// when its callers have their answer, and with the write lock: beside other writers the WAL would
// never be copied completely, so it would never restart and would grow without bound.
const (
	checkpointPages = 1000 // 4 MiB; SQLite's own default

	// walLimit is the size in bytes to which the WAL's file is truncated when it restarts. It grows
	// larger while another process reads in one long transaction, or when records are large.
	walLimit = "16777216"
)

// afterCommit starts a checkpoint when it is time.
func (w *writer) afterCommit() {
	_ = w.conn.Raw(func(conn any) error {
		if s, ok := conn.(sqlite.DBStatus); ok {
			if n, _, err := s.Status(sqlite.DBStatusCacheWrite, true); err == nil {
				w.pages += n
			}
		}
		return nil
	})
	if w.pages < checkpointPages || w.checkpointing {
		return
	}
	w.checkpointing = true
	go w.checkpoint()
}

// checkpoint copies the WAL. When it fails, as on a full disk, nothing is lost: the pages stay in
// the WAL, and the next commit tries again.
func (w *writer) checkpoint() {
	ctx := context.Background()
	_ = w.exclusively(ctx, func(conn *sql.Conn) error {
		w.checkpointing = false
		_, err := conn.ExecContext(ctx, "PRAGMA wal_checkpoint(PASSIVE)") // waits for no reader
		if err == nil {
			w.pages = 0
		}
		return err
	})
}
