package postgres

import (
	"context"
	"time"

	"secbox/sandbox"
	"secbox/store/internal/row"
)

// choiceTable implements sandbox.Choices.
type choiceTable struct{ db *DB }

// Choice implements sandbox.Choices.
func (s choiceTable) Choice(ctx context.Context, userID string) (sandbox.Choice, bool, error) {
	return first(ctx, s.db, row.ScanChoice, row.GetChoice, row.Text(userID))
}

// Choose implements sandbox.Choices.
func (s choiceTable) Choose(ctx context.Context, c sandbox.Choice) error {
	if err := row.CheckChoice(c); err != nil {
		return err
	}
	return s.db.exec(ctx, row.SetChoice, c.UserID, c.Backend, c.Runner, encodeTime(c.UpdatedAt.UTC().Truncate(time.Microsecond)))
}
