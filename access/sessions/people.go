package sessions

import (
	"context"
	"net/http"
	"strings"
	"time"

	"secbox/access/tokens"
	"secbox/audit/admin"
	"secbox/fault"
)

// Person is who signed in by OIDC.
type Person struct {
	ID   string      // PersonID; requested_by of the execs that the person starts
	Name string      // for people: the provider's words, without characters that cannot be printed
	Role tokens.Role // of the last sign-in; empty: no group of the person has one

	FirstAt   time.Time // the first sign-in
	SeenAt    time.Time // the last one
	BlockedAt time.Time // zero: the person may sign in
	Sessions  int       // that are open
}

// PersonID returns the id of a subject at an issuer, which has no "#".
func PersonID(issuer, subject string) string { return admin.PersonPrefix + issuer + "#" + subject }

// Caller returns the person as a caller. Its role has no limits of projects, agents or users.
func (p Person) Caller() tokens.Token {
	return tokens.Token{ID: p.ID, Name: p.Name, Role: p.Role, CreatedAt: p.FirstAt, RevokedAt: p.BlockedAt}
}

// Trust makes valid the sessions of people whose ids are of this issuer. The sessions of people of
// other issuers are invalid, so they end when single sign-on is turned off or moves to another
// provider. Trust must be called before all other methods.
func (s *Service) Trust(issuer string) *Service {
	s.issuer = issuer
	return s
}

// foreign reports whether a caller is a person of an issuer that is not trusted.
func (s *Service) foreign(caller tokens.Token) bool {
	return strings.HasPrefix(caller.ID, admin.PersonPrefix) && (s.issuer == "" || !strings.HasPrefix(caller.ID, PersonID(s.issuer, "")))
}

// BeginPerson begins a session of the person whom identify returns. address is the client's; one
// with too many failures has to wait: fault.TooManySignIns. A person whose groups give no role, or
// whom an administrator has blocked, is refused with fault.Forbidden; without a role, the person's
// other sessions end. identify and Store.BeginPerson return the other errors. Every error counts as
// a failure of the client, except when the provider or the database does not answer, or the server
// has too much to do.
func (s *Service) BeginPerson(ctx context.Context, address string, identify func(context.Context) (Person, error)) (session string,
	caller tokens.Token, err error,
) {
	if err := s.failures.check(address); err != nil {
		return "", tokens.Token{}, err
	}
	defer func() {
		// the client has gone, or its fault
		if err != nil && (ctx.Err() != nil || fault.HTTPStatus(fault.CodeOf(err)) < http.StatusInternalServerError) {
			s.failures.add(address)
		}
	}()
	p, err := identify(ctx)
	if err != nil {
		return "", tokens.Token{}, err
	}
	caller = p.Caller()
	if s.foreign(caller) {
		return "", tokens.Token{}, fault.New(fault.Internal, "%s is not of the issuer %s", p.ID, s.issuer)
	}
	if p.Role == "" {
		if err := s.store.EndAll(by(ctx, caller), p.ID, "no group of the person has a role"); err != nil {
			return "", tokens.Token{}, err
		}
		return "", tokens.Token{}, fault.New(fault.Forbidden,
			"You are known as %s, but no group of yours has a role here. Ask an administrator to add you to a group that has one, "+
				"or to name a group of yours in console.oidc.admin_groups, auditor_groups or worker_groups of the settings.", p.Name)
	}
	session = Secret()
	if err := s.store.BeginPerson(by(ctx, caller), hashOf(session), p, address); err != nil {
		return "", tokens.Token{}, err
	}
	return session, caller, nil
}

// People returns at most limit people, the latest to sign in for the first time first, after the
// one with the id after (empty: from the first).
func (s *Service) People(ctx context.Context, after string, limit int) ([]Person, error) {
	return s.store.People(ctx, after, limit)
}

// Block ends the sessions of a person, who cannot sign in again until Unblock; by the actor of ctx.
// fault.NotFound.
func (s *Service) Block(ctx context.Context, id string) error { return s.store.Block(ctx, id, true) }

// Unblock lets a person sign in again, by the actor of ctx. fault.NotFound.
func (s *Service) Unblock(ctx context.Context, id string) error { return s.store.Block(ctx, id, false) }
