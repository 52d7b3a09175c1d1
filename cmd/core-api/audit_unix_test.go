//go:build unix

package main

import (
	"bytes"
	"encoding/json"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/transparency-dev/formats/log"
	"golang.org/x/mod/sumdb/note"

	"secbox/audit"
	"secbox/audit/admin"
	"secbox/audit/translog"
	"secbox/audit/translog/checkpoint"
	"secbox/audit/translog/verify"
	"secbox/server"
	"secbox/settings"
	"secbox/store"
	"secbox/store/storetest/pgtest"
)

// TestAuditKey: the key may be printed before the log begins, and no other key afterwards.
func TestAuditKey(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	state := filepath.Join(dir, "state")
	if code, _, stderr := coreAPI(t, "audit", "key", "--state-dir", state); code != 2 || !strings.Contains(stderr, "no database") {
		t.Errorf("no database: %d %q", code, stderr)
	}
	if code, _, stderr := coreAPI(t, "migrate", "--state-dir", state); code != 0 {
		t.Fatal(stderr)
	}
	code, key, stderr := coreAPI(t, "audit", "key", "--state-dir", state)
	if code != 0 || !strings.HasPrefix(key, "secbox/") {
		t.Fatalf("%d %q %q", code, key, stderr)
	}
	logOneExec(t, state)
	if code, again, stderr := coreAPI(t, "audit", "key", "--state-dir", state); code != 0 || again != key {
		t.Errorf("once more: %d %q %q", code, again, stderr)
	}

	file := filepath.Join(state, translog.KeyFile)
	refused := func(what, says string) {
		t.Helper()
		if code, out, stderr := coreAPI(t, "audit", "key", "--state-dir", state); code != 2 || out != "" || !strings.Contains(stderr, says) {
			t.Errorf("%s: %d %q %q", what, code, out, stderr)
		}
	}
	if err := os.Rename(file, file+".away"); err != nil {
		t.Fatal(err)
	}
	refused("a lost key", "restore it")
	if _, err := translog.MakeKey(file, key[:strings.Index(key, "+")]); err != nil {
		t.Fatal(err)
	}
	refused("another key", "begun with another key than this node's")
	if code, out, stderr := coreAPI(t, "audit", "key", "--state-dir", state, "--replaces", file, "--reason", "x"); code != 2 || out != "" {
		t.Errorf("another key, which is said to replace it: %d %q %q", code, out, stderr)
	}
	if err := os.WriteFile(file, []byte("x"), 0o600); err != nil {
		t.Fatal(err)
	}
	refused("a damaged key", "damaged")
}

// TestAuditKeyReplaces: the act is in the list of events, with both keys and the checkpoint.
func TestAuditKeyReplaces(t *testing.T) {
	t.Parallel()
	state, file := filepath.Join(t.TempDir(), "state"), filepath.Join(t.TempDir(), "seen")
	if code, _, stderr := coreAPI(t, "migrate", "--state-dir", state); code != 0 {
		t.Fatal(stderr)
	}
	code, key, stderr := coreAPI(t, "audit", "key", "--state-dir", state)
	if code != 0 {
		t.Fatal(stderr)
	}
	origin, _, _ := strings.Cut(key, "+")
	other, err := translog.MakeKey(filepath.Join(t.TempDir(), "key"), origin)
	if err != nil {
		t.Fatal(err)
	}
	point := log.Checkpoint{Origin: origin, Size: 7, Hash: make([]byte, 32)}
	signed, err := note.Sign(&note.Note{Text: string(point.Marshal())}, other.Signer)
	if err != nil {
		t.Fatal(err)
	}
	elsewhere, err := translog.MakeKey(filepath.Join(t.TempDir(), "key"), "secbox/before")
	if err != nil {
		t.Fatal(err)
	}
	point.Origin = "secbox/before"
	before, err := note.Sign(&note.Note{Text: string(point.Marshal())}, elsewhere.Signer)
	if err != nil {
		t.Fatal(err)
	}
	for text, want := range map[string]int{"": 2, "x\n": 2, string(before): 0, string(signed) + "\n" + string(before): 0} {
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if code, out, stderr := coreAPI(t, "audit", "key", "--state-dir", state, "--replaces", file, "--reason", "a fire"); code != want ||
			want == 0 && out != key {
			t.Errorf("%q: %d %q %q", text, code, out, stderr)
		}
	}
	if err := os.WriteFile(file, signed, 0o600); err != nil {
		t.Fatal(err)
	}
	if code, out, stderr := coreAPI(t, "audit", "key", "--state-dir", state, "--replaces", file, "--reason", "again"); code != 0 || out != key ||
		!strings.Contains(stderr, "Recorded before, as administrative event ") {
		t.Errorf("again: %d %q %q", code, out, stderr)
	}
	db, err := store.Open(t.Context(), "", state)
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	events, err := db.AdminEvents().List(t.Context(), admin.Filter{Kind: admin.LogKeyReplaced, Subject: checkpoint.KeyID(other.Verifier)}, nil, 10)
	if err != nil || len(events) != 1 || events[0].Subject != checkpoint.KeyID(other.Verifier) || events[0].Actor.Type != admin.ByCommand {
		t.Fatalf("%+v, %v", events, err)
	}
	var r translog.Replacement
	if err := json.Unmarshal([]byte(events[0].Data), &r); err != nil || r.Key != strings.TrimSpace(key) || r.Entries != 7 || r.Checkpoint != string(signed) ||
		r.Reason != "a fire" {
		t.Errorf("%+v, %v", r, err)
	}
	if events, err = db.AdminEvents().List(t.Context(), admin.Filter{Subject: checkpoint.KeyID(elsewhere.Verifier)}, nil, 10); err != nil || len(events) != 1 {
		t.Errorf("of the log before: %+v, %v", events, err)
	}
}

// TestCompareLog: the doctor compares the log with the anchor, and changes nothing there.
func TestCompareLog(t *testing.T) {
	t.Parallel()
	state, dir := filepath.Join(t.TempDir(), "state"), t.TempDir()
	if code, _, stderr := coreAPI(t, "migrate", "--state-dir", state); code != 0 {
		t.Fatal(stderr)
	}
	logOneExec(t, state)
	db, err := store.Open(t.Context(), "", state)
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	installation, err := db.Audit().InstallationID(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	origin := translog.Origin(installation)
	other, err := translog.MakeKey(filepath.Join(t.TempDir(), "key"), origin)
	if err != nil {
		t.Fatal(err)
	}
	point := log.Checkpoint{Origin: origin, Size: 7, Hash: make([]byte, 32)}
	signed, err := note.Sign(&note.Note{Text: string(point.Marshal())}, other.Signer)
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(dir, "secbox-"+installation+".checkpoints")
	for _, tc := range []struct{ kept, dir, halted, problem string }{
		{"", dir, "", ""},
		{string(signed) + "\n", dir, "under another key, " + checkpoint.KeyID(other.Verifier), "under another key"},
		{"", filepath.Join(dir, "none"), "", "mount it"},
	} {
		if tc.kept != "" {
			if err := os.WriteFile(file, []byte(tc.kept), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		var cfg settings.Settings
		cfg.StateDir, cfg.Audit.AnchorDir, cfg.Audit.AnchorEvery = state, tc.dir, 1
		measure, err := server.CompareLog(t.Context(), cfg, db)
		if err != nil {
			t.Fatal(err)
		}
		got, err := measure(t.Context())
		if err != nil || got.Entries == 0 || !strings.Contains(got.Halted, tc.halted) || (got.Halted == "") != (tc.halted == "") ||
			!strings.Contains(got.AnchorProblem, tc.problem) || (got.AnchorProblem == "") != (tc.problem == "") {
			t.Errorf("%+v: %+v, %v", tc, got, err)
		}
		if text, err := os.ReadFile(file); err == nil && string(text) != string(signed)+"\n" {
			t.Errorf("the file has %q", text)
		}
	}
}

func TestAuditExport(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	state, file := filepath.Join(dir, "state"), filepath.Join(dir, "audit.csv")
	if code, _, stderr := coreAPI(t, "migrate", "--state-dir", state); code != 0 {
		t.Fatal(stderr)
	}
	logOneExec(t, state)
	code, out, stderr := coreAPI(t, "audit", "export", "--state-dir", state, "--status", "running,queued", "--since", "1d")
	if code != 0 || !strings.HasPrefix(out, `{"exec_id":"e"`) || !strings.Contains(out, `"records":1`) ||
		!strings.Contains(out, `"parameters":{"since":"1d","status":"running,queued"}`) {
		t.Errorf("%d %q %q", code, out, stderr)
	}
	if code, out, stderr = coreAPI(t, "audit", "export", "--state-dir", state, "--format", "csv", "--output", file); code != 0 || out != "" {
		t.Errorf("%d %q %q", code, out, stderr)
	}
	if text, err := os.ReadFile(file); err != nil || !strings.HasPrefix(string(text), "exec_id,kind,") || !strings.Contains(string(text), "export_end") {
		t.Errorf("%s, %v", text, err)
	}
	if code, _, stderr = coreAPI(t, "audit", "export", "--state-dir", state, "--output", file); code != 2 || !strings.Contains(stderr, "file exists") {
		t.Errorf("a file that exists: %d %q", code, stderr)
	}
	if code, _, stderr = coreAPI(t, "audit", "export", "--state-dir", state, "--format", "xml", "--kind", "x"); code != 2 ||
		!strings.Contains(stderr, "jsonl, csv or ocsf") || !strings.Contains(stderr, "exec, change or all") {
		t.Errorf("wrong parameters: %d %q", code, stderr)
	}
}

// logOneExec puts an exec into the database of the state dir and its log.
func logOneExec(t *testing.T, state string) {
	t.Helper()
	db, err := store.Open(t.Context(), "", state)
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	if _, err := db.Audit().Open(t.Context(), audit.Record{ExecID: "e", Status: audit.Running, CreatedAt: time.Now()}); err != nil {
		t.Fatal(err)
	}
	if n := logAll(t, db, state); n != 3 { // with the migration
		t.Fatal(n)
	}
}

// logAll puts all events into the log, and returns how many they were.
func logAll(t *testing.T, db store.Database, state string) (n int) {
	t.Helper()
	installation, err := db.Audit().InstallationID(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	origin := translog.Origin(installation)
	q := translog.NewSequencer(translog.SequencerConfig{
		Store: db.TransparencyLog(), Origin: origin, Holder: "n", Logger: slog.New(slog.DiscardHandler),
		Key: func(begun bool) (translog.Key, error) {
			return server.LogKey(settings.Settings{StateDir: state}, origin, begun)
		},
	})
	for {
		more, err := q.Step(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if n += more; more == 0 {
			return n
		}
	}
}

// TestAuditVerify: the exit code tells an honest log, differences, and a check that could not be
// made apart.
func TestAuditVerify(t *testing.T) {
	t.Parallel()
	state := filepath.Join(t.TempDir(), "state")
	if code, _, stderr := coreAPI(t, "audit", "verify", "--state-dir", state); code != 2 || !strings.Contains(stderr, "no database") {
		t.Errorf("no database: %d %q", code, stderr)
	}
	if code, _, stderr := coreAPI(t, "migrate", "--state-dir", state); code != 0 {
		t.Fatal(stderr)
	}
	if code, _, stderr := coreAPI(t, "audit", "verify", "--state-dir", state); code != 2 || !strings.Contains(stderr, "--key") {
		t.Errorf("no key: %d %q", code, stderr)
	}
	logOneExec(t, state)
	wants := func(args string, wantCode int, wantOut string) {
		t.Helper()
		code, out, stderr := coreAPI(t, append([]string{"audit", "verify", "--state-dir", state}, strings.Fields(args)...)...)
		if code != wantCode || !strings.Contains(out, wantOut) || stderr != "" {
			t.Errorf("%q: %d %q %q", args, code, out, stderr)
		}
	}
	root := t.TempDir()
	if err := os.Mkdir(filepath.Join(root, "projects"), 0o755); err != nil {
		t.Fatal(err)
	}
	wants("--artifacts --workspace-root "+root, 0, "0 differences: the log has 3 entries; compared 3 events, 1 exec, 0 files\n")
	wants("--since 1h --project other", 0,
		`0 differences in a part of the execs, without holds: the log has 3 entries; compared 1 event, 0 execs; no artifacts were compared; there is no exec of the project "other"`)
	pub := filepath.Join(t.TempDir(), "log.pub")
	_, key, _ := coreAPI(t, "audit", "key", "--state-dir", state)
	if err := os.WriteFile(pub, []byte(key), 0o600); err != nil {
		t.Fatal(err)
	}
	before, err := verify.ReadKept(filepath.Join(state, keptFile), key)
	if err != nil {
		t.Fatal(err)
	}
	wants("", 0, "0 differences: the log has 3 entries; compared 3 events, 1 exec; no artifacts were compared\n")
	wants("--full", 0, "compared 3 events")
	wants("--new-only", 0, "0 differences in what is new, and 3 entries and 1 exec were left out: the log has 3 entries; compared 0 events, 0 execs; no "+
		"artifacts were compared\n")
	after, err := verify.ReadKept(filepath.Join(state, keptFile), key)
	if err != nil || after.FullAt.Before(before.FullAt) || after.Execs != 1 {
		t.Fatal(after, err)
	}
	at := after.FullAt.Format(time.RFC3339)
	wants("--new-only", 0,
		"Left out: 3 entries and 1 exec with their artifacts, unless they have new entries. Changes to them since they were compared, the first at "+at+
			", are not found; run without")
	wants("--new-only --json", 0, `{"left_out":{"entries":3,"execs":1,"full_at":"`+at+`"}}`+"\n"+`{"summary":{"size":3,"from":3,`)
	if code, _, stderr := coreAPI(t, "audit", "verify", "--state-dir", state, "--new-only", "--since", "1h"); code != 2 ||
		!strings.Contains(stderr, "[new-only since]") {
		t.Errorf("new entries of a time: %d %q", code, stderr)
	}
	after.FullAt = time.Time{} // as a run of an older version left it
	if err := verify.WriteKept(filepath.Join(state, keptFile), after); err != nil {
		t.Fatal(err)
	}
	wants("--new-only", 0, "Left out: nothing; there is no earlier run that this one can continue.\n0 differences: the log has 3 entries; compared 3 events")
	wants("--key "+pub, 0, "compared 3 events")
	wants("--key "+strings.TrimSpace(key), 0, "compared 3 events")
	if code, _, stderr := coreAPI(t, "audit", "verify", "--state-dir", state, "--key", pub+"x"); code != 2 || !strings.Contains(stderr, pub+"x: no such file") {
		t.Errorf("no key file: %d %q", code, stderr)
	}
	wants("--json", 0, `{"summary":{"size":3,`)
	kept, err := os.ReadFile(filepath.Join(state, keptFile))
	if err != nil {
		t.Fatal(err)
	}
	foreign, err := translog.MakeKey(filepath.Join(t.TempDir(), "key"), "secbox/other")
	if err != nil {
		t.Fatal(err)
	}
	wants("--json --key "+foreign.Verifier, 1, `{"what":"checkpoint","expected":"a signature of secbox/other+`)
	id, _, _ := strings.Cut(strings.TrimSpace(key), "+")
	wants("--json --key "+foreign.Verifier, 1, `{"what":"key","expected":"the one under which the log was verified before, `+id+"+")
	if after, err := os.ReadFile(filepath.Join(state, keptFile)); string(after) != string(kept) {
		t.Errorf("what was verified is forgotten after a difference: %v", err)
	}
}

// TestVerifyAgain: a run after one without differences finds changes of execs that have no new
// entries. Only --new-only does not, and says so first.
func TestVerifyAgain(t *testing.T) {
	t.Parallel()
	for _, kind := range []string{"sqlite", "postgres"} {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			state, url := t.TempDir(), ""
			change := func(statement string) { inDatabase(t, state, statement) }
			unprotect := []string{"DROP TRIGGER sandbox_execs_no_delete"}
			if kind == "postgres" {
				cluster := pgtest.New(t)
				url = cluster.Database(t)
				change = func(statement string) { cluster.SQL(t, "test_1", statement) }
				unprotect = []string{"ALTER TABLE sandbox_execs DISABLE TRIGGER ALL"}
			}
			command := func(args string) (int, string, string) {
				var out, errs bytes.Buffer
				code := run(t.Context(), append(strings.Fields(args), "--state-dir", state), []string{"DATABASE_URL=" + url, "HOME=" + t.TempDir()}, &out,
					&errs)
				return code, out.String(), errs.String()
			}
			wants := func(args string, wantCode int, says string) {
				t.Helper()
				if code, out, stderr := command(args); code != wantCode || !strings.Contains(out, says) || wantCode == 1 && !strings.HasPrefix(out, says) {
					t.Errorf("%s: %d %q %q", args, code, out, stderr)
				}
			}
			wants("migrate", 0, "")
			db, err := store.Open(t.Context(), url, state)
			if err != nil {
				t.Fatal(err)
			}
			defer db.Close()
			now := time.Now()
			for _, id := range []string{"a", "b", "c"} {
				r := audit.Record{ExecID: id, Kind: audit.KindExec, Status: audit.Rejected, CreatedAt: now, EndedAt: now, ExitCode: new(3)}
				if _, err := db.Audit().Open(t.Context(), r); err != nil {
					t.Fatal(err)
				}
			}
			logAll(t, db, state)
			wants("audit verify", 0, "0 differences: the log has ")
			change("UPDATE sandbox_execs SET exit_code = 7 WHERE exec_id = 'a'")
			wants("audit verify --new-only", 0, "Left out: ")
			wants("audit verify", 1, "exec a: exit_code: expected 3, found 7\n1 difference: ")
			change("UPDATE sandbox_execs SET exit_code = 3 WHERE exec_id = 'a'")
			wants("audit verify", 0, "0 differences: the log has ")
			for _, statement := range unprotect {
				change(statement)
			}
			change("DELETE FROM sandbox_execs WHERE exec_id = 'b'")
			wants("audit verify", 1, "exec b: row: expected the row of 2 events, found none\n1 difference: ")
		})
	}
}
