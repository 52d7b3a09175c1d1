package sessions_test

import (
	"context"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"secbox/fault"
	"secbox/sessions"
	"secbox/store/sqlite"
	"secbox/store/storetest/sqlitetest"
	"secbox/tokens"
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

// TestRoleIsThatOfTheLastSignIn: all sessions of a person have the role of the last sign-in, and end when it gives none.
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
	if session, _, err := s.BeginPerson(t.Context(), "192.0.2.1", is("")); !fault.Is(err, fault.Forbidden) || session != "" || !strings.Contains(fault.From(err).Message, "console.oidc.admin_groups") {
		t.Errorf("without a role: %q, %v", session, err)
	}
	if _, err := s.Caller(t.Context(), first); !fault.Is(err, fault.Unauthenticated) {
		t.Errorf("the first session after the role was lost: %v", err)
	}
}

// TestSessionsOfAnotherIssuer: they are not valid when single sign-on is turned off, or asks another provider.
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

// TestFailedSignInsOfPeopleWait: those that could not be identified count for their address; those without a role do not.
func TestFailedSignInsOfPeopleWait(t *testing.T) {
	t.Parallel()
	_, s := service(t)
	for range 20 {
		if _, _, err := s.BeginPerson(t.Context(), "192.0.2.1", is("")); !fault.Is(err, fault.Forbidden) {
			t.Fatal(err)
		}
	}
	asked := 0
	for range 20 {
		_, _, err := s.BeginPerson(t.Context(), "192.0.2.1", func(context.Context) (sessions.Person, error) {
			asked++
			return sessions.Person{}, fault.New(fault.Unauthenticated, "no")
		})
		if !fault.Is(err, fault.Unauthenticated) && !fault.Is(err, fault.TooManySignIns) {
			t.Fatal(err)
		}
	}
	if asked != 10 {
		t.Errorf("the provider was asked %d times", asked)
	}
	if _, _, err := s.BeginPerson(t.Context(), "192.0.2.2", is(tokens.Admin)); err != nil {
		t.Errorf("another address: %v", err)
	}
}
