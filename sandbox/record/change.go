package record

import (
	"context"

	"secbox/audit"
	"secbox/policy"
	"secbox/sandbox"
)

// finder is a sandbox that knows where a user's files are, without preparing for a command.
type finder interface {
	Find(ctx context.Context, user sandbox.User) (sandbox.Location, error)
}

// Change implements sandbox.Changer: do runs only after the row is open, and Change returns only after it is closed. The row has the tool as its
// command, and as arguments the path and the digests before and after, or Args.
func (r *Recorder) Change(caller context.Context, c sandbox.Change, do func(context.Context, sandbox.User) error) (execID string, err error) {
	execID = r.cfg.NewID()
	ctx, registered, err := r.begin(caller, execID, c.User.ID)
	if err != nil {
		return "", err
	}
	defer r.commands.End(registered)
	at, err := r.find(ctx, c.User)
	if err != nil {
		return "", err
	}
	args := []string{c.Path, c.Before, c.After}
	if c.Args != nil {
		args = append([]string{c.Path}, c.Args...)
	}
	from := sandbox.RequestOf(ctx)
	record, err := r.commands.NewRecord(audit.Record{
		ExecID: execID, ProjectID: c.User.ProjectID(), ConversationID: from.ConversationID, AgentID: c.User.AgentID, UserID: c.User.ID, TaskID: from.TaskID,
		RequestedBy: from.RequestedBy, Cmd: c.Tool, Args: args, Cwd: sandbox.Root, Backend: at.Backend, Runner: at.User.Runner,
	}, policy.Snapshot{})
	if err != nil {
		return "", err
	}
	record.Status = audit.Running
	if _, err := r.cfg.Log.Open(context.WithoutCancel(ctx), record); err != nil {
		return "", err
	}
	err = do(ctx, at.User)
	record.EndedAt, record.Status = later(r.commands.Now(), record.CreatedAt), audit.Succeeded
	if err != nil {
		record.Status, record.ErrorReason, record.Detail = verdictOnError(ctx, err)
	}
	if !neverStarted(record) {
		record.StartedAt = record.CreatedAt
	}
	if _, e := r.commands.Close(ctx, &record); e != nil {
		return execID, e
	}
	return execID, withID(err, execID)
}

func (r *Recorder) find(ctx context.Context, user sandbox.User) (sandbox.Location, error) {
	if f, ok := r.Backend.(finder); ok {
		return f.Find(ctx, user)
	}
	return r.Locate(ctx, user)
}
