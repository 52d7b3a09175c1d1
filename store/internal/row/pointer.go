package row

import (
	"cmp"
	"context"
	"database/sql"

	"secbox/audit/admin"
	"secbox/fault"
	"secbox/skills"
)

// Pointers implements skills.Registry.
type Pointers struct {
	Database
	// InsertPins pins user $2 of agent $1 to the baselines FromUnpinned, and returns whether the
	// user had any pointer before.
	InsertPins func(ctx context.Context, agentID, userID string) (had bool, added int, err error)
}

// PointerColumns are the columns of agent_skill_registry in the order of scanPointer.
const PointerColumns = "id, agent_id, skill_id, user_id, digest, base_digest, created_at, updated_at"

const selectPointers = "SELECT " + PointerColumns + " FROM agent_skill_registry WHERE "

// at is the condition for the row of a key. It is one of two constant texts, since the index of the
// baselines has only rows whose user is null.
func at(k skills.PointerKey, args *Params) string {
	where := "agent_id = " + args.Add(k.AgentID) + " AND skill_id = " + args.Add(k.SkillID)
	if k.UserID == "" {
		return where + " AND user_id IS NULL"
	}
	return where + " AND user_id = " + args.Add(k.UserID)
}

// unchanged is the condition that a row has the state that was read.
func unchanged(saw skills.PointerState, args *Params) string {
	return "digest IS NOT DISTINCT FROM " + args.Add(orNull(saw.Digest)) + " AND base_digest IS NOT DISTINCT FROM " +
		args.Add(orNull(saw.BaseDigest))
}

// Get implements skills.Registry.
func (db Pointers) Get(ctx context.Context, key skills.PointerKey) (skills.Pointer, bool, error) {
	if err := checkPointer(key); err != nil {
		return skills.Pointer{}, false, err
	}
	var args Params
	where := at(key, &args)
	return One(ctx, db.Query, scanPointer, selectPointers+where, args...)
}

// Set implements skills.Registry. In PostgreSQL, an update that waits for another one of the same
// row checks the row again after that one has committed.
func (db Pointers) Set(ctx context.Context, key skills.PointerKey, saw *skills.PointerState, want skills.PointerState) (skills.Pointer,
	error,
) {
	if err := cmp.Or(checkPointer(key), checkState(key, want)); err != nil {
		return skills.Pointer{}, err
	}
	var args Params
	var statement string
	if saw == nil {
		values := args.Add(key.AgentID) + ", " + args.Add(key.SkillID) + ", " + args.Add(orNull(key.UserID)) + ", " +
			args.Add(orNull(want.Digest)) + ", " + args.Add(orNull(want.BaseDigest))
		id, now := db.NewID(&args), db.Now(&args)
		statement = "INSERT INTO agent_skill_registry (" + PointerColumns + ") VALUES (" + id + ", " + values + ", " + now + ", " + now +
			")" +
			" ON CONFLICT DO NOTHING RETURNING " + PointerColumns
	} else {
		statement = "UPDATE agent_skill_registry SET digest = " + args.Add(orNull(want.Digest)) + ", base_digest = " +
			args.Add(orNull(want.BaseDigest)) +
			", updated_at = " + db.Later + "(updated_at, " + db.Now(&args) + ")" +
			" WHERE " + at(key, &args) + " AND " + unchanged(*saw, &args) + " RETURNING " + PointerColumns
	}
	write := db.Write
	if key.UserID == "" && (saw == nil || *saw != want) {
		data := map[string]any{"digest": want.Digest}
		if saw != nil {
			data["replaced_digest"] = saw.Digest
		}
		write = db.recording(admin.BaselinePromoted, key, data)
	}
	p, found, err := One(ctx, write, scanPointer, statement, args...)
	if err == nil && !found {
		err = moved(key)
	}
	return p, err
}

// recording returns a Write that also inserts an event about a baseline.
func (db Pointers) recording(kind admin.Kind, key skills.PointerKey, data map[string]any) Run {
	return func(ctx context.Context, each func(Scan) error, statement string, args ...any) error {
		return db.withEvent(ctx, each, kind, key.AgentID+"/"+key.SkillID, data, statement, args...)
	}
}

// Remove implements skills.Registry.
func (db Pointers) Remove(ctx context.Context, key skills.PointerKey, saw skills.PointerState) error {
	if err := checkPointer(key); err != nil {
		return err
	}
	var args Params
	statement := "DELETE FROM agent_skill_registry WHERE " + at(key, &args) + " AND " + unchanged(saw, &args) + " RETURNING id"
	write := db.Write
	if key.UserID == "" {
		write = db.recording(admin.BaselineDeleted, key, map[string]any{"digest": saw.Digest})
	}
	_, found, err := One(ctx, write, Value[string], statement, args...)
	if err == nil && !found {
		err = moved(key)
	}
	return err
}

// moved is the error of a compare-and-swap that lost.
func moved(k skills.PointerKey) error {
	return fault.New(fault.SkillMoved,
		"the skill %q was changed by another request meanwhile; read it again, and repeat the change if it is still right", k.SkillID)
}

// Pin implements skills.Registry. It looks before it writes: most calls find nothing to pin.
func (db Pointers) Pin(ctx context.Context, agentID, userID string) (skills.Pinned, error) {
	if err := cmp.Or(checkID("agent_id", agentID), checkID("user_id", userID)); err != nil {
		return skills.Pinned{}, err
	}
	var had, missing bool
	err := db.Query(ctx, func(scan Scan) error { return scan(&had, &missing) },
		"SELECT "+HasPointers+", EXISTS (SELECT 1"+FromUnpinned+")", agentID, userID)
	added := 0
	if err == nil && missing {
		had, added, err = db.InsertPins(ctx, agentID, userID)
	}
	if err != nil {
		return skills.Pinned{}, err
	}
	return skills.Pinned{First: !had, Added: added}, nil
}

// FromUnpinned selects the baselines b of agent $1 for which user $2 has no pointer.
const FromUnpinned = " FROM agent_skill_registry AS b WHERE b.agent_id = $1 AND b.user_id IS NULL AND NOT EXISTS (" +
	"SELECT 1 FROM agent_skill_registry AS u WHERE u.agent_id = $1 AND u.user_id = $2 AND u.skill_id = b.skill_id)"

// HasPointers is whether user $2 has any pointer for agent $1.
const HasPointers = "EXISTS (SELECT 1 FROM agent_skill_registry AS h WHERE h.agent_id = $1 AND h.user_id = $2)"

func orNull(s string) any {
	if s == "" {
		return nil
	}
	return s
}

func scanPointer(scan Scan) (skills.Pointer, error) {
	var p skills.Pointer
	var user, digest, base sql.NullString
	err := scan(&p.ID, &p.AgentID, &p.SkillID, &user, &digest, &base, timeInto{&p.CreatedAt}, timeInto{&p.UpdatedAt})
	p.UserID, p.Digest, p.BaseDigest = user.String, digest.String, base.String
	return p, err
}
