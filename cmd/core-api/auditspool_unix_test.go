//go:build unix

package main

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"

	"secbox/audit"
	"secbox/store"
)

// TestSpoolCommands: an operator sees what the database does not have, stores it, reads why that is
// refused, and gives up a damaged file.
func TestSpoolCommands(t *testing.T) {
	t.Parallel()
	state := t.TempDir()
	run := func(wantCode int, want string, args ...string) {
		t.Helper()
		code, stdout, stderr := coreAPI(t, append(append([]string{"audit", "spool"}, args...), "--state-dir", state)...)
		if code != wantCode || !strings.Contains(stdout+stderr, want) {
			t.Errorf("%v: %d\n%s%s\nwant %d, %q", args, code, stdout, stderr, wantCode, want)
		}
	}
	if code, _, stderr := coreAPI(t, "migrate", "--state-dir", state); code != 0 {
		t.Fatal(stderr)
	}
	run(0, "The spool is empty.", "list")

	db, err := store.Open(t.Context(), "", state)
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	now := time.Now().UTC().Truncate(time.Microsecond)
	var execs []audit.Record
	for range 2 {
		r := audit.Record{
			ExecID: uuid.Must(uuid.NewV7()).String(), Kind: audit.KindExec, ProjectID: "demo", Status: audit.Running, CreatedAt: now,
			StartedAt: now, NodeID: "n1", Backend: "docker",
		}
		if _, err := db.Audit().Open(t.Context(), r); err != nil {
			t.Fatal(err)
		}
		execs = append(execs, r)
	}
	whole, damaged := execs[0], execs[1]
	ended := whole
	ended.Status, ended.EndedAt, ended.ExitCode = audit.Succeeded, now.Add(time.Second), new(0)
	content, err := json.Marshal(ended)
	if err != nil {
		t.Fatal(err)
	}
	dir := audit.SpoolDir(state)
	if err := os.MkdirAll(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	for name, content := range map[string][]byte{whole.ExecID + ".json": content, damaged.ExecID + ".json": content[:40]} {
		if err := os.WriteFile(filepath.Join(dir, name), content, 0o600); err != nil {
			t.Fatal(err)
		}
	}

	run(0, whole.ExecID+".json  succeeded  ", "list")
	run(0, "unexpected end of JSON input", "list")
	run(0, `"exec_id": "`+whole.ExecID+`"`, "list", "--json")
	run(4, "has no result of other", "store", "other")
	run(4, "has no result of", "discard", "")
	run(4, "has no result of", "discard", damaged.ExecID[:8])
	run(2, "no record can be read from", "store", damaged.ExecID)
	run(2, "give --force to lose it", "discard", whole.ExecID)
	inDatabase(t, state, "CREATE TRIGGER no BEFORE UPDATE ON sandbox_execs BEGIN SELECT RAISE(ABORT, 'a word of the database'); END")
	run(1, "a word of the database", "store", whole.ExecID)
	inDatabase(t, state, "DROP TRIGGER no")
	run(0, "is on record as succeeded", "store", whole.ExecID)
	run(0, "is removed", "discard", damaged.ExecID)
	run(0, "The spool is empty.", "list")
	for id, want := range map[string]audit.Status{whole.ExecID: audit.Succeeded, damaged.ExecID: audit.Lost} {
		if got, err := db.Audit().Status(t.Context(), id); err != nil || got != want {
			t.Errorf("%s is %s, %v; want %s", id, got, err, want)
		}
	}
}
