package retention

import (
	"context"
	"errors"
	"log/slog"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"secbox/fault"
)

const (
	firstRun = time.Minute // after the start, so that it does not slow a restart
	interval = time.Hour   // between two runs of the installation
	lookEach = 10 * time.Minute

	// A batch is one transaction. On SQLite, commits of execs wait for it: deleting an exec changes
	// some twenty indexes, in about 0.3 ms.
	batch     = 16
	perSecond = 200
	perRun    = 100_000 // execs; after a jump of the clock that looks plausible, there are hours to notice it

	page = 500 // execs that one scan looks at

	mostTold = 1000 // altered execs in the server's log

	// Lease is how long a run that was killed keeps others from beginning. A run renews it three
	// times meanwhile.
	Lease     = 30 * time.Second
	renewEach = Lease / 3

	fileStep  = 5 * time.Second // for the artifacts of one exec; the next run removes the rest
	endWithin = 5 * time.Second

	// ClockGap is the longest time in which no core-api ran on the database that passes for
	// plausible. A longer one may be a clock that jumped.
	ClockGap = 7 * 24 * time.Hour

	clockSkew = 10 * time.Minute // of the nodes' clocks, and between two looks at the clock

	// settles is how long after the end of a lost exec its result may still arrive: from the spool
	// of a node that comes back, or from a user's machine.
	settles = 30 * 24 * time.Hour
)

// Files are the projects' files on the disk.
type Files interface {
	// RemoveArtifacts removes the artifacts of an exec. When ctx ends first, a later call goes on.
	// Missing ones are not an error.
	RemoveArtifacts(ctx context.Context, projectID, execID string) error

	// Projects calls visit with every project and, if it is a user's workspace, its user, until
	// visit fails.
	Projects(visit func(projectID, userID string) error) error

	// RemoveUnused removes the inputs of a project that were written before the time. It returns
	// the size of what it removed or, if dry, would remove.
	RemoveUnused(ctx context.Context, projectID string, before time.Time, dry bool) (bytes int64, err error)

	// RemoveWorkspace does the same for work/, the home and the inputs of a user's workspace that
	// was not used at or after the time. It calls commit with their size before anything is lost,
	// and keeps everything if commit returns false or an error; without commit it removes nothing.
	// found reports whether there was anything.
	RemoveWorkspace(ctx context.Context, projectID string, before time.Time,
		commit func(bytes int64) (bool, error)) (bytes int64, found bool, err error)
}

// Config configures a Runner.
type Config struct {
	Store  Store
	Files  Files
	Holder string // unique among running processes
	Logger *slog.Logger

	RecordDays   int64 // 0: keep for ever
	ArtifactDays int64 // 0: as long as the record

	WorkspaceHours int64 // without use; 0: users' workspaces are kept for ever

	// Spooled returns the execs whose end the database does not have yet.
	Spooled func() []string
}

// Runner removes what the rules no longer keep.
type Runner struct {
	cfg   Config
	floor map[Part]Cursor // nothing of the part is left before it
	told  map[string]bool // altered execs that were logged

	mu      sync.Mutex
	problem error     // of the last run, or why it could not begin; nil: none
	ofRun   bool      // it is of a run
	next    time.Time // when Run looks again
	totals  Done      // of all runs of this process
}

// New returns a Runner. It does nothing until Run or Once.
func New(cfg Config) *Runner {
	return &Runner{cfg: cfg, floor: map[Part]Cursor{}, told: map[string]bool{}}
}

// Run starts a run every hour until ctx ends. It looks at the clock even if no rule removes
// anything.
func (r *Runner) Run(ctx context.Context) {
	for pause := firstRun; ; pause = lookEach + rand.N(lookEach/10) {
		r.mu.Lock()
		r.next = time.Now().Add(pause)
		r.mu.Unlock()
		select {
		case <-ctx.Done():
			return
		case <-time.After(pause):
		}
		_, ran, err := r.once(ctx, interval, false)
		if ctx.Err() != nil {
			return
		}
		r.mu.Lock()
		before := r.problem
		if ran || err != nil || !r.ofRun { // a run's problem lasts until the next one
			r.problem, r.ofRun = err, ran
		}
		r.mu.Unlock()
		if err != nil && (before == nil || before.Error() != err.Error()) {
			r.cfg.Logger.Error("retention did not end its work; it is tried again", "err", err)
		}
	}
}

// Once runs now, unless another run has the lease: fault.ServerBusy. acceptClock tells that the
// database's clock is right although no core-api ran for long.
func (r *Runner) Once(ctx context.Context, acceptClock bool) (Done, error) {
	done, _, err := r.once(ctx, 0, acceptClock)
	return done, err
}

// rules returns what is removed: records, which take their artifacts along, and then the artifacts
// of others.
func (r *Runner) rules(now time.Time) []Query {
	var rules []Query
	add := func(part Part, name string, days int64) {
		if days > 0 {
			rules = append(rules, Query{
				Part: part, Rule: name, Days: days, Before: now.AddDate(0, 0, -int(days)),
				LostBefore: now.AddDate(0, 0, -int(days)).Add(-settles),
			})
		}
	}
	add(Records, "audit.retention_days", r.cfg.RecordDays)
	add(Artifacts, "audit.artifacts_retention_days", r.cfg.ArtifactDays)
	return rules
}

// enabled reports whether a rule removes anything.
func (r *Runner) enabled() bool { return r.cfg.RecordDays+r.cfg.ArtifactDays+r.cfg.WorkspaceHours > 0 }

// fileRule is a rule about the files of projects, which have no record.
type fileRule struct {
	name        string
	days, hours int64
	before      time.Time
	users       bool // only users' workspaces
	remove      func(ctx context.Context, projectID, userID string, before time.Time, dry bool) (bytes int64, found bool, err error)
}

// fileRules returns the rules about files: unused inputs go with the artifacts, and users'
// workspaces by their own rule.
func (r *Runner) fileRules(now time.Time) (rules []fileRule) {
	if of := r.rules(now); len(of) > 0 {
		last := of[len(of)-1]
		rules = append(rules, fileRule{
			name: UnusedInputs, days: last.Days, before: last.Before,
			remove: func(ctx context.Context, projectID, _ string, before time.Time, dry bool) (int64, bool, error) {
				bytes, err := r.cfg.Files.RemoveUnused(ctx, projectID, before, dry)
				return bytes, bytes > 0, err
			},
		})
	}
	if hours := r.cfg.WorkspaceHours; hours > 0 {
		rules = append(rules, fileRule{
			name: UnusedWorkspaces, hours: hours, before: now.Add(-time.Duration(hours) * time.Hour), users: true,
			remove: r.removeWorkspace,
		})
	}
	return rules
}

// removeWorkspace records the removal of a workspace before it removes anything.
func (r *Runner) removeWorkspace(ctx context.Context, projectID, userID string, before time.Time, dry bool) (int64, bool, error) {
	commit := func(bytes int64) (bool, error) {
		w := Workspace{ProjectID: projectID, UserID: userID, Before: before, Hours: r.cfg.WorkspaceHours, Bytes: bytes}
		return r.cfg.Store.RemoveWorkspace(ctx, w, r.cfg.Holder, Lease)
	}
	if dry {
		commit = nil
	}
	return r.cfg.Files.RemoveWorkspace(ctx, projectID, before, commit)
}

// due calls visit with each project, and each rule about files that may remove some of it, and
// pauses after each project.
func (r *Runner) due(ctx context.Context, rules []fileRule, pause time.Duration,
	visit func(rule int, projectID, userID string) error,
) error {
	if len(rules) == 0 {
		return nil
	}
	return r.cfg.Files.Projects(func(project, user string) error {
		for i, rule := range rules {
			if rule.users && user == "" {
				continue
			}
			due, err := r.cfg.Store.ProjectDue(ctx, project, user, rule.before)
			if err == nil && due {
				err = visit(i, project, user)
			}
			if err != nil {
				return err
			}
		}
		return sleep(ctx, pause)
	})
}

// once is a run, if the last one began at least every ago.
func (r *Runner) once(ctx context.Context, every time.Duration, acceptClock bool) (done Done, ran bool, err error) {
	if err := r.cfg.Store.Tick(ctx, ClockGap, acceptClock); err != nil {
		return done, false, err
	}
	state, err := r.cfg.Store.State(ctx)
	if err != nil {
		return done, false, err
	}
	rules := r.rules(state.Now)
	if !r.enabled() && state.Queued == 0 {
		return done, false, nil
	}
	if err := checkClock(state); err != nil {
		return done, false, err
	}
	began := time.Now()
	begun, err := r.cfg.Store.Begin(ctx, r.cfg.Holder, Lease, every)
	if err != nil {
		return done, false, err
	}
	if !begun {
		if every == 0 {
			err = fault.New(fault.ServerBusy,
				"another run of retention is going on, or was killed less than %d seconds ago; try again when it has ended",
				int(Lease.Seconds()))
		}
		return done, false, err
	}
	run := &run{Runner: r}
	err = r.leased(ctx, began, func(ctx context.Context) error { return run.all(ctx, rules, state.Now) })
	if err == nil {
		err = run.altered()
	}
	r.mu.Lock()
	r.totals.Records += run.Records
	r.totals.Artifacts += run.Artifacts
	r.totals.Projects += run.Projects
	r.mu.Unlock()
	ending, cancel := context.WithTimeout(context.WithoutCancel(ctx), endWithin)
	defer cancel()
	if e := r.cfg.Store.End(ending, r.cfg.Holder, run.Done); err == nil {
		err = e
	}
	if run.Records+run.Artifacts+run.Projects > 0 {
		r.cfg.Logger.Info("retention removed what the settings no longer keep", "records", run.Records, "artifacts", run.Artifacts,
			"projects", run.Projects, "held", run.Held)
	}
	return run.Done, true, err
}

// leased calls work and renews the lease, which began at since, meanwhile. Once the lease may be
// another run's, it ends the context, and the error is ErrLeaseLost or why it could not be renewed.
func (r *Runner) leased(ctx context.Context, since time.Time, work func(context.Context) error) error {
	working, lose := context.WithCancelCause(ctx)
	ended := make(chan struct{})
	var renewing sync.WaitGroup
	renewing.Go(func() {
		for last := since; ; {
			select {
			case <-ended:
				return
			case <-time.After(renewEach):
			}
			began := time.Now()
			err := r.cfg.Store.Renew(working, r.cfg.Holder, Lease)
			switch {
			case err == nil:
				last = began
			case errors.Is(err, ErrLeaseLost) || time.Since(last) >= Lease-renewEach:
				lose(err)
				return
			}
		}
	})
	err := work(working)
	close(ended)
	renewing.Wait()
	if lost := context.Cause(working); lost != nil && ctx.Err() == nil {
		err = lost
	}
	lose(nil)
	return err
}

// checkClock refuses a clock that may be wrong. Tick has moved ClockAt to Now if the two are
// plausible together.
func checkClock(s State) error {
	switch {
	case s.Now.Sub(s.ClockAt) > clockSkew:
		return fault.New(fault.InvalidSettings, "retention stands still: by the database's clock, %s, no core-api has run since %s. If "+
			"the clock is right, run `core-api audit retention run --accept-clock`; else set the clock",
			clock(s.Now), clock(s.ClockAt))
	case s.ClockAt.Sub(s.Now) > clockSkew:
		return fault.New(fault.InvalidSettings, "retention stands still: the database's clock, %s, is behind %s, when it was looked at "+
			"last. If the clock is right, run `core-api audit retention run --accept-clock`; else set the clock",
			clock(s.Now), clock(s.ClockAt))
	case s.NewestAt.Sub(s.Now) > clockSkew:
		return fault.New(fault.InvalidSettings,
			"retention stands still: the database's clock, %s, is behind the newest event, of %s; set the clock", clock(s.Now),
			clock(s.NewestAt))
	}
	return nil
}

func clock(t time.Time) string { return t.UTC().Format(time.RFC3339) }

// run is the work of one run.
type run struct {
	*Runner
	Done

	last   Queued // whose artifacts this run has tried to remove
	failed error  // the first failure of a file; the run goes on
}

func (r *run) all(ctx context.Context, rules []Query, now time.Time) error {
	if err := r.files(ctx); err != nil { // what an earlier run left
		return err
	}
	for _, q := range rules {
		if err := r.sweep(ctx, q); err != nil {
			return err
		}
	}
	if err := r.projects(ctx, r.fileRules(now)); err != nil {
		return err
	}
	return r.failed
}

// sweep removes what one rule does not keep, oldest first.
func (r *run) sweep(ctx context.Context, q Query) error {
	after, whole := r.floor[q.Part], true
	held, altered := int64(0), int64(0)
	defer func() { r.Held, r.Altered = max(r.Held, held), max(r.Altered, altered) }() // the same exec by several rules
	for r.Records+r.Artifacts < perRun {
		found, err := r.cfg.Store.Scan(ctx, q, after, page)
		if err != nil {
			return err
		}
		spooled := r.cfg.Spooled()
		var due []string
		for _, f := range found {
			switch {
			case f.Verdict == Held:
				held++
			case f.Verdict == Due && !slices.Contains(spooled, f.ExecID):
				due = append(due, f.ExecID)
			}
		}
		removed := map[string]bool{}
		for execs := range slices.Chunk(due, batch) {
			kept, err := r.remove(ctx, q, execs, removed)
			altered += int64(len(kept))
			r.tell(kept)
			if err != nil {
				return err
			}
		}
		for _, f := range found {
			if whole = whole && (f.Verdict == Gone || removed[f.ExecID]); whole {
				r.floor[q.Part] = f.Cursor
			}
		}
		if len(found) < page {
			return nil
		}
		after = found[len(found)-1].Cursor
		if err := sleep(ctx, time.Second/100); err != nil {
			return err
		}
	}
	return nil
}

// remove removes one batch with its files, no faster than perSecond.
func (r *run) remove(ctx context.Context, q Query, execs []string, removed map[string]bool) ([]Altered, error) {
	began := time.Now()
	judged, err := r.cfg.Store.Remove(ctx, q, execs, r.cfg.Holder, Lease)
	if err != nil {
		return nil, err
	}
	for _, id := range judged.Due {
		removed[id] = true
	}
	if q.Part == Records {
		r.Records += int64(len(judged.Due))
	} else {
		r.Artifacts += int64(len(judged.Due))
	}
	if err := r.files(ctx); err != nil {
		return judged.Altered, err
	}
	return judged.Altered, sleep(ctx, time.Duration(len(execs))*time.Second/perSecond-time.Since(began))
}

// tell logs execs that stay because they are altered, each once.
func (r *run) tell(kept []Altered) {
	for _, x := range kept {
		if !r.told[x.ExecID] && len(r.told) < mostTold {
			r.told[x.ExecID] = true
			r.cfg.Logger.Error("retention keeps an exec because it is not as the transparency log says", "exec", x.ExecID, "why", x.Why)
		}
	}
}

// files removes the artifacts that are queued and that this run has not tried to remove.
func (r *run) files(ctx context.Context) error {
	for {
		queued, err := r.cfg.Store.Queued(ctx, r.last, batch)
		if err != nil || len(queued) == 0 {
			return err
		}
		var gone []string
		for _, q := range queued {
			r.last = q
			step, cancel := context.WithTimeout(ctx, fileStep)
			err := r.cfg.Files.RemoveArtifacts(step, q.ProjectID, q.ExecID)
			cancel()
			switch {
			case ctx.Err() != nil:
				return ctx.Err()
			case err == nil:
				gone = append(gone, q.ExecID)
			case !errors.Is(err, context.DeadlineExceeded):
				r.fail("the artifacts of a removed exec stay on the disk", err, "exec", q.ExecID, "project", q.ProjectID)
			}
		}
		if len(gone) > 0 {
			if err := r.cfg.Store.Dequeue(ctx, gone); err != nil {
				return err
			}
		}
		if err := sleep(ctx, time.Millisecond); err != nil {
			return err
		}
	}
}

// projects removes files of projects that have no exec, and no hold, since the time of a rule.
func (r *run) projects(ctx context.Context, rules []fileRule) error {
	return r.due(ctx, rules, time.Second/perSecond, func(i int, project, user string) error {
		_, found, err := rules[i].remove(ctx, project, user, rules[i].before, false)
		if errors.Is(err, ErrLeaseLost) {
			return err
		}
		if err != nil && ctx.Err() == nil {
			r.fail("unused files of a project stay on the disk", err, "project", project)
		}
		if found {
			r.Projects++
		}
		return context.Cause(ctx)
	})
}

func (r *run) fail(message string, err error, about ...any) {
	r.cfg.Logger.Error(message, append(about, "err", err)...)
	if r.failed == nil {
		r.failed = err
	}
}

// sleep fails when ctx ends first.
func sleep(ctx context.Context, d time.Duration) error {
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(d):
		return nil
	}
}
