package sqlite

import (
	"context"

	"secbox/access/tokens"
	"secbox/store/internal/row"
)

// tokenTable implements tokens.Store.
type tokenTable struct {
	row.Tokens
	db *DB
}

// Seed implements tokens.Store.
func (s tokenTable) Seed(ctx context.Context, t tokens.Token, h tokens.Hash) (created bool, err error) {
	event, replaced, err := s.SeedEvents(ctx, t)
	if err != nil {
		return false, err
	}
	err = s.db.inTx(ctx, func(tx tx) error {
		n, err := tx.exec(row.InsertToken+" ON CONFLICT (hash) DO NOTHING", s.InsertArgs(t, h)...)
		if err != nil || n == 0 {
			return err
		}
		created = true
		old, err := row.All(ctx, tx.each, row.Value[string],
			"UPDATE tokens SET revoked_at = $1 WHERE name = $2 AND id <> $3 AND revoked_at IS NULL RETURNING id",
			encodeTime(t.CreatedAt), t.Name, t.ID)
		if err != nil {
			return err
		}
		if err := s.db.insertEvent(tx, event, ""); err != nil {
			return err
		}
		for _, id := range old {
			if err := s.db.insertEvent(tx, replaced, id); err != nil {
				return err
			}
		}
		return nil
	})
	return created && err == nil, err
}
