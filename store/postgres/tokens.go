package postgres

import (
	"context"

	"secbox/store/internal/row"
	"secbox/tokens"
)

// tokenTable implements tokens.Store.
type tokenTable struct{ row.Tokens }

// Seed implements tokens.Store. The update does not see the row that the same statement inserts.
func (s tokenTable) Seed(ctx context.Context, t tokens.Token, h tokens.Hash) (bool, error) {
	created, _, err := row.One(ctx, s.Write, row.Value[int],
		"WITH ins AS ("+row.InsertToken+" ON CONFLICT (hash) DO NOTHING RETURNING id, name, created_at),"+
			" old AS (UPDATE tokens SET revoked_at = ins.created_at FROM ins WHERE tokens.name = ins.name AND tokens.revoked_at IS NULL)"+
			" SELECT count(*) FROM ins",
		s.InsertArgs(t, h)...)
	return err == nil && created == 1, err
}
