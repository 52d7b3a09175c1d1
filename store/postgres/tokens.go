package postgres

import (
	"context"

	"secbox/access/tokens"
	"secbox/store/internal/row"
)

// tokenTable implements tokens.Store.
type tokenTable struct{ row.Tokens }

// Seed implements tokens.Store. The update does not see the row that the same statement inserts.
func (s tokenTable) Seed(ctx context.Context, t tokens.Token, h tokens.Hash) (bool, error) {
	event, replaced, err := s.SeedEvents(ctx, t)
	if err != nil {
		return false, err
	}
	args := row.Params(s.InsertArgs(t, h))
	statement := "WITH ins AS (" + row.InsertToken + " ON CONFLICT (hash) DO NOTHING RETURNING id, name, created_at)," +
		" old AS (UPDATE tokens SET revoked_at = ins.created_at FROM ins WHERE tokens.name = ins.name AND tokens.revoked_at IS NULL " +
		"RETURNING tokens.id)," +
		" made AS (" + s.InsertEvent(&args, event, "") + " FROM ins)," +
		" replaced AS (" + s.InsertEvent(&args, replaced, "old.id") + " FROM old)" +
		" SELECT count(*) FROM ins"
	created, _, err := row.One(ctx, s.Write, row.Value[int], statement, args...)
	return err == nil && created == 1, err
}
