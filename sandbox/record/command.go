package record

import (
	"context"
	"time"

	"secbox/audit"
	"secbox/fault"
	"secbox/internal/traces"
	"secbox/network"
	"secbox/policy"
	"secbox/runner/lifecycle"
	"secbox/runner/output"
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
	leave          func() // of Config.Enter; nil before it has succeeded
}

// run goes through the stages.
func (r *Recorder) run(caller context.Context, spec sandbox.ExecSpec, stdout, stderr *stream) (_ *sandbox.ExecResult, err error) {
	if err := caller.Err(); err != nil {
		return nil, err
	}
	c := &command{Recorder: r, spec: spec, stdout: stdout, stderr: stderr}
	caller, span := r.cfg.Tracer.Start(caller, "sandbox command")
	defer func() { lifecycle.EndSpan(span, c.record, err) }()
	if c.spec.ExecID == "" {
		c.spec.ExecID = r.cfg.NewID()
	}
	ctx, registered, err := r.begin(caller, c.spec.ExecID, c.spec.User.ID)
	if err != nil {
		return nil, err
	}
	defer r.commands.End(registered)
	defer func() {
		if c.leave != nil {
			c.leave()
		}
	}()
	if err := c.limit(ctx); err != nil {
		return nil, err
	}
	if err := c.locate(ctx); err != nil {
		return nil, c.refuse(ctx, err)
	}
	if err := c.open(ctx); err != nil {
		return nil, err
	}
	c.spec.Env = traced(c.spec.Env, traces.Of(ctx))
	defer c.show()()
	jobCtx, job := r.cfg.Tracer.Start(ctx, "job")
	way := c.openNetwork()
	res, err := c.Backend.ExecTo(jobCtx, c.spec, c.stdout.writer(), c.stderr.writer())
	if way != nil {
		way.Close().Set(&c.record)
	}
	job.Done(&err)
	return c.end(ctx, res, err)
}

// openNetwork opens the way out of a command in a container, if the settings give commands one;
// else nil.
func (c *command) openNetwork() *network.Way {
	v := c.snapshot.Values
	if v.NetMode != policy.NetAllowlist || c.cfg.Network == nil || c.location.Limits == nil {
		return nil
	}
	way := c.cfg.Network.Open(network.Exec{ID: c.record.ExecID, Token: c.record.RequestedBy, Allow: v.NetAllow, Limits: v.NetLimits})
	c.spec.OnConnection = way.Serve
	return way
}

// show lets others read the beginning of the output, in memory, until the returned function is
// called.
func (c *command) show() (hide func()) {
	shown := output.New("", output.InlineBytes, output.InlineBytes)
	c.stdout.shown, c.stderr.shown = shown.Stdout, shown.Stderr
	return c.outputs.Add(c.record.ExecID, shown, lingering)
}

// limit sets the timeout and the output limits of the command: the spec's, up to the policy's
// ceilings.
func (c *command) limit(ctx context.Context) (err error) {
	_, span := c.cfg.Tracer.Start(ctx, "policy")
	defer span.Done(&err)
	base, err := c.cfg.Policy.Resolve(nil, policy.Layer{}, c.cfg.Host())
	if err != nil {
		return err
	}
	upTo := func(field string, value int64) *int64 {
		if ceiling, ok := base.Fields[field].Ceiling.(int64); ok {
			value = min(value, ceiling)
		}
		return &value
	}
	asked := policy.Layer{Limits: policy.Limits{
		MaxStdoutBytes: upTo(policy.FieldMaxStdoutBytes, sandbox.OutputBound(c.spec.MaxStdout)),
		MaxStderrBytes: upTo(policy.FieldMaxStderrBytes, sandbox.OutputBound(c.spec.MaxStderr)),
	}}
	if c.spec.Timeout > 0 {
		asked.TimeoutMS = upTo(policy.FieldTimeoutMS, max(1, int64((c.spec.Timeout+time.Millisecond-1)/time.Millisecond)))
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

// locate finds out where the command will run, and enters the workspace.
func (c *command) locate(ctx context.Context) (err error) {
	ctx, span := c.cfg.Tracer.Start(ctx, "container")
	defer span.Done(&err)
	if c.location, err = c.Locate(ctx, c.spec.User); err != nil {
		return err
	}
	c.spec.User, c.spec.ImageID = c.location.User, c.location.ImageID
	if c.spec.Shell {
		if c.shell, err = c.GetShell(ctx, c.spec.User); err != nil {
			return err
		}
	}
	if c.cfg.Enter == nil {
		return nil
	}
	leave, err := c.cfg.Enter(ctx, c.location)
	if err == nil {
		c.leave = leave
	}
	return err
}

// refuse puts a command on record that can run nowhere, because the request was in order. It
// returns the error for the caller.
func (c *command) refuse(ctx context.Context, err error) error {
	record, e := c.newRecord(ctx)
	if e != nil {
		return e
	}
	record.Status, record.ErrorReason, record.Detail = verdictOnError(ctx, err)
	_, recorded, e := c.commands.Refuse(ctx, record)
	if e != nil {
		return e
	}
	if record.ErrorReason == audit.ShuttingDown {
		e := fault.Wrap(fault.ShuttingDown, err,
			"the command was not started because this node is shutting down; try another one, or again shortly")
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
	if backend == "" && c.Name() != sandbox.RouterName { // the backend of the user is unknown
		backend = c.Name()
	}
	request := requestRecord(ctx, c.cfg.Key, c.spec, c.shell)
	request.Backend, request.Runner = backend, c.location.User.Runner
	request.Image, request.ImageID = c.location.Image, c.location.ImageID
	return c.commands.NewRecord(request, c.enforced(backend))
}

// enforced is the part of the policy that is enforced where the command runs; the whole policy when
// it can run nowhere.
func (c *command) enforced(backend string) policy.Snapshot {
	at := c.location
	switch {
	case at.Limits != nil:
		return c.snapshot.AsEnforced(&policy.Container{ContainerLimits: *at.Limits, Image: at.Image, Runtime: at.Runtime})
	case sandbox.TraitsOf(backend).Unconfined:
		return c.snapshot.AsEnforced(nil)
	}
	return c.snapshot
}

func (c *command) open(ctx context.Context) (err error) {
	_, span := c.cfg.Tracer.Start(ctx, "open")
	defer span.Done(&err)
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

// end closes the row and returns the result for the caller.
func (c *command) end(ctx context.Context, res *sandbox.ExecResult, err error) (*sandbox.ExecResult, error) {
	record := &c.record
	record.EndedAt = later(c.commands.Now(), record.CreatedAt)
	if err != nil || res == nil {
		res = &sandbox.ExecResult{ExitCode: -1}
	}
	if err == nil {
		record.Status, record.ErrorReason, record.Detail = verdict(res, c.snapshot)
		record.ExitCode = exitCode(res)
	} else {
		record.Status, record.ErrorReason, record.Detail = verdictOnError(ctx, err)
	}
	if !neverStarted(*record) {
		record.StartedAt = record.CreatedAt
	}
	record.StdoutBytes, record.StderrBytes = max(res.StdoutBytes, c.stdout.seen), max(res.StderrBytes, c.stderr.seen)
	record.StdoutTruncated, record.StderrTruncated = c.stdout.end(record.StdoutBytes), c.stderr.end(record.StderrBytes)
	if res.OOMKilled {
		record.OOMEvents = 1
	}
	_, closing := c.cfg.Tracer.Start(ctx, "close")
	_, e := c.commands.Close(ctx, record)
	if closing.Done(&e); e != nil {
		return nil, e
	}
	if err := c.callerError(ctx, err); err != nil {
		return nil, err
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

func later(a, b time.Time) time.Time {
	if a.Before(b) {
		return b
	}
	return a
}

// callerError is the error of an ended command for the caller; nil when it has a result, as after
// Cancel.
func (c *command) callerError(ctx context.Context, err error) error {
	r := c.record
	switch {
	case err == nil, r.Status == audit.Canceled && canceled(ctx):
		return nil
	case fault.Is(err, fault.ShuttingDown):
		err = fault.Wrap(fault.ShuttingDown, err, "the command was %s; check its effects before you try again", r.Detail)
	case r.ErrorReason == audit.ShuttingDown && ctx.Err() != nil:
		err = fault.Wrap(fault.ShuttingDown, err,
			"the command was killed because this node is shutting down; check its effects before you try again")
	case r.ErrorReason == audit.NodeLost && ctx.Err() != nil:
		err = fault.Wrap(fault.ShuttingDown, err,
			"the command was killed because this node had lost its lease on the database; check its effects before you try again")
	case fault.Is(err, fault.Internal) && r.ErrorReason == audit.InternalError:
		c.cfg.Logger.Error("a command in a sandbox failed", "exec", r.ExecID, "error", err)
	}
	return withID(err, r.ExecID)
}
