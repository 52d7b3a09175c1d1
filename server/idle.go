package server

import (
	"context"
	"log/slog"
	"math/rand/v2"
	"time"

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
		return 0 // the workspace's default: other nodes may look for idle workspaces
	}
	return min(5*time.Minute, idleAfter/10)
}

// watchIdle unpacks the workspaces that an older core-api has packed, and then removes copies of
// skills from idle workspaces until ctx ends: every hour, or more often for a short after. The next
// round continues one that took too long. It also marks the workspaces in which commands of this
// node run, so that no other node takes them for idle.
func watchIdle(ctx context.Context, l *library.Library, after time.Duration, log *slog.Logger) {
	unpackAll(ctx, l.Workspace, log)
	every := idleInterval
	if after > 0 {
		every = min(every, max(after/4, time.Second))
	}
	for wait(ctx, every+rand.N(every/10)) {
		l.Workspace.MarkRunning()
		if after <= 0 {
			continue
		}
		round, end := context.WithTimeout(ctx, max(every, time.Minute))
		if err := l.DropIdleCopies(round, after); err != nil && ctx.Err() == nil {
			log.Warn("a search for idle workspaces is incomplete; the next one continues", "error", err)
		}
		end()
	}
}

// unpackAll unpacks every workspace that is packed, and completes removals of workspaces that a
// process has not. A workspace that is used before is unpacked then.
func unpackAll(ctx context.Context, w *workspace.Workspace, log *slog.Logger) {
	err := w.Workspaces(func(p *workspace.Project) error {
		if err := p.Unpack(ctx); err != nil && ctx.Err() == nil {
			log.Error("the packed files of a workspace were not brought back; its next use tries it again", "project", p.ID(), "error", err)
		}
		if err := p.RemoveRest(ctx); err != nil && ctx.Err() == nil {
			log.Error("the rest of a removed workspace stays on the disk; retention tries it again", "project", p.ID(), "error", err)
		}
		return context.Cause(ctx)
	})
	if err != nil && ctx.Err() == nil {
		log.Error("cannot look for packed workspaces; each is unpacked when it is used", "error", err)
	}
}
