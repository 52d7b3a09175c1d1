package server

import (
	"context"

	"secbox/cluster/samples"
	"secbox/health"
)

// Bounds of the problems in a sample.
const (
	sampleProblems = 5
	sampleText     = 400 // bytes of a reason or remedy
)

// recorder keeps the numbers of this node for the console's charts.
func (s *Server) recorder() *samples.Recorder {
	var before totals
	return &samples.Recorder{Store: s.db.Samples(), Logger: s.log, Take: func(ctx context.Context) samples.Sample {
		now := s.totals()
		sample := s.sample(s.checker.Report(ctx), now.since(before))
		before = now
		return sample
	}}
}

// totals are counters since the start of this process.
type totals struct{ ended, failed, misses int64 }

func (s *Server) totals() totals {
	return totals{ended: s.metrics.endedExecs.Load(), failed: s.metrics.failedExecs.Load(), misses: s.engine.Stats().Misses}
}

func (t totals) since(before totals) totals {
	return totals{ended: t.ended - before.ended, failed: t.failed - before.failed, misses: t.misses - before.misses}
}

// sample returns the numbers of this node now. Those that a failed check did not find are left out.
func (s *Server) sample(report health.Report, counted totals) samples.Sample {
	running, queued := s.runner.Load()
	pool := s.engine.Stats()
	values := map[samples.Name]int64{
		samples.Running: int64(running), samples.Slots: int64(s.settings.Sandbox.MaxConcurrentExecs), samples.Queued: int64(queued),
		samples.Commands: int64(s.sandboxes.Running()), samples.Ended: counted.ended, samples.Failed: counted.failed,
		samples.Spool: int64(report.AuditSpool.Results), samples.Problems: int64(len(report.Problems)),
	}
	if pool.Max > 0 {
		values[samples.PoolWaiting], values[samples.PoolStarting] = int64(pool.Waiting), int64(pool.Starting)
		values[samples.PoolMax], values[samples.PoolMisses] = int64(pool.Max), counted.misses
	}
	if _, available := memory(); available >= 0 {
		values[samples.MemoryFree] = available << 10
	}
	if free := report.WorkspaceFree; free != nil {
		values[samples.WorkspaceFree] = int64(min(free.Bytes, 1<<62))
	}
	if free := report.StateFree; free != nil {
		values[samples.StateFree] = int64(min(free.Bytes, 1<<62))
	}
	if log := report.AuditLog; log.Entries > 0 {
		values[samples.LogEntries], values[samples.LogBehind] = log.Entries, int64(log.BehindEvents)
		values[samples.LogBehindMS] = log.BehindMS
		for _, w := range log.Witnesses {
			values[samples.WitnessBehind] = max(values[samples.WitnessBehind], log.Entries-w.Entries)
		}
	}
	return samples.Sample{NodeID: s.state.NodeID(), Values: values, Health: sampledHealth(report)}
}

// sampledHealth returns the status and the first problems, in few bytes.
func sampledHealth(report health.Report) samples.Health {
	out := samples.Health{Status: string(report.Status)}
	cut := func(text string) string { return text[:min(len(text), sampleText)] } // the store mends a character that is cut
	for _, p := range report.Problems[:min(len(report.Problems), sampleProblems)] {
		out.Problems = append(out.Problems, samples.Problem{Check: cut(p.Check), Reason: cut(p.Reason), Remedy: cut(p.Remedy)})
	}
	return out
}
