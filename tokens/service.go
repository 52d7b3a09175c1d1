package tokens

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/base64"
	"slices"
	"time"

	"github.com/google/uuid"

	"secbox/fault"
)

// Prefix begins every secret that this package makes, so that secret scanners and people recognise one.
const Prefix = "sbx_"

// SeedName is the name of the token that Seed makes, after the environment variable it comes from.
const SeedName = "CORE_API_ADMIN_TOKEN"

// Bounds of a secret in bytes. Ours have 47; a seeded one is chosen by a person.
const (
	minSecret = 16
	maxSecret = 512
)

// Service makes, checks and revokes tokens.
type Service struct {
	store  Store
	now    func() time.Time
	random func([]byte) // fills the slice
}

// NewService makes a Service over a store. now is the clock that created_at and revoked_at come from.
func NewService(store Store, now func() time.Time) *Service {
	return &Service{store: store, now: now, random: func(b []byte) { rand.Read(b) }} // rand.Read never fails
}

// Create makes a token and returns it with its secret, which is not kept anywhere. A wrong spec is fault.InvalidRequest.
func (s *Service) Create(ctx context.Context, spec Spec) (Token, string, error) {
	if err := spec.check(); err != nil {
		return Token{}, "", err
	}
	t, err := s.newToken(spec)
	if err != nil {
		return Token{}, "", err
	}
	var key [32]byte
	s.random(key[:])
	secret := Prefix + base64.RawURLEncoding.EncodeToString(key[:])
	if err := s.store.Create(ctx, t, hashOf(secret)); err != nil {
		return Token{}, "", err
	}
	return t, secret, nil
}

// Verify returns the token of a secret: fault.Unauthenticated when there is none, fault.TokenRevoked when it was taken back. It asks
// the store every time, so that a revocation holds at once and on every node.
func (s *Service) Verify(ctx context.Context, secret string) (Token, error) {
	if secret == "" || len(secret) > maxSecret {
		return Token{}, unknownSecret(nil)
	}
	h := hashOf(secret)
	t, stored, err := s.store.ByHash(ctx, h)
	switch {
	case fault.Is(err, fault.UnknownToken):
		return Token{}, unknownSecret(err)
	case err != nil:
		return Token{}, err
	case subtle.ConstantTimeCompare(h[:], stored[:]) != 1:
		return Token{}, unknownSecret(nil)
	case t.Revoked():
		return Token{}, revoked()
	}
	return t, nil
}

// Valid is nil while a token that was verified once is still good: for a connection that outlives its request. Its errors are those of
// Verify, and it asks the store every time, too.
func (s *Service) Valid(ctx context.Context, id string) error {
	t, err := s.store.ByID(ctx, id)
	switch {
	case fault.Is(err, fault.UnknownToken):
		return unknownSecret(err)
	case err != nil:
		return err
	case t.Revoked():
		return revoked()
	}
	return nil
}

// Seed makes an admin token of a secret that an operator chose, for a container whose first token must come from its environment.
// It can be called at every start: a secret that is known already, even as a revoked one, changes nothing; a new one replaces, and
// revokes, the seeded ones before it.
func (s *Service) Seed(ctx context.Context, secret string) error {
	if len(secret) < minSecret || len(secret) > maxSecret {
		return fault.New(fault.InvalidSettings, "%s must have %d to %d bytes; make one with: openssl rand -base64 32",
			SeedName, minSecret, maxSecret)
	}
	t, err := s.newToken(Spec{Name: SeedName, Role: Admin})
	if err != nil {
		return err
	}
	_, err = s.store.Seed(ctx, t, hashOf(secret))
	return err
}

// List returns all tokens, revoked ones too, oldest first.
func (s *Service) List(ctx context.Context) ([]Token, error) { return s.store.List(ctx) }

// Names returns the names of tokens by their ids. An id that no token has is left out.
func (s *Service) Names(ctx context.Context, ids []string) (map[string]string, error) {
	if len(ids) == 0 {
		return map[string]string{}, nil
	}
	return s.store.Names(ctx, ids)
}

// Usable reports whether any token that is not a runner's is still valid. If none is, no request is served that needs a token.
func (s *Service) Usable(ctx context.Context) (bool, error) {
	all, err := s.store.List(ctx)
	return slices.ContainsFunc(all, func(t Token) bool { return t.Role != Runner && !t.Revoked() }), err
}

// Revoke takes a token back; fault.UnknownToken when there is none with this id.
func (s *Service) Revoke(ctx context.Context, id string) (Token, error) {
	return s.store.Revoke(ctx, id, s.time())
}

// Any reports whether a token that is not a runner's exists or has existed: requests need one from then on, also when all are revoked.
func (s *Service) Any(ctx context.Context) (bool, error) { return s.store.Any(ctx) }

func (s *Service) newToken(spec Spec) (Token, error) {
	id, err := uuid.NewV7()
	if err != nil {
		return Token{}, fault.Wrap(fault.Internal, err, "no id for the token could be made")
	}
	return Token{
		ID: id.String(), Name: spec.Name, Role: spec.Role, UserID: spec.UserID, CreatedAt: s.time(),
		Projects: scope(spec.Projects), Agents: scope(spec.Agents), Users: scope(spec.Users),
	}, nil
}

// time is now as the databases keep it.
func (s *Service) time() time.Time { return s.now().UTC().Truncate(time.Microsecond) }

func revoked() error {
	return fault.New(fault.TokenRevoked, "this token was revoked; ask an administrator for a new one")
}

func unknownSecret(cause error) error {
	return fault.Wrap(fault.Unauthenticated, cause, "the token is not known; send a valid one as Authorization: Bearer <token>")
}

func hashOf(secret string) Hash { return sha256.Sum256([]byte(secret)) }
