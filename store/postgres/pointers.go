package postgres

import (
	"context"

	"github.com/jackc/pgx/v5"

	"secbox/skills"
	"secbox/store/internal/row"
)

// pointerTable implements skills.Registry.
type pointerTable struct{ db *DB }

// newPointerID is a UUIDv7 for each row: milliseconds since 1970, and the random half of a version 4 UUID.
const newPointerID = "overlay(lpad(to_hex(floor(extract(epoch FROM statement_timestamp()) * 1000)::bigint), 12, '0')" +
	" || '-7' placing '-' from 9 for 0) || substr(gen_random_uuid()::text, 16)"

// Get implements skills.Registry.
func (s pointerTable) Get(ctx context.Context, key skills.PointerKey) (p skills.Pointer, found bool, err error) {
	if err := row.CheckPointer(key); err != nil {
		return skills.Pointer{}, false, err
	}
	statement, args := row.GetPointer(key)
	return first(ctx, s.db, row.ScanPointer, statement, args...)
}

// List implements skills.Registry.
func (s pointerTable) List(ctx context.Context, agentID, userID, afterSkillID string, limit int) ([]skills.Pointer, error) {
	err := row.CheckPointer(skills.PointerKey{AgentID: agentID, SkillID: "-", UserID: userID})
	if err == nil {
		err = row.CheckCursor("after", afterSkillID)
	}
	if err != nil {
		return nil, err
	}
	if limit <= 0 {
		return []skills.Pointer{}, nil
	}
	statement, args := row.ListPointers(agentID, userID, afterSkillID, limit)
	return all(ctx, s.db, row.ScanPointer, statement, args...)
}

// Set implements skills.Registry. An update that waits for another one of the same row checks the row again after that one has committed.
func (s pointerTable) Set(ctx context.Context, key skills.PointerKey, saw *skills.PointerState, want skills.PointerState) (skills.Pointer, error) {
	err := row.CheckPointer(key)
	if err == nil {
		err = row.CheckState(key, want)
	}
	if err != nil {
		return skills.Pointer{}, err
	}
	statement, args := row.InsertPointer(key, want, newPointerID, "statement_timestamp()")
	if saw != nil {
		statement, args = row.UpdatePointer(key, *saw, want, "greatest(updated_at, statement_timestamp())")
	}
	p, found, err := first(ctx, s.db, row.ScanPointer, statement, args...)
	if err == nil && !found {
		err = row.Moved(key)
	}
	return p, err
}

// Remove implements skills.Registry.
func (s pointerTable) Remove(ctx context.Context, key skills.PointerKey, saw skills.PointerState) error {
	if err := row.CheckPointer(key); err != nil {
		return err
	}
	statement, args := row.DeletePointer(key, saw)
	return s.db.call(ctx, func(ctx context.Context) error {
		done, err := s.db.pool.Exec(ctx, statement, args...)
		if err == nil && done.RowsAffected() == 0 {
			err = row.Moved(key)
		}
		return err
	})
}

// The two statements of Pin. The advisory lock orders Pins of the same user and agent, so that one of them is the first; 1931 only
// distinguishes these locks from others. FOR SHARE keeps the baselines from being moved until the pins are committed; it waits for one that
// is being moved and reads it again, so that no user is pinned to a version that garbage collection has found unused. ON CONFLICT is for a
// concurrent Set of the same user.
const (
	lockPins = "SELECT pg_advisory_xact_lock(1931, hashtext($1 || '/' || $2))"

	pinBaselines = "WITH ins AS (INSERT INTO agent_skill_registry (" + row.PointerColumns + ")" +
		" SELECT " + newPointerID + ", b.agent_id, b.skill_id, $2, b.digest, b.digest, statement_timestamp(), statement_timestamp()" +
		row.FromUnpinned + " ORDER BY b.skill_id FOR SHARE OF b ON CONFLICT DO NOTHING RETURNING 1)" +
		" SELECT " + row.HasPointers + ", (SELECT count(*) FROM ins)"
)

// Pin implements skills.Registry. Most calls find nothing to pin and are one query. The others send two more statements in one round trip,
// which the server runs as one transaction; the second sees all commits from before the first got its lock.
func (s pointerTable) Pin(ctx context.Context, agentID, userID string) (skills.Pinned, error) {
	if err := row.CheckPinned(agentID, userID); err != nil {
		return skills.Pinned{}, err
	}
	var has, missing bool
	_, err := s.db.one(ctx, func(scan func(...any) error) error { return scan(&has, &missing) }, row.LookBeforePin, agentID, userID)
	if err != nil || !missing {
		return skills.Pinned{First: err == nil && !has}, err
	}
	var added int
	err = s.db.call(ctx, func(ctx context.Context) error {
		var batch pgx.Batch
		batch.Queue(lockPins, agentID, userID)
		batch.Queue(pinBaselines, agentID, userID).QueryRow(func(answer pgx.Row) error { return answer.Scan(&has, &added) })
		return s.db.pool.SendBatch(ctx, &batch).Close()
	})
	if err != nil {
		return skills.Pinned{}, err
	}
	return skills.Pinned{First: !has, Added: added}, nil
}

// Digests implements skills.Registry.
func (s pointerTable) Digests(ctx context.Context, agentID string, after skills.Version, limit int) ([]skills.Version, error) {
	if err := row.CheckVersions(agentID, after); err != nil {
		return nil, err
	}
	if limit <= 0 {
		return []skills.Version{}, nil
	}
	return all(ctx, s.db, row.ScanVersion, row.ListVersions, agentID, after.SkillID, after.Digest, int64(limit))
}

// Agents implements skills.Registry.
func (s pointerTable) Agents(ctx context.Context, afterAgentID string, limit int) ([]string, error) {
	if err := row.CheckCursor("after", afterAgentID); err != nil {
		return nil, err
	}
	if limit <= 0 {
		return []string{}, nil
	}
	return all(ctx, s.db, row.ScanText, row.ListAgents, afterAgentID, int64(limit))
}

// Rows implements skills.Registry.
func (s pointerTable) Rows(ctx context.Context, agentID string, after skills.PointerKey, limit int) ([]skills.Pointer, error) {
	if err := row.CheckRows(agentID, after); err != nil {
		return nil, err
	}
	if limit <= 0 {
		return []skills.Pointer{}, nil
	}
	statement, args := row.ListRows(agentID, after, limit)
	return all(ctx, s.db, row.ScanPointer, statement, args...)
}
