package row

import (
	"strings"
	"unicode/utf8"

	"secbox/fault"
	"secbox/sandbox"
)

// The statements on sandbox_choices, for both databases.
const (
	GetChoice = "SELECT user_id, backend, runner, updated_at FROM sandbox_choices WHERE user_id = $1"

	SetChoice = "INSERT INTO sandbox_choices (user_id, backend, runner, updated_at) VALUES ($1, $2, $3, $4)" +
		" ON CONFLICT (user_id) DO UPDATE SET backend = excluded.backend, runner = excluded.runner, updated_at = excluded.updated_at"
)

// ScanChoice reads a row of GetChoice.
func ScanChoice(scan func(dest ...any) error) (sandbox.Choice, error) {
	var c sandbox.Choice
	err := scan(&c.UserID, &c.Backend, &c.Runner, timeInto{&c.UpdatedAt})
	return c, err
}

// CheckChoice refuses texts that the databases would change. It does not check whether the backend exists.
func CheckChoice(c sandbox.Choice) error {
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
