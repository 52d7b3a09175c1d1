package storetest

import (
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"secbox/audit"
	"secbox/store/storetest/planprobe"
)

// MeasureWriting measures what an exec costs its database: its opening and its closing, alone,
// alone after a pause, and with 16 execs at once. Beside the mean that testing prints, it reports
// the 50th and the 95th percentile in microseconds. The pause is what a quiet server has between
// two execs: the processor's caches have been used for something else since.
//
// What it finds depends on the disk below TMPDIR: on tmpfs a flush costs nothing.
func MeasureWriting(b *testing.B, db Database) {
	for _, c := range []struct {
		name   string
		atOnce int
		pause  time.Duration
	}{{"alone", 1, 0}, {"paused", 1, 20 * time.Millisecond}, {"16-at-once", 16, 0}} {
		b.Run(c.name, func(b *testing.B) { measureWriting(b, db.Audit(), c.atOnce, c.pause) })
	}
}

// written counts over all benchmarks of a process, so that no id comes twice.
var written atomic.Int64

func measureWriting(b *testing.B, s audit.Store, atOnce int, pause time.Duration) {
	opening, closing := make([]time.Duration, b.N), make([]time.Duration, b.N)
	var turn atomic.Int64
	var workers sync.WaitGroup
	b.ReportAllocs()
	b.ResetTimer()
	for range atOnce {
		workers.Go(func() {
			for {
				i := int(turn.Add(1)) - 1
				if i >= b.N {
					return
				}
				end := planprobe.Exec(int(written.Add(1)), 1_000_000)
				start := end
				start.Status, start.ErrorReason, start.ExitCode, start.EndedAt, start.DurationMS = audit.Running, "", nil, time.Time{}, 0
				start.ManifestDigest, start.StdoutBytes, start.ArtifactsBytes = "", 0, 0
				time.Sleep(pause)
				begun := time.Now()
				if taken, err := s.Open(b.Context(), start); err != nil || taken != nil {
					b.Errorf("open: %v, %v", taken, err)
					return
				}
				opened := time.Now()
				if _, err := s.Close(b.Context(), end); err != nil {
					b.Errorf("close: %v", err)
					return
				}
				opening[i], closing[i] = opened.Sub(begun), time.Since(opened)
			}
		})
	}
	workers.Wait()
	b.StopTimer()
	both := make([]time.Duration, b.N)
	for i := range both {
		both[i] = opening[i] + closing[i]
	}
	for name, took := range map[string][]time.Duration{"open": opening, "close": closing, "both": both} {
		slices.Sort(took)
		b.ReportMetric(float64(took[len(took)/2].Nanoseconds())/1e3, name+"-p50-µs")
		b.ReportMetric(float64(took[len(took)*95/100].Nanoseconds())/1e3, name+"-p95-µs")
	}
	b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "execs/s")
}
