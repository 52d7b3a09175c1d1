package runner

import (
	"context"
	"errors"
	"maps"
	"path/filepath"
	"time"

	"secbox/audit"
	"secbox/engine"
	"secbox/fault"
	"secbox/internal/admission"
	"secbox/internal/traces"
	"secbox/network"
	"secbox/policy"
	"secbox/runner/diskwatch"
	"secbox/runner/inputstore"
	"secbox/runner/lifecycle"
	"secbox/runner/output"
	"secbox/runner/session"
	"secbox/workspace"
)

// exec is one run through its stages.
type exec struct {
	*Runner
	req      Request
	snapshot policy.Snapshot
	ticket   *admission.Ticket // nil: it needs no place

	image    engine.Image
	slot     engine.Slot
	used     session.Samples // by the container of a session
	project  *workspace.Project
	endUse   func() // ends the use of the project by the command; nil before acquire
	record   audit.Record
	taken    *audit.Record // the exec that holds the idempotency key already
	command  *lifecycle.Command
	ctx      context.Context  // of command
	watch    *diskwatch.Watch // nil before startWatch, and in a session
	unlinked *diskwatch.Open
}

func (x *exec) mustWait() bool { return x.ticket != nil && x.ticket.MustWait() }

// resolveImage finds the image id. A missing image and a missing engine are put on record: the
// request was in order.
func (x *exec) resolveImage(ctx context.Context) error {
	if x.req.SessionID != "" {
		if state, running := x.sessions.State(x.req.SessionID); running {
			x.image = state.Image
			return nil
		}
		return session.Ended(x.req.SessionID)
	}
	image, err := x.findImage(ctx)
	switch fault.CodeOf(err) {
	case "":
		x.image = image
		return nil
	case fault.ImageMissing, fault.NotReplayable:
		return x.refuse(ctx, x.req, x.snapshot, audit.Errored, audit.ImageMissing, err)
	case fault.EngineUnavailable:
		return x.refuse(ctx, x.req, x.snapshot, audit.Errored, audit.EngineUnavailable, err)
	default:
		return err
	}
}

// findImage finds the image id. fault.NotReplayable when the request names an id that is gone.
func (x *exec) findImage(ctx context.Context) (_ engine.Image, err error) {
	ctx, span := x.cfg.Tracer.Start(ctx, "image")
	defer span.Done(&err)
	limited, cancel := context.WithTimeout(ctx, 15*time.Second)
	defer cancel()
	image, err := x.cfg.Images.Resolve(limited, x.snapshot.Values.Image)
	if id := x.req.ImageID; id != "" && image.ID != id && !fault.Is(err, fault.EngineUnavailable) {
		image, err = x.cfg.Images.Resolve(limited, id)
		if fault.Is(err, fault.ImageMissing) {
			err = fault.Wrap(fault.NotReplayable, err, "the image %s, which %s was then, is no longer on the engine: load it again "+
				"(`docker load` from a saved copy, or `docker pull` by its digest)",
				id, x.snapshot.Values.Image)
		}
	}
	return image, err
}

// openRunning takes a slot first, because a waiting container already has its exec id, and opens
// the row as running.
func (x *exec) openRunning(ctx context.Context) error {
	if err := x.acquire(ctx, ""); err != nil {
		return x.recordDamage(ctx, err)
	}
	record, err := x.newRecord(x.req, x.snapshot, x.slot.ExecID())
	if err != nil {
		x.slot.Discard()
		return err
	}
	record.Status, record.SessionSeq = audit.Running, x.record.SessionSeq
	x.addSlot(&record)
	return x.open(ctx, record)
}

// openQueued opens the row first, so that a waiting exec can be seen and canceled. A project that
// cannot be used is refused before that.
func (x *exec) openQueued(ctx context.Context) error {
	if _, err := x.cfg.Workspace.Project(x.req.ProjectID); err != nil {
		return x.recordDamage(ctx, err)
	}
	record, err := x.newRecord(x.req, x.snapshot, x.cfg.NewID())
	if err != nil {
		return err
	}
	record.Status = audit.Queued
	return x.open(ctx, record)
}

// recordDamage puts an exec on record that could not run because its project is damaged: the
// request was in order. It returns err.
func (x *exec) recordDamage(ctx context.Context, err error) error {
	if fault.Is(err, fault.ProjectDamaged) {
		x.logDamage(err)
		return x.refuse(ctx, x.req, x.snapshot, audit.Errored, audit.StartFailed, err)
	}
	return err
}

func (x *exec) logDamage(err error) {
	x.cfg.Logger.Error("a project is damaged", "project", x.req.ProjectID, "error", err)
}

// acquire takes a slot of the engine; execID is preset when the row is open already. It creates
// missing directories of the project and gives work/ back to the container's user. Later, the
// engine prepares directories for the project only while these exist.
func (x *exec) acquire(ctx context.Context, execID string) (err error) {
	ctx, span := x.cfg.Tracer.Start(ctx, "container")
	defer span.Done(&err)
	project, err := x.cfg.Workspace.Project(x.req.ProjectID)
	if err != nil {
		return err
	}
	x.project = project
	x.endUse = x.project.BeginExec()
	v := x.snapshot.Values
	modes := v.MountModes()
	if x.cfg.Ready != nil && modes.Work != policy.NoAccess {
		if err := x.cfg.Ready(ctx, x.req.ProjectID); err != nil {
			return err
		}
	}
	if x.req.SessionID != "" {
		x.slot, x.record.SessionSeq, err = x.sessions.Enter(x.req.SessionID, x.cfg.NewID(), x.req.Command.interpreter(), project)
		if err == nil && x.req.Skill != nil {
			x.req.Command.Env[envSkillOutput] = artifactsDir + "/" + x.slot.ExecID() + "/" + SkillOutputFile
		}
		return err
	}
	spec := engine.Spec{
		ExecID: execID, ProjectID: x.req.ProjectID, ImageRef: x.image.Ref, ImageID: x.image.ID,
		InitVolume: x.image.InitVolume, Volumes: x.image.Volumes,
		Limits: v.ContainerLimits, User: x.cfg.User, Runtime: v.Runtime, Access: modes.String(),
		Targets: project.Targets(), Prepare: x.prepareFor(project, accessOf(modes)),
	}
	if x.req.session != nil {
		x.slot, err = x.sessions.Hold(ctx, spec, x.terms(), func(why error) { x.command.Kill(why) })
		return err
	}
	x.slot, err = x.cfg.Engine.Acquire(ctx, spec)
	return err
}

// prepareFor returns a function that makes the directories of an exec of the project. The engine
// keeps it for containers that it starts ahead, so it must not hold the request.
func (r *Runner) prepareFor(project *workspace.Project, access workspace.Access) func(context.Context, string) (engine.MountSet, error) {
	return func(_ context.Context, execID string) (engine.MountSet, error) {
		if err := r.pendingDirs.add(execID, project.ID()); err != nil {
			return engine.MountSet{}, err
		}
		place, err := project.PrepareMounts(execID, access)
		if err != nil {
			r.pendingDirs.remove(execID)
			return engine.MountSet{}, err
		}
		mounts := make([]engine.Mount, len(place.Mounts))
		for i, m := range place.Mounts {
			mounts[i] = engine.Mount(m)
		}
		return engine.MountSet{Mounts: mounts, Intact: place.Intact, Open: place.Open, Staging: place.Staging, Drop: func() {
			if err := place.Drop(); err != nil {
				r.cfg.Logger.Warn("an unused artifacts directory stays", "exec", execID, "error", err)
				return
			}
			r.pendingDirs.remove(execID)
		}}, nil
	}
}

// addSlot sets the fields of the record that the slot decides.
func (x *exec) addSlot(record *audit.Record) {
	record.ImageID, record.Warm, record.Attached = x.image.ID, x.slot.Warm(), x.slot.Attached()
	record.ArtifactsPath = x.project.ArtifactsPath(record.ExecID)
}

// open registers the exec and opens its row. After an error, or when another exec holds the key,
// the slot is given back.
func (x *exec) open(ctx context.Context, record audit.Record) error {
	var err error
	x.ctx, x.command, err = x.commands.Begin(context.Background(), lifecycle.Command{ExecID: record.ExecID}, nil)
	if err == nil {
		if x.slot != nil {
			x.startWatch()
		}
		_, span := x.cfg.Tracer.Start(ctx, "open")
		if err = x.register(ctx, x.req, record.ExecID); err == nil {
			x.taken, err = x.cfg.Log.Open(ctx, record)
		}
		span.Done(&err)
		if err != nil || x.taken != nil {
			x.forget(ctx, x.req, record.ExecID, err)
		}
		if err == nil && x.taken == nil {
			x.record = record
			if x.req.OnOpen != nil {
				x.req.OnOpen(record.ExecID)
			}
			return nil
		}
		x.commands.End(x.command)
	}
	if x.slot != nil {
		x.slot.Discard()
	}
	return err
}

// run goes from the open row to the closed one.
func (x *exec) run(ctx context.Context) (Result, error) {
	if x.mustWait() {
		if err := x.wait(ctx); err != nil {
			return x.closeUnrun(ctx, err, nil)
		}
		if err := x.start(ctx); err != nil {
			return x.closeUnrun(ctx, err, err)
		}
	}
	return x.work(ctx)
}

// start takes a slot for an exec that has waited, and claims its row. After an error there is no
// slot to discard. fault.ExecEnded when the row waits no longer.
func (x *exec) start(ctx context.Context) error {
	if err := x.acquire(ctx, x.record.ExecID); err != nil {
		return err
	}
	x.startWatch()
	x.addSlot(&x.record)
	_, span := x.cfg.Tracer.Start(ctx, "open")
	started, err := x.cfg.Log.Start(ctx, x.record)
	span.Done(&err)
	if err == nil && !started {
		err = fault.New(fault.ExecEnded, "exec %s was ended while it waited", x.record.ExecID)
	}
	if err != nil {
		x.slot.Discard()
		x.slot, x.record.ArtifactsPath = nil, "" // another node may run it by now, in a directory of its own
		return err
	}
	x.record.Status = audit.Running
	return nil
}

// work goes from the running row to the closed one.
func (x *exec) work(ctx context.Context) (Result, error) {
	release, err := x.putInputs(ctx)
	if err != nil {
		x.slot.Discard()
		return x.closeUnrun(ctx, err, err)
	}
	defer release()
	return x.execute(ctx)
}

// wait waits for a place.
func (x *exec) wait(ctx context.Context) error {
	_, span := x.cfg.Tracer.Start(ctx, "queue")
	err := x.ticket.Wait(x.ctx)
	if err == nil {
		span.End("")
	} else {
		_, reason, _ := verdictOnStart(x.ctx, err)
		span.End(string(reason))
	}
	return err
}

func (x *exec) putInputs(ctx context.Context) (release func(), err error) {
	_, span := x.cfg.Tracer.Start(ctx, "inputs")
	defer span.Done(&err)
	releaseInputs, err := x.project.PutInputs(x.record.ExecID, x.req.Inputs)
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

// keepInputs keeps the contents of the inputs while the job runs. The result comes once.
func (x *exec) keepInputs() <-chan audit.InputsKept {
	kept := make(chan audit.InputsKept, 1)
	inputs := allInputs(x.req)
	if len(inputs) == 0 || x.cfg.Inputs == nil {
		kept <- ""
		return kept
	}
	contents := make([]inputstore.Content, len(inputs))
	for i, in := range inputs {
		contents[i] = inputstore.Content{SHA256: x.record.Inputs[i].SHA256, Data: in.Content}
	}
	go func() { kept <- x.cfg.Inputs.Keep(x.req.RequestedBy, contents) }()
	return kept
}

// measureTimeout is how long a job waits for the first measurement of its project. That begins
// before the row is opened, which takes longer.
const measureTimeout = 10 * time.Millisecond

// execute gives the job to the container, captures its output and collects its artifacts.
func (x *exec) execute(ctx context.Context) (Result, error) {
	v := x.snapshot.Values
	c := output.New(filepath.Join(x.captureDir, x.record.ExecID), v.MaxStdoutBytes, v.MaxStderrBytes)
	defer c.Remove()
	term := x.openTerminal()
	defer term.close()
	stdin, endStdin := x.openStdin() // before outputs says that the exec has begun
	defer endStdin()
	defer x.outputs.Add(x.record.ExecID, c, 0)()

	kept := x.keepInputs()
	if x.watch != nil {
		x.watch.Ready(measureTimeout)
	}
	command := x.req.Command
	argv, codeFile := append([]string{command.Name}, command.Args...), ""
	if (command.Kind == KindPython || command.CodeInFile) && command.Args[0] == CodeFile {
		argv[1], codeFile = "-c", CodeFile
	}
	_, start := x.cfg.Tracer.Start(ctx, "start")
	var job traces.Span
	of := engine.Job{
		Argv: argv, CodeFile: codeFile, Env: traced(command.Env, x.req.Trace), Cwd: command.Cwd, Stdin: stdin,
		Timeout: time.Duration(v.TimeoutMS) * time.Millisecond, Grace: time.Duration(min(v.KillGraceMS, v.TimeoutMS/2)) * time.Millisecond,
		MaxStdout: v.MaxStdoutBytes, MaxStderr: v.MaxStderrBytes, CPUCores: v.CPUCores,
		OnStart: func() {
			x.record.StartedAt = x.commands.Now()
			start.End("")
			_, job = x.cfg.Tracer.Start(ctx, "job")
			if x.watch != nil {
				x.watch.Start()
			}
			if x.req.session != nil {
				close(x.req.session.started)
			}
			go x.pendingDirs.remove(x.record.ExecID) // the exec has its row and its directory; the client does not wait for this
		},
		OnUnlinked: func(u engine.Unlinked) { x.unlinked.Set(u.Bytes, u.Hidden) },
		OnUsage:    func(u engine.Usage) { c.Use(u.CPU, u.Elapsed, u.MemoryBytes) },
	}
	term.takes(&of)
	way, err := x.openNetwork(&of)
	if err != nil {
		x.slot.Discard()
		return x.closeUnrun(ctx, err, err)
	}
	exit, err := x.slot.Run(x.ctx, of, term.shows(c.Stdout), c.Stderr)
	term.end(&exit, c)
	endStdin()
	ended := x.commands.Now() // stopWatch may wait for a measurement
	if way != nil {
		way.Close().Set(&x.record)
	}
	x.record.Warm, x.record.Attached = x.slot.Warm(), x.slot.Attached()
	x.stopWatch()
	x.record.InputsKept = <-kept

	var lost *engine.RunError
	if errors.As(err, &lost) && !lost.Started {
		start.Done(&err)
		if fault.Is(err, fault.ImageMissing) {
			x.cfg.Images.Forget(x.image.Ref)
		}
		return x.closeUnrun(ctx, err, lost.Err)
	}
	if x.record.StartedAt.IsZero() { // the container died before it could report the start
		x.pendingDirs.remove(x.record.ExecID)
	}
	x.setOutcome(exit, err, c)
	if exit.Lost != nil {
		x.artifactsLost(fault.From(exit.Lost).Message, exit.Lost)
	}
	x.record.EndedAt = ended
	job.EndAt(ended, string(x.record.ErrorReason))
	result := Result{Stdout: text(c.Stdout.Inline()), Stderr: text(c.Stderr.Inline())}
	result.StdoutCut, result.StderrCut = c.Stdout.Kept() > InlineBytes, c.Stderr.Kept() > InlineBytes
	if lost == nil || lost.Dead {
		result.Artifacts, result.LeftOut, result.Output = x.collectResults(ctx, c, x.recorded(term))
		results, note := shownResults(x.project, x.record, result.Artifacts)
		if result.Results = results; note != "" {
			x.record.Detail = join(x.record.Detail, note)
		}
	} else {
		x.artifactsLost("the container's death could not be confirmed, so its artifacts were not collected", lost.Err)
	}
	return x.close(ctx, result)
}

// openNetwork opens the way out of a job whose policy has one, and the way into a session. It
// returns nil without either.
func (x *exec) openNetwork(job *engine.Job) (*network.Way, error) {
	v := x.snapshot.Values
	out := v.NetMode == policy.NetAllowlist
	if in := x.cfg.Ports && x.req.session != nil; x.cfg.Network == nil || !out && !in {
		return nil, nil
	}
	if out && len(v.NetCredentials) > 0 {
		var err error
		if job.NetworkCA, err = x.cfg.Network.CA(); err != nil {
			return nil, fault.Wrap(fault.Internal, err, "the certificate for the hosts of net.credentials could not be made")
		}
	}
	way := x.cfg.Network.Open(network.Exec{
		ID: x.record.ExecID, Token: gateName(x.req.RequestedBy), Allow: v.NetAllow, Limits: v.NetLimits, Credentials: v.NetCredentials,
	})
	if out {
		job.OnConnection = way.Serve
	}
	return way, nil
}

// traced returns the environment of a job that knows its span, unless the request has set the
// variable itself. The record has what the request set.
func traced(env map[string]string, span traces.ID) map[string]string {
	if _, set := env[traces.Variable]; set || span == (traces.ID{}) {
		return env
	}
	with := make(map[string]string, len(env)+1)
	maps.Copy(with, env)
	with[traces.Variable] = span.String()
	return with
}

// closeUnrun closes the row of an exec whose job certainly did not run, because of cause. The
// caller gets toCaller, with the exec's id, once the row is closed; it gets the record when that is
// nil or the exec was killed, such as by a cancel or the end of the node's lease.
func (x *exec) closeUnrun(ctx context.Context, cause, toCaller error) (Result, error) {
	x.stopWatch()
	killed := x.ctx.Err() != nil
	r := &x.record
	r.StartedAt, r.EndedAt = time.Time{}, x.commands.Now()
	r.Status, r.ErrorReason, r.Detail = verdictOnStart(x.ctx, cause)
	if r.Status == audit.Errored || r.Status == audit.Rejected {
		r.IdempotencyKey = "" // the same request may succeed later
	}
	if x.slot != nil {
		if err := x.project.DropArtifacts(r.ExecID); err != nil {
			x.cfg.Logger.Warn("an unused artifacts directory stays", "exec", r.ExecID, "error", err)
		} else {
			x.pendingDirs.remove(r.ExecID)
		}
		r.ArtifactsPath = ""
	}
	result, err := x.close(ctx, Result{})
	if err != nil || toCaller == nil || killed || r.Status == audit.Canceled {
		return result, err
	}
	e := *fault.From(toCaller)
	e.ExecID = r.ExecID
	switch e.Code {
	case fault.Internal:
		x.cfg.Logger.Error("an exec could not be started", "exec", r.ExecID, "error", toCaller)
	case fault.ProjectDamaged:
		x.logDamage(toCaller)
	}
	return Result{}, &e
}

// close closes the row and completes the result.
func (x *exec) close(ctx context.Context, result Result) (_ Result, err error) {
	_, span := x.cfg.Tracer.Start(ctx, "close")
	defer span.Done(&err)
	spooled, err := x.commands.Close(ctx, &x.record)
	if err != nil {
		return Result{}, err
	}
	result.Record, result.Spooled = x.record, spooled
	return result, nil
}

// startWatch watches the disk until stopWatch, and kills the job when a limit is exceeded.
func (x *exec) startWatch() {
	if !x.req.fresh() {
		x.unlinked = &diskwatch.Open{}
		return // while execs run in a session, it is watched: see terms
	}
	x.unlinked = &diskwatch.Open{}
	x.watch = x.cfg.Disk.Begin(diskwatch.Writer{Project: x.project, ExecID: x.slot.ExecID(), Open: x.unlinked, Kill: x.command.Kill})
}

func (x *exec) stopWatch() {
	if x.watch != nil {
		x.watch.End()
	}
}

// release stops the watch and ends the use of the project, if they have begun.
func (x *exec) release() {
	x.stopWatch()
	if x.endUse != nil {
		x.endUse()
	}
}

// accessOf turns the policy's fs permissions into mounts.
func accessOf(m policy.Mounts) workspace.Access {
	levels := map[policy.Access]workspace.Level{
		policy.NoAccess: workspace.None, policy.ReadOnly: workspace.ReadOnly, policy.ReadWrite: workspace.ReadWrite,
	}
	return workspace.Access{Inputs: levels[m.Inputs], Work: levels[m.Work], Artifacts: levels[m.Artifacts]}
}
