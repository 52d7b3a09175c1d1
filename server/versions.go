package server

import (
	"context"
	"log/slog"
	"math/rand/v2"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"

	"secbox/packages/library"
)

// Unused versions of skills are collected every hour. The first collection comes sooner, for
// servers that restart often.
const (
	collectInterval = time.Hour
	firstCollect    = 5 * time.Minute
)

func newCollectedVersions(r *prometheus.Registry) *prometheus.CounterVec {
	return promauto.With(r).NewCounterVec(prometheus.CounterOpts{
		Name: "secbox_skill_versions_collected_total",
		Help: "Versions of skill packages that no pointer named: put out of reach (unused), put back because one named them again " +
			"(restored), removed.",
	}, []string{"step"})
}

// collectVersions collects until ctx ends. A random delay keeps nodes from collecting at the same
// time.
func collectVersions(ctx context.Context, l *library.Library, counts *prometheus.CounterVec, log *slog.Logger) {
	for interval := firstCollect; wait(ctx, interval+rand.N(interval/10)); interval = collectInterval {
		began := time.Now()
		done, err := l.Collect(ctx, began)
		counts.WithLabelValues("unused").Add(float64(done.Retired))
		counts.WithLabelValues("restored").Add(float64(done.Restored))
		counts.WithLabelValues("removed").Add(float64(done.Removed))
		if done != (library.Collected{}) {
			log.Info("unused versions of skills were collected", "put_out_of_reach", done.Retired, "restored", done.Restored,
				"removed", done.Removed, "took", time.Since(began).Round(time.Millisecond))
		}
		if err != nil && ctx.Err() == nil {
			log.Warn("a collection of unused versions of skills is incomplete; the next one continues", "error", err)
		}
	}
}
