package e2e

import (
	"context"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"secbox/audit"
	"secbox/settings"
	"secbox/store/storetest/pgtest"
)

// onSmallWorkspace boots a server whose workspace is a disk of mib MiB. The server must leave
// keep MiB of it free.
func onSmallWorkspace(t *testing.T, mib, keep int, more ...func(*settings.Settings)) (*testServer, *smallDisk) {
	t.Helper()
	dir := t.TempDir()
	disk := newSmallDisk(t, filepath.Join(dir, "workspace"), mib)
	return startIn(t, dir, append(more, noPool, func(s *settings.Settings) {
		s.Sandbox.DiskFreeMinBytes, s.Sandbox.DiskFreeMinInodes = int64(keep)<<20, 0
	})...), disk
}

// TestWorkspaceFullBeforeTheStart refuses an exec for which there is no room.
func TestWorkspaceFullBeforeTheStart(t *testing.T) {
	t.Parallel()
	s, disk := onSmallWorkspace(t, 16, 4)
	s.works("demo")
	disk.fill(1 << 20)
	before := describe(t, filepath.Join(s.dir, "workspace"))
	problem := s.refused(http.StatusInsufficientStorage, "disk_full", shell("demo", "true"))
	if !strings.Contains(problem.str("detail"), "sandbox.disk_free_min_bytes") {
		t.Errorf("%v", problem)
	}
	for _, change := range differences(before, describe(t, filepath.Join(s.dir, "workspace"))) {
		t.Errorf("the workspace changed: %s", change)
	}
	eventually(t, "not ready", func() bool { return s.send(http.MethodGet, "/readyz", nil).Code == http.StatusServiceUnavailable })
	s.send(http.MethodGet, "/readyz", nil).json(t).wants(t, object{"code": "disk_full"})
	disk.makeRoom()
	eventually(t, "ready", func() bool { return s.send(http.MethodGet, "/readyz", nil).Code == http.StatusOK })
	s.works("demo")
}

// TestWorkspaceWithoutAnyRoom has a server that keeps nothing free meet a disk that takes nothing
// more.
func TestWorkspaceWithoutAnyRoom(t *testing.T) {
	t.Parallel()
	s, disk := onSmallWorkspace(t, 16, 0)
	s.works("demo")
	disk.fill(0)
	request := shell("demo", "true", "inputs", []object{{"path": "in.txt", "content": strings.Repeat("x", 8<<10), "encoding": "utf-8"}})
	problem := s.refused(http.StatusInsufficientStorage, "disk_full", request)
	if id := problem.str("exec_id"); id != "" {
		s.get("/sandbox/execs/"+id).wants(t, object{"status": "error"})
	}
	s.exec(shell("new", "true")).wants(t, object{"status": "error", "error_reason": "artifacts_lost"}) // there was room for it to run
	disk.makeRoom()
	s.exec(request).wants(t, object{"status": "succeeded"})
}

// TestWatchdog checks that jobs are killed when the disk gets full and when they write more than
// the growth limits.
func TestWatchdog(t *testing.T) {
	t.Parallel()
	t.Run("free space", func(t *testing.T) {
		t.Parallel()
		s, _ := onSmallWorkspace(t, 48, 16)
		result := s.exec(shell("demo", "echo begun; while :; do head -c 1M /dev/zero >> fill || sleep 0.1; sleep 0.02; done"))
		result.wants(t, object{"status": "failed", "error_reason": "disk_limit", "stdout": "begun\n"})
		if !strings.Contains(result.str("detail"), "sandbox.disk_free_min_bytes") {
			t.Errorf("%v", result.str("detail"))
		}
		s.refused(http.StatusInsufficientStorage, "disk_full", shell("demo", "rm fill"))
		if err := os.Remove(s.work("demo", "fill")); err != nil {
			t.Fatal(err)
		}
		s.works("demo")
	})
	s := start(t, noPool, func(s *settings.Settings) {
		s.Sandbox.DiskGrowthMaxBytes, s.Sandbox.DiskGrowthMaxEntries = 8<<20, 500
	})
	for name, script := range map[string]string{
		"bytes in work":        "while :; do head -c 1M /dev/zero >> fill; sleep 0.02; done",
		"bytes in artifacts":   "while :; do head -c 1M /dev/zero >> /workspace/artifacts/fill; sleep 0.02; done",
		"entries in work":      "for i in $(seq 100000); do : > $i; done; sleep 60",
		"entries in artifacts": "cd /workspace/artifacts; for i in $(seq 100000); do : > $i; done; sleep 60",
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			result := s.with(t).exec(shell(projectFor(name), script))
			result.wants(t, object{"status": "failed", "error_reason": "disk_limit"})
			if !strings.Contains(result.str("detail"), "sandbox.disk_growth_max_"+strings.Fields(name)[0]) {
				t.Errorf("%v", result.str("detail"))
			}
		})
	}
}

// TestArtifactsLost has a job leave no room for the files that the server writes beside its
// artifacts: the exec must not succeed.
func TestArtifactsLost(t *testing.T) {
	t.Parallel()
	s, _ := onSmallWorkspace(t, 16, 0)
	result := s.exec(shell("demo", "echo printed; head -c 100M /dev/zero > fill 2>/dev/null; exit 0"))
	result.wants(t, object{"status": "error", "error_reason": "artifacts_lost", "exit_code": 0, "stdout": "printed\n", "audit": "stored"})
	id := result.str("exec_id")
	s.get("/sandbox/execs/"+id).wants(t, object{"status": "error", "error_reason": "artifacts_lost", "detail": result.str("detail")})
	for _, path := range []string{"/artifacts", "/stdout"} { // the files are missing; that is not a server error
		if a := s.send(http.MethodGet, "/sandbox/execs/"+id+path, nil); a.Code != http.StatusOK && a.Code != http.StatusNotFound {
			t.Errorf("%s: %d %s", path, a.Code, a.Body)
		}
	}
	if err := os.Remove(s.work("demo", "fill")); err != nil {
		t.Fatal(err)
	}
	s.works("demo")
}

// TestStateDirFull fills the disk of the embedded database, the spool and the captures under a
// running exec.
func TestStateDirFull(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	disk := newSmallDisk(t, filepath.Join(dir, "state"), 24)
	s := startIn(t, dir, noPool)
	s.works("demo")
	running := s.post(shell("demo", waiting("head -c 900000 /dev/zero; echo x > /workspace/artifacts/x; exit 3")))
	execID := s.awaitStart("demo")
	disk.fill(0)
	s.letGo("demo")
	end := running.any()
	t.Logf("the answer: %d %.300s", end.Code, end.Body)
	switch o := end.json(t); {
	case end.Code == http.StatusOK:
		o.wants(t, object{"status": "failed", "exit_code": 3})
		if !strings.Contains(o.str("detail"), "the state dir") || o.at("stdout_truncated") != true {
			t.Errorf("the detail does not mention the lost output: %s", o.str("detail"))
		}
	case o.str("code") != "disk_full" || o.str("exec_id") != execID:
		t.Errorf("%v", o)
	}
	// Nothing new runs unless it can be put on record.
	refused := s.send(http.MethodPost, "/sandbox/execs", shell("demo", "true"))
	t.Logf("the next: %d %.300s", refused.Code, refused.Body)
	if refused.Code != http.StatusServiceUnavailable && refused.Code != http.StatusInsufficientStorage {
		t.Errorf("the next exec: %d %s", refused.Code, refused.Body)
	}
	disk.makeRoom()
	eventually(t, "the end is on record", func() bool {
		stored, err := s.database().Audit().Get(t.Context(), execID)
		return err == nil && stored.Status == audit.Failed
	})
	eventually(t, "ready", func() bool { return s.send(http.MethodGet, "/readyz", nil).Code == http.StatusOK })
	s.works("demo")
	for _, row := range s.records("") {
		if !audit.Status(row.str("status")).Final() {
			t.Errorf("open: %v", row)
		}
	}
}

// TestNowhereToRecord takes database and spool away at once: the answer is an error that names the
// exec, and the end is not lost.
func TestNowhereToRecord(t *testing.T) {
	t.Parallel()
	cluster := pgtest.New(t)
	databaseURL := cluster.Database(t)
	dir := t.TempDir()
	disk := newSmallDisk(t, filepath.Join(dir, "state"), 8)
	s := startIn(t, dir, noPool, func(s *settings.Settings) { s.DatabaseURL = settings.Secret(databaseURL) })
	running := s.post(shell("demo", waiting("exit 3")))
	execID := s.awaitStart("demo")
	cluster.Stop(t)
	disk.fill(0)
	s.letGo("demo")
	problem := running.problem(http.StatusInsufficientStorage, "disk_full")
	problem.wants(t, object{"exec_id": execID})
	disk.makeRoom()
	eventually(t, "it is in the spool", func() bool {
		_, err := os.Stat(filepath.Join(dir, "state/spool", execID+".json"))
		return err == nil
	})
	cluster.Start(t)
	eventually(t, "it is in the database", func() bool {
		r, err := s.database().Audit().Get(context.Background(), execID)
		return err == nil && r.Status == audit.Failed
	})
}
