// Package diskwatch kills jobs that fill the workspace's disk: those whose project grows by more than a bound while they run, and, when the
// disk is nearly full, the one that has written most.
//
// What a job has written is what its project's directories have grown by, and what its processes hold open after the last name was removed,
// which sandbox-init reports. Growth counts for the project as a whole: jobs of one project that run at the same time share one bound. A job
// of which not all of that can be seen is charged with the free space that is lost beyond what is seen to be written.
//
// The package does not know how a job runs or dies: it calls Writer.Kill.
package diskwatch

import (
	"context"
	"log/slog"
	"sync"
	"time"

	"secbox/diskspace"
	"secbox/fault"
	"secbox/tree"
)

// Limits are the hard bounds. They protect the machine; a policy has no say in them.
type Limits struct {
	FreeMinBytes     uint64 // with less free space than this, the job that has written most is killed
	FreeMinInodes    uint64
	GrowthMaxBytes   int64 // of one project while a job runs; 0: no bound
	GrowthMaxEntries int64 // 0: no bound
}

// Disk is the file system of all projects; *workspace.Workspace implements it.
type Disk interface {
	Free() (diskspace.Space, error)
}

// Project can be measured while its files change; *workspace.Project implements it.
type Project interface {
	ID() string
	WorkUsage(ctx context.Context) (tree.Usage, error)
	HomeUsage(ctx context.Context) (tree.Usage, error)
	ArtifactsUsage(ctx context.Context, execID string) (tree.Usage, error)
}

// Exceeded is why a job is killed.
type Exceeded struct{ Detail string }

func (e *Exceeded) Error() string { return e.Detail }

// Writer is a job that may write to a project.
type Writer struct {
	Project Project
	ExecID  string      // whose artifacts are measured; empty for a command in a sandbox, which has the home instead
	Open    *Open       // the unlinked files of the job's container
	Kill    func(error) // is called at most once, with an *Exceeded, never after End, and must not block
}

// Open holds what sandbox-init reports about one container. It is safe for concurrent use.
type Open struct {
	mu     sync.Mutex
	bytes  int64
	hidden bool
	at     time.Time // of the report
}

// Set stores the last report.
func (o *Open) Set(bytes int64, hidden bool) {
	o.mu.Lock()
	o.bytes, o.hidden, o.at = bytes, hidden, time.Now()
	o.mu.Unlock()
}

func (o *Open) get() int64 {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.bytes
}

// hides reports whether there may be more than the last report says. A job can starve or slow sandbox-init until it reports no more.
func (o *Open) hides(begun time.Time) bool {
	const silence = 5 * time.Second
	o.mu.Lock()
	defer o.mu.Unlock()
	last := o.at
	if begun.After(last) {
		last = begun
	}
	return o.hidden || time.Since(last) > silence
}

// Watcher watches the jobs of one node. It is safe for concurrent use.
type Watcher struct {
	disk   Disk
	limits Limits
	log    *slog.Logger

	mu       sync.Mutex
	projects map[string]*project
	number   int64  // of the last Watch
	seen     int64  // bytes that all projects were seen to grow by
	suspect  *Watch // hides something while free space is lost; to be looked at once more
	low      bool   // the disk had too little free space at the last look
	stale    int64  // the looks that began before this one say nothing about who fills the disk
	looks    int64  // begun
	renewed  time.Time
	patience time.Duration // from then until a job is blamed
}

// reportPatience is for how long sandbox-init may take to report: it looks every 250 ms, and less often where there is much to look at.
const reportPatience = time.Second

// New makes a watcher. It has nothing to close: it works only while there are jobs.
func New(disk Disk, limits Limits, log *slog.Logger) *Watcher {
	return &Watcher{disk: disk, limits: limits, log: log, projects: map[string]*project{}, patience: reportPatience}
}

// Room returns fault.DiskFull when the disk has too little free space for another job.
func (w *Watcher) Room() error {
	free, err := w.disk.Free()
	if err != nil {
		return fault.Wrap(fault.Internal, err, "cannot read the free space of the workspace's disk")
	}
	return diskspace.Workspace(w.limits.FreeMinBytes, w.limits.FreeMinInodes).Check(free, diskspace.Space{})
}

// Watch is one job under watch.
type Watch struct {
	Writer
	w       *Watcher
	project *project
	number  int64 // later ones are newer
	begun   time.Time
	looked  chan struct{} // closed after the first look
	free    uint64        // bytes, when the job began; 0: unknown
	seen    int64         // Watcher.seen at that time
	walking sync.Mutex    // held while the job's artifacts are measured

	// What follows is guarded by Watcher.mu.
	first   *reading // what there was when the job began
	started bool     // its command runs: until then it has written nothing
	killed  bool
	ended   bool
}

// Begin starts to watch a job that is about to start. The caller must call Start when it does, and End.
func (w *Watcher) Begin(writer Writer) *Watch {
	free, err := w.disk.Free()
	if err != nil {
		free = diskspace.Space{} // unknown
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	id := writer.Project.ID()
	p := w.projects[id]
	if p == nil {
		p = &project{w: w, id: id, wake: make(chan struct{}, 1), begun: map[part]tree.Usage{}}
		w.projects[id] = p
		go p.run()
	}
	w.number++
	x := &Watch{Writer: writer, w: w, project: p, number: w.number, begun: time.Now(), looked: make(chan struct{}), free: free.Bytes, seen: w.seen}
	p.watches = append(p.watches, x)
	p.urgent = true
	p.rouse()
	return x
}

// Start says that the job's command runs. Until then other jobs of the project write, and this one is not killed for it.
func (x *Watch) Start() {
	x.w.mu.Lock()
	defer x.w.mu.Unlock()
	x.started = true
	if x.first != nil {
		x.first = x.project.last
	}
}

// Ready waits for the first look at what is there before the job starts, but no longer than patience: a large project takes longer to
// measure than a job should wait. What the job writes until that look ends is not counted as its own.
func (x *Watch) Ready(patience time.Duration) {
	select {
	case <-x.looked:
		return
	default:
	}
	late := time.NewTimer(patience)
	defer late.Stop()
	select {
	case <-x.looked:
	case <-late.C:
	}
}

// End ends the watch. After it, nothing of this package is in the job's artifacts. Safe to call twice.
func (x *Watch) End() {
	x.w.mu.Lock()
	if !x.ended {
		x.ended = true
		x.project.remove(x)
		if x.killed {
			x.w.renew() // if the disk is still full, new looks tell who else fills it
		}
	}
	x.w.mu.Unlock()
	x.walking.Lock() // waits for a look that is in there
	defer x.walking.Unlock()
}
