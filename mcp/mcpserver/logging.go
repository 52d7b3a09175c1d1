package mcpserver

import (
	"context"
	"log/slog"
)

// demoter lowers the level of every record by one: Info becomes Debug, Warn becomes Info.
type demoter struct{ slog.Handler }

const oneLevel = slog.LevelInfo - slog.LevelDebug

func (d demoter) Enabled(ctx context.Context, level slog.Level) bool {
	return d.Handler.Enabled(ctx, level-oneLevel)
}

func (d demoter) Handle(ctx context.Context, record slog.Record) error {
	record.Level -= oneLevel
	return d.Handler.Handle(ctx, record)
}

func (d demoter) WithAttrs(attrs []slog.Attr) slog.Handler {
	return demoter{d.Handler.WithAttrs(attrs)}
}

func (d demoter) WithGroup(name string) slog.Handler { return demoter{d.Handler.WithGroup(name)} }
