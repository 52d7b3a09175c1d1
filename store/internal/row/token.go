package row

import (
	"context"
	"encoding/json"
	"strings"
	"time"

	"secbox/access/tokens"
	"secbox/audit/admin"
	"secbox/fault"
)

// Tokens implements tokens.Store but for Seed.
type Tokens struct{ Database }

const (
	tokenColumns = "id, name, role, projects, agents, users, user_id, created_at, revoked_at"
	selectTokens = "SELECT " + tokenColumns + " FROM tokens"

	// InsertToken inserts a token; InsertArgs are its parameters.
	InsertToken = "INSERT INTO tokens (" + tokenColumns + ", hash) VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10)"
)

// InsertArgs are the parameters of InsertToken.
func (db Tokens) InsertArgs(t tokens.Token, h tokens.Hash) []any {
	scope := func(values []string) string {
		list, _ := json.Marshal(Texts(values)) // texts cannot fail
		return string(list)
	}
	var revoked any
	if t.Revoked() {
		revoked = db.stored(t.RevokedAt)
	}
	return []any{
		Text(t.ID), Text(t.Name), string(t.Role), scope(t.Projects), scope(t.Agents), scope(t.Users), Text(t.UserID),
		db.stored(t.CreatedAt), revoked, h[:],
	}
}

// readToken reads tokenColumns, and the columns after them into more.
func readToken(scan Scan, more ...any) (tokens.Token, error) {
	var t tokens.Token
	err := scan(append([]any{
		&t.ID, &t.Name, (*string)(&t.Role),
		jsonInto{&t.Projects},
		jsonInto{&t.Agents},
		jsonInto{&t.Users},
		&t.UserID,
		timeInto{&t.CreatedAt},
		timeInto{&t.RevokedAt},
	}, more...)...)
	for _, list := range []*[]string{&t.Projects, &t.Agents, &t.Users} {
		if len(*list) == 0 {
			*list = nil
		}
	}
	return t, err
}

func scanToken(scan Scan) (tokens.Token, error) { return readToken(scan) }

// hashed is a token with its stored hash.
type hashed struct {
	tokens.Token
	hash []byte
}

func scanHashed(scan Scan) (t hashed, err error) {
	t.Token, err = readToken(scan, &t.hash)
	return t, err
}

// Create implements tokens.Store.
func (db Tokens) Create(ctx context.Context, t tokens.Token, h tokens.Hash) error {
	err := db.withEvent(ctx, nil, admin.TokenCreated, t.ID, tokenData(t), InsertToken+" RETURNING id", db.InsertArgs(t, h)...)
	if db.Duplicate(err) {
		return fault.Wrap(fault.Internal, err, "a token with this id or secret exists already")
	}
	return err
}

// List implements tokens.Store.
func (db Tokens) List(ctx context.Context) ([]tokens.Token, error) {
	return All(ctx, db.Query, scanToken, selectTokens+" ORDER BY created_at, id")
}

// Page implements tokens.Store.
func (db Tokens) Page(ctx context.Context, after string, revoked bool, limit int) ([]tokens.Token, error) {
	where, args := "", Params{max(limit, 0)}
	if !revoked {
		where = " AND revoked_at IS NULL" // the condition of an index, repeated literally
	}
	if after != "" {
		where += " AND (created_at, id) < (SELECT created_at, id FROM tokens WHERE id = " + args.Add(Text(after)) + ")"
	}
	if where != "" {
		where = " WHERE" + strings.TrimPrefix(where, " AND")
	}
	return All(ctx, db.Query, scanToken, selectTokens+where+" ORDER BY created_at DESC, id DESC LIMIT $1", args...)
}

// Usable implements tokens.Store.
func (db Tokens) Usable(ctx context.Context, roles []tokens.Role, apart string) (bool, error) {
	names := make([]string, len(roles))
	for i, r := range roles {
		names[i] = string(r)
	}
	usable, _, err := One(ctx, db.Query, Value[bool],
		"SELECT EXISTS (SELECT 1 FROM tokens WHERE revoked_at IS NULL AND role"+db.In("$1")+" AND id <> $2)", db.Set(names), Text(apart))
	return usable, err
}

// Revoke implements tokens.Store. A token's name and role never change, so that the event can be
// made before.
func (db Tokens) Revoke(ctx context.Context, id string, at time.Time) (tokens.Token, error) {
	t, err := db.ByID(ctx, id)
	if err != nil {
		return tokens.Token{}, err
	}
	err = db.withEvent(ctx, nil, admin.TokenRevoked, t.ID, tokenData(t),
		"UPDATE tokens SET revoked_at = $2 WHERE id = $1 AND revoked_at IS NULL RETURNING id", Text(id), db.stored(at))
	if err != nil {
		return tokens.Token{}, err
	}
	return db.ByID(ctx, id)
}

// tokenData is what the event of a created or revoked token has: the token's role and scope.
func tokenData(t tokens.Token) map[string]any {
	data := map[string]any{"name": t.Name, "role": t.Role}
	for name, list := range map[string][]string{"projects": t.Projects, "agents": t.Agents, "users": t.Users} {
		if len(list) > 0 {
			data[name] = list
		}
	}
	if t.UserID != "" {
		data["user_id"] = t.UserID
	}
	return data
}

// SeedEvents returns the event of a seeded token, and the event of each token of the same name that
// it replaces. The caller sets the subject of replaced.
func (db Tokens) SeedEvents(ctx context.Context, t tokens.Token) (created, replaced Permitted, err error) {
	if created, err = db.event(ctx, admin.TokenCreated, t.ID, tokenData(t)); err != nil {
		return created, replaced, err
	}
	replaced, err = db.event(ctx, admin.TokenRevoked, "", map[string]any{"name": t.Name, "replaced_by": t.ID})
	return created, replaced, err
}

// ByID implements tokens.Store.
func (db Tokens) ByID(ctx context.Context, id string) (tokens.Token, error) {
	return oneToken(ctx, db.Query, id, selectTokens+" WHERE id = $1", Text(id))
}

func oneToken(ctx context.Context, run Run, id, statement string, args ...any) (tokens.Token, error) {
	t, found, err := One(ctx, run, scanToken, statement, args...)
	if err == nil && !found {
		err = fault.New(fault.UnknownToken, "there is no token %q", Text(id))
	}
	return t, err
}

// ByHash implements tokens.Store.
func (db Tokens) ByHash(ctx context.Context, h tokens.Hash) (tokens.Token, tokens.Hash, error) {
	t, found, err := One(ctx, db.Query, scanHashed, "SELECT "+tokenColumns+", hash FROM tokens WHERE hash = $1", h[:])
	switch {
	case err != nil:
	case !found:
		err = fault.New(fault.UnknownToken, "there is no token with this secret")
	case len(t.hash) != len(h):
		err = fault.New(fault.Internal, "the stored hash of token %s is damaged", t.ID)
	default:
		return t.Token, tokens.Hash(t.hash), nil
	}
	return tokens.Token{}, tokens.Hash{}, err
}

// Names implements tokens.Store.
func (db Tokens) Names(ctx context.Context, ids []string) (map[string]string, error) {
	names := map[string]string{}
	err := db.Query(ctx, func(scan Scan) error {
		var id, name string
		err := scan(&id, &name)
		names[id] = name
		return err
	}, "SELECT id, name FROM tokens WHERE id"+db.In("$1")+" UNION ALL SELECT id, name FROM console_people WHERE id"+db.In("$1"),
		db.Set(Texts(ids)))
	if err != nil {
		return nil, err
	}
	return names, nil
}

// Any implements tokens.Store.
func (db Tokens) Any(ctx context.Context) (bool, error) {
	exists, _, err := One(ctx, db.Query, Value[bool], "SELECT EXISTS (SELECT 1 FROM tokens WHERE role <> 'runner')")
	return exists, err
}
