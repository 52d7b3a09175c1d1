package runner

import (
	"context"
	"fmt"
	"sync"
	"time"

	"secbox/fault"
	"secbox/workspace"
)

// DiskLimits are the hard bounds that the watchdog enforces; they protect the machine, not a policy.
type DiskLimits struct {
	FreeMinBytes     uint64 // less free than this in the workspace's file system: the growing job dies
	FreeMinInodes    uint64
	GrowthMaxBytes   int64 // more than this in work/ and artifacts/ of one exec beyond what was there at its first look
	GrowthMaxEntries int64
}

// Pace of the watchdog. A look at a large tree costs time, so the next one waits ten times as long as the last one took.
const (
	leastPause = 250 * time.Millisecond
	pauseRatio = 10
)

type diskLimitError struct{ detail string }

func (e *diskLimitError) Error() string { return e.detail }

type watchdog struct {
	cancel context.CancelFunc
	done   sync.WaitGroup
}

// stop ends the watching and waits for a look that is under way.
func (w *watchdog) stop() {
	w.cancel()
	w.done.Wait()
}

// watch looks after the disk until it is stopped, and kills the job through its live entry when a bound is passed. Its first look is at
// once, while the container starts: only what comes after it is the job's growth.
func (x *exec) watch(ctx context.Context) *watchdog {
	ctx, cancel := context.WithCancel(ctx)
	w := &watchdog{cancel: cancel}
	w.done.Go(func() {
		x.allotments.settle(x.record.ExecID) // the exec has its row, and here nobody waits for that
		var first *growth
		for {
			begun := time.Now()
			now, err := x.look(ctx)
			if ctx.Err() != nil {
				return
			}
			if first == nil {
				first = now
			}
			if err == nil && now != nil {
				err = now.against(*first, x.cfg.Disk)
			}
			if err != nil {
				x.live.cancel(err)
				return
			}
			select {
			case <-ctx.Done():
				return
			case <-time.After(max(leastPause, pauseRatio*time.Since(begun))):
			}
		}
	})
	return w
}

// growth is one look.
type growth struct {
	bytes, entries int64
	cut            workspace.Cut // why there may be more than this
}

// look measures; nil when the project cannot be looked at, an error when the disk is too full.
func (x *exec) look(ctx context.Context) (*growth, error) {
	bytes, inodes, err := x.cfg.Workspace.Free()
	if err == nil && bytes < x.cfg.Disk.FreeMinBytes {
		return nil, &diskLimitError{fmt.Sprintf("killed: only %d bytes are free on the workspace's disk, %d are kept free (sandbox.disk_free_min_bytes)",
			bytes, x.cfg.Disk.FreeMinBytes)}
	}
	if err == nil && inodes < x.cfg.Disk.FreeMinInodes {
		return nil, &diskLimitError{fmt.Sprintf("killed: only %d inodes are free on the workspace's disk, %d are kept free (sandbox.disk_free_min_inodes)",
			inodes, x.cfg.Disk.FreeMinInodes)}
	}
	usage, err := x.project.Growth(ctx, x.record.ExecID)
	if err != nil {
		x.cfg.Logger.Warn("the watchdog could not look at a project", "exec", x.record.ExecID, "error", err)
		return nil, nil
	}
	return &growth{bytes: usage.Bytes, entries: usage.Entries, cut: usage.Cut}, nil
}

// against compares with the first look. A tree too large or too deep to be walked is over the bound unless it was so from the beginning.
// That a directory could not be read says nothing about its size: a job may exchange one while we look, or take its own rights away.
func (g growth) against(first growth, limit DiskLimits) error {
	switch {
	case limit.GrowthMaxBytes > 0 && g.bytes-first.bytes > limit.GrowthMaxBytes:
		return &diskLimitError{fmt.Sprintf("killed: work/ and artifacts/ grew by %d bytes, at most %d are allowed (sandbox.disk_growth_max_bytes)",
			g.bytes-first.bytes, limit.GrowthMaxBytes)}
	case limit.GrowthMaxEntries > 0 && g.entries-first.entries > limit.GrowthMaxEntries:
		return &diskLimitError{fmt.Sprintf("killed: work/ and artifacts/ grew by %d entries, at most %d are allowed (sandbox.disk_growth_max_entries)",
			g.entries-first.entries, limit.GrowthMaxEntries)}
	case g.cut == workspace.CutEntries && first.cut != g.cut:
		return &diskLimitError{fmt.Sprintf("killed: work/ and artifacts/ grew to more entries than can be watched (%d counted)", g.entries)}
	case g.cut == workspace.CutDepth && first.cut != g.cut:
		return &diskLimitError{"killed: directories in work/ or artifacts/ were nested deeper than can be watched"}
	}
	return nil
}

// roomOnDisk refuses an exec before it starts when there is no room for what it must leave.
func (r *Runner) roomOnDisk() error {
	bytes, inodes, err := r.cfg.Workspace.Free()
	if err != nil {
		return fault.Wrap(fault.Internal, err, "the workspace's disk cannot be looked at")
	}
	if bytes < r.cfg.Disk.FreeMinBytes || inodes < r.cfg.Disk.FreeMinInodes {
		return fault.New(fault.DiskFull, "the workspace's disk has %d bytes and %d inodes free, %d and %d are kept free; make room or lower sandbox.disk_free_min_bytes",
			bytes, inodes, r.cfg.Disk.FreeMinBytes, r.cfg.Disk.FreeMinInodes)
	}
	return nil
}
