package main

import (
	"io"
	"log/slog"

	"secbox/settings"
)

// newLogger makes the logger of the process. Package settings has checked level and format.
func newLogger(w io.Writer, s settings.Settings) *slog.Logger {
	var level slog.Level
	if err := level.UnmarshalText([]byte(s.LogLevel)); err != nil {
		level = slog.LevelInfo
	}
	options := &slog.HandlerOptions{Level: level}
	if s.LogFormat == "json" {
		return slog.New(slog.NewJSONHandler(w, options))
	}
	return slog.New(slog.NewTextHandler(w, options))
}
