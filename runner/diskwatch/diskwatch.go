// Package diskwatch kills jobs that fill the workspace's disk: every job whose project grows by
// more than a bound while it runs and, when the disk is nearly full, the job that wrote most.
//
// A job's growth is the growth of its project's directories plus the unlinked files that its
// processes hold open, which sandbox-init reports. Jobs of one project that run at the same time
// share one bound. If a job hides some of its files, it is charged with the free space that the
// disk has lost without a visible cause. The package does not know how a job runs or dies: it calls
// Writer.Kill.
package diskwatch

import (
	"context"
	"log/slog"
	"sync"
	"time"

	"secbox/fault"
	"secbox/workspace/diskspace"
	"secbox/workspace/tree"
)

// Limits protect the machine; a policy cannot change them.
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

// Exceeded is the reason for a kill.
type Exceeded struct{ Detail string }

func (e *Exceeded) Error() string { return e.Detail }

// Writer is a job that may write to a project.
type Writer struct {
	Project Project
	ExecID  string      // its artifacts are measured; empty for a command in a sandbox, whose home is measured instead
	Open    *Open       // the unlinked files of the job's container
	Kill    func(error) // called at most once, with an *Exceeded, and never after End; must not block
}

// Open holds sandbox-init's reports about the unlinked open files of one container. It is safe for
// concurrent use.
type Open struct {
	mu     sync.Mutex
	bytes  int64
	hidden bool
	at     time.Time // of the report
}

// Set stores a report.
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

// hides reports whether there may be more than was reported: a job can starve sandbox-init until it
// reports no more.
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

	mu         sync.Mutex
	projects   map[string]*project
	number     int64  // of the last Watch
	seen       int64  // visible growth of all projects, in bytes
	suspect    *Watch // hides something while free space is lost; confirmed by one more scan
	low        bool   // the disk had too little free space at the last scan
	stale      int64  // scans up to this number began too early to blame a job
	scans      int64  // started so far
	renewed    time.Time
	reportTime time.Duration // from then until a job is blamed
}

// reportTime is how long sandbox-init may take to report: it scans every 250 ms, and less often
// when there are many open files.
const reportTime = time.Second

// New returns a watcher. It needs no Close: it works only while there are jobs.
func New(disk Disk, limits Limits, log *slog.Logger) *Watcher {
	return &Watcher{disk: disk, limits: limits, log: log, projects: map[string]*project{}, reportTime: reportTime}
}

// Room returns fault.DiskFull when the disk has too little free space for another job.
func (w *Watcher) Room() error {
	free, err := w.disk.Free()
	if err != nil {
		return fault.Wrap(fault.Internal, err, "cannot read the free space of the workspace's disk")
	}
	return diskspace.Workspace(w.limits.FreeMinBytes, w.limits.FreeMinInodes).Check(free, diskspace.Space{})
}

// Watch is a job being watched.
type Watch struct {
	Writer
	w       *Watcher
	project *project
	number  int64 // later ones are newer
	begun   time.Time
	scanned chan struct{} // closed after the first scan
	free    uint64        // bytes, when the job began; 0: unknown
	seen    int64         // Watcher.seen at that time
	walking sync.Mutex    // held while the job's artifacts are measured

	// Guarded by Watcher.mu.
	first   *reading // the state when the job began
	started bool     // its command runs: until then it has written nothing
	killed  bool
	ended   bool
}

// Begin starts to watch a job that is about to start. The caller must call Start when it does, and
// End.
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
	x := &Watch{
		Writer: writer, w: w, project: p, number: w.number, begun: time.Now(), scanned: make(chan struct{}), free: free.Bytes,
		seen: w.seen,
	}
	p.watches = append(p.watches, x)
	p.urgent = true
	p.wakeUp()
	return x
}

// Start reports that the job's command runs. Before it, only other jobs of the project write, and
// this one is not killed for them.
func (x *Watch) Start() {
	x.w.mu.Lock()
	defer x.w.mu.Unlock()
	x.started = true
	if x.first != nil {
		x.first = x.project.last
	}
}

// Ready waits for the first scan before the job starts, but at most for timeout: measuring a large
// project takes long. The job's growth until that scan ends is not counted.
func (x *Watch) Ready(timeout time.Duration) {
	select {
	case <-x.scanned:
	case <-time.After(timeout):
	}
}

// End ends the watch. Afterwards this package no longer reads the job's artifacts. It may be called
// twice.
func (x *Watch) End() {
	x.w.mu.Lock()
	if !x.ended {
		x.ended = true
		x.project.remove(x)
		if x.killed {
			x.w.renew() // if the disk stays full, new scans find another job
		}
	}
	x.w.mu.Unlock()
	x.walking.Lock() // waits for a running scan
	defer x.walking.Unlock()
}
