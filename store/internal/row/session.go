package row

import (
	"context"

	"secbox/access/sessions"
	"secbox/access/tokens"
	"secbox/audit/admin"
	"secbox/fault"
)

// Sessions implements sessions.Store. Tx runs statements of constant text in one durable
// transaction.
type Sessions struct {
	Database
	Tx func(ctx context.Context, fn func(run Run) error) error
}

// Begin implements sessions.Store.
func (db Sessions) Begin(ctx context.Context, h sessions.Hash, tokenID, address string) error {
	e, err := db.event(ctx, admin.SignedIn, tokenID, map[string]any{"address": address})
	if err != nil {
		return err
	}
	return db.Tx(ctx, func(run Run) error {
		valid, err := db.insert(ctx, run, h, Text(tokenID), "tokens WHERE revoked_at IS NULL AND id = ")
		if err == nil && !valid {
			err = fault.New(fault.TokenRevoked, "this token was revoked; ask an administrator for a new one")
		}
		if err != nil {
			return err
		}
		return db.recordIn(ctx, run, e)
	})
}

// BeginPerson implements sessions.Store.
func (db Sessions) BeginPerson(ctx context.Context, h sessions.Hash, p sessions.Person, address string) error {
	e, err := db.event(ctx, admin.SignedIn, p.ID, map[string]any{"address": address, "role": p.Role})
	if err != nil {
		return err
	}
	return db.Tx(ctx, func(run Run) error {
		args := Params{Text(p.ID), Text(p.Name), string(p.Role)}
		now := db.Now(&args)
		err := run(ctx, nil, "INSERT INTO console_people (id, name, role, first_at, seen_at) VALUES ($1, $2, $3, "+now+", "+now+") "+
			"ON CONFLICT (id) DO UPDATE SET name = excluded.name, role = excluded.role, seen_at = excluded.seen_at WHERE "+
			"console_people.blocked_at IS NULL", args...)
		if err != nil {
			return err
		}
		valid, err := db.insert(ctx, run, h, Text(p.ID), "console_people WHERE blocked_at IS NULL AND id = ")
		if err == nil && !valid {
			err = fault.New(fault.Forbidden, "An administrator has blocked you here. Ask an administrator to let you in again.")
		}
		if err != nil {
			return err
		}
		return db.recordIn(ctx, run, e)
	})
}

// insert inserts a session of the token or person with an id, if a row of the table has it, and
// removes sessions that are too old or too many. from ends with the comparison of the id.
func (db Sessions) insert(ctx context.Context, run Run, h sessions.Hash, id, from string) (valid bool, err error) {
	var args Params
	if err := run(ctx, nil, "DELETE FROM console_sessions WHERE begun_at <= "+db.Ago(&args, sessions.Lifetime), args...); err != nil {
		return false, err
	}
	err = run(ctx, nil, "DELETE FROM console_sessions WHERE token_id = $1 AND hash NOT IN (SELECT hash FROM console_sessions WHERE "+
		"token_id = $1 ORDER BY begun_at DESC, hash LIMIT $2)",
		id, sessions.MaxPerToken-1)
	if err != nil {
		return false, err
	}
	all, _, err := One(ctx, run, Value[int], "SELECT count(*) FROM console_sessions")
	if err != nil {
		return false, err
	}
	if all >= sessions.Max {
		return false, fault.New(fault.ServerBusy, "%d browsers are signed in, which is the limit; sign out elsewhere, or try again later",
			all)
	}
	args = Params{h[:]}
	_, valid, err = One(ctx, run, Value[string], "INSERT INTO console_sessions (hash, token_id, begun_at) SELECT $1, id, "+db.Now(&args)+
		" FROM "+from+args.Add(id)+" RETURNING token_id", args...)
	return valid, err
}

// Token implements sessions.Store.
func (db Sessions) Token(ctx context.Context, h sessions.Hash) (tokens.Token, error) {
	args := Params{h[:]}
	open := " s ON s.token_id = id WHERE s.hash = $1 AND s.begun_at > " + db.Ago(&args, sessions.Lifetime)
	t, found, err := One(ctx, db.Query, scanToken, "SELECT "+tokenColumns+" FROM tokens JOIN console_sessions"+open, args...)
	if err != nil || found {
		return t, err
	}
	p, found, err := One(ctx, db.Query, scanPerson, "SELECT "+personColumns+" FROM console_people JOIN console_sessions"+open, args...)
	if err == nil && !found {
		err = fault.New(fault.Unauthenticated, "the session has ended; sign in again")
	}
	return p.Caller(), err
}

// End implements sessions.Store.
func (db Sessions) End(ctx context.Context, h sessions.Hash, tokenID string) error {
	return db.withEvent(ctx, nil, admin.SignedOut, tokenID, nil,
		"DELETE FROM console_sessions WHERE hash = $1 AND token_id = $2 RETURNING token_id", h[:], Text(tokenID))
}

// EndAll implements sessions.Store.
func (db Sessions) EndAll(ctx context.Context, id, reason string) error {
	e, err := db.event(ctx, admin.SignedOut, id, map[string]any{"reason": reason})
	if err != nil {
		return err
	}
	return db.Tx(ctx, func(run Run) error {
		ended, err := All(ctx, run, Value[string], "DELETE FROM console_sessions WHERE token_id = $1 RETURNING token_id", Text(id))
		if err != nil || len(ended) == 0 {
			return err
		}
		return db.recordIn(ctx, run, e)
	})
}

const personColumns = "id, name, role, first_at, seen_at, blocked_at"

func readPerson(scan Scan, more ...any) (p sessions.Person, err error) {
	err = scan(append([]any{&p.ID, &p.Name, (*string)(&p.Role), timeInto{&p.FirstAt}, timeInto{&p.SeenAt}, timeInto{&p.BlockedAt}},
		more...)...)
	return p, err
}

func scanPerson(scan Scan) (sessions.Person, error) { return readPerson(scan) }

func scanSignedIn(scan Scan) (p sessions.Person, err error) {
	var open int
	p, err = readPerson(scan, &open)
	p.Sessions = open
	return p, err
}

// People implements sessions.Store.
func (db Sessions) People(ctx context.Context, after string, limit int) ([]sessions.Person, error) {
	statement, args := db.PeopleQuery(after, limit)
	return All(ctx, db.Query, scanSignedIn, statement, args...)
}

// PeopleQuery is the query of sessions.Store.People.
func (db Sessions) PeopleQuery(after string, limit int) (string, []any) {
	var args Params
	statement := "SELECT " + personColumns +
		", (SELECT count(*) FROM console_sessions s WHERE s.token_id = console_people.id AND s.begun_at > " + db.Ago(&args,
		sessions.Lifetime) +
		") FROM console_people"
	if after != "" {
		statement += " WHERE (first_at, id) < (SELECT first_at, id FROM console_people WHERE id = " + args.Add(Text(after)) + ")"
	}
	return statement + " ORDER BY first_at DESC, id DESC LIMIT " + args.Add(limit), args
}

// Block implements sessions.Store.
func (db Sessions) Block(ctx context.Context, id string, blocked bool) error {
	kind, was := admin.PersonBlocked, "NULL"
	if !blocked {
		kind, was = admin.PersonUnblocked, "NOT NULL"
	}
	e, err := db.event(ctx, kind, id, nil)
	if err != nil {
		return err
	}
	return db.Tx(ctx, func(run Run) error {
		args := Params{Text(id)}
		to := "NULL"
		if blocked {
			to = db.Now(&args)
		}
		_, changed, err := One(ctx, run, Value[string],
			"UPDATE console_people SET blocked_at = "+to+" WHERE id = $1 AND blocked_at IS "+was+" RETURNING id", args...)
		if err != nil {
			return err
		}
		if !changed {
			_, known, err := One(ctx, run, Value[string], "SELECT id FROM console_people WHERE id = $1", Text(id))
			if err == nil && !known {
				err = fault.New(fault.NotFound, "there is no person %q; the list has those who signed in", Text(id))
			}
			return err
		}
		if err := run(ctx, nil, "DELETE FROM console_sessions WHERE token_id = $1", Text(id)); err != nil {
			return err
		}
		return db.recordIn(ctx, run, e)
	})
}
