package postgres

import (
	"context"
	"time"

	"secbox/fault"
	"secbox/store/internal/row"
	"secbox/tokens"
)

// tokenTable implements tokens.Store.
type tokenTable struct{ db *DB }

const insertToken = "INSERT INTO tokens (" + row.TokenColumns + ", hash) VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10)"

// Create implements tokens.Store.
func (s tokenTable) Create(ctx context.Context, t tokens.Token, h tokens.Hash) error {
	return s.db.call(ctx, func(ctx context.Context) error {
		_, err := s.db.pool.Exec(ctx, insertToken, append(row.TokenValues(t, encodeTime), h[:])...)
		if duplicate(err) {
			return fault.Wrap(fault.Internal, err, "a token with this id or secret exists already")
		}
		return err
	})
}

// Seed implements tokens.Store. The update does not see the row that the same statement inserts.
func (s tokenTable) Seed(ctx context.Context, t tokens.Token, h tokens.Hash) (bool, error) {
	var created int
	_, err := s.db.one(ctx, func(scan func(...any) error) error { return scan(&created) },
		"WITH ins AS ("+insertToken+" ON CONFLICT (hash) DO NOTHING RETURNING id, name, created_at),"+
			" old AS (UPDATE tokens SET revoked_at = ins.created_at FROM ins WHERE tokens.name = ins.name AND tokens.revoked_at IS NULL)"+
			" SELECT count(*) FROM ins",
		append(row.TokenValues(t, encodeTime), h[:])...)
	return err == nil && created == 1, err
}

// List implements tokens.Store.
func (s tokenTable) List(ctx context.Context) ([]tokens.Token, error) {
	return all(ctx, s.db, scanToken, "SELECT "+row.TokenColumns+" FROM tokens ORDER BY created_at, id")
}

func scanToken(scan func(...any) error) (tokens.Token, error) { return row.ScanToken(scan) }

// Revoke implements tokens.Store.
func (s tokenTable) Revoke(ctx context.Context, id string, at time.Time) (tokens.Token, error) {
	revoked, found, err := first(ctx, s.db, scanToken,
		"UPDATE tokens SET revoked_at = coalesce(revoked_at, $1) WHERE id = $2 RETURNING "+row.TokenColumns,
		encodeTime(at.UTC().Truncate(time.Microsecond)), row.Text(id))
	if err == nil && !found {
		err = fault.New(fault.UnknownToken, "there is no token %q", row.Text(id))
	}
	return revoked, err
}

// ByHash implements tokens.Store.
func (s tokenTable) ByHash(ctx context.Context, h tokens.Hash) (tokens.Token, tokens.Hash, error) {
	var found tokens.Token
	var stored []byte
	_, err := s.db.one(ctx, func(scan func(...any) error) error {
		var err error
		found, err = row.ScanToken(scan, &stored)
		return err
	}, "SELECT "+row.TokenColumns+", hash FROM tokens WHERE hash = $1", h[:])
	return row.FoundToken(found, stored, err)
}

// ByID implements tokens.Store.
func (s tokenTable) ByID(ctx context.Context, id string) (tokens.Token, error) {
	t, found, err := first(ctx, s.db, scanToken, "SELECT "+row.TokenColumns+" FROM tokens WHERE id = $1", row.Text(id))
	if err == nil && !found {
		err = fault.New(fault.UnknownToken, "there is no token %q", row.Text(id))
	}
	return t, err
}

// Names implements tokens.Store.
func (s tokenTable) Names(ctx context.Context, ids []string) (map[string]string, error) {
	type named struct{ id, name string }
	found, err := all(ctx, s.db, func(scan func(...any) error) (n named, err error) { err = scan(&n.id, &n.name); return n, err },
		"SELECT id, name FROM tokens WHERE id = ANY ($1)", row.Texts(ids))
	if err != nil {
		return nil, err
	}
	names := make(map[string]string, len(found))
	for _, n := range found {
		names[n.id] = n.name
	}
	return names, nil
}

// Any implements tokens.Store.
func (s tokenTable) Any(ctx context.Context) (exists bool, err error) {
	_, err = s.db.one(ctx, func(scan func(...any) error) error { return scan(&exists) },
		"SELECT EXISTS (SELECT 1 FROM tokens WHERE role <> 'runner')")
	return exists, err
}
