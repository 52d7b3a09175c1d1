package row

import (
	"cmp"
	"context"

	"secbox/skills"
)

// page runs the query of a page unless its parameters are refused or it is to be empty.
func page[T any](ctx context.Context, db Pointers, refused error, limit int, read func(Scan) (T, error), statement string,
	args ...any,
) ([]T, error) {
	switch {
	case refused != nil:
		return nil, refused
	case limit <= 0:
		return []T{}, nil
	}
	return All(ctx, db.Query, read, statement, args...)
}

// List implements skills.Registry.
func (db Pointers) List(ctx context.Context, agentID, userID, afterSkillID string, limit int) ([]skills.Pointer, error) {
	who, args := "user_id IS NULL", []any{agentID, afterSkillID, int64(limit)}
	if userID != "" {
		who, args = "user_id = $4", append(args, userID)
	}
	refused := cmp.Or(checkPointer(skills.PointerKey{AgentID: agentID, SkillID: "-", UserID: userID}), checkCursor("after", afterSkillID))
	return page(ctx, db, refused, limit, scanPointer,
		selectPointers+"agent_id = $1 AND "+who+" AND skill_id > $2 ORDER BY skill_id LIMIT $3", args...)
}

// Digests implements skills.Registry.
func (db Pointers) Digests(ctx context.Context, agentID string, after skills.Version, limit int) ([]skills.Version, error) {
	return page(ctx, db, checkPage(agentID, after.SkillID, after.Digest), limit, scanVersion, listVersions, agentID, after.SkillID,
		after.Digest, int64(limit))
}

func scanVersion(scan Scan) (v skills.Version, err error) {
	err = scan(&v.SkillID, &v.Digest)
	return v, err
}

// listVersions is the query of the versions in use. A version to which ten thousand users are
// pinned is in an index ten thousand times, so each half skips through its index: from one version
// to the next greater one, until there are enough.
var listVersions = "WITH RECURSIVE " + skipScan("d", "digest") + ", " + skipScan("b", "base_digest") +
	" SELECT skill_id, digest FROM (SELECT skill_id, digest FROM d WHERE skill_id IS NOT NULL LIMIT $4) AS pointed" +
	" UNION SELECT skill_id, digest FROM (SELECT skill_id, digest FROM b WHERE skill_id IS NOT NULL LIMIT $4) AS based" +
	" ORDER BY 1, 2 LIMIT $4"

// skipScan is a recursive table of the versions in a column, in ascending order, with a row of
// nulls at the end. The appended space makes the start of each step greater than the last version
// and less than any other, so that it skips all entries of the last one; without it, SQLite would
// read them all.
func skipScan(table, column string) string {
	next := func(what, after string) string {
		return "SELECT " + what + " FROM agent_skill_registry AS r WHERE r.agent_id = $1 AND r." + column + " IS NOT NULL" +
			" AND (r.skill_id, r." + column + ") > (" + after + " || ' ') ORDER BY r.skill_id, r." + column + " LIMIT 1"
	}
	last := table + ".skill_id, " + table + ".digest"
	return table + " (skill_id, digest) AS (SELECT * FROM (" + next("r.skill_id, r."+column, "$2, $3") + ") AS least" +
		" UNION ALL SELECT (" + next("r.skill_id", last) + "), (" + next("r."+column, last) + ") FROM " + table +
		" WHERE " + table + ".skill_id IS NOT NULL)"
}

// Agents implements skills.Registry.
func (db Pointers) Agents(ctx context.Context, afterAgentID string, limit int) ([]string, error) {
	return page(ctx, db, checkCursor("after", afterAgentID), limit, Value[string], listAgents, afterAgentID, int64(limit))
}

// listAgents is the query of the agents; its parameters are the last agent of the page before and
// the limit. It skips as listVersions does, through the two indexes that together have every row.
var listAgents = "WITH RECURSIVE " + skipAgents("b", "r.user_id IS NULL") + ", " + skipAgents("u", "r.user_id IS NOT NULL") +
	" SELECT agent_id FROM (SELECT agent_id FROM b WHERE agent_id IS NOT NULL LIMIT $2) AS official" +
	" UNION SELECT agent_id FROM (SELECT agent_id FROM u WHERE agent_id IS NOT NULL LIMIT $2) AS own ORDER BY 1 LIMIT $2"

func skipAgents(table, which string) string {
	next := func(after string) string {
		return "SELECT r.agent_id FROM agent_skill_registry AS r WHERE " + which + " AND r.agent_id > " + after +
			" ORDER BY r.agent_id LIMIT 1"
	}
	return table + " (agent_id) AS (SELECT * FROM (" + next("$1") + ") AS least UNION ALL SELECT (" + next(table+".agent_id") + ") FROM " +
		table +
		" WHERE " + table + ".agent_id IS NOT NULL)"
}

// Rows implements skills.Registry. Each half of its query reads one index.
func (db Pointers) Rows(ctx context.Context, agentID string, after skills.PointerKey, limit int) ([]skills.Pointer, error) {
	statement := selectPointers +
		"agent_id = $1 AND user_id IS NOT NULL AND (user_id, skill_id) > ($3, $2) ORDER BY user_id, skill_id LIMIT $4"
	if after.UserID == "" {
		statement = "SELECT " + PointerColumns + " FROM (SELECT * FROM (" + selectPointers +
			"agent_id = $1 AND user_id IS NULL AND skill_id > $2 ORDER BY skill_id LIMIT $4) AS baselines" +
			" UNION ALL SELECT * FROM (" + statement + ") AS users) AS page ORDER BY coalesce(user_id, ''), skill_id LIMIT $4"
	}
	return page(ctx, db, checkPage(agentID, after.SkillID, after.UserID), limit, scanPointer, statement, agentID, after.SkillID,
		after.UserID, int64(limit))
}
