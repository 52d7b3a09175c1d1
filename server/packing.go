package server

import (
	"context"
	"log/slog"
	"math/rand/v2"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"secbox/packages/library"
	"secbox/settings"
	"secbox/workspace"
)

const idleInterval = time.Hour // between two searches for idle workspaces

func idleAfter(s settings.Settings) time.Duration {
	return time.Duration(s.Workspaces.IdleSeconds) * time.Second
}

// markEvery is how often an access is recorded on disk: as rarely as idleAfter permits.
func markEvery(idleAfter time.Duration) time.Duration {
	if idleAfter <= 0 {
		return 0 // the workspace's default: other nodes may pack
	}
	return min(5*time.Minute, idleAfter/10)
}

// packIdle packs idle workspaces until ctx ends: every hour, or more often for a short after. A random delay keeps nodes from packing at the
// same time. The next round continues one that took too long.
func packIdle(ctx context.Context, l *library.Library, after time.Duration, log *slog.Logger) {
	if after <= 0 {
		return
	}
	every := min(idleInterval, max(after/4, time.Second))
	for wait(ctx, every+rand.N(every/10)) {
		round, end := context.WithTimeout(ctx, max(every, time.Minute))
		if _, err := l.PackIdle(round, after); err != nil && ctx.Err() == nil {
			log.Warn("a search for idle workspaces is incomplete; the next one continues", "error", err)
		}
		end()
	}
}

// idleWatch logs and counts events of idle workspaces.
type idleWatch struct {
	log    *slog.Logger
	events *prometheus.CounterVec
	bytes  *prometheus.CounterVec
}

func newIdleWatch(log *slog.Logger) *idleWatch {
	return &idleWatch{
		log: log,
		events: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "secbox_workspaces_idle_total", Help: "Events of idle workspaces: packed, restored, kept, damaged, set_aside.",
		}, []string{"event"}),
		bytes: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "secbox_workspaces_idle_bytes_total", Help: "Bytes of files that were packed and restored, and of their packs.",
		}, []string{"event", "of"}),
	}
}

func (w *idleWatch) register(r *prometheus.Registry) { r.MustRegister(w.events, w.bytes) }

func (w *idleWatch) happened(e workspace.IdleEvent) {
	w.events.WithLabelValues(string(e.Kind)).Inc()
	log := w.log.With("project", e.ProjectID)
	switch e.Kind {
	case workspace.IdlePacked, workspace.IdleRestored:
		w.bytes.WithLabelValues(string(e.Kind), "files").Add(float64(e.Bytes))
		w.bytes.WithLabelValues(string(e.Kind), "pack").Add(float64(e.PackedBytes))
		log = log.With("entries", e.Entries, "bytes", e.Bytes, "packed_bytes", e.PackedBytes, "took", e.Took.Round(time.Millisecond))
		if e.Kind == workspace.IdlePacked {
			log.Info("an idle workspace was packed", "copies_left_out", len(e.LeftOut))
		} else {
			log.Info("a packed workspace was restored")
		}
	case workspace.IdleKept:
		log.Warn("an idle workspace could not be packed", "error", e.Err)
	case workspace.IdleDamaged:
		log.Error("cannot read a packed workspace; it is unchanged", "error", e.Err)
	case workspace.IdleSetAside:
		log.Error("the pack of a workspace was set aside", "error", e.Err)
	}
}
