// Package sessions keeps browsers signed in: a token, or a person whom an OIDC provider knows, gets
// the random secret of a session. Only the secret's SHA-256 is stored. A session ends after 12
// hours, when its token is revoked or its person blocked, and when its user signs out. It must not
// know cookies, pages, SQL or how a provider identifies people.
package sessions

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"time"

	"secbox/access/tokens"
	"secbox/audit/admin"
	"secbox/fault"
)

// Bounds of sessions.
const (
	Lifetime    = 12 * time.Hour
	MaxPerToken = 20     // of a token or person: the oldest ends when another begins
	Max         = 10_000 // of all
)

// Hash is the SHA-256 of a session's secret.
type Hash [sha256.Size]byte

// Store is a database of sessions. store/sqlite and store/postgres implement it, and
// store/storetest is their common test suite. All methods are safe for concurrent use, and use the
// database's clock. They fail with fault.DatabaseUnavailable when the database does not answer.
type Store interface {
	// Begin inserts a session of a token with its administrative event, by the actor of ctx;
	// address is where the browser is. It removes the sessions that are older than Lifetime, and
	// the token's oldest ones beyond MaxPerToken. fault.TokenRevoked for a token that was revoked
	// meanwhile, fault.ServerBusy when there are Max sessions. Calls at the same time may exceed
	// the bounds by their number.
	Begin(ctx context.Context, h Hash, tokenID, address string) error

	// BeginPerson is Begin for a person, whose name and role it stores for all of the person's
	// sessions. fault.Forbidden for one who is blocked.
	BeginPerson(ctx context.Context, h Hash, p Person, address string) error

	// Token returns the token or person of a session that is not older than Lifetime, revoked or
	// not; fault.Unauthenticated when there is none.
	Token(ctx context.Context, h Hash) (tokens.Token, error)

	// End removes a session with its administrative event, by the actor of ctx. Nothing happens
	// when there is none.
	End(ctx context.Context, h Hash, tokenID string) error

	// EndAll removes all sessions of a token or person with one administrative event, which has the
	// reason, by the actor of ctx. Nothing happens when there is none.
	EndAll(ctx context.Context, id, reason string) error

	// People returns at most limit people by descending (FirstAt, ID), after the one with the id
	// after (empty: from the first; unknown: none).
	People(ctx context.Context, after string, limit int) ([]Person, error)

	// Block blocks a person and removes the person's sessions, or ends that, with its
	// administrative event by the actor of ctx. fault.NotFound when there is no such person.
	// Nothing happens when it is so already.
	Block(ctx context.Context, id string, blocked bool) error
}

// Tokens verifies the secrets of tokens; see tokens.Service.
type Tokens interface {
	Verify(ctx context.Context, secret string) (tokens.Token, error)
}

// Service signs browsers in and out. It is safe for concurrent use.
type Service struct {
	store    Store
	tokens   Tokens
	issuer   string // of people; see Trust
	failures failures
}

// New returns a Service. now is the clock of the limit of failures.
func New(store Store, verifier Tokens, now func() time.Time) *Service {
	return &Service{store: store, tokens: verifier, failures: failures{now: now}}
}

// by returns a context in which a token or person acts.
func by(ctx context.Context, t tokens.Token) context.Context {
	return admin.By(ctx, admin.Caller(t.ID, t.Name))
}

// Begin exchanges the secret of a token for the secret of a new session. address is the client's. A
// client with too many failures has to wait: fault.TooManySignIns. Runners have no sessions:
// fault.Forbidden. tokens.Service.Verify and Store.Begin return the other errors.
func (s *Service) Begin(ctx context.Context, secret, address string) (session string, caller tokens.Token, err error) {
	if err := s.failures.check(address); err != nil {
		return "", tokens.Token{}, err
	}
	caller, err = s.tokens.Verify(ctx, secret)
	switch {
	case fault.Is(err, fault.Unauthenticated), fault.Is(err, fault.TokenRevoked):
		s.failures.add(address)
		return "", tokens.Token{}, err
	case err != nil:
		return "", tokens.Token{}, err
	case caller.Role == tokens.Runner:
		return "", tokens.Token{}, fault.New(fault.Forbidden, "a runner's token connects a machine; sign in with a token of another role")
	}
	session = Secret()
	if err := s.store.Begin(by(ctx, caller), hashOf(session), caller.ID, address); err != nil {
		return "", tokens.Token{}, err
	}
	return session, caller, nil
}

// Caller returns the token or person of a session: fault.Unauthenticated when it has ended,
// fault.TokenRevoked. It reads the store every time, so that a revocation takes effect at once on
// every node.
func (s *Service) Caller(ctx context.Context, session string) (tokens.Token, error) {
	t, err := s.store.Token(ctx, hashOf(session))
	switch {
	case err != nil:
	case s.foreign(t):
		err = fault.New(fault.Unauthenticated, "the provider of the single sign-on has changed; sign in again")
	case t.Revoked():
		err = fault.New(fault.TokenRevoked, "the token with which you signed in was revoked; sign in with another one")
	}
	if err != nil {
		return tokens.Token{}, err
	}
	return t, nil
}

// End ends a session of a token.
func (s *Service) End(ctx context.Context, session string, caller tokens.Token) error {
	return s.store.End(by(ctx, caller), hashOf(session), caller.ID)
}

// Secret returns 256 random bits or more as SecretLength characters of base 32.
func Secret() string { return rand.Text() + rand.Text() }

// SecretLength is the length of a secret in bytes.
const SecretLength = 52

func hashOf(secret string) Hash { return sha256.Sum256([]byte(secret)) }
