package jobs

import (
	"context"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"
)

// Notifier wakes a Dispatcher. Notifications in quick succession are merged.
type Notifier chan struct{}

// NewNotifier makes a Notifier.
func NewNotifier() Notifier { return make(Notifier, 1) }

// Notify does not block.
func (b Notifier) Notify() {
	select {
	case b <- struct{}{}:
	default:
	}
}

// Runner runs execs whose jobs were taken.
type Runner interface {
	// Place takes a place for one exec; nil if none is free. The Runner calls Notify when one may
	// be free again, and when the share of a token may be.
	Place() Place

	// MayRun reports whether the token has places left.
	MayRun(token string) bool

	// RunQueued runs an exec to its closed row. It may leave the place before it returns; the
	// caller does afterwards. later says that nothing ran, and that the row waits as before: the
	// engine, the disk or the node cannot run execs now.
	RunQueued(t Taken, p Place) (later bool)

	// Expire ends the row of an exec that has waited too long.
	Expire(ctx context.Context, execID string) error
}

// Place is a place for an exec.
type Place interface {
	// WorkFor counts the place towards the share of a token. It is called before RunQueued, and not
	// for a place that is not used.
	WorkFor(token string)
	// Leave gives the place back. Safe to call twice.
	Leave()
}

// Config configures a Dispatcher. All fields are required.
type Config struct {
	Store    Store
	Runner   Runner
	Node     string
	Notifier Notifier
	Poll     time.Duration // between two polls of the database without a notification
	Logger   *slog.Logger

	// Ended returns the execs of this node that have ended, though the database does not have their
	// ends yet. Their jobs must not wait again.
	Ended func() []string
}

const (
	pause      = time.Second // after a job that cannot run now, and between two searches for expired ones
	expireMost = 100         // jobs taken to be ended at once

	// recheck is the time between two returns of jobs that this node has taken and does not have in
	// hand: a statement whose answer was lost may be committed after the return that followed it,
	// and an exec whose row could not be read may be readable by now.
	recheck = time.Minute
)

// Dispatcher runs the jobs of the database on this node. Tokens take turns: jobs of one token,
// whatever their priority, delay another token's jobs by at most a turn.
type Dispatcher struct {
	cfg     Config
	running sync.WaitGroup
	count   atomic.Int64 // of execs that run

	taking sync.Mutex // held while a job is taken
	paused time.Time  // no job is taken before

	mu     sync.Mutex
	looked chan struct{}  // closed after the next look for jobs; nil: no one waits for it
	full   bool           // the last look ended for want of a place
	inHand map[string]int // execs whose jobs this node has taken, by how many goroutines run them
	unsure bool           // the database may have other jobs that this node has taken

	last string // the token whose job was taken last
	down bool   // the last call of the store failed
}

// New makes a Dispatcher.
func New(cfg Config) *Dispatcher {
	return &Dispatcher{cfg: cfg, inHand: map[string]int{}, unsure: true}
}

// Run runs jobs until ctx ends. Execs that run then go on: Wait waits for them. Before it takes
// jobs, and whenever an answer of the store was lost, it returns to the queue the jobs that are
// assigned to this node but not in hand, such as jobs of an earlier process. Only Run takes jobs,
// so none is being taken meanwhile.
func (d *Dispatcher) Run(ctx context.Context) {
	poll := time.NewTicker(d.cfg.Poll)
	defer poll.Stop()
	expire := time.NewTicker(pause)
	defer expire.Stop()
	again := time.NewTicker(recheck)
	defer again.Stop()
	for ctx.Err() == nil {
		sure := !d.isUnsure() || d.report(ctx, d.returnAll(ctx))
		if sure {
			d.report(ctx, d.fill(ctx))
		}
		select {
		case <-ctx.Done():
		case <-d.cfg.Notifier:
		case <-poll.C:
		case <-expire.C:
			d.report(ctx, d.expire(ctx))
		case <-again.C:
			d.setUnsure()
		}
	}
}

// Running is how many execs run.
func (d *Dispatcher) Running() int { return int(d.count.Load()) }

// Wait waits until the execs that Run has started have ended.
func (d *Dispatcher) Wait() { d.running.Wait() }

func (d *Dispatcher) isUnsure() bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.unsure
}

func (d *Dispatcher) setUnsure() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.unsure = true
}

// returnAll returns the jobs that this node has taken and does not have in hand.
func (d *Dispatcher) returnAll(ctx context.Context) error {
	d.mu.Lock()
	d.unsure = false
	except := slices.Collect(maps.Keys(d.inHand))
	d.mu.Unlock()
	except = append(except, d.cfg.Ended()...) // afterwards: an exec ends while its job is in hand
	n, err := d.cfg.Store.ReturnAll(ctx, d.cfg.Node, except)
	if err != nil {
		d.setUnsure()
	}
	if n > 0 {
		d.cfg.Logger.Info("asynchronous execs that this node had taken and not started wait again", "execs", n)
	}
	return err
}

func (d *Dispatcher) hold(execID string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.inHand[execID]++
}

// drop is called when a job is no longer in hand; lost says that the database may still have it as
// taken.
func (d *Dispatcher) drop(execID string, lost bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.inHand[execID]--; d.inHand[execID] == 0 {
		delete(d.inHand, execID)
	}
	d.unsure = d.unsure || lost
}

// Answer looks for jobs, and returns when there was a place for one, or ctx has ended.
func (d *Dispatcher) Answer(ctx context.Context) {
	for look := true; look; {
		looked := d.nextLook()
		d.cfg.Notifier.Notify()
		select {
		case <-ctx.Done():
			return
		case <-looked:
		}
		d.mu.Lock()
		look = d.full
		d.mu.Unlock()
		if look {
			select { // until a place is free, which notifies
			case <-ctx.Done():
				return
			case <-d.nextLook():
			}
		}
	}
}

// nextLook returns a channel that is closed after a look for jobs.
func (d *Dispatcher) nextLook() <-chan struct{} {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.looked == nil {
		d.looked = make(chan struct{})
	}
	return d.looked
}

func (d *Dispatcher) hasLooked(full bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.full = full; d.looked != nil {
		close(d.looked)
		d.looked = nil
	}
}

// fill runs jobs while there are places, and until one of them cannot run now.
func (d *Dispatcher) fill(ctx context.Context) error {
	for ctx.Err() == nil {
		place := d.cfg.Runner.Place()
		if place == nil {
			d.hasLooked(true)
			return nil
		}
		taken, paused, err := d.take(ctx)
		if paused {
			place.Leave()
			return nil
		}
		if taken == nil {
			d.last = ""
			place.Leave()
			d.hasLooked(false)
			return err
		}
		place.WorkFor(taken.RequestedBy)
		d.last = taken.RequestedBy
		d.hold(taken.ExecID)
		d.running.Go(func() { d.runOne(context.WithoutCancel(ctx), *taken, place) })
	}
	return nil
}

// take takes the job that is next, except in a pause.
func (d *Dispatcher) take(ctx context.Context) (taken *Taken, paused bool, err error) {
	d.taking.Lock()
	defer d.taking.Unlock()
	if time.Now().Before(d.paused) {
		return nil, true, nil
	}
	taken, err = d.cfg.Store.Take(ctx, d.cfg.Node, d.last, d.cfg.Runner.MayRun)
	if err != nil {
		d.setUnsure()
	}
	return taken, false, err
}

// pauseTaking begins a pause. A job that is returned afterwards is not taken before it ends.
func (d *Dispatcher) pauseTaking() {
	d.taking.Lock()
	defer d.taking.Unlock()
	d.paused = time.Now().Add(pause)
	time.AfterFunc(pause, d.cfg.Notifier.Notify)
}

func (d *Dispatcher) runOne(ctx context.Context, taken Taken, place Place) {
	d.count.Add(1)
	defer d.count.Add(-1)
	defer place.Leave() // which notifies: not before the pause
	if !d.cfg.Runner.RunQueued(taken, place) {
		d.drop(taken.ExecID, false)
		return
	}
	d.pauseTaking()
	err := d.cfg.Store.Return(ctx, d.cfg.Node, taken.ExecID)
	if err != nil {
		d.cfg.Logger.Error("an exec that cannot run now is not given back; trying again when the database answers", "exec", taken.ExecID,
			"error", err)
	}
	d.drop(taken.ExecID, err != nil)
}

func (d *Dispatcher) expire(ctx context.Context) error {
	execs, err := d.cfg.Store.TakeExpired(ctx, d.cfg.Node, expireMost)
	if err != nil {
		d.setUnsure()
	}
	for _, id := range execs {
		if e := d.cfg.Runner.Expire(context.WithoutCancel(ctx), id); e != nil {
			d.cfg.Logger.Error("an exec that waited too long is not ended; trying again within a minute", "exec", id, "error", e)
		}
	}
	if len(execs) == expireMost {
		d.cfg.Notifier.Notify()
	}
	return err
}

// report logs when the store begins and ends to fail, and reports whether err is nil.
func (d *Dispatcher) report(ctx context.Context, err error) bool {
	if ctx.Err() == nil && (err != nil) != d.down {
		if d.down = err != nil; d.down {
			d.cfg.Logger.Error("asynchronous execs wait: the database does not tell which", "error", err)
		} else {
			d.cfg.Logger.Info("asynchronous execs are run again")
		}
	}
	return err == nil
}
