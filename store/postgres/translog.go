package postgres

import (
	"context"

	"secbox/audit/translog"
	"secbox/store/internal/row"
)

// logStore implements translog.Store.
type logStore struct{ row.LogReader }

// extendLog changes the state of the log if it is still the one of $1 to $3, and inserts the
// entries and tiles. The mark is renewed when the floor has reached it, and when it is of another
// cluster, from which the database was copied: transactions have other ids there.
const extendLog = "WITH up AS (UPDATE audit_log SET size = size + cardinality($9::bigint[]), root = $4, checkpoint = $5, signed_at = " +
	"statement_timestamp()," +
	" verifier_key = $6, holder = $7, fence = fence + CASE WHEN holder = $7 THEN 0 ELSE 1 END," +
	" lease_until = statement_timestamp() + $8 * interval '1 microsecond'" +
	" WHERE size = $1 AND root = $2 AND fence = $3 AND (holder = $7 OR lease_until < statement_timestamp() OR lease_until > " +
	"statement_timestamp() + $20 * interval '1 microsecond') AND verifier_key IN ('', $6) RETURNING 1)," +
	" src AS (UPDATE audit_log_sources AS s SET floor_seq = f.floor," +
	" mark_seq = CASE WHEN f.floor >= s.mark_seq OR s.mark_xid >= pg_snapshot_xmax(pg_current_snapshot()) THEN f.last ELSE s.mark_seq END," +
	" mark_xid = CASE WHEN f.floor >= s.mark_seq OR s.mark_xid >= pg_snapshot_xmax(pg_current_snapshot()) THEN pg_current_xact_id() ELSE " +
	"s.mark_xid END" +
	" FROM up, unnest($13::text[], $14::bigint[], $18::bigint[]) AS f (source, floor, last) WHERE s.source = f.source)," +
	" ent AS (INSERT INTO audit_log_entries (idx, source, event_seq, salt, entry, logged_at)" +
	" SELECT $1 + e.n - 1, e.source, e.seq, e.salt, e.entry, $12 FROM up," +
	" unnest($9::bigint[], $10::bytea[], $11::bytea[], $19::text[]) WITH ORDINALITY AS e (seq, salt, entry, source, n))," +
	" til AS (INSERT INTO audit_log_tiles (level, n, hashes)" +
	" SELECT t.level, t.n, t.hashes FROM up, unnest($15::integer[], $16::bigint[], $17::bytea[]) AS t (level, n, hashes)" +
	" ON CONFLICT (level, n) DO UPDATE SET hashes = excluded.hashes)" +
	" SELECT count(*) FROM up"

// Append implements translog.Store.
func (s logStore) Append(ctx context.Context, a translog.Append) (bool, error) {
	var seqs, numbers, floors, lasts []int64
	var sources, raised []string
	var levels []int32
	last := map[translog.Source]int64{}
	var salts, entries, hashes [][]byte
	for _, e := range a.Entries {
		seqs, salts, entries = append(seqs, e.Seq), append(salts, e.Salt), append(entries, e.Hash[:])
		sources, last[e.Source] = append(sources, string(e.Source)), e.Seq
	}
	for source, floor := range a.Floors {
		raised, floors, lasts = append(raised, string(source)), append(floors, floor), append(lasts, last[source])
	}
	for _, t := range a.Tiles {
		levels, numbers, hashes = append(levels, int32(t.Level)), append(numbers, t.N), append(hashes, t.Hashes)
	}
	done, _, err := row.One(ctx, s.Write, row.Value[int], extendLog, a.Old.Size, a.Old.Root[:], a.Old.Fence, a.Root[:], a.Checkpoint,
		a.VerifierKey,
		a.Holder, a.Lease.Microseconds(), seqs, salts, entries, a.LoggedAt, raised, floors, levels, numbers, hashes, lasts, sources,
		translog.MaxLease.Microseconds())
	return err == nil && done == 1, err
}
