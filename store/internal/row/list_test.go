package row_test

import (
	"context"
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
		TaskID: evil, ProjectID: evil, ConversationID: evil, SkillID: evil, UserID: evil, Statuses: []audit.Status{evil}, AgentID: evil, ErrorReason: evil,
		ExitCodeNot: new(7), RequestedBy: evil, Backend: evil, Runner: evil,
		Since: time.Unix(1, 0), Until: time.Unix(2, 0), Projects: []string{evil}, Agents: []string{evil}, Users: []string{evil},
	}
	var statement string
	var args []any
	run := func(_ context.Context, _ func(row.Scan) error, s string, values ...any) error {
		if statement, args = s, values; strings.Contains(s, "DROP") {
			t.Errorf("a statement holds a value: %s", s)
		}
		return nil
	}
	db := row.Records{Database: row.Database{
		List: run, EncodeTime: func(t time.Time) any { return t }, Hidden: func(column string) string { return "hidden(" + column + ")" },
		In:  func(param string) string { return " IN " + param },
		Set: func(values []string) any { list, _ := json.Marshal(values); return list },
	}}
	if _, _, err := db.List(t.Context(), f, &audit.Cursor{CreatedAt: time.Unix(3, 0), ExecID: evil}, 50); err != nil {
		t.Fatal(err)
	}
	if want := 11 + 1 + 3 + 2 + 2 + 1; len(args) != want {
		t.Errorf("%d parameters, want %d", len(args), want)
	}
	if hidden := strings.Count(statement, "hidden("); hidden != 13 { // all but the one that leads, and the exit code
		t.Errorf("%d columns are hidden from the planner: %s", hidden, statement)
	}
	f.ExecIDs = []string{evil}
	if _, _, err := db.List(t.Context(), f, nil, 50); err != nil {
		t.Fatal(err)
	}
}
