package postgres

import (
	"context"

	"github.com/jackc/pgx/v5"

	"secbox/store/internal/row"
)

// newID is a UUIDv7 for each row: milliseconds since 1970, and the random half of a version 4 UUID.
const newID = "overlay(lpad(to_hex(floor(extract(epoch FROM statement_timestamp()) * 1000)::bigint), 12, '0')" +
	" || '-7' placing '-' from 9 for 0) || substr(gen_random_uuid()::text, 16)"

// The two statements of insertPins. The advisory lock orders pins of the same user and agent, so
// that one of them is the first; 1931 only distinguishes these locks from others. FOR SHARE keeps
// the baselines from being moved until the pins are committed; it waits for one that is being moved
// and reads it again, so that no user is pinned to a version that garbage collection has found
// unused. ON CONFLICT is for a concurrent Set of the same user.
const (
	lockPins = "SELECT pg_advisory_xact_lock(1931, hashtext($1 || '/' || $2))"

	pinBaselines = "WITH ins AS (INSERT INTO agent_skill_registry (" + row.PointerColumns + ")" +
		" SELECT " + newID + ", b.agent_id, b.skill_id, $2, b.digest, b.digest, statement_timestamp(), statement_timestamp()" +
		row.FromUnpinned + " ORDER BY b.skill_id FOR SHARE OF b ON CONFLICT DO NOTHING RETURNING 1)" +
		" SELECT " + row.HasPointers + ", (SELECT count(*) FROM ins)"
)

// insertPins inserts for row.Pointers. It sends both statements in one round trip, which the server
// runs as one transaction; the second sees all commits from before the first got its lock.
func (db *DB) insertPins(ctx context.Context, agentID, userID string) (had bool, added int, err error) {
	err = db.call(ctx, func(ctx context.Context) error {
		batch := db.batch()
		batch.Queue(lockPins, agentID, userID)
		batch.Queue(pinBaselines, agentID, userID).QueryRow(func(answer pgx.Row) error { return answer.Scan(&had, &added) })
		return db.pool.SendBatch(ctx, batch).Close()
	})
	return had, added, err
}
