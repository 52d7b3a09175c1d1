package sqlite

import (
	"context"
	"fmt"
	"time"

	"secbox/skills"
	"secbox/store/internal/row"
)

// pointerTable implements skills.Registry.
type pointerTable struct{ db *DB }

// newPointerID appends random digits to the parameter, the first half of a UUIDv7 with the time, so that each row gets another id.
func newPointerID(param string) string {
	return param + " || lower(substr(hex(randomblob(2)), 2) || '-' || substr('89ab', 1 + (random() & 3), 1) || substr(hex(randomblob(2)), 2)" +
		" || '-' || hex(randomblob(6)))"
}

// idAndNow returns the parameters for newPointerID and for the columns of time.
func (s pointerTable) idAndNow() []any {
	now := s.db.now().UTC().Truncate(time.Microsecond)
	ms := fmt.Sprintf("%012x", now.UnixMilli())
	return []any{ms[:8] + "-" + ms[8:] + "-7", encodeTime(now)}
}

// Get implements skills.Registry.
func (s pointerTable) Get(ctx context.Context, key skills.PointerKey) (p skills.Pointer, found bool, err error) {
	if err := row.CheckPointer(key); err != nil {
		return skills.Pointer{}, false, err
	}
	statement, args := row.GetPointer(key)
	return one(ctx, s.db, row.ScanPointer, statement, args...)
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

// Set implements skills.Registry.
func (s pointerTable) Set(ctx context.Context, key skills.PointerKey, saw *skills.PointerState, want skills.PointerState) (skills.Pointer, error) {
	err := row.CheckPointer(key)
	if err == nil {
		err = row.CheckState(key, want)
	}
	if err != nil {
		return skills.Pointer{}, err
	}
	var set *skills.Pointer
	err = s.db.inTx(ctx, func(tx tx) (err error) {
		idAndNow := s.idAndNow()
		statement, args := row.InsertPointer(key, want, newPointerID("$6"), "$7")
		if saw == nil {
			args = append(args, idAndNow...)
		} else {
			statement, args = row.UpdatePointer(key, *saw, want, "max(updated_at, $%d)")
			args = append(args, idAndNow[1])
		}
		set, err = returned(tx, row.ScanPointer, statement, args...)
		if err == nil && set == nil {
			err = row.Moved(key)
		}
		return err
	})
	if err != nil {
		return skills.Pointer{}, err
	}
	return *set, nil
}

// Remove implements skills.Registry.
func (s pointerTable) Remove(ctx context.Context, key skills.PointerKey, saw skills.PointerState) error {
	if err := row.CheckPointer(key); err != nil {
		return err
	}
	return s.db.inTx(ctx, func(tx tx) error {
		statement, args := row.DeletePointer(key, saw)
		n, err := tx.exec(statement, args...)
		if err == nil && n == 0 {
			err = row.Moved(key)
		}
		return err
	})
}

const (
	hasPointers = "SELECT " + row.HasPointers

	// SQLite has one writer, so a row that the query does not find cannot appear before the insert.
	pinBaselines = "INSERT INTO agent_skill_registry (" + row.PointerColumns + ") SELECT "
)

// Pin implements skills.Registry. It reads before it takes the write lock: most calls find nothing to pin.
func (s pointerTable) Pin(ctx context.Context, agentID, userID string) (skills.Pinned, error) {
	if err := row.CheckPinned(agentID, userID); err != nil {
		return skills.Pinned{}, err
	}
	var has, missing bool
	err := s.db.lookUp(ctx, func(scan func(...any) error) error { return scan(&has, &missing) }, row.LookBeforePin, agentID, userID)
	if err != nil || !missing {
		return skills.Pinned{First: err == nil && !has}, err
	}
	var added int64
	err = s.db.inTx(ctx, func(tx tx) error {
		err := tx.each(func(scan func(...any) error) error { return scan(&has) }, hasPointers, agentID, userID)
		if err != nil {
			return err
		}
		added, err = tx.exec(pinBaselines+newPointerID("$3")+", b.agent_id, b.skill_id, $2, b.digest, b.digest, $4, $4"+row.FromUnpinned,
			append([]any{agentID, userID}, s.idAndNow()...)...)
		return err
	})
	if err != nil {
		return skills.Pinned{}, err
	}
	return skills.Pinned{First: !has, Added: int(added)}, nil
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
