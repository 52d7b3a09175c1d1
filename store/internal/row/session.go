package row

import (
	"context"

	"secbox/admin"
	"secbox/fault"
	"secbox/sessions"
	"secbox/tokens"
)

// Sessions implements sessions.Store. Tx runs statements of constant text in one durable transaction.
type Sessions struct {
	Database
	Tx func(ctx context.Context, fn func(run Run) error) error
}

// Begin implements sessions.Store.
func (db Sessions) Begin(ctx context.Context, h sessions.Hash, tokenID, address string) error {
	e, err := admin.New(ctx, admin.SignedIn, tokenID, map[string]any{"address": address})
	if err != nil {
		return err
	}
	return db.Tx(ctx, func(run Run) error {
		var args Params
		if err := run(ctx, nil, "DELETE FROM console_sessions WHERE begun_at <= "+db.Ago(&args, sessions.Lifetime), args...); err != nil {
			return err
		}
		err := run(ctx, nil, "DELETE FROM console_sessions WHERE token_id = $1 AND hash NOT IN (SELECT hash FROM console_sessions WHERE token_id = $1 ORDER BY begun_at DESC, hash LIMIT $2)",
			Text(tokenID), sessions.MaxPerToken-1)
		if err != nil {
			return err
		}
		all, _, err := One(ctx, run, Value[int], "SELECT count(*) FROM console_sessions")
		if err != nil {
			return err
		}
		if all >= sessions.Max {
			return fault.New(fault.ServerBusy, "%d browsers are signed in, which is the limit; sign out elsewhere, or try again later", all)
		}
		args = Params{h[:]}
		_, valid, err := One(ctx, run, Value[string], "INSERT INTO console_sessions (hash, token_id, begun_at) SELECT $1, id, "+db.Now(&args)+
			" FROM tokens WHERE id = "+args.Add(Text(tokenID))+" AND revoked_at IS NULL RETURNING token_id", args...)
		if err == nil && !valid {
			err = fault.New(fault.TokenRevoked, "this token was revoked; ask an administrator for a new one")
		}
		if err != nil {
			return err
		}
		args = nil
		return run(ctx, nil, db.InsertEvent(&args, e, ""), args...)
	})
}

// Token implements sessions.Store.
func (db Sessions) Token(ctx context.Context, h sessions.Hash) (tokens.Token, error) {
	args := Params{h[:]}
	t, found, err := One(ctx, db.Query, scanToken, "SELECT "+tokenColumns+" FROM tokens JOIN console_sessions s ON s.token_id = tokens.id WHERE s.hash = $1 AND s.begun_at > "+
		db.Ago(&args, sessions.Lifetime), args...)
	if err == nil && !found {
		err = fault.New(fault.Unauthenticated, "the session has ended; sign in again")
	}
	return t, err
}

// End implements sessions.Store.
func (db Sessions) End(ctx context.Context, h sessions.Hash, tokenID string) error {
	e, err := admin.New(ctx, admin.SignedOut, tokenID, nil)
	if err != nil {
		return err
	}
	return db.Recorded(ctx, nil, e, "DELETE FROM console_sessions WHERE hash = $1 AND token_id = $2 RETURNING token_id", h[:], Text(tokenID))
}
