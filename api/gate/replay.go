package gate

import (
	"context"

	"secbox/access/tokens"
	"secbox/audit"
	"secbox/runner"
)

// Refuser records requests that are refused; see runner.Runner.
type Refuser interface {
	// Refuse returns the error with the id of the record.
	Refuse(ctx context.Context, req runner.Request, why error) error
}

// CheckReplay refuses to replay an exec whose project is not in the token's scope, on record. The
// caller may see the exec.
func CheckReplay(ctx context.Context, t tokens.Token, first audit.Record, records Refuser) error {
	err := CheckProject(t, first.ProjectID, first.ConversationID, first.UserID)
	if err == nil {
		return nil
	}
	return records.Refuse(ctx, runner.Request{
		ProjectID: first.ProjectID, ConversationID: first.ConversationID, AgentID: first.AgentID, UserID: first.UserID,
		SkillID: first.SkillID, TaskID: first.TaskID,
		Command: runner.Command{Name: first.Cmd, Args: first.Args, Cwd: first.Cwd}, ReplayOf: first.ExecID, RequestedBy: t.ID,
	}, err)
}
