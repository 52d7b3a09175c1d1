package record

import (
	"context"
	"errors"
	"time"

	"secbox/audit"
	"secbox/fault"
	"secbox/policy"
	"secbox/runner"
	"secbox/sandbox"
)

// command is one run from its spec to its closed row.
type command struct {
	*Recorder
	spec           sandbox.ExecSpec
	location       sandbox.Location
	snapshot       policy.Snapshot
	shell          string
	record         audit.Record
	stdout, stderr *stream
	leave          func() // what Enter has given
}

func (r *Recorder) command(spec sandbox.ExecSpec) *command {
	if spec.ExecID == "" {
		spec.ExecID = r.cfg.NewID()
	}
	return &command{Recorder: r, spec: spec, stdout: &stream{}, stderr: &stream{}, leave: func() {}}
}

// run goes through the stages. into says where output goes, once it is known how much of it is kept.
func (c *command) run(caller context.Context, into func()) (*sandbox.ExecResult, error) {
	if err := caller.Err(); err != nil {
		return nil, err
	}
	ctx, l, err := c.begin(caller, c.spec.ExecID, c.spec.User.ID)
	if err != nil {
		return nil, err
	}
	defer c.finish(c.spec.ExecID, l)
	defer func() { c.leave() }()
	if err := c.limit(); err != nil {
		return nil, err
	}
	into()
	if err := c.locate(ctx); err != nil {
		return nil, err
	}
	if err := c.open(ctx); err != nil {
		return nil, err
	}
	res, err := c.Backend.ExecTo(ctx, c.spec, c.stdout.writer(), c.stderr.writer())
	return c.end(ctx, res, err)
}

// limit asks the policy how long the command may take and how much of its output is kept: what was asked for, up to the ceilings.
func (c *command) limit() error {
	base, err := c.cfg.Policy.Resolve(nil, policy.Layer{}, c.cfg.Host())
	if err != nil {
		return err
	}
	asked := policy.Layer{
		MaxStdoutBytes: upTo(base, policy.FieldMaxStdoutBytes, sandbox.OutputBound(c.spec.MaxStdout)), MaxStderrBytes: upTo(base, policy.FieldMaxStderrBytes, sandbox.OutputBound(c.spec.MaxStderr)),
	}
	if c.spec.Timeout > 0 {
		asked.TimeoutMS = upTo(base, policy.FieldTimeoutMS, max(1, int64((c.spec.Timeout+time.Millisecond-1)/time.Millisecond)))
	}
	if c.snapshot, err = c.cfg.Policy.Resolve(nil, asked, c.cfg.Host()); err != nil {
		return err
	}
	v := c.snapshot.Values
	if bounded := time.Duration(v.TimeoutMS) * time.Millisecond; c.spec.Timeout <= 0 || c.spec.Timeout > bounded {
		c.spec.Timeout = bounded
	}
	c.spec.MaxStdout, c.spec.MaxStderr = v.MaxStdoutBytes, v.MaxStderrBytes
	c.stdout.limit, c.stderr.limit = v.MaxStdoutBytes, v.MaxStderrBytes
	return nil
}

// upTo is a value, or the ceiling of the field where that is lower.
func upTo(s policy.Snapshot, field string, value int64) *int64 {
	if ceiling, ok := s.Fields[field].Ceiling.(int64); ok {
		value = min(value, ceiling)
	}
	return &value
}

// locate finds out where the command would run. That it can run nowhere is on record: somebody asked for a run and did not get it.
func (c *command) locate(ctx context.Context) error {
	location, err := c.Locate(ctx, c.spec.User)
	c.location = location
	if err == nil {
		c.spec.User, c.spec.ImageID = location.User, location.ImageID
		if c.spec.Shell {
			c.shell, err = c.GetShell(ctx, c.spec.User)
		}
	}
	if err == nil && c.cfg.Enter != nil {
		var leave func()
		if leave, err = c.cfg.Enter(location); err == nil {
			c.leave = leave
		}
	}
	if err == nil {
		return nil
	}
	record, e := c.newRecord(ctx)
	if e != nil {
		return e
	}
	record.Status, record.ErrorReason, record.Detail = verdictOnError(ctx, err)
	record.EndedAt = record.CreatedAt
	_, recorded, e := c.cfg.Log.Refuse(context.WithoutCancel(ctx), record)
	if e != nil {
		return e
	}
	c.observe(record)
	if record.ErrorReason == audit.ShuttingDown {
		e := fault.Wrap(fault.ShuttingDown, err, "the command was not started because this node is shutting down; try another one, or again shortly")
		e.RetryAfter = 5 * time.Second
		err = e
	}
	if !recorded {
		return err
	}
	return withID(err, record.ExecID)
}

func (c *command) newRecord(ctx context.Context) (audit.Record, error) {
	backend := c.location.Backend
	if backend == "" && c.Name() != sandbox.RouterName { // where it would have run is not known
		backend = c.Name()
	}
	record, err := runner.Begin(asRequest(ctx, c.spec, c.shell), c.enforced(backend), runner.Origin{
		ExecID: c.spec.ExecID, NodeID: c.cfg.NodeID, Backend: backend, At: c.now(),
	})
	record.Runner, record.Image, record.ImageID = c.location.User.Runner, c.location.Image, c.location.ImageID
	return record, err
}

// enforced is the policy as far as it holds where the command runs. Where it would have run nothing, the whole policy stands.
func (c *command) enforced(backend string) policy.Snapshot {
	by := map[string]any{policy.FieldTimeoutMS: nil, policy.FieldMaxStdoutBytes: nil, policy.FieldMaxStderrBytes: nil}
	switch has := c.location.Limits; {
	case has != nil:
		by[policy.FieldNetMode], by[policy.FieldFSRead], by[policy.FieldFSWrite] = nil, nil, nil
		by[policy.FieldMemoryMB], by[policy.FieldCPUCores], by[policy.FieldPIDs], by[policy.FieldTmpMB] = has.MemoryMB, has.CPUCores, has.PIDs, has.TmpMB
		by[policy.FieldImage], by[policy.FieldRuntime] = c.location.Image, has.Runtime
	case !sandbox.TraitsOf(backend).Unconfined:
		return c.snapshot
	}
	return c.snapshot.AsEnforced(by)
}

func (c *command) open(ctx context.Context) error {
	record, err := c.newRecord(ctx)
	if err != nil {
		return err
	}
	record.Status = audit.Running
	if _, err := c.cfg.Log.Open(context.WithoutCancel(ctx), record); err != nil {
		return err
	}
	c.record = record
	return nil
}

// end closes the row and gives back what the caller is to see.
func (c *command) end(ctx context.Context, res *sandbox.ExecResult, err error) (*sandbox.ExecResult, error) {
	record := c.record
	if record.EndedAt = c.now(); record.EndedAt.Before(record.CreatedAt) {
		record.EndedAt = record.CreatedAt
	}
	if err != nil || res == nil {
		res = &sandbox.ExecResult{ExitCode: -1}
	}
	if err == nil {
		record.Status, record.ErrorReason, record.Detail = verdict(res, c.snapshot)
		record.ExitCode = exitCode(res)
	} else {
		record.Status, record.ErrorReason, record.Detail = verdictOnError(ctx, err)
	}
	if !neverBegan(record) {
		record.StartedAt = record.CreatedAt
	}
	record.StdoutBytes, record.StderrBytes = max(res.StdoutBytes, c.stdout.seen), max(res.StderrBytes, c.stderr.seen)
	record.StdoutTruncated, record.StderrTruncated = record.StdoutBytes > c.stdout.limit, record.StderrBytes > c.stderr.limit
	if res.OOMKilled {
		record.OOMEvents = 1
	}
	record.DurationMS = record.Duration().Milliseconds()
	if _, e := c.cfg.Log.Close(context.WithoutCancel(ctx), record); e != nil {
		return nil, withID(e, record.ExecID)
	}
	c.observe(record)

	byRequest := err != nil && record.Status == audit.Canceled && errors.Is(context.Cause(ctx), errCanceled)
	switch {
	case err == nil, byRequest:
	case fault.Is(err, fault.ShuttingDown):
		return nil, withID(fault.Wrap(fault.ShuttingDown, err, "the command was %s; look what it has done before you try again", record.Detail), record.ExecID)
	case record.ErrorReason == audit.ShuttingDown && ctx.Err() != nil:
		return nil, withID(fault.Wrap(fault.ShuttingDown, err, "the command was killed because this node is shutting down; look what it has done before you try again"), record.ExecID)
	default:
		if fault.Is(err, fault.Internal) && record.ErrorReason == audit.InternalError {
			c.cfg.Logger.Error("a command in a sandbox failed", "exec", record.ExecID, "error", err)
		}
		return nil, withID(err, record.ExecID)
	}
	out := *res
	if out.Detail == "" && record.Status != audit.Succeeded && record.ErrorReason != audit.NonzeroExit {
		out.Detail = record.Detail
	}
	out.ExecID, out.Runner = record.ExecID, record.Runner
	out.StdoutBytes, out.StderrBytes = record.StdoutBytes, record.StderrBytes
	out.Stdout, out.Stderr = c.stdout.text(), c.stderr.text()
	return &out, nil
}
