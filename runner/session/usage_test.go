package session

import (
	"testing"
	"time"

	"secbox/engine"
)

// TestUsageStaysBounded: samples cover the whole life evenly, and none of the peaks is lost.
func TestUsageStaysBounded(t *testing.T) {
	t.Parallel()
	var u usage
	begun := time.Date(2026, 11, 30, 8, 0, 0, 0, time.UTC)
	const reports = 10_000
	for i := range reports {
		now := engine.Usage{CPU: time.Duration(i) * time.Millisecond, MemoryBytes: 10}
		if i == 777 {
			now.MemoryBytes = 99
		}
		u.add(now, begun.Add(time.Duration(i)*2*time.Second))
	}
	all := u.samples().Samples
	if len(all) < mostSamples/2 || len(all) > mostSamples {
		t.Fatalf("%d samples", len(all))
	}
	last, peak := all[len(all)-1], int64(0)
	for i, one := range all {
		peak = max(peak, one.MemoryBytes)
		if i > 1 && one.At.Sub(all[i-1].At) > 4*reports*2*time.Second/mostSamples {
			t.Errorf("a gap of %s", one.At.Sub(all[i-1].At))
		}
	}
	if peak != 99 || last.CPUUS != (reports-1)*1000 || !last.At.Equal(begun.Add((reports-1)*2*time.Second)) {
		t.Errorf("the peak is %d, the last one %v", peak, last)
	}
	again, err := ReadSamples(u.samples().JSON())
	if err != nil || len(again.Samples) != len(all) || again.Samples[5] != all[5] {
		t.Errorf("%d samples, %v", len(again.Samples), err)
	}
}
