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

// Prefix begins every secret of this package, so that secret scanners and people recognise it.
const Prefix = "sbx_"

// SeedName is the name of the token of Seed, after its environment variable.
const SeedName = "CORE_API_ADMIN_TOKEN"

// Bounds of a secret in bytes. Created ones have 47; the operator chooses a seeded one.
const (
	minSecret = 16
	maxSecret = 512
)

// Service creates, checks and revokes tokens.
type Service struct {
	store  Store
	now    func() time.Time
	random func([]byte) // fills the slice
}

// NewService returns a Service over a store. now is the clock of created_at and revoked_at.
func NewService(store Store, now func() time.Time) *Service {
	return &Service{store: store, now: now, random: func(b []byte) { rand.Read(b) }} // rand.Read never fails
}

// Create creates a token and returns it with its secret, which is not stored. It fails with
// fault.InvalidRequest for an invalid spec, and with fault.Internal for the ID of another token.
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

// Verify returns the token of a secret: fault.Unauthenticated when there is none,
// fault.TokenRevoked when it was revoked. It reads the store every time, so that a revocation takes
// effect at once on every node.
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

// Valid checks a token that was verified before, for a connection that outlives its request. It
// returns nil while the token is valid, and else the errors of Verify. Like Verify, it reads the
// store every time.
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

// Seed creates an admin token from a secret that the operator chose, for a container whose first
// token must come from its environment. It can be called at every start: it changes nothing for a
// known secret, even of a revoked token, and a new secret revokes the tokens that were seeded
// before.
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

// List returns all tokens, also revoked ones, oldest first.
func (s *Service) List(ctx context.Context) ([]Token, error) { return s.store.List(ctx) }

// Page returns at most limit tokens, newest first, after the one with an id (empty: from the
// newest); revoked ones only if they are asked for. It is empty for an unknown id.
func (s *Service) Page(ctx context.Context, after string, revoked bool, limit int) ([]Token, error) {
	return s.store.Page(ctx, after, revoked, limit)
}

// ByID returns the token with an id, revoked or not: fault.UnknownToken when there is none.
func (s *Service) ByID(ctx context.Context, id string) (Token, error) { return s.store.ByID(ctx, id) }

// Names returns the names of tokens by their ids. Unknown ids are left out.
func (s *Service) Names(ctx context.Context, ids []string) (map[string]string, error) {
	if len(ids) == 0 {
		return map[string]string{}, nil
	}
	return s.store.Names(ctx, ids)
}

// Usable reports whether any token that is not a runner's is still valid. If none is, requests that
// need a token cannot be served.
func (s *Service) Usable(ctx context.Context) (bool, error) {
	return s.store.Usable(ctx, slices.DeleteFunc(Roles(), func(r Role) bool { return r == Runner }), "")
}

// OtherAdmin reports whether an admin token is valid apart from the one with an id.
func (s *Service) OtherAdmin(ctx context.Context, id string) (bool, error) {
	return s.store.Usable(ctx, []Role{Admin}, id)
}

// Revoke revokes a token; fault.UnknownToken when there is none with this id.
func (s *Service) Revoke(ctx context.Context, id string) (Token, error) {
	return s.store.Revoke(ctx, id, s.time())
}

// Any reports whether a token that is not a runner's exists or has existed: then requests need one,
// also when all are revoked.
func (s *Service) Any(ctx context.Context) (bool, error) { return s.store.Any(ctx) }

func (s *Service) newToken(spec Spec) (Token, error) {
	if spec.ID == "" {
		id, err := uuid.NewV7()
		if err != nil {
			return Token{}, fault.Wrap(fault.Internal, err, "cannot create an id for the token")
		}
		spec.ID = id.String()
	}
	return Token{
		ID: spec.ID, Name: spec.Name, Role: spec.Role, UserID: spec.UserID, CreatedAt: s.time(),
		Projects: scope(spec.Projects), Agents: scope(spec.Agents), Users: scope(spec.Users),
	}, nil
}

// time is the current time with the databases' precision.
func (s *Service) time() time.Time { return s.now().UTC().Truncate(time.Microsecond) }

func revoked() error {
	return fault.New(fault.TokenRevoked, "this token was revoked; ask an administrator for a new one")
}

func unknownSecret(cause error) error {
	return fault.Wrap(fault.Unauthenticated, cause, "the token is not known; send a valid one as Authorization: Bearer <token>")
}

func hashOf(secret string) Hash { return sha256.Sum256([]byte(secret)) }
