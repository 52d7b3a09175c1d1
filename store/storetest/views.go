package storetest

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"secbox/access/tokens"
	"secbox/access/views"
	"secbox/fault"
)

// mustSee compares the views of an owner.
func mustSee(t *testing.T, s views.Store, owner string, want ...views.View) {
	t.Helper()
	if got, err := s.List(t.Context(), owner); err != nil || !slices.Equal(got, want) {
		t.Errorf("%s has %q, want %q, %v", owner, got, want, err)
	}
}

func mustSave(t *testing.T, s views.Store, owner string, v views.View) {
	t.Helper()
	if err := s.Save(t.Context(), owner, v); err != nil {
		t.Fatal(err)
	}
}

// viewsOfOwners: a view is saved, replaced and removed for its owner only.
func viewsOfOwners(t *testing.T, f Fixture) {
	s := f.Views()
	failed := views.View{Name: "failed today", Query: "since=today&status=failed"}
	all := views.View{Name: "All", Query: ""}
	odd := views.View{Name: `'; DROP TABLE x; -- "漢" <b>`, Query: "text=%00%3Cb%3E"}
	for _, v := range []views.View{failed, all, odd} {
		mustSave(t, s, "ada", v)
	}
	mustSave(t, s, "ben", views.View{Name: failed.Name, Query: "status=lost"})
	mustSee(t, s, "ada", odd, all, failed)
	failed.Query = "since=7d"
	mustSave(t, s, "ada", failed)
	for range 2 {
		if err := s.Remove(t.Context(), "ada", odd.Name); err != nil {
			t.Fatal(err)
		}
	}
	mustSee(t, s, "ada", all, failed)
	mustSee(t, s, "ben", views.View{Name: failed.Name, Query: "status=lost"})
	mustSee(t, s, "eve")
}

// viewsBounded: an owner has a bounded number of bounded views.
func viewsBounded(t *testing.T, f Fixture) {
	s := f.Views()
	for n := range views.MaxPerOwner {
		mustSave(t, s, "ada", views.View{Name: fmt.Sprint("view ", n)})
	}
	err := s.Save(t.Context(), "ada", views.View{Name: "one more"})
	if problem := fault.From(err); problem.Code != fault.InvalidRequest || len(problem.Fields) != 1 || problem.Fields[0].Field != "name" {
		t.Errorf("beyond the limit: %v", err)
	}
	mustSave(t, s, "ada", views.View{Name: "view 3", Query: "kind=all"}) // replaces
	mustSave(t, s, "ben", views.View{Name: strings.Repeat("漢", views.MaxName), Query: strings.Repeat("a", views.MaxQuery)})
	if all, err := s.List(t.Context(), "ada"); err != nil || len(all) != views.MaxPerOwner {
		t.Errorf("%d views, %v", len(all), err)
	}
	for field, v := range map[string]views.View{
		"name": {}, "name of a space": {Name: " "}, "name with a space": {Name: "a "}, "name with a break": {Name: "a\nb"},
		"name that is long": {Name: strings.Repeat("a", views.MaxName+1)}, "name of bytes": {Name: "a\xff"},
		"query": {Name: "a", Query: strings.Repeat("a", views.MaxQuery+1)}, "query in the clear": {Name: "a", Query: "text=a b"},
	} {
		err := s.Save(t.Context(), "eve", v)
		if problem := fault.From(err); problem.Code != fault.InvalidRequest || problem.Fields[0].Field != strings.Fields(field)[0] {
			t.Errorf("%s: %v", field, err)
		}
	}
	mustSee(t, s, "eve")
}

// viewsEnd: views go with their token and their person.
func viewsEnd(t *testing.T, f Fixture) {
	s, p := f.Views(), person(1, tokens.Auditor)
	revoked, hash := token("revoked", tokens.Auditor)
	mustCreate(t, f.Tokens(), revoked, hash)
	replaced, replacedHash := token("seeded", tokens.Admin)
	mustCreate(t, f.Tokens(), replaced, replacedHash)
	kept, keptHash := token("kept", tokens.Auditor)
	mustCreate(t, f.Tokens(), kept, keptHash)
	if err := f.Sessions().BeginPerson(asPerson(t, p), sessionHash(1), p, ""); err != nil {
		t.Fatal(err)
	}
	owners := []string{revoked.ID, replaced.ID, kept.ID, p.ID}
	view := views.View{Name: "mine", Query: "status=failed"}
	for _, owner := range owners {
		mustSave(t, s, owner, view)
	}
	if _, err := f.Tokens().Revoke(asAlice(t), revoked.ID, base); err != nil {
		t.Fatal(err)
	}
	seeded, seededHash := token("seeded", tokens.Admin)
	if created, err := f.Tokens().Seed(asAlice(t), seeded, seededHash); err != nil || !created {
		t.Fatal(created, err)
	}
	mustSee(t, s, revoked.ID)
	mustSee(t, s, replaced.ID)
	mustSee(t, s, kept.ID, view)
	mustSee(t, s, p.ID, view)
	if err := f.Sessions().Block(asAlice(t), p.ID, true); err != nil { // which an administrator can end
		t.Fatal(err)
	}
	mustSee(t, s, p.ID, view)
	for _, statement := range []string{
		"DELETE FROM console_people WHERE name = '" + p.Name + "' RETURNING 1",
		"DELETE FROM tokens WHERE name = 'kept' RETURNING 1",
	} {
		if n, err := f.SQL(statement); err != nil || n != "1" {
			t.Fatal(n, err)
		}
	}
	mustSee(t, s, p.ID)
	mustSee(t, s, kept.ID)
}
