package samples_test

import (
	"bytes"
	"context"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"secbox/cluster/samples"
	"secbox/fault"
)

// kept is a Store that notes what it is given, and is away for some samples.
type kept struct {
	away    []int64 // values of Running
	running []int64
	last    int64 // the value of Running after which done is closed
	done    chan struct{}
}

func (k *kept) Add(_ context.Context, s samples.Sample) error {
	n := s.Values[samples.Running]
	if slices.Contains(k.away, n) {
		return fault.New(fault.DatabaseUnavailable, "it is away")
	}
	if k.running = append(k.running, n); n == k.last {
		close(k.done)
	}
	return nil
}

func (k *kept) Day(context.Context, string) (samples.Day, error)          { return samples.Day{}, nil }
func (k *kept) Latest(context.Context) (map[string]samples.Sample, error) { return nil, nil }

// TestRecorder: a sample is taken at once and once a minute; samples of an outage are dropped,
// which the log says once, with their number at its end.
func TestRecorder(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		store, said, taken := &kept{away: []int64{3, 4, 5}, last: 6, done: make(chan struct{})}, &bytes.Buffer{}, int64(0)
		r := &samples.Recorder{Store: store, Logger: slog.New(slog.NewTextHandler(said, nil)), Take: func(context.Context) samples.Sample {
			taken++
			return samples.Sample{Values: map[samples.Name]int64{samples.Running: taken}}
		}}
		ctx, cancel := context.WithCancel(t.Context())
		var running sync.WaitGroup
		running.Go(func() { r.Run(ctx) })
		begun := time.Now()
		<-store.done
		if took := time.Since(begun); took != 5*time.Minute {
			t.Errorf("six samples took %s", took)
		}
		cancel()
		running.Wait()
		if !slices.Equal(store.running, []int64{1, 2, 6}) {
			t.Errorf("kept: %v", store.running)
		}
		if text := said.String(); strings.Count(text, "is dropped") != 1 || strings.Count(text, "kept again\" dropped=3") != 1 {
			t.Errorf("the log says %s", text)
		}
	})
}
