package mcpserver

import (
	"context"
	"log/slog"
)

// quieter is a handler that takes every record one level down: Info becomes Debug, Warn becomes Info.
type quieter struct{ slog.Handler }

const oneLevel = slog.LevelInfo - slog.LevelDebug

func (q quieter) Enabled(ctx context.Context, level slog.Level) bool {
	return q.Handler.Enabled(ctx, level-oneLevel)
}

func (q quieter) Handle(ctx context.Context, record slog.Record) error {
	record.Level -= oneLevel
	return q.Handler.Handle(ctx, record)
}

func (q quieter) WithAttrs(attrs []slog.Attr) slog.Handler {
	return quieter{q.Handler.WithAttrs(attrs)}
}

func (q quieter) WithGroup(name string) slog.Handler { return quieter{q.Handler.WithGroup(name)} }
