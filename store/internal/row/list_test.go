package row_test

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	"secbox/audit"
	"secbox/store/internal/row"
)

// TestStatementHasNoCallerData: every value travels as a parameter.
func TestStatementHasNoCallerData(t *testing.T) {
	t.Parallel()
	const evil = "'; DROP TABLE sandbox_execs; --"
	f := audit.Filter{
		TaskID: evil, ProjectID: evil, ConversationID: evil, SkillID: evil, UserID: evil, Statuses: []audit.Status{evil}, AgentID: evil, ErrorReason: evil, ExitCodeNot: new(7), RequestedBy: evil, Backend: evil, Runner: evil,
		ExecIDs: []string{evil}, Since: time.Unix(1, 0), Until: time.Unix(2, 0), Projects: []string{evil}, Agents: []string{evil}, Users: []string{evil},
	}
	for _, leading := range []bool{true, false} {
		db := row.Database{
			EncodeTime: func(t time.Time) any { return t }, Leading: leading,
			In:  func(param string) string { return " IN " + param },
			Set: func(values []string) any { list, _ := json.Marshal(values); return list },
		}
		statement, args := db.ListQuery(f, &audit.Cursor{CreatedAt: time.Unix(3, 0), ExecID: evil}, 50, "")
		if strings.Contains(statement, "DROP") {
			t.Errorf("the statement holds a value: %s", statement)
		}
		if want := 12 + 3 + 1 + 2 + 2 + 1; len(args) != want {
			t.Errorf("%d parameters, want %d", len(args), want)
		}
		if hidden := strings.Count(statement, "+"); leading != (hidden == 13) || !leading && hidden != 0 {
			t.Errorf("leading %v: %d columns are hidden from the planner: %s", leading, hidden, statement)
		}
	}
}
