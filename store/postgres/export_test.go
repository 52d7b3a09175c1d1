package postgres

import (
	"context"

	"secbox/store/internal/row"
)

// Pooled reports whether the database is behind a connection pooler.
func (db *DB) Pooled() bool { return db.pooled }

// Setting is what the server says of one of its settings over a connection of ours.
func (db *DB) Setting(ctx context.Context, name string) (value string, err error) {
	return one(ctx, db.run, "SELECT current_setting($1)", name)
}

// Everywhere is what the server answers to a query in each way in which statements run.
func (db *DB) Everywhere(ctx context.Context, query string, args ...any) (map[string]string, error) {
	answers := map[string]string{}
	for how, run := range map[string]row.Run{
		"run": db.run, "read": db.read, "list": db.list,
		"transaction": func(ctx context.Context, each func(row.Scan) error, statement string, args ...any) error {
			return db.inTx(ctx, func(run row.Run) error { return run(ctx, each, statement, args...) })
		},
		"snapshot": func(ctx context.Context, each func(row.Scan) error, statement string, args ...any) error {
			return db.snapshot(ctx, func(run row.Run) error { return run(ctx, each, statement, args...) })
		},
	} {
		answer, err := one(ctx, run, query, args...)
		if err != nil {
			return nil, err
		}
		answers[how] = answer
	}
	return answers, nil
}

func one(ctx context.Context, run row.Run, query string, args ...any) (string, error) {
	value, _, err := row.One(ctx, run, row.Value[string], query, args...)
	return value, err
}
