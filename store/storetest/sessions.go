package storetest

import (
	"crypto/sha256"
	"fmt"
	"reflect"
	"slices"
	"testing"

	"secbox/access/sessions"
	"secbox/access/tokens"
	"secbox/audit/admin"
	"secbox/fault"
)

func sessionHash(n int) sessions.Hash { return sha256.Sum256(fmt.Append(nil, "session", n)) }

func sessionsBeginAndEnd(t *testing.T, f Fixture) {
	s := f.Sessions()
	tok, hash := token("browser", tokens.Auditor)
	tok.Projects = []string{"p"}
	mustCreate(t, f.Tokens(), tok, hash)
	if err := s.Begin(asAlice(t), sessionHash(1), tok.ID, "192.0.2.1"); err != nil {
		t.Fatal(err)
	}
	if got, err := s.Token(t.Context(), sessionHash(1)); err != nil || !reflect.DeepEqual(got, tok) {
		t.Errorf("Token = %+v, %v", got, err)
	}
	if _, err := s.Token(t.Context(), sessionHash(2)); !fault.Is(err, fault.Unauthenticated) {
		t.Errorf("an unknown session: %v", err)
	}
	if err := s.End(asAlice(t), sessionHash(1), "another"); err != nil {
		t.Error(err)
	}
	if _, err := s.Token(t.Context(), sessionHash(1)); err != nil {
		t.Errorf("another token ended the session: %v", err)
	}
	for range 2 {
		if err := s.End(asAlice(t), sessionHash(1), tok.ID); err != nil {
			t.Error(err)
		}
		if _, err := s.Token(t.Context(), sessionHash(1)); !fault.Is(err, fault.Unauthenticated) {
			t.Errorf("an ended session: %v", err)
		}
	}
	want := []string{
		"signed_in token/alice@n1 " + tok.ID + ` {"address":"192.0.2.1"}`,
		"signed_out token/alice@n1 " + tok.ID + " {}",
	}
	if got := briefs(adminEvents(t, f.AdminEvents(), admin.Filter{Actor: "alice"})); !slices.Equal(got, want) {
		t.Errorf("events %q", got)
	}
}

func sessionsEndByThemselves(t *testing.T, f Fixture) {
	s := f.Sessions()
	tok, hash := token("browser", tokens.Admin)
	mustCreate(t, f.Tokens(), tok, hash)
	for n := range 2 {
		if err := s.Begin(asAlice(t), sessionHash(n), tok.ID, ""); err != nil {
			t.Fatal(err)
		}
	}
	age := map[string]string{
		"sqlite":   "UPDATE console_sessions SET begun_at = begun_at - 12 * 3600000000 WHERE hash = x'%x' RETURNING 1",
		"postgres": `UPDATE console_sessions SET begun_at = begun_at - interval '12 hours' WHERE hash = '\x%x' RETURNING 1`,
	}
	if changed, err := f.SQL(fmt.Sprintf(age[f.Kind()], sessionHash(0))); err != nil || changed != "1" {
		t.Fatal(changed, err)
	}
	if _, err := s.Token(t.Context(), sessionHash(0)); !fault.Is(err, fault.Unauthenticated) {
		t.Errorf("after 12 hours: %v", err)
	}
	if _, err := f.Tokens().Revoke(asAlice(t), tok.ID, base); err != nil {
		t.Fatal(err)
	}
	if got, err := s.Token(t.Context(), sessionHash(1)); err != nil || !got.Revoked() {
		t.Errorf("of a revoked token: %+v, %v", got, err)
	}
	if err := s.Begin(asAlice(t), sessionHash(2), tok.ID, ""); !fault.Is(err, fault.TokenRevoked) {
		t.Errorf("a session of a revoked token: %v", err)
	}
	if n, err := f.SQL("SELECT count(*) FROM console_sessions"); err != nil || n != "2" {
		t.Errorf("a refused sign-in left %s rows, %v", n, err)
	}
}

func sessionsBounded(t *testing.T, f Fixture) {
	s := f.Sessions()
	tok, hash := token("browser", tokens.Admin)
	other, otherHash := token("other", tokens.Admin)
	mustCreate(t, f.Tokens(), tok, hash)
	mustCreate(t, f.Tokens(), other, otherHash)
	if err := s.Begin(asAlice(t), sessionHash(-1), other.ID, ""); err != nil {
		t.Fatal(err)
	}
	for n := range sessions.MaxPerToken + 2 {
		if err := s.Begin(asAlice(t), sessionHash(n), tok.ID, ""); err != nil {
			t.Fatal(err)
		}
	}
	if n, err := f.SQL("SELECT count(*) FROM console_sessions WHERE token_id = '" + tok.ID + "'"); err != nil ||
		n != fmt.Sprint(sessions.MaxPerToken) {
		t.Errorf("a token has %s sessions, %v", n, err)
	}
	for _, n := range []int{-1, 2, sessions.MaxPerToken + 1} {
		if _, err := s.Token(t.Context(), sessionHash(n)); err != nil {
			t.Errorf("session %d: %v", n, err)
		}
	}
	if _, err := s.Token(t.Context(), sessionHash(0)); !fault.Is(err, fault.Unauthenticated) {
		t.Errorf("the oldest session: %v", err)
	}
	fill := map[string]string{
		"sqlite": "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i+1 FROM n WHERE i < %d) INSERT INTO console_sessions SELECT " +
			"CAST('x'||i AS BLOB), '%s', " +
			"(SELECT max(begun_at) FROM console_sessions) FROM n RETURNING 1",
		"postgres": "INSERT INTO console_sessions SELECT convert_to('x'||i, 'UTF8'), '%[2]s', statement_timestamp() FROM " +
			"generate_series(1, %[1]d) i RETURNING 1",
	}
	if _, err := f.SQL(fmt.Sprintf(fill[f.Kind()], sessions.Max, "crowd")); err != nil {
		t.Fatal(err)
	}
	if err := s.Begin(asAlice(t), sessionHash(100), other.ID, ""); !fault.Is(err, fault.ServerBusy) {
		t.Errorf("beyond all sessions: %v", err)
	}
}
