//go:build unix

package main

import (
	"database/sql"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"

	"secbox/audit"
	"secbox/audit/retention"
	"secbox/store"
)

// oldExecs puts execs that ended 100 days ago into an installation, with artifacts and in the
// transparency log, and returns their ids.
func oldExecs(t *testing.T, state, workspace string, n int) (ids []string) {
	t.Helper()
	if code, _, stderr := coreAPI(t, "migrate", "--state-dir", state); code != 0 {
		t.Fatal(stderr)
	}
	db, err := store.Open(t.Context(), "", state)
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	for i := range n {
		id, at := uuid.Must(uuid.NewV7()).String(), time.Now().AddDate(0, 0, -100).UTC().Truncate(time.Second)
		r := audit.Record{
			ExecID: id, Kind: audit.KindExec, ProjectID: "demo", TaskID: fmt.Sprint("task", i%2), Status: audit.Rejected, CreatedAt: at, EndedAt: at,
			ArtifactsPath: "projects/demo/artifacts/" + id, ManifestDigest: "sha256:" + strings.Repeat("0", 64),
		}
		if _, err := db.Audit().Open(t.Context(), r); err != nil {
			t.Fatal(err)
		}
		dir := filepath.Join(workspace, r.ArtifactsPath)
		if err := os.MkdirAll(dir, 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, "out"), nil, 0o600); err != nil {
			t.Fatal(err)
		}
		ids = append(ids, id)
	}
	inDatabase(t, state, "DROP TRIGGER sandbox_exec_events_no_update")
	inDatabase(t, state, "UPDATE sandbox_exec_events SET at = at - 100 * 86400 * 1000000")
	logAll(t, db, state)
	return ids
}

// inDatabase changes the database past core-api.
func inDatabase(t *testing.T, state, statement string) {
	t.Helper()
	db, err := sql.Open("sqlite", "file:"+filepath.Join(state, store.File)+"?_busy_timeout=5000")
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	if _, err := db.ExecContext(t.Context(), statement); err != nil {
		t.Fatal(err)
	}
}

// left returns how many of the execs have artifacts.
func left(t *testing.T, workspace string) int {
	t.Helper()
	entries, err := os.ReadDir(filepath.Join(workspace, "projects/demo/artifacts"))
	if err != nil {
		t.Fatal(err)
	}
	return len(entries)
}

// TestRetentionNeedsTheWorkspace: with another workspace root than the server's, nothing is removed
// and nothing is made. The records would go, and their artifacts stay for ever.
func TestRetentionNeedsTheWorkspace(t *testing.T) {
	t.Parallel()
	state, workspace, root := filepath.Join(t.TempDir(), "state"), t.TempDir(), t.TempDir()
	oldExecs(t, state, workspace, 2)
	file := filepath.Join(t.TempDir(), "core-api.yaml")
	if err := os.WriteFile(file, []byte("audit: {retention_days: 90}\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	args := []string{"--config", file, "--state-dir", state, "--workspace-root"}
	for _, command := range []string{"audit retention --dry-run", "audit retention run", "audit verify --artifacts"} {
		code, out, stderr := coreAPI(t, append(strings.Fields(command), append(args, filepath.Join(root, "typo"))...)...)
		if code != 2 || out != "" || !strings.Contains(stderr, "Give the server's --workspace-root") {
			t.Errorf("%s: %d %q %q", command, code, out, stderr)
		}
	}
	if made, err := os.ReadDir(root); err != nil || len(made) != 0 {
		t.Errorf("made %v, %v", made, err)
	}
	code, out, stderr := coreAPI(t, append(strings.Fields("audit retention run"), append(args, workspace)...)...)
	if code != 0 || !strings.Contains(out, "Removed 2 records") || left(t, workspace) != 0 {
		t.Errorf("%d %q %q", code, out, stderr)
	}
}

// TestRetention: the commands say what they would remove, what they remove and what they keep.
func TestRetention(t *testing.T) {
	t.Parallel()
	state, workspace := filepath.Join(t.TempDir(), "state"), t.TempDir()
	ids := oldExecs(t, state, workspace, 8)
	where := []string{"--state-dir", state, "--workspace-root", workspace}
	file := filepath.Join(t.TempDir(), "core-api.yaml")
	if err := os.WriteFile(file, []byte("audit: {retention_days: 90, artifacts_retention_days: 30}\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	db, err := store.Open(t.Context(), "", state)
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	wants := func(command string, wantCode int, says ...string) string {
		t.Helper()
		if command == "verify" { // it believes removals once the log has the event of their run
			logAll(t, db, state)
		}
		code, out, stderr := coreAPI(t, append(append(strings.Fields("audit "+command), "--config", file), where...)...)
		for _, text := range says {
			if code != wantCode || !strings.Contains(out+stderr, text) {
				t.Errorf("%s: %d %q %q", command, code, out, stderr)
			}
		}
		return strings.TrimSpace(out)
	}
	wants("hold add --task task1", 2, "give --reason")
	wants("hold add --reason x", 2, "give one of --project")
	wants("hold add --reason x --task a --user b", 2, "add a hold for each")
	hold := wants("hold add --task task1 --reason case17", 0)
	wants("hold list", 0, hold, "task task1", "case17")
	wants("retention", 2, "--dry-run")
	inDatabase(t, state, "UPDATE sandbox_execs SET task_id = 'task0' WHERE exec_id = '"+ids[1]+"'") // to evade the hold
	wants("retention --dry-run --json", 0, `"due": 4`, `"held": 3`, `"altered": 1`)
	if left(t, workspace) != 8 {
		t.Error("a dry run removes artifacts")
	}
	wants("retention run", 6, "Removed 4 records", "Held: 3. Altered, and kept: 1.", "core-api audit verify")
	if n := left(t, workspace); n != 4 {
		t.Errorf("%d artifacts are left", n)
	}
	wants("verify", 1, ids[1]+": task_id: expected \"task1\", found \"task0\"", "8 events removed by retention")
	inDatabase(t, state, "UPDATE sandbox_execs SET task_id = 'task1'")
	wants("retention run", 0, "Removed 0 records", "Held: 4. Altered, and kept: 0.")
	wants("hold remove "+hold, 0, "is removed")
	wants("hold remove "+hold, 4, "or it was removed before")
	wants("retention run", 0, "Removed 4 records")
	wants("verify", 0, "0 differences", "16 events removed by retention")
}

// TestRemovedArtifacts: a tombstone excuses missing artifacts only if the log has the event of
// their removal.
func TestRemovedArtifacts(t *testing.T) {
	t.Parallel()
	state, workspace := filepath.Join(t.TempDir(), "state"), t.TempDir()
	ids := oldExecs(t, state, workspace, 2)
	file := filepath.Join(t.TempDir(), "core-api.yaml")
	if err := os.WriteFile(file, []byte("audit: {artifacts_retention_days: 30}\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	db, err := store.Open(t.Context(), "", state)
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	wants := func(command string, wantCode int, says string) {
		t.Helper()
		code, out, stderr := coreAPI(t, append(strings.Fields("audit "+command), "--config", file, "--state-dir", state, "--workspace-root", workspace)...)
		if code != wantCode || !strings.Contains(out, says) {
			t.Errorf("%s: %d %q %q", command, code, out, stderr)
		}
	}
	wants("hold add --task task1 --reason case17", 0, "")
	wants("retention run", 0, "Removed 0 records, and the artifacts of 1 ")
	if err := os.RemoveAll(filepath.Join(workspace, "projects/demo/artifacts", ids[1])); err != nil {
		t.Fatal(err)
	}
	inDatabase(t, state, "INSERT INTO audit_tombstones SELECT '"+ids[1]+
		"', part, project_id, requested_by, rule, days, events, removed_at FROM audit_tombstones")
	logAll(t, db, state)
	wants("verify --artifacts", 1, ids[1]+": artifacts: expected a manifest with the digest sha256:"+strings.Repeat("0", 64)+
		", found none, and a tombstone without an execs_removed event\n1 difference:")
}

// killed is the variable with the arguments of the child process of TestKilledRetention.
const killed = "SECBOX_TEST_RETENTION"

// TestKilledRetention: a run that is killed leaves nothing half removed that the next one does not
// complete, and keeps others away only for a moment.
func TestKilledRetention(t *testing.T) {
	if args := os.Getenv(killed); args != "" {
		os.Exit(run(t.Context(), strings.Fields(args), os.Environ(), os.Stdout, os.Stderr))
	}
	t.Parallel()
	state, workspace := filepath.Join(t.TempDir(), "state"), t.TempDir()
	const n = 100
	ids := oldExecs(t, state, workspace, n)
	file := filepath.Join(t.TempDir(), "core-api.yaml")
	if err := os.WriteFile(file, []byte("audit: {retention_days: 90}\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	args := []string{"audit", "retention", "run", "--state-dir", state, "--workspace-root", workspace, "--config", file}
	db, err := store.Open(t.Context(), "", state)
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	for moment := range 3 {
		before := left(t, workspace)
		child := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^TestKilledRetention$")
		child.Env = append(os.Environ(), killed+"="+strings.Join(args, " "))
		if err := child.Start(); err != nil {
			t.Fatal(err)
		}
		for { // until it has begun to remove records, or files of them
			state, err := db.Retention().State(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			if state.Running && state.Done.Records > 0 && (moment == 0 || left(t, workspace) < before) {
				break
			}
		}
		if err := child.Process.Kill(); err != nil {
			t.Fatal(err)
		}
		if err := child.Wait(); err == nil {
			t.Error("the run had ended")
		}
		if code, _, stderr := coreAPI(t, args...); code == 0 || !strings.Contains(stderr, "killed less than 30 seconds ago") {
			t.Errorf("during the lease: %d %q", code, stderr)
		}
		logAll(t, db, state)
		if code, out, stderr := coreAPI(t, "audit", "verify", "--state-dir", state); code != 0 || !strings.Contains(out, "0 differences") ||
			!strings.Contains(out, "removed by retention") {
			t.Errorf("after the kill: %d %q %q", code, out, stderr)
		}
		inDatabase(t, state, "UPDATE audit_retention SET lease_until = 0") // half a minute later
	}
	if code, out, stderr := coreAPI(t, args...); code != 0 || left(t, workspace) != 0 {
		t.Errorf("%d %q %q, %d are left", code, out, stderr, left(t, workspace))
	}
	tombs, err := db.Retention().Tombstones(t.Context(), ids)
	if err != nil || len(tombs) != n || tombs[0].Part != retention.Records {
		t.Errorf("%d tombstones, %v", len(tombs), err)
	}
	if now, err := db.Retention().State(t.Context()); err != nil || now.Queued != 0 || now.Running {
		t.Errorf("%+v, %v", now, err)
	}
	logAll(t, db, state)
	if code, out, _ := coreAPI(t, "audit", "verify", "--state-dir", state); code != 0 ||
		!strings.Contains(out, fmt.Sprint(2*n, " events removed by retention")) {
		t.Errorf("%d %q", code, out)
	}
}
