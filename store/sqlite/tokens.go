package sqlite

import (
	"context"

	"secbox/store/internal/row"
	"secbox/tokens"
)

// tokenTable implements tokens.Store.
type tokenTable struct {
	row.Tokens
	db *DB
}

// Seed implements tokens.Store.
func (s tokenTable) Seed(ctx context.Context, t tokens.Token, h tokens.Hash) (created bool, err error) {
	err = s.db.inTx(ctx, func(tx tx) error {
		n, err := tx.exec(row.InsertToken+" ON CONFLICT (hash) DO NOTHING", s.InsertArgs(t, h)...)
		if err != nil || n == 0 {
			return err
		}
		created = true
		_, err = tx.exec("UPDATE tokens SET revoked_at = $1 WHERE name = $2 AND id <> $3 AND revoked_at IS NULL",
			encodeTime(t.CreatedAt), t.Name, t.ID)
		return err
	})
	return created && err == nil, err
}
