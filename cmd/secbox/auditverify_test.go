package main

import (
	"bytes"
	"database/sql"
	"log/slog"
	"net/http/httptest"
	"net/url"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"secbox/access/tokens"
	"secbox/api"
	"secbox/api/visible"
	"secbox/audit"
	"secbox/audit/admin"
	"secbox/audit/translog"
	"secbox/runner/follow"
	"secbox/skills"
	"secbox/store/sqlite"
	"secbox/store/storetest/sqlitetest"
)

// TestAuditVerifyOfCoreAPI: the exit codes, against the handler of core-api with a real log.
func TestAuditVerifyOfCoreAPI(t *testing.T) {
	t.Parallel()
	path := sqlitetest.Migrated(t, filepath.Join(t.TempDir(), "core.db"))
	db, err := sqlite.Open(t.Context(), path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { db.Close() })
	web := httptest.NewUnstartedServer(nil)
	catalog, err := skills.Open(skills.Config{Dir: t.TempDir(), Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	handler, err := api.New(api.Config{ListenAddr: web.Listener.Addr().String(), Needs: api.Needs{
		TransparencyLog: translog.Log{Store: db.TransparencyLog()}, Tokens: tokens.NewService(db.Tokens(), time.Now), Skills: catalog,
		AdminEvents: db.AdminEvents(), Downloads: admin.Downloads{Store: db.AdminEvents(), Limits: db.Limits()}, Retention: db.Retention(),
		UploadDir: filepath.Join(t.TempDir(), "uploads"),
		Runner:    struct{ api.Runner }{}, Live: &follow.Execs{}, Changes: db.Audit(), Webhooks: struct{ api.Webhooks }{}, Connections: db.Connections(),
		History: struct{ api.History }{},
		Exports: struct{ api.Exports }{}, Reports: struct{ api.Reports }{}, Health: struct{ api.Health }{}, Pool: struct{ api.Pool }{},
		Invoker: struct{ api.Invoker }{}, Replayer: struct{ api.Replayer }{}, Library: struct{ api.Library }{}, View: struct{ visible.View }{},
		Sandboxes: struct{ api.Sandboxes }{}, Projects: struct{ api.Projects }{},
		Catalog: struct{ api.Catalog }{}, Registry: struct{ api.Registry }{}, Images: struct{ api.Images }{}, // never called
	}})
	if err != nil {
		t.Fatal(err)
	}
	web.Config.Handler = handler
	web.Start()
	t.Cleanup(web.Close)

	dir := t.TempDir()
	key, err := translog.MakeKey(filepath.Join(dir, translog.KeyFile), "secbox/a")
	if err != nil {
		t.Fatal(err)
	}
	wants := func(what string, code int, says string, args ...string) {
		t.Helper()
		var stdout, stderr bytes.Buffer
		got := run(t.Context(), append([]string{"audit", "verify", "--server", web.URL, "--key", key.Verifier}, args...), environment(), strings.NewReader(""),
			&stdout, &stderr)
		if got != code || !strings.Contains(stdout.String()+stderr.String(), says) {
			t.Errorf("%s: exit code %d, %q %q", what, got, stdout.String(), stderr.String())
		}
	}
	wants("an empty log", 0, "0 differences: the log has 0 entries")
	r := audit.Record{ExecID: "e1", Status: audit.Running, CreatedAt: time.Now(), StartedAt: time.Now(), ProjectID: "demo", Cmd: "true"}
	if _, err := db.Audit().Open(t.Context(), r); err != nil {
		t.Fatal(err)
	}
	r.Status, r.EndedAt = audit.Succeeded, time.Now()
	if _, err := db.Audit().Close(t.Context(), r); err != nil {
		t.Fatal(err)
	}
	sequencer := translog.NewSequencer(translog.SequencerConfig{
		Store: db.TransparencyLog(), Origin: "secbox/a", Holder: "n", Logger: slog.New(slog.DiscardHandler),
		Key: func(bool) (translog.Key, error) { return key, nil },
	})
	if n, err := sequencer.Step(t.Context()); n < 3 || err != nil {
		t.Fatal(n, err)
	}
	wants("honest", 0, "compared 3 events, 1 exec", "--dir", filepath.Join(dir, "verified"))
	wants("again", 0, "0 differences: the log has 3 entries; compared 3 events, 1 exec", "--dir", filepath.Join(dir, "verified"))
	wants("again, only what is new", 0, "Left out: 3 entries and 1 exec ", "--dir", filepath.Join(dir, "verified"), "--new-only")
	wants("only what is new, without a memory", 0, "Left out: nothing; ", "--new-only")
	raw, err := sql.Open("sqlite", (&url.URL{Scheme: "file", Path: "/" + strings.TrimPrefix(filepath.ToSlash(path), "/")}).String())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { raw.Close() })
	if _, err := raw.ExecContext(t.Context(), "UPDATE sandbox_execs SET cmd = 'evil'"); err != nil {
		t.Fatal(err)
	}
	wants("a changed row, and only what is new", 0, "0 differences in what is new, and 3 entries and 1 exec were left out", "--dir",
		filepath.Join(dir, "verified"), "--new-only")
	wants("a changed row, after a run that knew the right one", 1, `exec e1: cmd: expected "true", found "evil"`, "--dir", filepath.Join(dir, "verified"))
	wants("a changed row", 1, `exec e1: cmd: expected "true", found "evil"`)
	wants("a changed row, as JSON", 1, `{"exec_id":"e1","what":"cmd","expected":"\"true\"","found":"\"evil\""}`, "--json", "--project", "demo", "--since", "1h")
	if _, _, err := tokens.NewService(db.Tokens(), time.Now).Create(t.Context(), tokens.Spec{Name: "a", Role: tokens.Auditor}); err != nil {
		t.Fatal(err)
	}
	wants("no token", 2, "--token-file")
	wants("unreachable", 2, "core-api does not answer at "+unanswered, "--server", unanswered)
}
