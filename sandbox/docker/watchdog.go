package docker

import (
	"context"
	"fmt"
	"time"

	"secbox/workspace"
)

// Pace of the watchdog. A look at a large tree costs time, so the next one waits ten times as long as the last one took.
const (
	leastPause = 250 * time.Millisecond
	pauseRatio = 10
)

// usage is what lies in work/ and in the home.
type usage struct {
	bytes, entries int64
	work, home     workspace.Cut // why there may be more than this
}

// watch looks after the disk while commands run, until the container ends.
func (l *live) watch() {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	go func() {
		select {
		case <-l.resident.Done():
			cancel()
		case <-ctx.Done():
		}
	}()
	for {
		running := l.commandsNow()
		if len(running) == 0 {
			select {
			case <-ctx.Done():
				return
			case <-l.stirred:
			}
			running = l.commandsNow()
		}
		begun := time.Now()
		if len(running) > 0 {
			l.look(ctx, running)
		}
		select {
		case <-ctx.Done():
			return
		case <-time.After(max(leastPause, pauseRatio*time.Since(begun))):
		}
	}
}

func (l *live) commandsNow() (running []*command) {
	l.b.s.mu.Lock()
	defer l.b.s.mu.Unlock()
	for c := range l.running {
		running = append(running, c)
	}
	return running
}

// look kills commands when a bound is passed: all that run when the disk is full, and for growth those that have run since there was less.
func (l *live) look(ctx context.Context, running []*command) {
	limit := l.b.s.cfg.Disk
	bytes, inodes, err := l.b.s.cfg.Workspace.Free()
	if err == nil && (bytes < limit.FreeMinBytes || inodes < limit.FreeMinInodes) {
		for _, c := range running {
			c.cancel(&killedFor{fmt.Sprintf(
				"killed: the workspace's disk has %d bytes and %d inodes free, %d and %d are kept free (sandbox.disk_free_min_bytes, sandbox.disk_free_min_inodes)",
				bytes, inodes, limit.FreeMinBytes, limit.FreeMinInodes), true})
		}
		return
	}
	if limit.GrowthMaxBytes <= 0 && limit.GrowthMaxEntries <= 0 {
		return
	}
	now, ok := l.measure(ctx)
	if !ok {
		return
	}
	for _, c := range running {
		if c.first == nil {
			c.first = &now
		} else if why := now.against(*c.first, limit); why != "" {
			c.cancel(&killedFor{why, true})
		}
	}
}

// against compares with the first look and says why a command is to be killed. A tree too large or too deep to be walked is over the bound unless
// it was so from the beginning. That a directory could not be read says nothing about its size: a command may exchange one while we look.
func (u usage) against(first usage, limit DiskLimits) (why string) {
	became := func(cut workspace.Cut) bool {
		return u.work == cut && first.work != cut || u.home == cut && first.home != cut
	}
	switch {
	case limit.GrowthMaxBytes > 0 && u.bytes-first.bytes > limit.GrowthMaxBytes:
		return fmt.Sprintf("killed: the disk space of the workspace and the home grew by %d bytes while it ran, at most %d are allowed (sandbox.disk_growth_max_bytes)",
			u.bytes-first.bytes, limit.GrowthMaxBytes)
	case limit.GrowthMaxEntries > 0 && u.entries-first.entries > limit.GrowthMaxEntries:
		return fmt.Sprintf("killed: the workspace and the home on the disk grew by %d entries while it ran, at most %d are allowed (sandbox.disk_growth_max_entries)",
			u.entries-first.entries, limit.GrowthMaxEntries)
	case became(workspace.CutEntries):
		return fmt.Sprintf("killed: the workspace and the home on the disk grew to more entries than can be watched (%d counted)", u.entries)
	case became(workspace.CutDepth):
		return "killed: directories in the workspace or the home on the disk were nested deeper than can be watched"
	}
	return ""
}

// measure adds up what lies in work/ and in the home; false when that cannot be looked at.
func (l *live) measure(ctx context.Context) (usage, bool) {
	project, err := l.b.s.cfg.Workspace.Existing(l.b.id)
	if err != nil {
		return usage{}, false
	}
	work, err := project.WorkUsage(ctx)
	if err != nil {
		return usage{}, false
	}
	home, err := project.HomeUsage(ctx)
	if err != nil || ctx.Err() != nil {
		return usage{}, false
	}
	return usage{bytes: work.Bytes + home.Bytes, entries: work.Entries + home.Entries, work: work.Cut, home: home.Cut}, true
}
