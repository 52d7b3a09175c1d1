package sqlite

import (
	"context"
	"database/sql"

	"modernc.org/sqlite"
)

// A commit appends pages to the WAL; a checkpoint copies them into the database file, so that the next commit begins the WAL anew.
// SQLite would do that inside the commit that passes the bound, whose caller would wait for two more flushes and a thousand pages.
// Here it is done behind the commit, when its callers have their answer, and with the pen in hand: copied beside others that go on
// writing, the WAL would at no moment be copied whole, so never begin anew, and grow for ever.
const (
	checkpointPages = 1000 // 4 MiB; SQLite's own default

	// walLimit is what the WAL's file is cut down to, in bytes, when it begins anew after it had grown larger: because somebody
	// outside was reading in one long transaction, or because records were.
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

// checkpoint copies what the WAL holds. When it fails, as on a full disk, nothing is lost: the pages stay in the WAL, and the next
// commit asks again.
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
