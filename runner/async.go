package runner

import (
	"bytes"
	"cmp"
	"context"
	"encoding/gob"
	"encoding/json"
	"errors"
	"time"

	"secbox/audit"
	"secbox/audit/hmackey"
	"secbox/fault"
	"secbox/internal/admission"
	"secbox/internal/traces"
	"secbox/policy"
	"secbox/runner/jobs"
	"secbox/runner/lifecycle"
)

// Queueing makes a Request asynchronous: Run returns when its row waits, without a result.
type Queueing struct {
	Priority audit.Priority // empty: Normal
	Timeout  time.Duration  // how long it may wait; 0: DefaultQueueTimeout
}

// Bounds of Queueing.Timeout.
const (
	DefaultQueueTimeout = 24 * time.Hour
	MaxQueueTimeout     = 7 * 24 * time.Hour
)

// Async configures asynchronous execs.
type Async struct {
	Limits   audit.JobLimits
	Places   int           // of Config.Slots, for asynchronous execs; at least 1
	Notifier jobs.Notifier // notified when an exec waits, and when there may be a place for one

	// Skill returns the version of a skill for an exec whose invoke has waited; fault.UnknownSkill
	// if it is gone. Its Input is not set.
	Skill func(ctx context.Context, projectID, skillID, digest string) (*Skill, error)

	// Valid returns nil while the caller of a request may still make one: fault.TokenRevoked or
	// fault.Unauthenticated if it may not.
	Valid func(ctx context.Context, requestedBy string) error
}

// job is an asynchronous exec as it waits, sealed.
type job struct {
	Record  []byte // audit.Record as JSON
	Command Command
	Inputs  []Input
	Skill   *jobSkill // nil: not the invoke of a skill
	ImageID string
	Trace   traces.ID
}

type jobSkill struct {
	Digest, InputPath string
	Input             []byte
}

// sealPurpose is the purpose of the key of jobs.
const sealPurpose = "exec job"

// Outcome is what became of one request of several: a Result, or why nothing will run.
type Outcome struct {
	Result
	Err error // see Runner.Run
}

// RunAll puts asynchronous execs of one token into the queue, in one transaction. Each has an
// outcome as of Run, in the order of the requests. After an error none will run.
func (r *Runner) RunAll(client context.Context, reqs []Request) (_ []Outcome, err error) {
	ctx, span := r.cfg.Tracer.Start(context.WithoutCancel(client), "batch")
	defer span.Done(&err)
	if err := r.mayRun(); err != nil {
		return nil, err
	}
	outcomes := make([]Outcome, len(reqs))
	var subs []submission
	for i, req := range reqs {
		if err := client.Err(); err != nil { // nothing is stored yet
			return nil, err
		}
		req.Trace = traces.Of(ctx)
		req, snapshot, err := r.resolved(ctx, req)
		if err == nil {
			var s submission
			if s, err = r.prepare(ctx, req, snapshot); err == nil {
				s.out = &outcomes[i]
				subs = append(subs, s)
			}
		}
		outcomes[i].Err = err
	}
	return outcomes, r.enqueue(ctx, subs)
}

// mayRun refuses requests while none may begin.
func (r *Runner) mayRun() error {
	if err := r.cfg.Disk.Room(); err != nil {
		return err
	}
	return r.commands.Accepts()
}

// submit puts an asynchronous exec into the queue, or returns the exec that has its key.
func (r *Runner) submit(ctx context.Context, req Request, snapshot policy.Snapshot) (Result, error) {
	if err := r.commands.Accepts(); err != nil {
		return Result{}, err
	}
	s, err := r.prepare(ctx, req, snapshot)
	if err != nil {
		return Result{}, err
	}
	var out Outcome
	s.out = &out
	if err := r.enqueue(ctx, []submission{s}); err != nil {
		return Result{}, err
	}
	return out.Result, out.Err
}

// submission is an asynchronous exec before it has a row.
type submission struct {
	req Request
	audit.Waiting
	out *Outcome
}

// prepare checks an asynchronous exec, and makes its record and its job.
func (r *Runner) prepare(ctx context.Context, req Request, snapshot policy.Snapshot) (submission, error) {
	x := &exec{Runner: r, req: req, snapshot: snapshot}
	if err := x.checkImage(ctx); err != nil {
		return submission{}, err
	}
	if _, err := r.cfg.Workspace.Project(req.ProjectID); err != nil {
		return submission{}, x.recordDamage(ctx, err)
	}
	record, err := r.newRecord(req, snapshot, r.cfg.NewID())
	if err != nil {
		return submission{}, err
	}
	record.Status, record.NodeID = audit.Queued, ""
	record.Async, record.Priority = true, req.Queue.Priority
	if record.Priority == "" {
		record.Priority = audit.Normal
	}
	timeout := req.Queue.Timeout
	if timeout <= 0 {
		timeout = DefaultQueueTimeout
	}
	sealed, err := r.seal(record, req)
	job := audit.Job{ExpiresAt: record.CreatedAt.Add(timeout), Sealed: sealed}
	return submission{req: req, Waiting: audit.Waiting{Record: record, Job: job}}, err
}

// enqueue stores the rows and jobs of execs and sets their outcomes. After an error it stored none.
func (r *Runner) enqueue(ctx context.Context, subs []submission) error {
	waiting := make([]audit.Waiting, len(subs))
	for i, s := range subs {
		waiting[i] = s.Waiting
	}
	var err error
	registered := 0
	for ; registered < len(subs) && err == nil; registered++ {
		err = r.register(ctx, subs[registered].req, waiting[registered].Record.ExecID)
	}
	var stored []audit.Enqueued
	if err == nil {
		stored, err = r.cfg.Log.Enqueue(ctx, waiting, r.cfg.Async.Limits)
	}
	if err != nil {
		for _, s := range subs[:registered] {
			r.forget(ctx, s.req, s.Record.ExecID, err)
		}
		return err
	}
	for i, e := range stored {
		s := subs[i]
		switch {
		case e.Stored():
			s.out.Record = s.Record
			if s.req.OnOpen != nil {
				s.req.OnOpen(s.Record.ExecID)
			}
			r.cfg.Async.Notifier.Notify()
			continue
		case e.Taken != nil:
			s.out.Result, s.out.Err = Result{Record: *e.Taken, Replayed: true}, r.sameRequest(*e.Taken, s.req)
		}
		s.out.Err = cmp.Or(e.Err, s.out.Err)
		r.forget(ctx, s.req, s.Record.ExecID, e.Err)
	}
	return nil
}

// checkImage refuses an exec whose image is missing now. An engine that does not answer may do so
// when the exec's turn comes.
func (x *exec) checkImage(ctx context.Context) error {
	_, err := x.findImage(ctx)
	switch fault.CodeOf(err) {
	case "", fault.EngineUnavailable:
		return nil
	case fault.ImageMissing:
		return x.refuse(ctx, x.req, x.snapshot, audit.Errored, audit.ImageMissing, err)
	}
	return err
}

func (r *Runner) seal(record audit.Record, req Request) ([]byte, error) {
	j := job{Command: req.Command, Inputs: req.Inputs, ImageID: req.ImageID, Trace: req.Trace}
	var err error
	if j.Record, err = json.Marshal(record); err != nil {
		return nil, fault.Wrap(fault.Internal, err, "the exec cannot be queued")
	}
	if req.Skill != nil {
		j.Skill = &jobSkill{Digest: req.Skill.Folder.Digest, InputPath: req.Skill.inputPath, Input: req.Skill.Input}
	}
	var content bytes.Buffer
	if err := gob.NewEncoder(&content).Encode(j); err != nil {
		return nil, fault.Wrap(fault.Internal, err, "the exec cannot be queued")
	}
	return r.cfg.Key.Seal(sealPurpose, record.ExecID, content.Bytes()), nil
}

// unseal makes the exec of a job, without a ticket.
func (r *Runner) unseal(taken jobs.Taken) (*exec, error) {
	content, err := r.cfg.Key.Unseal(sealPurpose, taken.ExecID, taken.Sealed)
	if errors.Is(err, hmackey.ErrOtherKey) {
		return nil,
			fault.New(fault.Internal, "another key sealed the job; give all nodes the same audit.hmac_key_file, and post the exec again")
	}
	var j job
	x := &exec{Runner: r}
	if err == nil {
		err = gob.NewDecoder(bytes.NewReader(content)).Decode(&j)
	}
	if err == nil {
		err = json.Unmarshal(j.Record, &x.record)
	}
	if err == nil {
		x.snapshot, err = policy.ParseSnapshot(x.record.PolicySnapshot)
	}
	if err != nil {
		return nil, fault.Wrap(fault.Internal, err, "the job was damaged in the database; post the exec again")
	}
	x.req = Request{
		ProjectID: x.record.ProjectID, SkillID: x.record.SkillID, Command: j.Command, Inputs: j.Inputs, ImageID: j.ImageID, Trace: j.Trace,
		RequestedBy: x.record.RequestedBy,
	}
	if j.Skill != nil {
		x.req.Skill = &Skill{Input: j.Skill.Input, inputPath: j.Skill.InputPath}
		x.req.Skill.Folder.Digest = j.Skill.Digest
	}
	return x, nil
}

// Place implements jobs.Runner.
func (r *Runner) Place() jobs.Place {
	if r.commands.Accepts() != nil {
		return nil
	}
	if ticket := r.admission.EnterBackground(); ticket != nil {
		return place{ticket}
	}
	return nil
}

type place struct{ *admission.Ticket }

func (p place) WorkFor(token string) { p.Ticket.WorkFor(gateName(token)) }

// MayRun implements jobs.Runner.
func (r *Runner) MayRun(token string) bool { return r.admission.MayRun(gateName(token)) }

// RunQueued implements jobs.Runner. The place is one of Place.
func (r *Runner) RunQueued(taken jobs.Taken, at jobs.Place) (later bool) {
	ctx := context.Background()
	killed, command, err := r.commands.Begin(ctx, lifecycle.Command{ExecID: taken.ExecID}, nil)
	if err != nil {
		return true // the node shuts down
	}
	defer r.ends.notify(taken.ExecID)
	defer r.commands.End(command)

	x, err := r.unseal(taken)
	if err != nil {
		r.closeSealed(ctx, taken.ExecID, err)
		return false
	}
	x.ticket, x.ctx, x.command = at.(place).Ticket, killed, command
	x.record.NodeID = r.cfg.NodeID
	defer x.release()
	ctx, span := r.cfg.Tracer.Start(traces.With(ctx, x.req.Trace), "queued exec")
	defer func() { lifecycle.EndSpan(span, x.record, nil) }()
	_, queue := r.cfg.Tracer.StartAt(ctx, "queue", x.record.CreatedAt)
	queue.End("")
	switch err := r.cfg.Async.Valid(ctx, x.req.RequestedBy); {
	case err == nil:
	case fault.Is(err, fault.TokenRevoked), fault.Is(err, fault.Unauthenticated):
		command.Kill(errRevoked)
	default:
		return true // the database does not answer
	}
	switch err := x.startQueued(ctx, taken.ExpiresAt); {
	case err == nil:
		_, _ = x.work(ctx) // the row has the outcome
	case fault.Is(err, fault.ExecEnded): // meanwhile
	case waits(x.ctx, err):
		return true
	default:
		_, _ = x.closeUnrun(ctx, err, err)
	}
	return false
}

// waits reports whether an exec that did not start waits for another attempt.
func waits(ctx context.Context, err error) bool {
	if ctx.Err() != nil {
		_, reason, _ := lifecycle.Killed(ctx)
		return reason == audit.ShuttingDown || reason == audit.NodeLost
	}
	return fault.Is(err, fault.EngineUnavailable) || fault.Is(err, fault.DiskFull)
}

// startQueued takes a slot for an exec that has waited, and claims its row. fault.ExecEnded when
// the row waits no longer. After an error there is no slot.
func (x *exec) startQueued(ctx context.Context, expiresAt time.Time) error {
	if x.cfg.Now().After(expiresAt) {
		x.command.Kill(errExpired)
	}
	if err := x.ctx.Err(); err != nil {
		return err
	}
	if err := x.cfg.Disk.Room(); err != nil {
		return err
	}
	// The settings may have changed since, or another node with other settings took the exec.
	if err := x.checkSecrets(ctx, x.req.RequestedBy, x.snapshot.Values); err != nil {
		return err
	}
	if s := x.req.Skill; s != nil {
		skill, err := x.cfg.Async.Skill(ctx, x.req.ProjectID, x.req.SkillID, s.Folder.Digest)
		if fault.Is(err, fault.UnknownSkill) {
			err = fault.Wrap(fault.SkillChanged, err,
				"version %s of the skill %s is gone since the exec was queued; invoke the skill again", s.Folder.Digest, x.req.SkillID)
		}
		if err != nil {
			return err
		}
		skill.Input, skill.inputPath = s.Input, s.inputPath
		x.req.Skill = skill
	}
	var err error
	if x.image, err = x.findImage(ctx); err != nil {
		return err
	}
	return x.start(ctx)
}

// closeSealed closes the row of an exec whose job cannot be opened.
func (r *Runner) closeSealed(ctx context.Context, execID string, why error) {
	record, err := r.cfg.Log.Get(ctx, execID)
	if err == nil && record.Status == audit.Queued {
		record.NodeID = r.cfg.NodeID
		x := &exec{Runner: r, ctx: ctx, record: record}
		_, err = x.closeUnrun(ctx, why, why)
	}
	if err != nil {
		r.cfg.Logger.Error("a job cannot be opened", "exec", execID, "error", err)
	}
}

// Expire implements jobs.Runner.
func (r *Runner) Expire(ctx context.Context, execID string) error {
	_, err := r.endQueued(ctx, execID, func(record *audit.Record) {
		record.ErrorReason, record.Detail = audit.QueueTimeout, errExpired.Error()+" before it started"
	})
	return err
}

// endQueued ends an asynchronous exec that waits, on any node, as canceled. It returns the record
// as it is then: a node may have been faster, and started it.
func (r *Runner) endQueued(ctx context.Context, execID string, why func(*audit.Record)) (audit.Record, error) {
	record, err := r.cfg.Log.Get(ctx, execID)
	if err != nil || record.Status != audit.Queued || !record.Async {
		return record, err
	}
	record.Status, record.EndedAt = audit.Canceled, r.commands.Now()
	why(&record)
	if _, err = r.commands.Close(ctx, &record); err == nil {
		r.ends.notify(execID)
	}
	return record, err
}
