package diskwatch

import (
	"context"
	"errors"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"time"

	"secbox/workspace/diskspace"
	"secbox/workspace/tree"
)

// fakeProject has what a test puts into it.
type fakeProject struct {
	id         string
	work, home tree.Usage
	artifacts  map[string]tree.Usage
	err        error
}

func (p *fakeProject) ID() string                                    { return p.id }
func (p *fakeProject) WorkUsage(context.Context) (tree.Usage, error) { return p.work, p.err }
func (p *fakeProject) HomeUsage(context.Context) (tree.Usage, error) { return p.home, p.err }
func (p *fakeProject) ArtifactsUsage(_ context.Context, id string) (tree.Usage, error) {
	return p.artifacts[id], p.err
}

type fakeDisk struct{ bytes, inodes uint64 }

func (d *fakeDisk) Free() (diskspace.Space, error) {
	return diskspace.Space{Bytes: d.bytes, Inodes: d.inodes}, nil
}

// bench drives a watcher without its goroutines: the test starts each scan.
type bench struct {
	*testing.T
	disk *fakeDisk
	w    *Watcher
}

func newBench(t *testing.T, limits Limits) *bench {
	t.Parallel()
	disk := &fakeDisk{bytes: 1000 << 20, inodes: 1_000_000}
	w := New(disk, limits, slog.New(slog.DiscardHandler))
	w.reportTime = 0
	return &bench{t, disk, w}
}

// job is a writer that remembers why it was killed.
type job struct {
	*Watch
	mu     sync.Mutex
	killed string
}

func (j *job) why() string {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.killed
}

// begin is a job whose command runs.
func (b *bench) begin(p *fakeProject, execID string, open *Open) *job {
	b.Helper()
	j := b.register(p, execID, open)
	j.Start()
	return j
}

// register registers a job as Begin does, without starting the project's loop.
func (b *bench) register(p *fakeProject, execID string, open *Open) *job {
	b.Helper()
	b.w.mu.Lock()
	if b.w.projects[p.id] == nil {
		b.w.projects[p.id] = &project{w: b.w, id: p.id, wake: make(chan struct{}, 1), begun: map[part]tree.Usage{}}
	}
	b.w.mu.Unlock()
	j := &job{}
	j.Watch = b.w.Begin(Writer{Project: p, ExecID: execID, Open: open, Kill: func(err error) {
		var why *Exceeded
		if !errors.As(err, &why) {
			b.Errorf("killed for %v", err)
		}
		j.mu.Lock()
		j.killed = err.Error()
		j.mu.Unlock()
	}})
	b.scan(p)
	return j
}

// scan scans the projects twice, as often as is needed before a job is blamed for shared growth.
func (b *bench) scan(projects ...*fakeProject) {
	for range 2 {
		for _, p := range projects {
			b.w.mu.Lock()
			watched := b.w.projects[p.id]
			b.w.mu.Unlock()
			watched.scan()
		}
	}
}

// are compares which jobs were killed, and why.
func (b *bench) are(says map[*job]string) {
	b.Helper()
	for j, want := range says {
		if got := j.why(); (got != "") != (want != "") || !strings.Contains(got, want) {
			b.Errorf("%s %s: killed %q, want %q", j.Project.ID(), j.ExecID, got, want)
		}
	}
}

const mib = 1 << 20

func bytesOf(n int64) tree.Usage { return tree.Usage{Bytes: n} }

func TestGrowthAgainstItsBounds(t *testing.T) {
	t.Parallel()
	usage := func(bytes, entries int64, cut tree.Cut) tree.Usage {
		return tree.Usage{Bytes: bytes, Entries: entries, Cut: cut}
	}
	none := tree.CutNone
	for name, c := range map[string]struct {
		first, now tree.Usage
		says       string // empty: the job lives on
	}{
		"nothing":                      {},
		"at the bounds":                {usage(7, 7, none), usage(107, 17, none), ""},
		"bytes":                        {usage(7, 0, none), usage(108, 0, none), "disk_growth_max_bytes"},
		"entries":                      {usage(0, 7, none), usage(0, 18, none), "disk_growth_max_entries"},
		"less than before":             {usage(1000, 1000, none), usage(0, 0, none), ""},
		"too many to walk":             {usage(0, 0, none), usage(0, 0, tree.CutEntries), "more entries than can be watched"},
		"too many from the beginning":  {usage(0, 0, tree.CutEntries), usage(0, 0, tree.CutEntries), ""},
		"too deep":                     {usage(0, 0, none), usage(0, 0, tree.CutDepth), "deeper than can be watched"},
		"too deep from the beginning":  {usage(0, 0, tree.CutDepth), usage(0, 0, tree.CutDepth), ""},
		"too deep, then too many":      {usage(0, 0, tree.CutDepth), usage(0, 0, tree.CutEntries), "more entries"},
		"exchanged while it was read":  {usage(0, 0, none), usage(0, 0, tree.CutUnreadable), ""},
		"unreadable, but grown anyway": {usage(0, 0, none), usage(101, 0, tree.CutUnreadable), "disk_growth_max_bytes"},
	} {
		for _, where := range []string{"work", "home"} {
			t.Run(name+" in "+where, func(t *testing.T) {
				b := newBench(t, Limits{GrowthMaxBytes: 100, GrowthMaxEntries: 10})
				p := &fakeProject{id: "p"}
				at := &p.work
				if where == "home" {
					at = &p.home
				}
				*at = c.first
				j := b.begin(p, "", nil)
				*at = c.now
				b.scan(p)
				b.are(map[*job]string{j: c.says})
			})
		}
	}
}

func TestUnlinkedFilesCount(t *testing.T) {
	b := newBench(t, Limits{GrowthMaxBytes: 100})
	p := &fakeProject{id: "p"}
	victim, innocent := &Open{}, &Open{}
	g, i := b.begin(p, "g", victim), b.begin(p, "i", innocent)
	victim.Set(101, false)
	b.scan(p)
	b.are(map[*job]string{g: "101 of them in removed files", i: ""})
}

// TestJobsOfOneProjectShareABound: two that each stay below it are over it together; one of another
// project is not theirs.
func TestJobsOfOneProjectShareABound(t *testing.T) {
	b := newBench(t, Limits{GrowthMaxBytes: 100})
	p, q := &fakeProject{id: "p", artifacts: map[string]tree.Usage{}}, &fakeProject{id: "q"}
	one, two, other := b.begin(p, "one", &Open{}), b.begin(p, "two", &Open{}), b.begin(q, "other", &Open{})
	p.artifacts["one"], p.artifacts["two"] = bytesOf(60), bytesOf(60)
	q.work = bytesOf(60)
	b.scan(p, q)
	b.are(map[*job]string{one: "disk_growth_max_bytes", two: "disk_growth_max_bytes", other: ""})
	late := b.begin(p, "late", &Open{}) // files from before do not count
	b.scan(p)
	b.are(map[*job]string{late: ""})
}

// TestFullDiskKillsTheLargestWriter: one at a time, and no job that has hardly written.
func TestFullDiskKillsTheLargestWriter(t *testing.T) {
	b := newBench(t, Limits{FreeMinBytes: 100 * mib, GrowthMaxBytes: 900 * mib})
	small, large, idle := &fakeProject{id: "small"}, &fakeProject{id: "large"}, &fakeProject{id: "idle"}
	s, i := b.begin(small, "s", &Open{}), b.begin(idle, "i", &Open{})
	open := &Open{}
	l := b.begin(large, "l", open)
	small.work = bytesOf(20 * mib)
	open.Set(500*mib, false) // no name leads to it
	idle.work = bytesOf(1)
	b.disk.bytes = 50 * mib
	b.scan(small)
	b.are(map[*job]string{s: ""}) // no new scan of the others yet
	b.scan(idle, large)
	b.are(map[*job]string{s: "", i: "", l: "disk_free_min_bytes"})
	b.scan(small, idle, large)
	b.are(map[*job]string{s: "", i: ""}) // it is yet to die
	l.End()
	b.scan(small, idle)
	b.are(map[*job]string{s: "disk_free_min_bytes", i: ""}) // that did not help
	s.End()
	b.scan(idle)
	b.are(map[*job]string{i: ""}) // something else fills the disk
}

// TestNoKillBeforeAllReports: a job with a little on the disk does not die for one whose report is
// on its way.
func TestNoKillBeforeAllReports(t *testing.T) {
	b := newBench(t, Limits{FreeMinBytes: 100 * mib})
	b.w.reportTime = time.Hour
	p := &fakeProject{id: "p"}
	j := b.begin(p, "j", &Open{})
	p.work = bytesOf(50 * mib)
	b.disk.bytes = 50 * mib
	b.scan(p)
	b.are(map[*job]string{j: ""})
	b.w.reportTime = 0
	b.scan(p)
	b.are(map[*job]string{j: "disk_free_min_bytes"})
}

func TestNoFreeInodes(t *testing.T) {
	b := newBench(t, Limits{FreeMinInodes: 1000})
	p, q := &fakeProject{id: "p"}, &fakeProject{id: "q"}
	few, many := b.begin(p, "few", nil), b.begin(q, "many", nil)
	p.work, q.work = tree.Usage{Entries: 10, Bytes: 10 << 30}, tree.Usage{Entries: 5000}
	b.disk.inodes = 500
	b.scan(p, q)
	b.scan(p, q)
	b.are(map[*job]string{few: "", many: "disk_free_min_inodes"})
}

// TestHiddenFilesAreChargedWithTheLoss: lost space that no visible growth explains is charged to
// the newest job that hides files.
func TestHiddenFilesAreChargedWithTheLoss(t *testing.T) {
	b := newBench(t, Limits{GrowthMaxBytes: 100 * mib})
	p, q := &fakeProject{id: "p"}, &fakeProject{id: "q"}
	open, hidden := &Open{}, &Open{}
	before, hides, after := b.begin(q, "before", open), b.begin(p, "hides", hidden), b.begin(q, "after", open)
	hidden.Set(0, true)
	b.disk.bytes -= 90 * mib
	q.work = bytesOf(90 * mib) // which is where it went
	b.scan(p, q)
	b.disk.bytes -= 90 * mib
	b.scan(p, q)
	b.are(map[*job]string{before: "", hides: "", after: ""})
	b.disk.bytes -= 20 * mib
	b.scan(p, q)
	b.scan(p, q)
	b.are(map[*job]string{before: "", hides: "hides its open files", after: ""})
}

// TestWaysToHide: every way to hide files leads to the charge, and without growth no job is killed.
func TestWaysToHide(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		work tree.Cut
		age  time.Duration // of the job; sandbox-init has said nothing yet
		says string
	}{
		"nothing":                     {},
		"too deep from the beginning": {work: tree.CutDepth, says: "cannot be measured (depth)"},
		"too many from the beginning": {work: tree.CutEntries, says: "cannot be measured (entries)"},
		"directories that vanish":     {work: tree.CutUnreadable, says: "cannot be measured (unreadable)"},
		"no reports":                  {age: time.Minute, says: "hides its open files"},
	} {
		t.Run(name, func(t *testing.T) {
			b := newBench(t, Limits{GrowthMaxBytes: 100 * mib})
			p := &fakeProject{id: "p", work: tree.Usage{Cut: c.work}}
			j := b.begin(p, "j", &Open{})
			j.begun = j.begun.Add(-c.age)
			b.disk.bytes -= 90 * mib
			b.scan(p)
			b.are(map[*job]string{j: ""})
			b.disk.bytes -= 20 * mib
			b.scan(p)
			b.are(map[*job]string{j: c.says})
		})
	}
}

// TestUnlinkedFilesOfEndedJob: the bytes of a job that has ended explain no loss that comes after
// it.
func TestUnlinkedFilesOfEndedJob(t *testing.T) {
	b := newBench(t, Limits{GrowthMaxBytes: 100 * mib})
	p, q := &fakeProject{id: "p"}, &fakeProject{id: "q"}
	open, hidden := &Open{}, &Open{}
	visible, hides := b.begin(p, "visible", open), b.begin(q, "hides", hidden)
	open.Set(90*mib, false)
	b.disk.bytes -= 90 * mib
	b.scan(p, q)
	visible.End()
	b.disk.bytes += 90 * mib
	hidden.Set(0, true)
	b.disk.bytes -= 110 * mib
	b.scan(q)
	b.are(map[*job]string{visible: "", hides: "hides its open files"})
}

func TestUnmeasuredProjectIsNotKilled(t *testing.T) {
	b := newBench(t, Limits{FreeMinBytes: 100 * mib, GrowthMaxBytes: 100})
	p := &fakeProject{id: "p", err: errors.New("gone")}
	j := b.begin(p, "j", &Open{})
	b.disk.bytes = 0
	b.scan(p)
	b.are(map[*job]string{j: ""})
}

// TestOnlyStartedJobsAreBlamed: growth before a job's command runs is not charged to it.
func TestOnlyStartedJobsAreBlamed(t *testing.T) {
	b := newBench(t, Limits{GrowthMaxBytes: 100, FreeMinBytes: 1})
	p := &fakeProject{id: "p"}
	writer, waiting := b.begin(p, "writer", nil), b.register(p, "waiting", nil)
	p.work, b.disk.bytes = bytesOf(10*mib), 0
	b.scan(p)
	b.are(map[*job]string{writer: "disk_growth_max_bytes", waiting: ""})
	writer.End()
	waiting.Start()
	b.scan(p)
	b.are(map[*job]string{waiting: ""})
	p.work = bytesOf(10*mib + 101)
	b.scan(p)
	b.are(map[*job]string{waiting: "disk_growth_max_bytes"})
}

// TestScansRunByThemselves: the project of a new job is scanned, and a job that grows is killed,
// without further calls.
func TestScansRunByThemselves(t *testing.T) {
	t.Parallel()
	w := New(&fakeDisk{bytes: 1 << 40, inodes: 1 << 40}, Limits{GrowthMaxBytes: 100}, slog.New(slog.DiscardHandler))
	p := &fakeProject{id: "p"}
	open, killed := &Open{}, make(chan error, 2)
	x := w.Begin(Writer{Project: p, ExecID: "x", Open: open, Kill: func(err error) { killed <- err }})
	<-x.scanned
	x.Start()
	open.Set(200, false)
	<-killed
	x.End()
	x.End()
	y := w.Begin(Writer{Project: p, ExecID: "y", Open: &Open{}, Kill: func(err error) { killed <- err }})
	<-y.scanned
	y.End()
}
