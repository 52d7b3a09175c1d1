package diskwatch

import (
	"context"
	"maps"
	"slices"
	"time"

	"secbox/workspace/tree"
)

// The next scan waits ten times as long as the last one took, unless a job begins.
const (
	leastPause = 250 * time.Millisecond
	pauseRatio = 10
)

// part is one thing of a project that takes disk space.
type part struct {
	kind   partKind
	execID string // of artifacts
	open   *Open  // of unlinked files
}

type partKind int

const (
	work partKind = iota
	home
	artifacts
	unlinked
)

// reading is the result of one scan.
type reading struct {
	number int64 // of the scan
	parts  map[part]tree.Usage
}

// project is a project with watched jobs. Watcher.mu guards all but the first three fields.
type project struct {
	w    *Watcher
	id   string
	wake chan struct{} // capacity 1

	watches []*Watch
	last    *reading
	begun   map[part]tree.Usage // the first reading of each part of the last reading
	urgent  bool                // the next scan starts at once
}

// remove removes an ended job, whose unlinked files are free now. Watcher.mu is held.
func (p *project) remove(x *Watch) {
	p.watches = slices.DeleteFunc(p.watches, func(other *Watch) bool { return other == x })
	if of := (part{kind: unlinked, open: x.Open}); p.last != nil && !p.holds(x.Open) {
		p.w.seen -= p.last.parts[of].Bytes
		last := *p.last
		last.parts = maps.Clone(last.parts)
		delete(last.parts, of)
		p.last = &last
	}
}

// holds reports whether a job of the project has these unlinked files. Watcher.mu is held.
func (p *project) holds(open *Open) bool {
	return slices.ContainsFunc(p.watches, func(x *Watch) bool { return x.Open == open })
}

// started returns the jobs whose command runs. Watcher.mu is held.
func (p *project) started() []*Watch {
	return slices.DeleteFunc(slices.Clone(p.watches), func(x *Watch) bool { return !x.started })
}

// wakeUp starts the next scan soon. Watcher.mu may be held.
func (p *project) wakeUp() {
	select {
	case p.wake <- struct{}{}:
	default:
	}
}

// run scans the project repeatedly while it has jobs.
func (p *project) run() {
	for {
		begun := time.Now()
		p.scan()
		took := time.Since(begun)
		for pause := time.NewTimer(max(leastPause, pauseRatio*took)); ; {
			select {
			case <-pause.C:
			case <-p.wake:
				if !p.mustHurry() {
					continue
				}
			}
			pause.Stop()
			break
		}
		if p.isOver() {
			return
		}
	}
}

func (p *project) mustHurry() bool {
	p.w.mu.Lock()
	defer p.w.mu.Unlock()
	return p.urgent
}

// isOver forgets a project without jobs.
func (p *project) isOver() bool {
	p.w.mu.Lock()
	defer p.w.mu.Unlock()
	if len(p.watches) > 0 {
		return false
	}
	delete(p.w.projects, p.id)
	return true
}

// scan measures the project and judges its jobs.
func (p *project) scan() {
	w := p.w
	w.mu.Lock()
	p.urgent = false
	watches := slices.Clone(p.watches)
	w.scans++
	now := &reading{number: w.scans, parts: map[part]tree.Usage{}}
	w.mu.Unlock()
	if len(watches) == 0 {
		return
	}
	free, err := w.disk.Free()
	p.measure(watches, now)
	w.mu.Lock()
	defer w.mu.Unlock()
	p.take(now)
	for _, x := range watches {
		if x.first == nil {
			x.first = now
			close(x.scanned)
		}
	}
	p.judge()
	if err == nil {
		w.relieve(free)
		w.findHidden(free.Bytes)
	}
}

// measure walks the directories and leaves out directories that cannot be measured.
func (p *project) measure(watches []*Watch, now *reading) {
	ctx := context.Background()
	note := func(of part, usage tree.Usage, err error) {
		if err == nil {
			now.parts[of] = usage
			return
		}
		p.w.mu.Lock()
		over := len(p.watches) == 0
		p.w.mu.Unlock()
		if !over {
			p.w.log.Warn("cannot measure the disk usage of a project", "project", p.id, "error", err)
		}
	}
	usage, err := watches[0].Project.WorkUsage(ctx)
	note(part{kind: work}, usage, err)
	for _, x := range watches {
		if x.Open != nil {
			now.parts[part{kind: unlinked, open: x.Open}] = tree.Usage{Bytes: x.Open.get()}
		}
		if x.ExecID != "" {
			x.walking.Lock()
			if !x.isEnded() {
				usage, err := x.Project.ArtifactsUsage(ctx, x.ExecID)
				note(part{kind: artifacts, execID: x.ExecID}, usage, err)
			}
			x.walking.Unlock()
		} else if _, done := now.parts[part{kind: home}]; !done {
			usage, err := x.Project.HomeUsage(ctx)
			note(part{kind: home}, usage, err)
		}
	}
}

func (x *Watch) isEnded() bool {
	x.w.mu.Lock()
	defer x.w.mu.Unlock()
	return x.ended
}

// take stores the last reading. Watcher.mu is held.
func (p *project) take(now *reading) {
	maps.DeleteFunc(now.parts, func(of part, _ tree.Usage) bool { return of.kind == unlinked && !p.holds(of.open) })
	for of, usage := range now.parts {
		before, known := tree.Usage{}, false
		if p.last != nil {
			before, known = p.last.parts[of]
		}
		if !known {
			if of.kind == work || of.kind == home { // the others are empty when their job begins
				before = usage
			}
			p.begun[of] = before
		}
		p.w.seen += usage.Bytes - before.Bytes
	}
	maps.DeleteFunc(p.begun, func(of part, _ tree.Usage) bool { _, still := now.parts[of]; return !still })
	p.last = now
}
