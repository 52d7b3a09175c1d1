package row

import (
	"fmt"
	"strings"
	"unicode/utf8"

	"secbox/fault"
	"secbox/skills"
)

// PointerColumns are the columns of agent_skill_registry in the order of ScanPointer.
const PointerColumns = "id, agent_id, skill_id, user_id, digest, base_digest, created_at, updated_at"

// The statements on agent_skill_registry, for both databases. Parameters of the functions are the fragments that differ: the current time,
// and an expression with another id at each evaluation.

// AtPointer is the condition for the row of a key. It is one of two constant texts, since the index of the baselines has only rows whose
// user is null. The next free parameter is len(PointerParams(key)) + 1.
func AtPointer(k skills.PointerKey) string {
	if k.UserID == "" {
		return "agent_id = $1 AND skill_id = $2 AND user_id IS NULL"
	}
	return "agent_id = $1 AND skill_id = $2 AND user_id = $3"
}

// PointerParams are the parameters of AtPointer.
func PointerParams(k skills.PointerKey) []any {
	if k.UserID == "" {
		return []any{k.AgentID, k.SkillID}
	}
	return []any{k.AgentID, k.SkillID, k.UserID}
}

// unchanged is the condition that a row has the state that was read, with its parameters from $n on.
func unchanged(n int) string {
	return fmt.Sprintf("digest IS NOT DISTINCT FROM $%d AND base_digest IS NOT DISTINCT FROM $%d", n, n+1)
}

// GetPointer is the query of one row.
func GetPointer(k skills.PointerKey) (string, []any) {
	return "SELECT " + PointerColumns + " FROM agent_skill_registry WHERE " + AtPointer(k), PointerParams(k)
}

// ListPointers is the query of a page; its parameters are the agent, the last skill of the page before, the limit, and the user.
func ListPointers(agentID, userID, afterSkillID string, limit int) (string, []any) {
	who, args := "user_id IS NULL", []any{agentID, afterSkillID, int64(limit)}
	if userID != "" {
		who, args = "user_id = $4", append(args, userID)
	}
	return "SELECT " + PointerColumns + " FROM agent_skill_registry WHERE agent_id = $1 AND " + who +
		" AND skill_id > $2 ORDER BY skill_id LIMIT $3", args
}

// InsertPointer inserts a row unless there is one; the parameters of the two fragments are numbered from $6.
func InsertPointer(k skills.PointerKey, want skills.PointerState, newID, now string) (string, []any) {
	return "INSERT INTO agent_skill_registry (" + PointerColumns + ") VALUES (" + newID + ", $1, $2, $3, $4, $5, " + now + ", " + now + ")" +
			" ON CONFLICT DO NOTHING RETURNING " + PointerColumns,
		[]any{k.AgentID, k.SkillID, orNull(k.UserID), orNull(want.Digest), orNull(want.BaseDigest)}
}

// UpdatePointer changes a row that still has the state saw. In the fragment later, the new updated_at, %d is the number of the next
// parameter.
func UpdatePointer(k skills.PointerKey, saw, want skills.PointerState, later string) (string, []any) {
	args := PointerParams(k)
	n := len(args)
	if strings.Contains(later, "%d") {
		later = fmt.Sprintf(later, n+5)
	}
	return fmt.Sprintf("UPDATE agent_skill_registry SET digest = $%d, base_digest = $%d, updated_at = %s WHERE ", n+1, n+2, later) +
		AtPointer(k) + " AND " + unchanged(n+3) + " RETURNING " + PointerColumns, append(args, values(want, saw)...)
}

// DeletePointer removes a row that still has the state saw.
func DeletePointer(k skills.PointerKey, saw skills.PointerState) (string, []any) {
	args := PointerParams(k)
	return "DELETE FROM agent_skill_registry WHERE " + AtPointer(k) + " AND " + unchanged(len(args)+1), append(args, values(saw)...)
}

// FromUnpinned selects the baselines b of agent $1 for which user $2 has no pointer.
const FromUnpinned = " FROM agent_skill_registry AS b WHERE b.agent_id = $1 AND b.user_id IS NULL AND NOT EXISTS (" +
	"SELECT 1 FROM agent_skill_registry AS u WHERE u.agent_id = $1 AND u.user_id = $2 AND u.skill_id = b.skill_id)"

// HasPointers is whether user $2 has any pointer for agent $1.
const HasPointers = "EXISTS (SELECT 1 FROM agent_skill_registry AS h WHERE h.agent_id = $1 AND h.user_id = $2)"

// LookBeforePin selects whether the user has any pointer, and whether there is anything to pin.
const LookBeforePin = "SELECT " + HasPointers + ", EXISTS (SELECT 1" + FromUnpinned + ")"

// ListVersions is the query of the versions in use. A version to which ten thousand users are pinned is in an index ten thousand times, so
// each half skips through its index: from one version to the next greater one, until there are enough.
var ListVersions = "WITH RECURSIVE " + skipScan("d", "digest") + ", " + skipScan("b", "base_digest") +
	" SELECT skill_id, digest FROM (SELECT skill_id, digest FROM d WHERE skill_id IS NOT NULL LIMIT $4) AS pointed" +
	" UNION SELECT skill_id, digest FROM (SELECT skill_id, digest FROM b WHERE skill_id IS NOT NULL LIMIT $4) AS based" +
	" ORDER BY 1, 2 LIMIT $4"

// skipScan is a recursive table of the versions in a column, in ascending order, with a row of nulls at the end. The appended space makes
// the start of each step greater than the last version and less than any other, so that it skips all entries of the last one; without it,
// SQLite would read them all.
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

// ListAgents is the query of the agents; its parameters are the last agent of the page before and the limit. It skips as ListVersions does,
// through the two indexes that together have every row.
var ListAgents = "WITH RECURSIVE " + skipAgents("b", "r.user_id IS NULL") + ", " + skipAgents("u", "r.user_id IS NOT NULL") +
	" SELECT agent_id FROM (SELECT agent_id FROM b WHERE agent_id IS NOT NULL LIMIT $2) AS official" +
	" UNION SELECT agent_id FROM (SELECT agent_id FROM u WHERE agent_id IS NOT NULL LIMIT $2) AS own ORDER BY 1 LIMIT $2"

func skipAgents(table, which string) string {
	next := func(after string) string {
		return "SELECT r.agent_id FROM agent_skill_registry AS r WHERE " + which + " AND r.agent_id > " + after + " ORDER BY r.agent_id LIMIT 1"
	}
	return table + " (agent_id) AS (SELECT * FROM (" + next("$1") + ") AS least UNION ALL SELECT (" + next(table+".agent_id") + ") FROM " + table +
		" WHERE " + table + ".agent_id IS NOT NULL)"
}

// ListRows is the query of a page of all rows of an agent: each half reads one index.
func ListRows(agentID string, after skills.PointerKey, limit int) (string, []any) {
	users := "SELECT " + PointerColumns + " FROM agent_skill_registry WHERE agent_id = $1 AND user_id IS NOT NULL" +
		" AND (user_id, skill_id) > ($3, $2) ORDER BY user_id, skill_id LIMIT $4"
	args := []any{agentID, after.SkillID, after.UserID, int64(limit)}
	if after.UserID != "" {
		return users, args
	}
	return "SELECT " + PointerColumns + " FROM (SELECT * FROM (SELECT " + PointerColumns + " FROM agent_skill_registry" +
		" WHERE agent_id = $1 AND user_id IS NULL AND skill_id > $2 ORDER BY skill_id LIMIT $4) AS baselines" +
		" UNION ALL SELECT * FROM (" + users + ") AS users) AS page ORDER BY coalesce(user_id, ''), skill_id LIMIT $4", args
}

// ScanText reads a row of one text.
func ScanText(scan func(dest ...any) error) (s string, err error) {
	err = scan(&s)
	return s, err
}

// CheckRows checks the parameters of Rows.
func CheckRows(agentID string, after skills.PointerKey) error {
	err := CheckID("agent_id", agentID)
	if err == nil {
		err = CheckCursor("after", after.SkillID)
	}
	if err == nil {
		err = CheckCursor("after", after.UserID)
	}
	return err
}

func values(states ...skills.PointerState) []any {
	var all []any
	for _, s := range states {
		all = append(all, orNull(s.Digest), orNull(s.BaseDigest))
	}
	return all
}

func orNull(s string) any {
	if s == "" {
		return nil
	}
	return s
}

// ScanPointer reads PointerColumns.
func ScanPointer(scan func(dest ...any) error) (skills.Pointer, error) {
	var p skills.Pointer
	err := scan(&p.ID, &p.AgentID, &p.SkillID, textInto{&p.UserID}, textInto{&p.Digest}, textInto{&p.BaseDigest},
		timeInto{&p.CreatedAt}, timeInto{&p.UpdatedAt})
	return p, err
}

// ScanVersion reads a row of ListVersions.
func ScanVersion(scan func(dest ...any) error) (v skills.Version, err error) {
	err = scan(&v.SkillID, &v.Digest)
	return v, err
}

// textInto scans a text; null is empty.
type textInto struct{ dest *string }

// Scan implements sql.Scanner.
func (t textInto) Scan(value any) error {
	switch v := value.(type) {
	case nil:
		*t.dest = ""
	case string:
		*t.dest = v
	case []byte:
		*t.dest = string(v)
	default:
		return fmt.Errorf("a %T is no text", value)
	}
	return nil
}

// CheckPointer refuses keys that cannot be stored unchanged: cleaning them could make two of them equal.
func CheckPointer(k skills.PointerKey) error {
	err := CheckID("agent_id", k.AgentID)
	if err == nil {
		err = CheckID("skill_id", k.SkillID)
	}
	if err == nil && k.UserID != "" {
		err = CheckID("user_id", k.UserID)
	}
	return err
}

// CheckID checks an id.
func CheckID(field, id string) error {
	if id == "" {
		return fault.BadField(field, "is empty")
	}
	return CheckCursor(field, id)
}

// CheckCursor checks a text that is compared with ids or digests; it may be empty.
func CheckCursor(field, s string) error {
	switch {
	case len(s) > skills.MaxPointerIDBytes:
		return fault.BadField(field, "is longer than %d bytes", skills.MaxPointerIDBytes)
	case !utf8.ValidString(s):
		return fault.BadField(field, "is not UTF-8")
	case strings.ContainsRune(s, 0):
		return fault.BadField(field, "contains NUL")
	}
	return nil
}

// CheckPinned checks the parameters of Pin.
func CheckPinned(agentID, userID string) error {
	if err := CheckID("agent_id", agentID); err != nil {
		return err
	}
	return CheckID("user_id", userID)
}

// CheckVersions checks the parameters of Digests.
func CheckVersions(agentID string, after skills.Version) error {
	err := CheckID("agent_id", agentID)
	if err == nil {
		err = CheckCursor("after", after.SkillID)
	}
	if err == nil {
		err = CheckCursor("after", after.Digest)
	}
	return err
}

// CheckState checks the new state of a pointer.
func CheckState(k skills.PointerKey, want skills.PointerState) error {
	switch {
	case !digestOrNone(want.Digest), !digestOrNone(want.BaseDigest):
		return fault.New(fault.Internal, "a version of skill %q is not named by a SHA-256", k.SkillID)
	case k.UserID == "" && (want.Digest == "" || want.BaseDigest != ""):
		return fault.New(fault.Internal, "the baseline of skill %q must have a digest and no base", k.SkillID)
	}
	return nil
}

func digestOrNone(s string) bool {
	return s == "" || len(s) == 64 && strings.Trim(s, "0123456789abcdef") == ""
}

// Moved is the error of a compare-and-swap that lost.
func Moved(k skills.PointerKey) error {
	return fault.New(fault.SkillMoved,
		"the skill %q was changed by another request meanwhile; read it again, and repeat the change if it is still right", k.SkillID)
}
