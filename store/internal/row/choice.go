package row

import (
	"context"
	"strings"
	"unicode/utf8"

	"secbox/audit/admin"
	"secbox/fault"
	"secbox/sandbox"
)

// Choices implements sandbox.Choices.
type Choices struct{ Database }

// Choice implements sandbox.Choices.
func (db Choices) Choice(ctx context.Context, userID string) (sandbox.Choice, bool, error) {
	return One(ctx, db.Query, scanChoice, "SELECT user_id, backend, runner, updated_at FROM sandbox_choices WHERE user_id = $1",
		Text(userID))
}

func scanChoice(scan Scan) (sandbox.Choice, error) {
	var c sandbox.Choice
	err := scan(&c.UserID, &c.Backend, &c.Runner, timeInto{&c.UpdatedAt})
	return c, err
}

// Choose implements sandbox.Choices.
func (db Choices) Choose(ctx context.Context, c sandbox.Choice) error {
	if err := checkChoice(c); err != nil {
		return err
	}
	data := map[string]any{"backend": c.Backend}
	if c.Runner != "" {
		data["runner"] = c.Runner
	}
	return db.withEvent(ctx, nil, admin.BackendChosen, c.UserID, data,
		"INSERT INTO sandbox_choices (user_id, backend, runner, updated_at) VALUES ($1, $2, $3, $4)"+
			" ON CONFLICT (user_id) DO UPDATE SET backend = excluded.backend, runner = excluded.runner, updated_at = excluded.updated_at"+
			" WHERE sandbox_choices.backend <> excluded.backend OR sandbox_choices.runner <> excluded.runner RETURNING user_id",
		c.UserID, c.Backend, c.Runner, db.stored(c.UpdatedAt))
}

// checkChoice refuses texts that the databases would change. It does not check whether the backend
// exists.
func checkChoice(c sandbox.Choice) error {
	for _, part := range []struct {
		field, value string
		needed       bool
	}{{"user_id", c.UserID, true}, {"backend", c.Backend, true}, {"runner", c.Runner, false}} {
		switch {
		case part.needed && part.value == "":
			return fault.BadField(part.field, "is empty")
		case len(part.value) > MaxKey:
			return fault.BadField(part.field, "is longer than %d bytes", MaxKey)
		case !utf8.ValidString(part.value) || strings.ContainsRune(part.value, 0):
			return fault.BadField(part.field, "is no UTF-8 text, or contains NUL")
		}
	}
	if c.UpdatedAt.IsZero() {
		return fault.New(fault.Internal, "a choice without its time cannot be kept")
	}
	return nil
}
