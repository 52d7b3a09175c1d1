package server

import (
	"context"
	"log/slog"
	"math/rand/v2"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"secbox/settings"
	"secbox/skills/library"
	"secbox/workspace"
)

// idlePause is how often idle workspaces are looked for.
const idlePause = time.Hour

func idleAfter(s settings.Settings) time.Duration {
	return time.Duration(s.Workspaces.IdleSeconds) * time.Second
}

// markEvery is how often an access is put on the disk: as seldom as it makes no difference.
func markEvery(idleAfter time.Duration) time.Duration {
	if idleAfter <= 0 {
		return 0 // what the workspace takes by itself: other nodes may pack
	}
	return min(5*time.Minute, idleAfter/10)
}

// packIdle packs idle workspaces until ctx ends: every hour, or more often when they are idle sooner, and not at the same moment on all
// nodes. What a round does not get done in its time waits for the next one.
func packIdle(ctx context.Context, l *library.Library, after time.Duration, log *slog.Logger) {
	if after <= 0 {
		return
	}
	every := min(idlePause, max(after/4, time.Second))
	for {
		select {
		case <-ctx.Done():
			return
		case <-time.After(every + rand.N(every/10)):
		}
		round, end := context.WithTimeout(ctx, max(every, time.Minute))
		if _, err := l.PackIdle(round, after); err != nil && ctx.Err() == nil {
			log.Warn("not all idle workspaces were looked at; the next round goes on", "error", err)
		}
		end()
	}
}

// idleWatch logs and counts what happens to idle workspaces.
type idleWatch struct {
	log    *slog.Logger
	events *prometheus.CounterVec
	bytes  *prometheus.CounterVec
}

func newIdleWatch(log *slog.Logger) *idleWatch {
	return &idleWatch{
		log: log,
		events: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "secbox_workspaces_idle_total", Help: "What happened to workspaces that nobody used: packed, restored, kept, damaged, set_aside.",
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
			log.Info("a workspace that nobody used is packed", "copies_left_out", len(e.LeftOut))
		} else {
			log.Info("a packed workspace is back")
		}
	case workspace.IdleKept:
		log.Warn("a workspace that nobody uses stays as it is", "error", e.Err)
	case workspace.IdleDamaged:
		log.Error("a packed workspace cannot be read; nothing of it was changed", "error", e.Err)
	case workspace.IdleSetAside:
		log.Error("what was packed of a workspace is set aside", "error", e.Err)
	}
}
