package bench

import (
	"math"
	"slices"
	"time"
)

// Summary is a set of times in milliseconds.
type Summary struct {
	N   int     `json:"n"`
	P50 float64 `json:"p50_ms"`
	P95 float64 `json:"p95_ms"`
	Min float64 `json:"min_ms"`
	Max float64 `json:"max_ms"`
}

func summarise(times []time.Duration) Summary {
	ms := make([]float64, len(times))
	for i, t := range times {
		ms[i] = milliseconds(t)
	}
	return Summary{N: len(ms), P50: quantile(ms, 0.5), P95: quantile(ms, 0.95), Min: quantile(ms, 0), Max: quantile(ms, 1)}
}

func milliseconds(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }

// quantile interpolates between neighbours, so that the median of two is their mean; NaN of nothing.
func quantile(values []float64, q float64) float64 {
	if len(values) == 0 {
		return math.NaN()
	}
	sorted := slices.Sorted(slices.Values(values))
	at := q * float64(len(sorted)-1)
	low := int(math.Floor(at))
	high := min(low+1, len(sorted)-1)
	return sorted[low] + (sorted[high]-sorted[low])*(at-float64(low))
}

func median(values []float64) float64 { return quantile(values, 0.5) }
