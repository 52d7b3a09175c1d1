package sqlite

import (
	"context"

	"secbox/audit/translog"
	"secbox/store/internal/row"
)

// logStore implements translog.Store.
type logStore struct {
	row.LogReader
	db *DB
}

const (
	extendLog = "UPDATE audit_log SET size = $1, root = $2, checkpoint = $3, signed_at = $4, verifier_key = $5, holder = $6," +
		" fence = fence + (holder <> $6), lease_until = $7" +
		" WHERE size = $8 AND root = $9 AND fence = $10 AND (holder = $6 OR lease_until < $4 OR lease_until > $11) AND verifier_key IN " +
		"('', $5)"
	raiseFloor  = "UPDATE audit_log_sources SET floor_seq = $1 WHERE source = $2"
	insertEntry = "INSERT INTO audit_log_entries (idx, source, event_seq, salt, entry, logged_at) VALUES ($1, $2, $3, $4, $5, $6)"
	putTile     = "INSERT INTO audit_log_tiles (level, n, hashes) VALUES ($1, $2, $3) ON CONFLICT (level, n) DO UPDATE SET hashes = " +
		"excluded.hashes"
)

// Append implements translog.Store.
func (s logStore) Append(ctx context.Context, a translog.Append) (appended bool, err error) {
	err = s.db.inTx(ctx, func(tx tx) error {
		now := s.db.now()
		changed, err := tx.exec(extendLog, a.Old.Size+int64(len(a.Entries)), a.Root[:], a.Checkpoint, encodeTime(now), a.VerifierKey,
			a.Holder,
			encodeTime(now.Add(a.Lease)), a.Old.Size, a.Old.Root[:], a.Old.Fence,
			encodeTime(now.Add(translog.MaxLease)))
		if err != nil || changed == 0 {
			return err
		}
		appended = true
		for i, e := range a.Entries {
			if _, err := tx.exec(insertEntry, a.Old.Size+int64(i), string(e.Source), e.Seq, e.Salt, e.Hash[:],
				encodeTime(a.LoggedAt)); err != nil {
				return err
			}
		}
		for _, t := range a.Tiles {
			if _, err := tx.exec(putTile, t.Level, t.N, t.Hashes); err != nil {
				return err
			}
		}
		for source, floor := range a.Floors {
			if _, err := tx.exec(raiseFloor, floor, string(source)); err != nil {
				return err
			}
		}
		return nil
	})
	return appended && err == nil, err
}
