package sessions_test

import (
	"context"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"secbox/access/sessions"
	"secbox/access/tokens"
	"secbox/fault"
	"secbox/store/sqlite"
	"secbox/store/storetest/sqlitetest"
)

const issuer = "https://idp.example/realm"

func service(t *testing.T) (*sqlite.DB, *sessions.Service) {
	t.Helper()
	db, err := sqlite.Open(t.Context(), sqlitetest.Migrated(t, filepath.Join(t.TempDir(), "core.db")))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := db.Close(); err != nil {
			t.Error(err)
		}
	})
	return db, sessions.New(db.Sessions(), tokens.NewService(db.Tokens(), time.Now), time.Now).Trust(issuer)
}

func is(role tokens.Role) func(context.Context) (sessions.Person, error) {
	return func(context.Context) (sessions.Person, error) {
		return sessions.Person{ID: sessions.PersonID(issuer, "ada"), Name: "Ada", Role: role}, nil
	}
}

// TestRoleIsThatOfTheLastSignIn: all sessions of a person have the role of the last sign-in, and
// end when it gives none.
func TestRoleIsThatOfTheLastSignIn(t *testing.T) {
	t.Parallel()
	_, s := service(t)
	first, caller, err := s.BeginPerson(t.Context(), "192.0.2.1", is(tokens.Admin))
	if err != nil || caller.Role != tokens.Admin || caller.ID != "oidc:https://idp.example/realm#ada" {
		t.Fatalf("%+v, %v", caller, err)
	}
	if _, _, err := s.BeginPerson(t.Context(), "192.0.2.1", is(tokens.Auditor)); err != nil {
		t.Fatal(err)
	}
	if caller, err := s.Caller(t.Context(), first); err != nil || caller.Role != tokens.Auditor {
		t.Errorf("the first session: %+v, %v", caller, err)
	}
	if session, _, err := s.BeginPerson(t.Context(), "192.0.2.1", is("")); !fault.Is(err, fault.Forbidden) || session != "" ||
		!strings.Contains(fault.From(err).Message, "console.oidc.admin_groups") {
		t.Errorf("without a role: %q, %v", session, err)
	}
	if _, err := s.Caller(t.Context(), first); !fault.Is(err, fault.Unauthenticated) {
		t.Errorf("the first session after the role was lost: %v", err)
	}
}

// TestSessionsOfAnotherIssuer: they are not valid when single sign-on is turned off, or asks
// another provider.
func TestSessionsOfAnotherIssuer(t *testing.T) {
	t.Parallel()
	db, s := service(t)
	session, _, err := s.BeginPerson(t.Context(), "", is(tokens.Admin))
	if err != nil {
		t.Fatal(err)
	}
	for _, now := range []string{"", "https://idp.example", "https://idp.example/realm2", "https://idp.example/realm/"} {
		other := sessions.New(db.Sessions(), nil, time.Now).Trust(now)
		if _, err := other.Caller(t.Context(), session); !fault.Is(err, fault.Unauthenticated) {
			t.Errorf("with the issuer %q: %v", now, err)
		}
		if _, _, err := other.BeginPerson(t.Context(), "", is(tokens.Admin)); !fault.Is(err, fault.Internal) {
			t.Errorf("a sign-in with the issuer %q: %v", now, err)
		}
	}
}

// TestFailedSignInsOfPeopleWait: failures of every kind count for their address, but those that are
// not the client's.
func TestFailedSignInsOfPeopleWait(t *testing.T) {
	t.Parallel()
	_, s := service(t)
	if _, _, err := s.BeginPerson(t.Context(), "192.0.2.9", is(tokens.Admin)); err != nil {
		t.Fatal(err)
	}
	if err := s.Block(t.Context(), sessions.PersonID(issuer, "ada")); err != nil {
		t.Fatal(err)
	}
	fails := func(code fault.Code) func(context.Context) (sessions.Person, error) {
		return func(context.Context) (sessions.Person, error) { return sessions.Person{}, fault.New(code, "no") }
	}
	gone, leave := context.WithCancel(t.Context())
	leave()
	for address, c := range map[string]struct {
		ctx      context.Context
		identify func(context.Context) (sessions.Person, error)
		want     int // attempts
	}{
		"192.0.2.1": {t.Context(), is(""), 10},
		"192.0.2.2": {t.Context(), is(tokens.Admin), 10}, // blocked
		"192.0.2.3": {t.Context(), fails(fault.Unauthenticated), 10},
		"192.0.2.4": {t.Context(), fails(fault.InvalidRequest), 10},
		"192.0.2.5": {gone, fails(fault.UpstreamFailed), 10},
		"192.0.2.6": {t.Context(), fails(fault.UpstreamFailed), 20},
		"192.0.2.7": {t.Context(), fails(fault.ServerBusy), 20},
		"192.0.2.8": {t.Context(), fails(fault.DatabaseUnavailable), 20},
	} {
		attempts := 0
		for range 20 {
			_, _, err := s.BeginPerson(c.ctx, address, func(ctx context.Context) (sessions.Person, error) {
				attempts++
				return c.identify(ctx)
			})
			if err == nil {
				t.Errorf("%s signed in", address)
			}
		}
		if attempts != c.want {
			t.Errorf("%s had %d attempts, want %d", address, attempts, c.want)
		}
	}
}
