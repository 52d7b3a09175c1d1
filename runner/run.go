package runner

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"time"

	"secbox/audit"
	"secbox/audit/hmackey"
	"secbox/fault"
	"secbox/internal/admission"
	"secbox/internal/traces"
	"secbox/policy"
	"secbox/runner/lifecycle"
	"secbox/runner/session"
	"secbox/workspace"
)

// Run runs one exec to its closed row and returns its result with any exit code; an asynchronous
// one, to its queued row. An error is a *fault.Error and means that the job did not run; its ExecID
// is set when the refusal is on record. The end of the client's context does not stop the exec; it
// ends only the wait of a replay for the exec that it repeats.
func (r *Runner) Run(client context.Context, req Request) (res Result, err error) {
	ctx, span := r.cfg.Tracer.Start(context.WithoutCancel(client), "exec")
	defer func() { lifecycle.EndSpan(span, res.Record, err) }()
	req.Trace = traces.Of(ctx)
	if req.SessionID != "" && req.IdempotencyKey != "" { // its session may have ended since
		if res, repeated, err := r.Repeat(client, req); repeated || err != nil {
			return res, err
		}
	}
	req, snapshot, err := r.resolved(ctx, req)
	if err != nil {
		return Result{}, err
	}
	if err := r.cfg.Disk.Room(); err != nil {
		return Result{}, err
	}
	if req.Queue != nil {
		return r.submit(ctx, req, snapshot)
	}
	x := &exec{Runner: r, req: req, snapshot: snapshot}
	if req.fresh() {
		if x.ticket, err = r.admit(ctx, req.RequestedBy); err != nil {
			return Result{}, err
		}
		defer x.ticket.Leave()
	}
	defer x.release()
	if err := x.resolveImage(ctx); err != nil {
		return Result{}, err
	}
	if x.mustWait() {
		err = x.openQueued(ctx)
	} else {
		err = x.openRunning(ctx)
	}
	switch {
	case err != nil:
		return Result{}, err
	case x.taken != nil && req.session != nil:
		return Result{Record: *x.taken, Replayed: true}, r.sameRequest(*x.taken, req)
	case x.taken != nil:
		if x.ticket != nil {
			x.ticket.Leave() // the wait for another exec's end must not hold a place
		}
		return r.replay(client, req, *x.taken)
	}
	defer r.commands.End(x.command)
	return x.run(ctx)
}

// resolved is resolve, and puts a request that the policy denies on record.
func (r *Runner) resolved(ctx context.Context, req Request) (Request, policy.Snapshot, error) {
	req, snapshot, err := r.resolve(ctx, req)
	if fault.Is(err, fault.PolicyDenied) {
		err = r.refuse(ctx, req, snapshot, audit.Rejected, audit.PolicyDenied, err)
	}
	return req, snapshot, err
}

// resolve checks a request and determines its policy.
func (r *Runner) resolve(ctx context.Context, req Request) (_ Request, snapshot policy.Snapshot, err error) {
	_, span := r.cfg.Tracer.Start(ctx, "policy")
	defer span.Done(&err)
	if req, err = normalise(req); err != nil {
		return req, snapshot, err
	}
	if req.SessionID != "" {
		state, running := r.sessions.State(req.SessionID)
		if !running || state.ProjectID != req.ProjectID {
			return req, snapshot, session.Ended(req.SessionID)
		}
		var manifest *policy.Layer
		if req.Skill != nil {
			manifest = &req.Skill.Layer
		}
		req = addSkillEnv(req)
		snapshot, err = state.Snapshot.Within(manifest, req.Overrides)
		if err == nil { // the container's processes have the session's credentials
			err = r.checkSecrets(ctx, req.RequestedBy, state.Snapshot.Values)
		}
		if err == nil && req.Background && req.Overrides.TimeoutMS == nil {
			left := state.StartedAt.Add(r.cfg.MaxTTL).Sub(r.cfg.Now()) // the session may be extended
			snapshot = snapshot.ForLife(max(1, left.Milliseconds()))
		}
		return req, snapshot, err
	}
	manifest, err := r.manifestLayer(req)
	if err != nil {
		return req, snapshot, err
	}
	req = addSkillEnv(req)
	if snapshot, err = r.cfg.Policy.Resolve(manifest, req.Overrides, r.cfg.Host()); err == nil {
		err = checkSkillMounts(req, snapshot.Values)
	}
	if err == nil {
		err = r.checkSecrets(ctx, req.RequestedBy, snapshot.Values)
	}
	return req, snapshot, err
}

// checkSecrets returns fault.PolicyDenied if a token may not use a secret of net.credentials.
func (r *Runner) checkSecrets(ctx context.Context, token string, v policy.Values) error {
	for _, c := range v.NetCredentials {
		allowed := false
		if r.cfg.SecretAllowed != nil {
			var err error
			if allowed, err = r.cfg.SecretAllowed(ctx, c.Secret, token); err != nil {
				return err
			}
		}
		if !allowed {
			why := fmt.Sprintf("the secret %s is not for this token; ask for no credentials with it, or have the operator add the token to "+
				"sandbox.secrets.%s.tokens", c.Secret, c.Secret)
			return &fault.Error{
				Code: fault.PolicyDenied, Message: policy.FieldNetCredentials + ": " + why,
				Fields: []fault.Field{{Field: policy.FieldNetCredentials, Asked: c, Layer: policy.LayerRequest, Reason: why}},
			}
		}
	}
	return nil
}

// admit takes a place for an exec of a token, at work or in the queue.
func (r *Runner) admit(ctx context.Context, token string) (_ *admission.Ticket, err error) {
	_, span := r.cfg.Tracer.Start(ctx, "admission")
	defer span.Done(&err)
	ticket, tokenLimit := r.admission.EnterAs(gateName(token))
	if ticket != nil {
		return ticket, nil
	}
	waiting, _ := r.admission.Load()
	e := fault.New(fault.QueueFull, "%d execs are waiting already; try again shortly (the setting sandbox.max_queued_execs raises it)",
		waiting)
	if tokenLimit {
		e = fault.New(fault.QueueFull, "%d execs of this token are waiting already; try again shortly (the setting "+
			"sandbox.max_queued_execs_per_token raises it)", r.cfg.Each.Queue)
	}
	e.RetryAfter = time.Second
	return nil, e
}

// gateName is the name of a token for admission. Requests without a token have no share.
func gateName(token string) string {
	if token == Tokenless {
		return ""
	}
	return token
}

// Refuse puts a request on record that its caller refuses, because the token may not use the
// project or a path leads out of its directory. It returns why with the record's id, when there is
// a record. Other refusals are not put on record.
func (r *Runner) Refuse(ctx context.Context, req Request, why error) error {
	reason := map[fault.Code]audit.Reason{fault.Forbidden: audit.Forbidden, fault.PathRefused: audit.PathRefused}[fault.CodeOf(why)]
	if reason == "" {
		return why
	}
	if req.ProjectID == "" {
		req.ProjectID = req.ConversationID
	}
	if agent, user, ok := workspace.SplitWorkspaceID(req.ProjectID); ok && req.AgentID == "" && req.UserID == "" {
		req.AgentID, req.UserID = agent, user // lists of the workspace's execs then have it
	}
	req.IdempotencyKey, req.Trace = "", traces.Of(ctx)
	return r.refuse(ctx, req, policy.Snapshot{}, audit.Rejected, reason, why)
}

// refuse puts a request that never started on record and returns the error, with the record's id
// when there is a record.
func (r *Runner) refuse(ctx context.Context, req Request, snapshot policy.Snapshot, status audit.Status, reason audit.Reason,
	why error,
) error {
	e := *fault.From(why)
	record, err := r.newRecord(req, snapshot, r.cfg.NewID())
	if err != nil {
		return err
	}
	record.Status, record.ErrorReason, record.Detail = status, reason, e.Message
	if snapshot.Fields == nil {
		record.Backend = "" // no place to run in was chosen
	}
	if status != audit.Rejected {
		record.IdempotencyKey = "" // the same request may succeed later: the key stays free
	}
	taken, recorded, err := r.commands.Refuse(ctx, record)
	switch {
	case err != nil:
		return err
	case !recorded:
		return &e
	case taken != nil:
		if err := r.sameRequest(*taken, req); err != nil {
			return err
		}
		record = *taken
	}
	e.ExecID = record.ExecID
	return &e
}

// newRecord is the record of an exec before anything has happened.
func (r *Runner) newRecord(req Request, snapshot policy.Snapshot, execID string) (audit.Record, error) {
	skillDigest := req.SkillDigest
	if req.Skill != nil {
		skillDigest = req.Skill.Folder.Digest
	}
	record := audit.Record{
		ExecID: execID, ProjectID: req.ProjectID, TaskID: req.TaskID, ConversationID: req.ConversationID,
		AgentID: req.AgentID, UserID: req.UserID, SkillID: req.SkillID, SkillDigest: skillDigest,
		Image: snapshot.Values.Image, Cmd: req.Command.Name, Args: req.Command.Args, Cwd: req.Command.Cwd,
		EnvKeys: slices.Sorted(maps.Keys(req.Command.Env)), Inputs: digests(allInputs(req)), Backend: audit.BackendDocker,
		RequestedBy: req.RequestedBy, RequestDigest: r.cfg.Key.Request(req.Digest), IdempotencyKey: req.IdempotencyKey,
		ReplayOf: req.ReplayOf,
		TraceID:  req.Trace.Trace, SpanID: req.Trace.Span, SessionID: req.SessionID,
	}
	if req.session != nil {
		record.SessionID = execID
	}
	if record.Context = req.Command.Context; record.Context != "" {
		record.Cwd = "" // where earlier execs have left it
	}
	if t := req.Command.Terminal; t != nil {
		record.TTYRecord = cmp.Or(t.Record, audit.RecordAll)
	}
	if req.Skill != nil && r.cfg.KeepRequests {
		record.Request = audit.RequestText(req.Skill.Input, audit.MostRequest)
	}
	r.addHMACs(&record, req)
	return r.commands.NewRecord(record, snapshot)
}

// addHMACs sets the keyed digests of what the record must not have.
func (r *Runner) addHMACs(record *audit.Record, req Request) {
	c := req.Command
	if len(c.Env) == 0 && len(c.Stdin) == 0 && !c.StdinStream {
		return
	}
	record.HMACSalt = cmp.Or(req.HMACSalt, hmackey.NewSalt())
	for _, name := range record.EnvKeys {
		record.EnvHMACs = append(record.EnvHMACs, r.cfg.Key.Variable(record.HMACSalt, name, c.Env[name]))
	}
	if len(c.Stdin) > 0 {
		record.StdinHMAC, record.StdinBytes = r.cfg.Key.Stdin(record.HMACSalt, c.Stdin), int64(len(c.Stdin))
	}
}
