package tokens

import (
	"context"
	"crypto/sha256"
	"time"
)

// Hash is the SHA-256 of a secret.
type Hash [sha256.Size]byte

// Store is a database of tokens. store/sqlite and store/postgres implement it, and store/storetest
// is their common test suite. All methods are safe for concurrent use. Times have microseconds;
// empty scope lists are returned as nil. Methods fail with fault.DatabaseUnavailable when the
// database does not answer.
type Store interface {
	// Create inserts a token. An id or hash that exists already is fault.Internal: both are random
	// and never used twice.
	Create(ctx context.Context, t Token, h Hash) error

	// Seed inserts the token and revokes, at its created_at, every other valid token of the same
	// name, in one transaction. When the hash exists already, even on a revoked token, it changes
	// nothing and returns false.
	Seed(ctx context.Context, t Token, h Hash) (created bool, err error)

	// List returns all tokens, also revoked ones, in the order of (created_at, id).
	List(ctx context.Context) ([]Token, error)

	// Page returns at most limit tokens, newest first, after the one with an id (empty: from the
	// newest); revoked ones only if they are asked for. It is empty for an unknown id.
	Page(ctx context.Context, after string, revoked bool, limit int) ([]Token, error)

	// Usable reports whether a token that was not revoked has one of the roles, apart from the
	// token with an id (empty: none).
	Usable(ctx context.Context, roles []Role, apart string) (bool, error)

	// Revoke revokes a token and returns it. A token that is revoked already keeps its first time.
	// fault.UnknownToken when there is none with this id.
	Revoke(ctx context.Context, id string, at time.Time) (Token, error)

	// ByHash returns the token of a hash, revoked or not, and the stored hash. fault.UnknownToken
	// when there is none.
	ByHash(ctx context.Context, h Hash) (Token, Hash, error)

	// ByID returns the token with an id, revoked or not. fault.UnknownToken when there is none.
	ByID(ctx context.Context, id string) (Token, error)

	// Names returns the names of the tokens with these ids, also of revoked ones, by id; of people
	// who signed in to the console, too. Unknown ids are left out.
	Names(ctx context.Context, ids []string) (map[string]string, error)

	// Any reports whether a token exists or has existed that is not a runner's: then every request
	// needs a token. Revoked tokens count, so that revoking the last one does not open the server.
	Any(ctx context.Context) (bool, error)
}
