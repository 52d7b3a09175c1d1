package runner

import (
	"context"
	"errors"
	"time"

	"secbox/admission"
	"secbox/audit"
	"secbox/diskwatch"
	"secbox/engine"
	"secbox/fault"
	"secbox/policy"
	"secbox/workspace"
)

// Run runs one exec to its closed row and returns its result, whatever the exit code. An error is a *fault.Error and means that the job
// did not run; its ExecID is set when the refusal is on record. The end of ctx does not stop the exec; it ends the wait of a replay for the
// exec that it repeats.
func (r *Runner) Run(client context.Context, req Request) (Result, error) {
	ctx := context.WithoutCancel(client)
	req, err := normalise(req)
	if err != nil {
		return Result{}, err
	}
	manifest, err := r.manifestLayer(req)
	if err != nil {
		return Result{}, err
	}
	req = equip(req)
	snapshot, err := r.cfg.Policy.Resolve(manifest, req.Overrides, r.cfg.Host())
	if err == nil {
		err = checkSkillMounts(req, snapshot.Values)
	}
	if err != nil {
		if fault.Is(err, fault.PolicyDenied) {
			return Result{}, r.refuse(ctx, req, snapshot, audit.Rejected, audit.PolicyDenied, err)
		}
		return Result{}, err
	}
	if err := r.cfg.Disk.Room(); err != nil {
		return Result{}, err
	}
	ticket, err := r.enter(req.RequestedBy)
	if err != nil {
		return Result{}, err
	}
	defer ticket.Leave()

	x := &exec{Runner: r, req: req, snapshot: snapshot, ticket: ticket}
	defer x.leave()
	if err := x.resolveImage(ctx); err != nil {
		return Result{}, err
	}
	if ticket.MustWait() {
		err = x.openQueued(ctx)
	} else {
		err = x.openRunning(ctx)
	}
	switch {
	case err != nil:
		return Result{}, err
	case x.taken != nil:
		ticket.Leave() // waiting for another exec's end must not hold a place
		return r.replay(client, req, *x.taken)
	}
	defer r.finish(x.record.ExecID, x.live)
	return x.run(ctx)
}

// enter takes a place for an exec of a token.
func (r *Runner) enter(token string) (*admission.Ticket, error) {
	if token == Tokenless {
		token = ""
	}
	ticket, its := r.admission.EnterAs(token)
	if ticket != nil {
		return ticket, nil
	}
	waiting, _ := r.admission.Load()
	e := fault.New(fault.QueueFull, "%d execs are waiting already; try again shortly (the setting sandbox.max_queued_execs raises it)", waiting)
	if its {
		e = fault.New(fault.QueueFull, "%d execs of this token are waiting already; try again shortly (the setting sandbox.max_queued_execs_per_token raises it)", r.cfg.Each.Queue)
	}
	e.RetryAfter = time.Second
	return nil, e
}

// Refuse puts a request on record that its caller refuses, because the token may not use the project or a path leads out of its directory.
// It returns why with the record's id, when there is a record. What is refused for another reason is not on record.
func (r *Runner) Refuse(ctx context.Context, req Request, why error) error {
	reason := map[fault.Code]audit.Reason{fault.Forbidden: audit.Forbidden, fault.PathRefused: audit.PathRefused}[fault.CodeOf(why)]
	if reason == "" {
		return why
	}
	if req.ProjectID == "" {
		req.ProjectID = req.ConversationID
	}
	if agent, user, ok := workspace.SplitWorkspaceID(req.ProjectID); ok && req.AgentID == "" && req.UserID == "" {
		req.AgentID, req.UserID = agent, user // so that who lists the workspace's execs finds it
	}
	req.IdempotencyKey = ""
	return r.refuse(context.WithoutCancel(ctx), req, policy.Snapshot{}, audit.Rejected, reason, why)
}

// refuse puts a request that never started on record and returns the error, with the record's id when there is a record.
func (r *Runner) refuse(ctx context.Context, req Request, snapshot policy.Snapshot, status audit.Status, reason audit.Reason, why error) error {
	e := *fault.From(why)
	record, err := r.newRecord(req, snapshot, r.cfg.NewID())
	if err != nil {
		return err
	}
	record.Status, record.ErrorReason, record.Detail = status, reason, e.Message
	if snapshot.Fields == nil {
		record.Backend = "" // where it would have run was not looked at
	}
	record.EndedAt = record.CreatedAt
	if status != audit.Rejected {
		record.IdempotencyKey = "" // nothing ran, and it may well work the next time: the key stays free
	}
	taken, recorded, err := r.cfg.Log.Refuse(ctx, record)
	switch {
	case err != nil:
		return err
	case !recorded:
		r.observe(record)
		return &e
	case taken != nil:
		if taken.RequestDigest != req.Digest {
			return idempotencyMismatch(*taken)
		}
		record = *taken
	default:
		r.observe(record)
	}
	e.ExecID = record.ExecID
	return &e
}

func (r *Runner) observe(record audit.Record) {
	if r.cfg.Observer != nil {
		r.cfg.Observer.Ended(record)
	}
}

// newRecord is what is known of an exec before anything happened.
func (r *Runner) newRecord(req Request, snapshot policy.Snapshot, execID string) (audit.Record, error) {
	record, err := Begin(req, snapshot, Origin{ExecID: execID, NodeID: r.cfg.NodeID, Backend: Backend, At: r.now()})
	record.Image = snapshot.Values.Image
	return record, err
}

// exec is one run through its stages.
type exec struct {
	*Runner
	req      Request
	snapshot policy.Snapshot
	ticket   *admission.Ticket

	image    engine.Image
	slot     engine.Slot
	project  *workspace.Project
	released func() // ends the use of its work/
	record   audit.Record
	taken    *audit.Record // another exec holds the idempotency key
	ctx      context.Context
	live     *live
	watched  *diskwatch.Watch // nil before watch
	unlinked *diskwatch.Open
}

// resolveImage finds the image id. A missing image and a missing engine are on record: somebody asked for a run and was refused.
func (x *exec) resolveImage(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, 15*time.Second)
	defer cancel()
	image, err := x.cfg.Images.Resolve(ctx, x.snapshot.Values.Image)
	switch fault.CodeOf(err) {
	case "":
		x.image = image
		return nil
	case fault.ImageMissing:
		return x.refuse(context.WithoutCancel(ctx), x.req, x.snapshot, audit.Errored, audit.ImageMissing, err)
	case fault.EngineUnavailable:
		return x.refuse(context.WithoutCancel(ctx), x.req, x.snapshot, audit.Errored, audit.EngineUnavailable, err)
	default:
		return err
	}
}

// acquire takes a slot of the engine; execID is preset when it was promised already. It makes the project's directories where they are
// missing, and gives work/ back to the container's user; what the engine does later for the project, it does only while they exist.
func (x *exec) acquire(ctx context.Context, execID string) error {
	project, err := x.cfg.Workspace.Project(x.req.ProjectID)
	if err != nil {
		return err
	}
	x.project = project
	if err := x.use(); err != nil {
		return err
	}
	v := x.snapshot.Values
	modes := v.MountModes()
	x.slot, err = x.cfg.Engine.Acquire(ctx, engine.Spec{
		ExecID: execID, ProjectID: x.req.ProjectID, ImageRef: x.image.Ref, ImageID: x.image.ID, InitVolume: x.image.InitVolume,
		Limits: engine.Limits{MemoryMB: v.MemoryMB, CPUCores: v.CPUCores, PIDs: v.PIDs, TmpMB: v.TmpMB},
		User:   x.cfg.User, Runtime: v.Runtime, Access: modes.String(),
		Prepare: x.preparation(project, accessOf(modes)),
	})
	return err
}

// preparation sets a place aside for an exec of the project. The engine keeps it for containers that it starts ahead, so it must not
// hold the request.
func (r *Runner) preparation(project *workspace.Project, access workspace.Access) func(context.Context, string) (engine.Place, error) {
	return func(_ context.Context, execID string) (engine.Place, error) {
		if err := r.allotments.add(execID, project.ID()); err != nil {
			return engine.Place{}, err
		}
		place, err := project.SetAside(execID, access)
		if err != nil {
			r.allotments.settle(execID)
			return engine.Place{}, err
		}
		mounts := make([]engine.Mount, len(place.Mounts))
		for i, m := range place.Mounts {
			mounts[i] = engine.Mount(m)
		}
		return engine.Place{Mounts: mounts, Intact: place.Intact, Drop: func() {
			if err := place.Drop(); err != nil {
				r.cfg.Logger.Warn("an unused artifacts directory stays", "exec", execID, "error", err)
				return
			}
			r.allotments.settle(execID)
		}}, nil
	}
}

// openRunning takes a slot first, because a slot that waits already brings its exec id, and opens the row as running.
func (x *exec) openRunning(ctx context.Context) error {
	if err := x.acquire(ctx, ""); err != nil {
		return x.unplaced(ctx, err)
	}
	record, err := x.newRecord(x.req, x.snapshot, x.slot.ExecID())
	if err != nil {
		x.slot.Discard()
		return err
	}
	record.Status = audit.Running
	x.place(&record)
	return x.open(ctx, record)
}

// unplaced is the error of an exec that has no place to run in. A damaged project is on record: the request was in order.
func (x *exec) unplaced(ctx context.Context, err error) error {
	if fault.Is(err, fault.ProjectDamaged) {
		x.cfg.Logger.Error("a project is damaged", "project", x.req.ProjectID, "error", err)
		return x.refuse(ctx, x.req, x.snapshot, audit.Errored, audit.StartFailed, err)
	}
	return err
}

// openQueued opens the row first, so that who waits can be seen and canceled. A project that cannot be had is refused before that.
func (x *exec) openQueued(ctx context.Context) error {
	if _, err := x.cfg.Workspace.Project(x.req.ProjectID); err != nil {
		return x.unplaced(ctx, err)
	}
	record, err := x.newRecord(x.req, x.snapshot, x.cfg.NewID())
	if err != nil {
		return err
	}
	record.Status = audit.Queued
	return x.open(ctx, record)
}

// place fills in what the slot decides.
func (x *exec) place(record *audit.Record) {
	record.ImageID, record.Warm = x.image.ID, x.slot.Warm()
	record.ArtifactsPath = x.project.ArtifactsPath(record.ExecID)
}

func (x *exec) open(ctx context.Context, record audit.Record) error {
	var err error
	x.ctx, x.live, err = x.begin(record.ExecID, record.ProjectID)
	if err == nil {
		if x.slot != nil {
			x.watch()
		}
		x.taken, err = x.cfg.Log.Open(ctx, record)
		if err == nil && x.taken == nil {
			x.record = record
			if x.req.OnOpen != nil {
				x.req.OnOpen(record.ExecID)
			}
			return nil
		}
		x.finish(record.ExecID, x.live)
	}
	if x.slot != nil {
		x.slot.Discard()
	}
	return err
}

// dropArtifacts removes the directory that was made for a job that never ran.
func (x *exec) dropArtifacts() {
	if err := x.project.DropArtifacts(x.record.ExecID); err != nil {
		x.cfg.Logger.Warn("an unused artifacts directory stays", "exec", x.record.ExecID, "error", err)
	}
}

// run goes from the open row to the closed one.
func (x *exec) run(ctx context.Context) (Result, error) {
	if x.ticket.MustWait() {
		if err := x.ticket.Wait(x.ctx); err != nil {
			return x.close(ctx, x.neverRan(err), nil)
		}
		if err := x.acquire(ctx, x.record.ExecID); err != nil {
			return x.close(ctx, x.neverRan(err), err)
		}
		x.watch()
		x.place(&x.record)
		started, err := x.cfg.Log.Start(ctx, x.record)
		if err != nil || !started {
			x.slot.Discard()
			if err == nil {
				err = fault.New(fault.ExecEnded, "exec %s was ended while it waited", x.record.ExecID)
			}
			return x.close(ctx, x.neverRan(err), err)
		}
		x.record.Status = audit.Running
	}
	release, err := x.putInputs()
	if err != nil {
		x.slot.Discard()
		return x.close(ctx, x.neverRan(err), err)
	}
	defer release()
	return x.execute(ctx)
}

func (x *exec) putInputs() (release func(), err error) {
	inputs := make([]workspace.Input, len(x.req.Inputs))
	for i, in := range x.req.Inputs {
		inputs[i] = workspace.Input{Path: in.Path, Content: in.Content}
	}
	_, releaseInputs, err := x.project.PutInputs(x.record.ExecID, inputs)
	if err != nil {
		return nil, err
	}
	releaseSkill, err := x.putSkill()
	if err != nil {
		releaseInputs()
		return nil, err
	}
	return func() { releaseSkill(); releaseInputs() }, nil
}

// execute gives the job to the container, watches it, and takes in what it leaves.
func (x *exec) execute(ctx context.Context) (Result, error) {
	v := x.snapshot.Values
	capture := newCapture(x.captures, x.record.ExecID, v.MaxStdoutBytes, v.MaxStderrBytes)
	x.setCapture(capture)
	defer capture.remove()
	defer x.setCapture(nil)

	go x.allotments.settle(x.record.ExecID) // the exec has its row, and its caller does not wait for that
	x.watched.Ready(firstLook)
	command := x.req.Command
	exit, err := x.slot.Run(x.ctx, engine.Job{
		Argv: append([]string{command.Name}, command.Args...), Env: command.Env, Cwd: command.Cwd, Stdin: command.Stdin,
		Timeout: time.Duration(v.TimeoutMS) * time.Millisecond, MaxStdout: v.MaxStdoutBytes, MaxStderr: v.MaxStderrBytes,
		OnStart: func() { x.record.StartedAt = x.now(); x.watched.Start() }, OnUnlinked: x.noteUnlinked,
	}, capture.stdout, capture.stderr)
	ended := x.now() // before a look of the watchdog that is under way is waited for
	x.unwatch()

	var lost *engine.RunError
	if errors.As(err, &lost) && !lost.Started {
		if fault.Is(err, fault.ImageMissing) {
			x.cfg.Images.Forget(x.image.Ref)
		}
		return x.close(ctx, x.neverRan(err), lost.Err)
	}
	out := x.outcome(exit, err, capture)
	out.EndedAt = ended
	x.record = out
	result := Result{Stdout: text(capture.stdout.inline), Stderr: text(capture.stderr.inline)}
	result.StdoutCut, result.StderrCut = capture.stdout.kept > InlineBytes, capture.stderr.kept > InlineBytes
	if lost == nil || lost.Dead {
		result.Artifacts, result.Output = x.takeIn(ctx, capture)
	} else {
		x.artifactsLost("the container's death could not be confirmed, so its artifacts were not collected", lost.Err)
	}
	return x.closeWith(ctx, result)
}

// neverRan is the record of an exec whose job certainly did not run.
func (x *exec) neverRan(why error) audit.Record {
	x.unwatch()
	record := x.record
	record.StartedAt, record.EndedAt = time.Time{}, x.now()
	record.Status, record.ErrorReason, record.Detail = verdictOnStart(x.ctx, why)
	if record.Status == audit.Errored || record.Status == audit.Rejected {
		record.IdempotencyKey = "" // it may well work the next time
	}
	if x.slot != nil {
		x.dropArtifacts()
		record.ArtifactsPath = ""
	}
	return record
}

// close ends the row of an exec that did not run. An error goes to the caller once it is on record.
func (x *exec) close(ctx context.Context, record audit.Record, why error) (Result, error) {
	x.record = record
	result, err := x.closeWith(ctx, Result{})
	if err != nil || why == nil || record.Status == audit.Canceled {
		return result, err
	}
	e := *fault.From(why)
	e.ExecID = record.ExecID
	if e.Code == fault.Internal {
		x.cfg.Logger.Error("an exec could not be started", "exec", record.ExecID, "error", why)
	}
	return Result{}, &e
}

// closeWith closes the row and completes the result.
func (x *exec) closeWith(ctx context.Context, result Result) (Result, error) {
	x.record.DurationMS = x.record.Duration().Milliseconds()
	spooled, err := x.cfg.Log.Close(ctx, x.record)
	if err != nil {
		e := *fault.From(err)
		e.ExecID = x.record.ExecID
		return Result{}, &e
	}
	x.observe(x.record)
	result.Record, result.Spooled = x.record, spooled
	return result, nil
}

func (r *Runner) setCapture(l *live, c *capture) {
	r.mu.Lock()
	l.capture = c
	r.mu.Unlock()
}

func (x *exec) setCapture(c *capture) { x.Runner.setCapture(x.live, c) }

// accessOf turns the policy's fs permissions into mounts.
func accessOf(m policy.Mounts) workspace.Access {
	levels := map[policy.Access]workspace.Level{
		policy.NoAccess: workspace.None, policy.ReadOnly: workspace.ReadOnly, policy.ReadWrite: workspace.ReadWrite,
	}
	return workspace.Access{Inputs: levels[m.Inputs], Work: levels[m.Work], Artifacts: levels[m.Artifacts]}
}
