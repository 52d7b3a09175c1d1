package sqlite

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
	return s.db.inTx(ctx, func(tx tx) error {
		_, err := tx.exec(insertToken, append(row.TokenValues(t, encodeTime), h[:])...)
		if duplicate(err) {
			return fault.Wrap(fault.Internal, err, "a token with this id or secret exists already")
		}
		return err
	})
}

// Seed implements tokens.Store.
func (s tokenTable) Seed(ctx context.Context, t tokens.Token, h tokens.Hash) (created bool, err error) {
	err = s.db.inTx(ctx, func(tx tx) error {
		n, err := tx.exec(insertToken+" ON CONFLICT (hash) DO NOTHING", append(row.TokenValues(t, encodeTime), h[:])...)
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

// List implements tokens.Store.
func (s tokenTable) List(ctx context.Context) ([]tokens.Token, error) {
	return all(ctx, s.db, scanToken, "SELECT "+row.TokenColumns+" FROM tokens ORDER BY created_at, id")
}

func scanToken(scan func(...any) error) (tokens.Token, error) { return row.ScanToken(scan) }

// Revoke implements tokens.Store.
func (s tokenTable) Revoke(ctx context.Context, id string, at time.Time) (tokens.Token, error) {
	var revoked *tokens.Token
	err := s.db.inTx(ctx, func(tx tx) (err error) {
		revoked, err = returned(tx, scanToken,
			"UPDATE tokens SET revoked_at = coalesce(revoked_at, $1) WHERE id = $2 RETURNING "+row.TokenColumns, encodeTime(at), row.Text(id))
		return err
	})
	if err != nil {
		return tokens.Token{}, err
	}
	if revoked == nil {
		return tokens.Token{}, fault.New(fault.UnknownToken, "there is no token %q", row.Text(id))
	}
	return *revoked, nil
}

// ByHash implements tokens.Store.
func (s tokenTable) ByHash(ctx context.Context, h tokens.Hash) (tokens.Token, tokens.Hash, error) {
	var found tokens.Token
	var stored []byte
	err := s.db.lookUp(ctx, func(scan func(...any) error) error {
		var err error
		found, err = row.ScanToken(scan, &stored)
		return err
	}, "SELECT "+row.TokenColumns+", hash FROM tokens WHERE hash = $1", h[:])
	return row.FoundToken(found, stored, err)
}

// ByID implements tokens.Store.
func (s tokenTable) ByID(ctx context.Context, id string) (tokens.Token, error) {
	t, found, err := one(ctx, s.db, scanToken, "SELECT "+row.TokenColumns+" FROM tokens WHERE id = $1", row.Text(id))
	if err == nil && !found {
		err = fault.New(fault.UnknownToken, "there is no token %q", row.Text(id))
	}
	return t, err
}

// Names implements tokens.Store.
func (s tokenTable) Names(ctx context.Context, ids []string) (map[string]string, error) {
	names := map[string]string{}
	err := s.db.lookUp(ctx, func(scan func(...any) error) error {
		var id, name string
		err := scan(&id, &name)
		names[id] = name
		return err
	}, "SELECT id, name FROM tokens WHERE id IN (SELECT value FROM json_each($1))", dialect().Set(row.Texts(ids)))
	if err != nil {
		return nil, err
	}
	return names, nil
}

// Any implements tokens.Store.
func (s tokenTable) Any(ctx context.Context) (exists bool, err error) {
	err = s.db.lookUp(ctx, func(scan func(...any) error) error { return scan(&exists) },
		"SELECT EXISTS (SELECT 1 FROM tokens WHERE role <> 'runner')")
	return exists, err
}
