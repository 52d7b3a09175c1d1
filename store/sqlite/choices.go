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
	var found *sandbox.Choice
	err := s.db.lookUp(ctx, func(scan func(...any) error) error {
		c, err := row.ScanChoice(scan)
		found = &c
		return err
	}, row.GetChoice, row.Text(userID))
	if err != nil || found == nil {
		return sandbox.Choice{}, false, err
	}
	return *found, true, nil
}

// Choose implements sandbox.Choices.
func (s choiceTable) Choose(ctx context.Context, c sandbox.Choice) error {
	if err := row.CheckChoice(c); err != nil {
		return err
	}
	return s.db.inTx(ctx, func(tx tx) error {
		_, err := tx.exec(row.SetChoice, c.UserID, c.Backend, c.Runner, stamp(c.UpdatedAt))
		return err
	})
}
