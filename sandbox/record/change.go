package record

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"strings"

	"secbox/audit"
	"secbox/fault"
	"secbox/internal/traces"
	"secbox/policy"
	"secbox/runner/lifecycle"
	"secbox/sandbox"
)

// finder is a sandbox that knows where a user's files are, without preparing for a command.
type finder interface {
	Find(ctx context.Context, user sandbox.User) (sandbox.Location, error)
}

// Change implements sandbox.Changer: do runs only after the row is open, and Change returns only
// after it is closed. The row has the tool as its command, and as arguments the path and the
// change's Args. A change that Cancel or Drain ends is over when do returns.
func (r *Recorder) Change(caller context.Context, c sandbox.Change,
	do func(context.Context, sandbox.Location) (sandbox.Digests, error),
) (execID string, err error) {
	execID = r.cfg.NewID()
	var record audit.Record
	caller, span := r.cfg.Tracer.Start(caller, "file change")
	defer func() { lifecycle.EndSpan(span, record, err) }()
	ctx, registered, err := r.begin(caller, execID, cmp.Or(c.In.ProjectID, c.User.ID))
	if err != nil {
		return "", err
	}
	defer r.commands.End(registered)
	at := sandbox.Location{Backend: sandbox.Docker, User: c.User}
	if c.In == (sandbox.Place{}) {
		if at, err = r.find(ctx, c.User); err != nil {
			return "", err
		}
	}
	from, of := sandbox.RequestOf(ctx), traces.Of(ctx)
	record, err = r.commands.NewRecord(audit.Record{
		ExecID: execID, Kind: audit.KindChange, ProjectID: cmp.Or(c.In.ProjectID, c.User.ProjectID()),
		SessionID: c.In.SessionID, ConversationID: cmp.Or(c.In.ConversationID, from.ConversationID),
		AgentID: c.User.AgentID, UserID: c.User.ID, TaskID: cmp.Or(c.In.TaskID, from.TaskID), RequestedBy: from.RequestedBy,
		Cmd: c.Tool, Args: append([]string{c.Path}, c.Args...), Cwd: sandbox.Root,
		Backend: at.Backend, Runner: at.User.Runner,
		SHA256Before: c.Before, SHA256After: c.After, SizeAfter: sizeAfter(c.Digests), TraceID: of.Trace, SpanID: of.Span,
	}, policy.Snapshot{})
	if err != nil {
		return "", err
	}
	record.Status = audit.Running
	if _, err := r.cfg.Log.Open(context.WithoutCancel(ctx), record); err != nil {
		return "", err
	}
	digests, err := do(ctx, at)
	if r.cfg.Changed != nil {
		r.cfg.Changed(c)
	}
	record.EndedAt, record.Status = later(r.commands.Now(), record.CreatedAt), audit.Succeeded
	record.SHA256Before = cmp.Or(digests.Before, c.Before)
	if digests.After != "" {
		c.After, c.Size = digests.After, digests.Size
	}
	record.SHA256After, record.SizeAfter = c.After, sizeAfter(c.Digests)
	if err != nil {
		record.Status, record.ErrorReason, record.Detail = changeVerdict(ctx, err)
		if record.ErrorReason == audit.ShuttingDown {
			err = fault.Wrap(fault.ShuttingDown, err,
				"the file was not changed because this node is shutting down; try another one, or again shortly")
		}
	}
	if digests.Sent > 0 {
		record.Detail = strings.TrimPrefix(fmt.Sprintf("%s; %d bytes were sent", record.Detail, digests.Sent), "; ")
	}
	if digests.Sent > 0 || !neverStarted(record) {
		record.StartedAt = record.CreatedAt
	}
	if _, e := r.commands.Close(ctx, &record); e != nil {
		return execID, e
	}
	return execID, withID(err, execID)
}

// sizeAfter is the size of the new content; nil if it is not known.
func sizeAfter(d sandbox.Digests) *int64 {
	if d.After == "" || d.Size < 0 {
		return nil
	}
	return &d.Size
}

// changeVerdict judges a change that failed. Unlike a command, a change can be refused for what its
// file is, and its content can be cut off: then do returns fault.InvalidRequest around
// io.ErrUnexpectedEOF.
func changeVerdict(ctx context.Context, err error) (audit.Status, audit.Reason, string) {
	message := fault.From(err).Message
	code := fault.CodeOf(err)
	if status, reason, detail := lifecycle.Killed(ctx); reason != "" && code != fault.OutcomeUnknown {
		return status, reason, detail
	}
	switch code {
	case fault.InvalidRequest:
		if errors.Is(err, io.ErrUnexpectedEOF) { // the caller's content was cut off
			return audit.Canceled, audit.ReasonCanceled, message
		}
	case fault.BodyTooSlow, fault.TokenRevoked, fault.Unauthenticated:
		return audit.Canceled, audit.ReasonCanceled, message
	case fault.DiskFull:
		return audit.Errored, audit.DiskLimit, message
	case fault.UpstreamFailed: // nothing was changed
		return audit.Errored, audit.StartFailed, message
	case fault.PreconditionFailed, fault.FileTooLarge, fault.UnknownFile, fault.InputConflict, fault.SkillConflict, fault.ReservedSkill,
		fault.UnknownSkill:
		return audit.Rejected, audit.InputRefused, message
	}
	return verdictOnError(ctx, err)
}

func (r *Recorder) find(ctx context.Context, user sandbox.User) (sandbox.Location, error) {
	if f, ok := r.Backend.(finder); ok {
		return f.Find(ctx, user)
	}
	return r.Locate(ctx, user)
}
