//go:build unix

package main

import (
	"encoding/json"
	"fmt"
	"path/filepath"
	"strings"
	"testing"

	"secbox/access/sessions"
	"secbox/access/tokens"
	"secbox/audit/admin"
	"secbox/store"
)

// signedIn makes an installation in which each of these people has a session.
func signedIn(t *testing.T, people ...sessions.Person) (state string, db store.Database) {
	t.Helper()
	state = filepath.Join(t.TempDir(), "state")
	if code, _, stderr := coreAPI(t, "migrate", "--state-dir", state); code != 0 {
		t.Fatal(stderr)
	}
	db, err := store.Open(t.Context(), "", state)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { db.Close() })
	for i, p := range people {
		if err := db.Sessions().BeginPerson(admin.By(t.Context(), admin.Caller(p.ID, p.Name)), sessions.Hash{byte(i), byte(i >> 8)}, p,
			"192.0.2.1"); err != nil {
			t.Fatal(err)
		}
	}
	return state, db
}

func TestPeople(t *testing.T) {
	t.Parallel()
	ada := sessions.Person{ID: sessions.PersonID("https://idp.example", "1"), Name: "Ada Lovelace", Role: tokens.Admin}
	eve := sessions.Person{ID: sessions.PersonID("https://idp.example", "2"), Name: "Eve\x1b[2J\n\u202eadmin\t", Role: tokens.Worker}
	state, db := signedIn(t, ada, eve)
	people := func(args ...string) (int, string, string) {
		t.Helper()
		return coreAPI(t, append(append([]string{"people"}, args...), "--state-dir", state)...)
	}
	code, table, stderr := people("list")
	lines := strings.Split(table, "\n")
	if code != 0 || stderr != "" || len(lines) != 4 || !strings.HasPrefix(lines[0], "ID  ") || strings.ContainsAny(table, "\x1b\u202e\t") ||
		!strings.Contains(table, "Eve\uFFFD[2J\uFFFD\uFFFDadmin\uFFFD") {
		t.Fatalf("%d %q %q", code, table, stderr)
	}
	if i := strings.Index(table, ada.ID); i < 0 || strings.Join(strings.Fields(table[i:])[1:5], " ") != "admin Ada Lovelace 1" {
		t.Errorf("%s", table)
	}
	list := func() (rows []personRow) {
		t.Helper()
		code, out, stderr := people("list", "--json")
		if err := json.Unmarshal([]byte(out), &rows); code != 0 || err != nil {
			t.Fatalf("%d %q %q", code, out, stderr)
		}
		return rows
	}
	for _, row := range list() {
		if row.ID == ada.ID && (row.Name != ada.Name || row.Role != tokens.Admin || row.Sessions != 1 || row.BlockedAt != nil || row.FirstAt.IsZero() ||
			row.SeenAt.IsZero()) {
			t.Errorf("%+v", row)
		}
	}

	for range 2 { // a second time changes nothing
		if code, stdout, stderr := people("block", ada.ID); code != 0 || !strings.HasPrefix(stdout, ada.ID+" is blocked") || stderr != "" {
			t.Errorf("%d %q %q", code, stdout, stderr)
		}
	}
	for _, row := range list() {
		if blocked := row.ID == ada.ID; (row.BlockedAt != nil) != blocked || (row.Sessions == 0) != blocked {
			t.Errorf("after the block: %+v", row)
		}
	}
	if _, table, _ := people("list"); strings.Count(table, " -\n") != 1 {
		t.Errorf("%s", table)
	}
	if code, stdout, stderr := people("unblock", ada.ID); code != 0 || stdout != ada.ID+" may sign in again.\n" || stderr != "" {
		t.Errorf("%d %q %q", code, stdout, stderr)
	}
	if rows := list(); rows[0].BlockedAt != nil || rows[1].BlockedAt != nil {
		t.Errorf("%+v", rows)
	}
	for _, change := range []string{"block", "unblock"} {
		if code, stdout, stderr := people(change, "oidc:none"); code != 4 || stdout != "" || !strings.Contains(stderr, "oidc:none") {
			t.Errorf("%s: %d %q %q", change, code, stdout, stderr)
		}
		if code, _, stderr := people(change); code != 2 || stderr == "" {
			t.Errorf("%s without an id: %d %q", change, code, stderr)
		}
	}

	for _, kind := range []admin.Kind{admin.PersonBlocked, admin.PersonUnblocked} {
		events, err := db.AdminEvents().List(t.Context(), admin.Filter{Kind: kind}, nil, 10)
		if err != nil || len(events) != 1 || events[0].Subject != ada.ID ||
			events[0].Actor != (admin.Actor{Type: admin.ByCommand, ID: "core-api", Name: osUser()}) {
			t.Errorf("%s: %+v, %v", kind, events, err)
		}
	}
}

// TestManyPeople: the list has all of them, whatever the size of the pages in which they are read.
func TestManyPeople(t *testing.T) {
	t.Parallel()
	if _, out, _ := func() (int, string, string) {
		state, _ := signedIn(t)
		return coreAPI(t, "people", "list", "--json", "--state-dir", state)
	}(); out != "[]\n" {
		t.Errorf("without people: %q", out)
	}
	people := make([]sessions.Person, peoplePage+1)
	for i := range people {
		people[i] = sessions.Person{ID: sessions.PersonID("https://idp.example", fmt.Sprint(i)), Name: fmt.Sprint("Person ", i), Role: tokens.Worker}
	}
	state, _ := signedIn(t, people...)
	code, table, stderr := coreAPI(t, "people", "list", "--state-dir", state)
	if code != 0 || strings.Count(table, "\n") != len(people)+1 {
		t.Errorf("%d, %d lines, %q", code, strings.Count(table, "\n"), stderr)
	}
	for _, p := range people {
		if !strings.Contains(table, p.ID+" ") {
			t.Errorf("%s is missing", p.ID)
		}
	}
}
