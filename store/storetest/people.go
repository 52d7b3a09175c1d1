package storetest

import (
	"context"
	"fmt"
	"reflect"
	"slices"
	"testing"
	"time"

	"secbox/access/sessions"
	"secbox/access/tokens"
	"secbox/audit/admin"
	"secbox/fault"
)

func person(n int, role tokens.Role) sessions.Person {
	return sessions.Person{ID: sessions.PersonID("https://idp.example", fmt.Sprint("p", n)), Name: fmt.Sprint("Person ", n), Role: role}
}

// asPerson is a context in which a person acts on the node n1.
func asPerson(t *testing.T, p sessions.Person) context.Context {
	return admin.By(admin.OnNode(t.Context(), "n1"), admin.Caller(p.ID, p.Name))
}

// known returns the stored person with this id.
func known(t *testing.T, s sessions.Store, id string) sessions.Person {
	t.Helper()
	all, err := s.People(t.Context(), "", 100)
	if err != nil {
		t.Fatal(err)
	}
	i := slices.IndexFunc(all, func(p sessions.Person) bool { return p.ID == id })
	if i < 0 {
		t.Fatalf("%s is not among %v", id, all)
	}
	return all[i]
}

func peopleSignIn(t *testing.T, f Fixture) {
	s, p := f.Sessions(), person(1, tokens.Worker)
	if err := s.BeginPerson(asPerson(t, p), sessionHash(1), p, "192.0.2.1"); err != nil {
		t.Fatal(err)
	}
	stored := known(t, s, p.ID)
	if want := (sessions.Person{
		ID: p.ID, Name: p.Name, Role: p.Role, FirstAt: stored.FirstAt, SeenAt: stored.FirstAt,
		Sessions: 1,
	}); stored != want || stored.FirstAt.IsZero() {
		t.Errorf("stored %+v", stored)
	}
	if got, err := s.Token(t.Context(), sessionHash(1)); err != nil || !reflect.DeepEqual(got, stored.Caller()) {
		t.Errorf("Token = %+v, %v", got, err)
	}

	p.Name, p.Role = "Ada \x00", tokens.Admin
	if err := s.BeginPerson(asPerson(t, p), sessionHash(2), p, "192.0.2.1"); err != nil {
		t.Fatal(err)
	}
	again := known(t, s, p.ID)
	if again.Role != tokens.Admin || again.Name == stored.Name || !again.FirstAt.Equal(stored.FirstAt) ||
		again.SeenAt.Before(stored.SeenAt) || again.Sessions != 2 {
		t.Errorf("after another sign-in: %+v", again)
	}
	if got, err := s.Token(t.Context(), sessionHash(1)); err != nil || got.Role != tokens.Admin {
		t.Errorf("the first session has the role %s, %v", got.Role, err)
	}
	if names, err := f.Tokens().Names(t.Context(), []string{p.ID, "none"}); err != nil ||
		!reflect.DeepEqual(names, map[string]string{p.ID: again.Name}) {
		t.Errorf("names %v, %v", names, err)
	}
	if any, err := f.Tokens().Any(t.Context()); err != nil || any {
		t.Errorf("a person counts as a token: %v", err)
	}

	if err := s.End(asPerson(t, p), sessionHash(2), p.ID); err != nil {
		t.Error(err)
	}
	for range 2 {
		if err := s.EndAll(asPerson(t, p), p.ID, "no role"); err != nil {
			t.Error(err)
		}
	}
	for n := range 2 {
		if _, err := s.Token(t.Context(), sessionHash(n+1)); !fault.Is(err, fault.Unauthenticated) {
			t.Errorf("an ended session: %v", err)
		}
	}
	who := " person/" + p.ID + "@n1 " + p.ID + " "
	want := []string{
		"signed_in" + who + `{"address":"192.0.2.1","role":"worker"}`, "signed_in" + who + `{"address":"192.0.2.1","role":"admin"}`,
		"signed_out" + who + "{}", "signed_out" + who + `{"reason":"no role"}`,
	}
	if got := briefs(adminEvents(t, f.AdminEvents(), admin.Filter{Actor: p.ID})); !slices.Equal(got, want) {
		t.Errorf("events %q", got)
	}
}

func peopleBlocked(t *testing.T, f Fixture) {
	s, p, other := f.Sessions(), person(1, tokens.Admin), person(2, tokens.Auditor)
	for n, who := range []sessions.Person{p, p, other} {
		if err := s.BeginPerson(asPerson(t, who), sessionHash(n), who, ""); err != nil {
			t.Fatal(err)
		}
	}
	for range 2 {
		if err := s.Block(asAlice(t), p.ID, true); err != nil {
			t.Fatal(err)
		}
	}
	for n, code := range []fault.Code{fault.Unauthenticated, fault.Unauthenticated, ""} {
		if _, err := s.Token(t.Context(), sessionHash(n)); fault.CodeOf(err) != code {
			t.Errorf("session %d: %v", n, err)
		}
	}
	promoted := p
	promoted.Name = "Eve"
	if err := s.BeginPerson(asPerson(t, p), sessionHash(3), promoted, ""); !fault.Is(err, fault.Forbidden) {
		t.Errorf("a blocked person signs in: %v", err)
	}
	if got := known(t, s, p.ID); got.BlockedAt.IsZero() || got.Sessions != 0 || got.Name != p.Name {
		t.Errorf("blocked: %+v", got)
	}
	for range 2 {
		if err := s.Block(asAlice(t), p.ID, false); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := s.Token(t.Context(), sessionHash(0)); !fault.Is(err, fault.Unauthenticated) {
		t.Errorf("an old session lives again: %v", err)
	}
	if err := s.BeginPerson(asPerson(t, p), sessionHash(3), p, ""); err != nil {
		t.Errorf("after the block: %v", err)
	}
	for _, blocked := range []bool{true, false} {
		if err := s.Block(asAlice(t), "oidc:https://idp.example#none", blocked); !fault.Is(err, fault.NotFound) {
			t.Errorf("nobody: %v", err)
		}
	}
	want := []string{"person_blocked token/alice@n1 " + p.ID + " {}", "person_unblocked token/alice@n1 " + p.ID + " {}"}
	if got := briefs(adminEvents(t, f.AdminEvents(), admin.Filter{Actor: "alice"})); !slices.Equal(got, want) {
		t.Errorf("events %q", got)
	}
}

func peopleListed(t *testing.T, f Fixture) {
	s := f.Sessions()
	for n := range 5 {
		if err := s.BeginPerson(asPerson(t, person(n, tokens.Auditor)), sessionHash(n), person(n, tokens.Auditor), ""); err != nil {
			t.Fatal(err)
		}
	}
	// Two of them at the same time.
	if _, err := f.SQL("UPDATE console_people SET first_at = (SELECT max(first_at) FROM console_people WHERE name = 'Person 2') WHERE " +
		"name = 'Person 1' RETURNING 1"); err != nil {
		t.Fatal(err)
	}
	var got []string
	for after := ""; ; {
		page, err := s.People(t.Context(), after, 2)
		if err != nil {
			t.Fatal(err)
		}
		for _, p := range page {
			got = append(got, p.Name)
		}
		if len(page) < 2 {
			break
		}
		after = page[1].ID
	}
	if want := []string{"Person 4", "Person 3", "Person 2", "Person 1", "Person 0"}; !slices.Equal(got, want) {
		t.Errorf("people %q", got)
	}
	if page, err := s.People(t.Context(), "none", 2); err != nil || len(page) != 0 {
		t.Errorf("after an unknown one: %v, %v", page, err)
	}
	age := map[string]string{
		"sqlite":   "UPDATE console_sessions SET begun_at = begun_at - 12 * 3600000000 RETURNING 1",
		"postgres": `UPDATE console_sessions SET begun_at = begun_at - interval '12 hours' RETURNING 1`,
	}
	if _, err := f.SQL(age[f.Kind()]); err != nil {
		t.Fatal(err)
	}
	if p := known(t, s, person(3, "").ID); p.Sessions != 0 || time.Since(p.SeenAt) > time.Hour {
		t.Errorf("after 12 hours: %+v", p)
	}
}
