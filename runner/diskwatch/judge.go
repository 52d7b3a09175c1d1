package diskwatch

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"secbox/workspace/diskspace"
	"secbox/workspace/tree"
)

// growth is the growth since a job began.
type growth struct {
	bytes, entries int64
	unlinked       int64    // of bytes
	cut            tree.Cut // a tree became too large or too deep to be measured
}

// owns reports whether only this job can have written a part.
func (x *Watch) owns(of part) bool {
	return x.ExecID != "" && (of.kind == artifacts && of.execID == x.ExecID || of.kind == unlinked && of.open == x.Open)
}

// grown adds up the parts that counts accepts. Watcher.mu is held.
func (x *Watch) grown(counts func(part) bool) (g growth) {
	if x.first == nil {
		return growth{}
	}
	for of, usage := range x.project.last.parts {
		if !counts(of) {
			continue
		}
		base, known := x.first.parts[of]
		if !known {
			base = x.project.begun[of]
		}
		if x.owns(of) {
			base = tree.Usage{}
		}
		g.bytes += usage.Bytes - base.Bytes
		g.entries += usage.Entries - base.Entries
		if of.kind == unlinked {
			g.unlinked += usage.Bytes
		}
		// An unreadable directory proves no growth: a job may exchange one during the scan, or
		// remove its own rights.
		if (usage.Cut == tree.CutEntries || usage.Cut == tree.CutDepth) && base.Cut != usage.Cut && g.cut != tree.CutEntries {
			g.cut = usage.Cut
		}
	}
	return g
}

// own is the growth that only this job can have caused.
func (x *Watch) own() growth { return x.grown(x.owns) }

// shared is the growth that this job may have caused: its project's growth, without the growth that
// killed jobs caused.
func (x *Watch) shared() growth {
	return x.grown(func(of part) bool {
		for _, other := range x.project.watches {
			if other != x && other.killed && other.owns(of) {
				return false
			}
		}
		return true
	})
}

// against returns why the job must be killed, or "".
func (g growth) against(limit Limits) string {
	switch {
	case limit.GrowthMaxBytes > 0 && g.bytes > limit.GrowthMaxBytes:
		nameless := ""
		if g.unlinked > 0 {
			nameless = fmt.Sprintf(", %d of them in removed files that are still open", g.unlinked)
		}
		return fmt.Sprintf("killed: the project's files on the disk grew by %d bytes%s; at most %d are allowed (sandbox.disk_growth_max_bytes)",
			g.bytes, nameless, limit.GrowthMaxBytes)
	case limit.GrowthMaxEntries > 0 && g.entries > limit.GrowthMaxEntries:
		return fmt.Sprintf("killed: the project's files and directories on the disk grew by %d, at most %d are allowed "+
			"(sandbox.disk_growth_max_entries)",
			g.entries, limit.GrowthMaxEntries)
	case limit.GrowthMaxBytes <= 0 && limit.GrowthMaxEntries <= 0: // no bound that a tree could hide from
		return ""
	case g.cut == tree.CutEntries:
		return fmt.Sprintf("killed: the project's directories on the disk grew to more entries than can be watched (by %d)", g.entries)
	case g.cut == tree.CutDepth:
		return "killed: the project's directories on the disk were nested deeper than can be watched"
	}
	return ""
}

// kill kills a job once; Watcher.mu is held.
func (x *Watch) kill(why string) {
	if !x.killed && !x.ended {
		x.killed = true
		x.Kill(&Exceeded{why})
	}
}

// judge kills the jobs of a project that grew too much: the job that alone did it, or else all jobs
// that may have taken part. Watcher.mu is held.
func (p *project) judge() {
	limit := p.w.limits
	for _, x := range p.started() {
		if why := x.own().against(limit); why != "" {
			x.kill(why)
		}
	}
	var victim []*Watch
	var why []string
	for _, x := range p.started() {
		if reason := x.shared().against(limit); reason != "" && !x.killed {
			victim, why = append(victim, x), append(why, reason)
		}
	}
	for i, x := range victim {
		x.kill(why[i])
	}
}

// A job is blamed for a full disk only above these: killing a smaller one would not help.
const (
	leastBytes   = 1 << 20
	leastEntries = 100
)

// relieve kills one job when too little space is free: in the project that grew most, the job that
// wrote most by itself, then the newest. It kills another job only after that has died and new
// scans of all projects show that it did not help. Watcher.mu is held.
func (w *Watcher) relieve(free diskspace.Space) {
	limit, bytes, inodes := w.limits, free.Bytes, free.Inodes
	if bytes >= limit.FreeMinBytes && inodes >= limit.FreeMinInodes {
		w.low = false
		return
	}
	if !w.low {
		w.low = true
		w.renew()
	}
	if !w.settled() {
		return
	}
	size := func(g growth) int64 { return g.bytes }
	least := max(leastBytes, int64(limit.FreeMinBytes/64))
	left := fmt.Sprintf("only %d bytes are free on the workspace's disk, %d are kept free (sandbox.disk_free_min_bytes)", bytes,
		limit.FreeMinBytes)
	ofBytes := bytes < limit.FreeMinBytes
	if !ofBytes {
		size = func(g growth) int64 { return g.entries }
		least = max(leastEntries, int64(limit.FreeMinInodes/64))
		left = fmt.Sprintf("only %d inodes are free on the workspace's disk, %d are kept free (sandbox.disk_free_min_inodes)", inodes,
			limit.FreeMinInodes)
	}
	blame := func(x *Watch) int64 {
		if ofBytes {
			return max(size(x.shared()), x.unseen(bytes))
		}
		return size(x.shared())
	}
	var worst *project
	var most int64
	for _, p := range w.projects {
		for _, x := range p.started() {
			if n := blame(x); n >= least && n > most {
				worst, most = p, n
			}
		}
	}
	if worst == nil {
		return // something else fills the disk
	}
	victim := slices.MaxFunc(worst.started(), func(a, b *Watch) int {
		return cmp.Or(cmp.Compare(min(blame(a), least), min(blame(b), least)), cmp.Compare(size(a.own()), size(b.own())),
			cmp.Compare(a.number, b.number))
	})
	victim.kill(fmt.Sprintf("killed: %s, and of all projects with running jobs this one grew most, by %d", left, most))
}

// renew starts new scans of all projects; they must end before a job is blamed. Watcher.mu is held.
func (w *Watcher) renew() {
	w.stale, w.renewed = w.scans, time.Now()
	for _, p := range w.projects {
		p.urgent = true
		p.wakeUp()
	}
}

// settled reports whether all projects were scanned since renew, containers had time to report, and
// killed jobs have ended. Watcher.mu is held.
func (w *Watcher) settled() bool {
	if time.Since(w.renewed) < w.reportTime {
		return false
	}
	for _, p := range w.projects {
		if slices.ContainsFunc(p.watches, func(x *Watch) bool { return x.killed }) {
			return false
		}
		if len(p.watches) > 0 && (p.last == nil || p.last.number <= w.stale) {
			return false
		}
	}
	return true
}

// hides returns how a job hides some of its files, or "". Watcher.mu is held.
func (x *Watch) hides() string {
	if x.Open != nil && x.Open.hides(x.begun) {
		return "a process of this job hides its open files"
	}
	if x.project.last == nil {
		return ""
	}
	for of, usage := range x.project.last.parts {
		mayWrite := of.kind == work || of.kind == home && x.ExecID == "" || x.owns(of)
		if mayWrite && usage.Cut != tree.CutNone {
			return "this job's directories cannot be measured (" + string(usage.Cut) + ")"
		}
	}
	return ""
}

// unseen is the free space lost since the job began that visible growth does not explain; 0 if the
// job hides nothing. Watcher.mu is held.
func (x *Watch) unseen(free uint64) int64 {
	if x.free == 0 || x.hides() == "" {
		return 0
	}
	return int64(x.free) - int64(free) - (x.w.seen - x.seen)
}

// findHidden kills the newest of the jobs that hide files when more free space is lost than a
// project may grow by and visible growth does not explain it. Watcher.mu is held.
func (w *Watcher) findHidden(free uint64) {
	if w.limits.GrowthMaxBytes <= 0 {
		return
	}
	var newest *Watch
	for _, p := range w.projects {
		for _, x := range p.started() {
			if x.unseen(free) < 0 { // space was freed that others had used before it began
				x.free, x.seen = free, w.seen
			}
			if x.unseen(free) > w.limits.GrowthMaxBytes && (newest == nil || x.number > newest.number) {
				newest = x
			}
		}
	}
	switch {
	case newest == nil:
		w.suspect = nil
	case w.suspect != newest:
		w.suspect = newest
		w.renew()
	case w.settled():
		newest.kill(fmt.Sprintf(
			"killed: the workspace's disk lost %d bytes that no visible file explains, while %s; at most %d are allowed "+
				"(sandbox.disk_growth_max_bytes)",
			newest.unseen(free), newest.hides(), w.limits.GrowthMaxBytes))
	}
}
