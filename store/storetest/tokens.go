package storetest

import (
	"crypto/sha256"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"secbox/access/tokens"
	"secbox/fault"
)

func token(name string, role tokens.Role) (tokens.Token, tokens.Hash) {
	id := newID()
	return tokens.Token{ID: id, Name: name, Role: role, CreatedAt: base}, sha256.Sum256([]byte(id))
}

func mustCreate(t *testing.T, s tokens.Store, tok tokens.Token, h tokens.Hash) {
	t.Helper()
	if err := s.Create(t.Context(), tok, h); err != nil {
		t.Fatal(err)
	}
}

func tokenRoundTrip(t *testing.T, f Fixture) {
	s := f.Tokens()
	if list, err := s.List(t.Context()); err != nil || list == nil || len(list) != 0 {
		t.Errorf("no tokens are %#v, %v", list, err)
	}
	full, fullHash := token("ci – Bürö 漢", tokens.Worker)
	full.Projects, full.Agents, full.Users, full.UserID = []string{"p", "a~u"}, []string{"a"}, []string{"u", "v"}, "u"
	full.CreatedAt = base.Add(time.Second)
	bare, bareHash := token("bare", tokens.Admin)
	bare.Projects = []string{}
	tie, tieHash := token("tie", tokens.Auditor)
	for _, c := range []struct {
		tok  tokens.Token
		hash tokens.Hash
	}{{full, fullHash}, {tie, tieHash}, {bare, bareHash}} {
		mustCreate(t, s, c.tok, c.hash)
	}
	bare.Projects = nil // an empty scope list comes back nil
	list, err := s.List(t.Context())
	if err != nil || !reflect.DeepEqual(list, []tokens.Token{bare, tie, full}) {
		t.Errorf("List = %+v, %v", list, err)
	}
	for _, want := range []tokens.Token{full, bare} {
		if got, err := s.ByID(t.Context(), want.ID); err != nil || !reflect.DeepEqual(got, want) {
			t.Errorf("ByID = %+v, %v; want %+v", got, err, want)
		}
	}
	for _, id := range []string{"none", "", "\x00", "\xff", strings.Repeat("x", 9000)} {
		if _, err := s.ByID(t.Context(), id); !fault.Is(err, fault.UnknownToken) {
			t.Errorf("ByID(%.10q): %v", id, err)
		}
	}
	names, err := s.Names(t.Context(), []string{tie.ID, "none", "\x00", full.ID, tie.ID})
	if err != nil || !reflect.DeepEqual(names, map[string]string{full.ID: full.Name, tie.ID: tie.Name}) {
		t.Errorf("Names = %v, %v", names, err)
	}
	got, hash, err := s.ByHash(t.Context(), fullHash)
	if err != nil || hash != fullHash || !reflect.DeepEqual(got, full) {
		t.Errorf("ByHash = %+v, %x, %v", got, hash, err)
	}
	if _, _, err := s.ByHash(t.Context(), tokens.Hash{}); !fault.Is(err, fault.UnknownToken) {
		t.Errorf("an unknown hash: %v", err)
	}
}

func tokenUsedTwice(t *testing.T, f Fixture) {
	s := f.Tokens()
	tok, hash := token("one", tokens.Worker)
	mustCreate(t, s, tok, hash)
	other, otherHash := token("one", tokens.Worker) // names may repeat
	if err := s.Create(t.Context(), other, hash); !fault.Is(err, fault.Internal) {
		t.Errorf("the same hash: %v", err)
	}
	if err := s.Create(t.Context(), tok, otherHash); !fault.Is(err, fault.Internal) {
		t.Errorf("the same id: %v", err)
	}
	mustCreate(t, s, other, otherHash)
}

func tokenRevoke(t *testing.T, f Fixture) {
	s := f.Tokens()
	tok, hash := token("one", tokens.Worker)
	mustCreate(t, s, tok, hash)
	at := base.Add(time.Minute)
	want := tok
	want.RevokedAt = at
	for _, when := range []time.Time{at.Add(999), at.Add(time.Hour)} { // cut to microseconds; the second does not count
		got, err := s.Revoke(t.Context(), tok.ID, when)
		if err != nil || !reflect.DeepEqual(got, want) {
			t.Errorf("Revoke = %+v, %v; want %+v", got, err, want)
		}
	}
	got, _, err := f.Reopen(t).Tokens().ByHash(t.Context(), hash)
	if err != nil || !got.Revoked() {
		t.Errorf("from another process: %+v, %v", got, err)
	}
	for _, id := range []string{"none", "", "\x00", "\xff", strings.Repeat("x", 9000)} {
		if _, err := s.Revoke(t.Context(), id, at); !fault.Is(err, fault.UnknownToken) {
			t.Errorf("Revoke(%.10q): %v", id, err)
		}
	}
}

func tokenSeed(t *testing.T, f Fixture) {
	s := f.Tokens()
	bystander, bystanderHash := token("other", tokens.Admin)
	mustCreate(t, s, bystander, bystanderHash)
	first, firstHash := token("SEED", tokens.Admin)
	second, secondHash := token("SEED", tokens.Admin)
	second.CreatedAt = base.Add(time.Hour)
	third, _ := token("SEED", tokens.Admin)

	for i, c := range []struct {
		tok     tokens.Token
		hash    tokens.Hash
		created bool
	}{
		{first, firstHash, true},
		{first, firstHash, false},
		{second, secondHash, true},
		{third, firstHash, false},
		{third, secondHash, false},
	} {
		created, err := s.Seed(t.Context(), c.tok, c.hash)
		if err != nil || created != c.created {
			t.Fatalf("seeding %d = %v, %v", i, created, err)
		}
	}
	list, err := s.List(t.Context())
	first.RevokedAt = second.CreatedAt
	if err != nil || !reflect.DeepEqual(list, []tokens.Token{bystander, first, second}) {
		t.Errorf("List = %+v, %v", list, err)
	}
}

func tokenSeedRace(t *testing.T, f Fixture) {
	s := f.Tokens()
	_, hash := token("SEED", tokens.Admin)
	var made atomic.Int64
	var all sync.WaitGroup
	for range 8 {
		all.Go(func() {
			tok, _ := token("SEED", tokens.Admin)
			created, err := s.Seed(t.Context(), tok, hash)
			if err != nil {
				t.Error(err)
			}
			if created {
				made.Add(1)
			}
		})
	}
	all.Wait()
	list, err := s.List(t.Context())
	if err != nil || made.Load() != 1 || len(list) != 1 || list[0].Revoked() {
		t.Errorf("%d made, list %+v, %v", made.Load(), list, err)
	}
}

func tokenAny(t *testing.T, f Fixture) {
	s := f.Tokens()
	expect := func(when string, want bool) {
		t.Helper()
		if got, err := s.Any(t.Context()); err != nil || got != want {
			t.Errorf("%s: %v, %v", when, got, err)
		}
	}
	expect("at first", false)
	runner, runnerHash := token("laptop", tokens.Runner)
	mustCreate(t, s, runner, runnerHash)
	expect("with a runner's", false)
	worker, workerHash := token("w", tokens.Worker)
	mustCreate(t, s, worker, workerHash)
	expect("with a worker's", true)
	if _, err := s.Revoke(t.Context(), worker.ID, base); err != nil {
		t.Fatal(err)
	}
	expect("with a revoked one", true)
}

func tokenService(t *testing.T, f Fixture) {
	now := base
	service := tokens.NewService(f.Tokens(), func() time.Time { return now })
	made, secret, err := service.Create(t.Context(),
		tokens.Spec{Name: "ci", Role: tokens.Worker, Projects: []string{"b", "a", "b"}, Agents: []string{"x"}})
	if err != nil {
		t.Fatal(err)
	}
	if !reflect.DeepEqual(made.Projects, []string{"a", "b"}) || made.CreatedAt != base {
		t.Errorf("made %+v", made)
	}
	got, err := service.Verify(t.Context(), secret)
	if err != nil || !reflect.DeepEqual(got, made) {
		t.Errorf("Verify = %+v, %v; want %+v", got, err, made)
	}
	// The secret is nowhere in the database.
	find := "SELECT count(*) FROM tokens WHERE CAST(hash AS text) LIKE '%" + secret[4:] + "%' OR name LIKE '%" + secret[4:] + "%'"
	if count, err := f.SQL(find); err != nil || count != "0" {
		t.Errorf("the secret is in the table: %q, %v", count, err)
	}
	for _, wrong := range []string{
		"", "sbx_", secret + "x", secret[:len(secret)-1], strings.ToUpper(secret), "\x00",
		strings.Repeat("x", 100_000),
	} {
		if _, err := service.Verify(t.Context(), wrong); !fault.Is(err, fault.Unauthenticated) {
			t.Errorf("Verify(%.20q): %v", wrong, err)
		}
	}
	valid := func(id string, want fault.Code) {
		t.Helper()
		if err := service.Valid(t.Context(), id); fault.CodeOf(err) != want {
			t.Errorf("Valid(%.10q): %v, want %q", id, err, want)
		}
	}
	valid(made.ID, "")
	valid("none", fault.Unauthenticated)
	now = now.Add(time.Hour)
	if _, err := service.Revoke(t.Context(), made.ID); err != nil {
		t.Fatal(err)
	}
	valid(made.ID, fault.TokenRevoked)
	if _, err := service.Verify(t.Context(), secret); !fault.Is(err, fault.TokenRevoked) {
		t.Errorf("revoked: %v", err)
	}

	for _, seed := range []string{"a-first-admin-secret", "a-first-admin-secret", "a-second-admin-secret", "a-first-admin-secret"} {
		if err := service.Seed(t.Context(), seed); err != nil {
			t.Fatal(err)
		}
	}
	if tok, err := service.Verify(t.Context(), "a-second-admin-secret"); err != nil || tok.Role != tokens.Admin ||
		tok.Name != tokens.SeedName {
		t.Errorf("the seeded one: %+v, %v", tok, err)
	}
	if _, err := service.Verify(t.Context(), "a-first-admin-secret"); !fault.Is(err, fault.TokenRevoked) {
		t.Errorf("the seeded one before: %v", err)
	}
}

// tokenPages: pages of tokens run newest first, with and without revoked ones.
func tokenPages(t *testing.T, f Fixture) {
	s := f.Tokens()
	var all, valid []string // newest first
	for i := range 23 {
		tok, hash := token(fmt.Sprint("t", i), tokens.Roles()[i%len(tokens.Roles())])
		tok.CreatedAt = base.Add(time.Duration(i/2) * time.Second) // ids decide between two
		mustCreate(t, s, tok, hash)
		all = append(all, tok.ID)
		if i%3 == 0 {
			if _, err := s.Revoke(t.Context(), tok.ID, base); err != nil {
				t.Fatal(err)
			}
		} else {
			valid = append(valid, tok.ID)
		}
	}
	slices.Reverse(all)
	slices.Reverse(valid)
	for want, revoked := range map[*[]string]bool{&all: true, &valid: false} {
		for _, size := range []int{1, 7, 50} {
			var got []string
			for after := ""; ; {
				page, err := s.Page(t.Context(), after, revoked, size)
				if err != nil || page == nil || len(page) > size {
					t.Fatalf("%d tokens on a page of %d, %v", len(page), size, err)
				}
				for _, tok := range page {
					got, after = append(got, tok.ID), tok.ID
				}
				if len(page) < size {
					break
				}
			}
			if !slices.Equal(got, *want) {
				t.Errorf("revoked ones %v, in pages of %d: %v, want %v", revoked, size, got, *want)
			}
		}
	}
	if page, err := s.Page(t.Context(), "none", true, 5); err != nil || len(page) > 0 {
		t.Errorf("after an unknown one: %v, %v", page, err)
	}
}

// tokenUsable: a revoked token is of no use, and the one that does not count is left out.
func tokenUsable(t *testing.T, f Fixture) {
	s := f.Tokens()
	usable := func(apart string, roles ...tokens.Role) bool {
		t.Helper()
		found, err := s.Usable(t.Context(), roles, apart)
		if err != nil {
			t.Fatal(err)
		}
		return found
	}
	if usable("", tokens.Roles()...) {
		t.Error("a token without tokens")
	}
	admin, hash := token("admin", tokens.Admin)
	mustCreate(t, s, admin, hash)
	if !usable("", tokens.Worker, tokens.Admin) || usable("", tokens.Worker, tokens.Auditor) || usable(admin.ID, tokens.Admin) ||
		!usable("none", tokens.Admin) || usable("") {
		t.Error("one admin's token")
	}
	if _, err := s.Revoke(t.Context(), admin.ID, base); err != nil {
		t.Fatal(err)
	}
	if usable("", tokens.Roles()...) {
		t.Error("a revoked token")
	}
}
