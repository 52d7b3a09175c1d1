package server

import (
	"context"
	"log/slog"
	"math/rand/v2"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"secbox/skills/library"
)

// collectPause is how often versions of skills that nobody points to are looked for. The first time comes sooner: a server that is started
// anew every half hour collects too.
const (
	collectPause = time.Hour
	collectFirst = 5 * time.Minute
)

func newCollectedVersions(r *prometheus.Registry) *prometheus.CounterVec {
	c := prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "secbox_skill_versions_collected_total",
		Help: "Versions of skill packages that no pointer named: put out of reach (unused), put back because one named them again (restored), removed.",
	}, []string{"step"})
	r.MustRegister(c)
	return c
}

// collectVersions collects until ctx ends, and not at the same moment on all nodes.
func collectVersions(ctx context.Context, l *library.Library, counts *prometheus.CounterVec, log *slog.Logger) {
	for pause := collectFirst; ; pause = collectPause {
		select {
		case <-ctx.Done():
			return
		case <-time.After(pause + rand.N(pause/10)):
		}
		began := time.Now()
		done, err := l.Collect(ctx, began)
		counts.WithLabelValues("unused").Add(float64(done.PutAway))
		counts.WithLabelValues("restored").Add(float64(done.Restored))
		counts.WithLabelValues("removed").Add(float64(done.Removed))
		if done != (library.Collected{}) {
			log.Info("versions of skills that nobody points to were collected", "put_out_of_reach", done.PutAway, "restored", done.Restored,
				"removed", done.Removed, "took", time.Since(began).Round(time.Millisecond))
		}
		if err != nil && ctx.Err() == nil {
			log.Warn("not all versions of skills were looked at; the next collection goes on", "error", err)
		}
	}
}
