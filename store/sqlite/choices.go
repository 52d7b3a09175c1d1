package sqlite

import (
	"context"

	"secbox/sandbox"
	"secbox/store/internal/row"
)

// choiceTable implements sandbox.Choices.
type choiceTable struct{ db *DB }

// Choice implements sandbox.Choices.
func (s choiceTable) Choice(ctx context.Context, userID string) (sandbox.Choice, bool, error) {
	return one(ctx, s.db, row.ScanChoice, row.GetChoice, row.Text(userID))
}

// Choose implements sandbox.Choices.
func (s choiceTable) Choose(ctx context.Context, c sandbox.Choice) error {
	if err := row.CheckChoice(c); err != nil {
		return err
	}
	return s.db.inTx(ctx, func(tx tx) error {
		_, err := tx.exec(row.SetChoice, c.UserID, c.Backend, c.Runner, encodeTime(c.UpdatedAt))
		return err
	})
}
