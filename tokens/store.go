package tokens

import (
	"context"
	"crypto/sha256"
	"time"
)

// Hash is the SHA-256 of a secret.
type Hash [sha256.Size]byte

// Store is what tokens asks of a database. store/sqlite and store/postgres implement it and store/storetest holds what every
// implementation must do. All methods are safe for concurrent use. Times have microseconds; empty scope lists come back nil. A
// database that does not answer is fault.DatabaseUnavailable.
type Store interface {
	// Create inserts a token. An id or hash that exists already is fault.Internal: both are random and never used twice.
	Create(ctx context.Context, t Token, h Hash) error

	// Seed inserts the token and revokes, at its created_at, every other valid one of the same name, in one transaction. When the
	// hash exists already, even on a revoked token, nothing is changed and the answer is false.
	Seed(ctx context.Context, t Token, h Hash) (created bool, err error)

	// List returns all tokens, revoked ones too, in the order in which they were made (created_at, id).
	List(ctx context.Context) ([]Token, error)

	// Revoke takes a token back, at once and for good, and returns it. One that is revoked already keeps its first time.
	// fault.UnknownToken when there is none with this id.
	Revoke(ctx context.Context, id string, at time.Time) (Token, error)

	// ByHash returns the token of a hash, revoked or not, together with the hash as it is stored. fault.UnknownToken when there is
	// none.
	ByHash(ctx context.Context, h Hash) (Token, Hash, error)

	// ByID returns the token with an id, revoked or not. fault.UnknownToken when there is none.
	ByID(ctx context.Context, id string) (Token, error)

	// Names returns the names of the tokens with these ids, revoked ones too, by id. An id that no token has is left out.
	Names(ctx context.Context, ids []string) (map[string]string, error)

	// Any reports whether a token exists or has existed that is not a runner's: from then on, no request is served without one. A revoked token
	// counts, so that revoking the last one does not open the server.
	Any(ctx context.Context) (bool, error)
}
