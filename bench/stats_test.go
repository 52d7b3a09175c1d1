package bench

import (
	"math"
	"testing"
	"time"
)

func TestQuantile(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		values []float64
		q      float64
		want   float64
	}{
		{[]float64{3}, 0.5, 3},
		{[]float64{4, 1}, 0.5, 2.5},
		{[]float64{9, 1, 5}, 0.5, 5},
		{[]float64{9, 1, 5}, 0, 1},
		{[]float64{9, 1, 5}, 1, 9},
		{[]float64{0, 10, 20, 30, 40}, 0.95, 38},
	} {
		if got := quantile(c.values, c.q); math.Abs(got-c.want) > 1e-9 {
			t.Errorf("quantile(%v, %v) = %v, want %v", c.values, c.q, got, c.want)
		}
	}
	if !math.IsNaN(median(nil)) {
		t.Error("the median of nothing is a number")
	}
	if s := summarise([]time.Duration{3 * time.Millisecond, time.Millisecond}); s != (Summary{N: 2, P50: 2, P95: 2.9, Min: 1, Max: 3}) {
		t.Errorf("%+v", s)
	}
}
