package main

import (
	"context"
	"fmt"
	"io/fs"
	"net/http"
	"path/filepath"
	"strings"
	"testing"

	"secbox/audit"
	"secbox/tokens"
)

// TestRefusedRequests: a token whose requests are refused costs neither the disk nor the auditor much, and what is refused is on record.
func TestRefusedRequests(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	s := startIn(t, dir)
	_, auditor := s.newToken(tokens.Spec{Role: tokens.Auditor})
	noisyID, noisy := s.newToken(tokens.Spec{Role: tokens.Worker})
	before := stateBytes(t, dir)

	inputs := make([]object, 4000)
	for i := range inputs {
		inputs[i] = object{"path": fmt.Sprintf("%s/%d", strings.Repeat(strings.Repeat("d", 200)+"/", 15), i), "content": ""}
	}
	huge := shell("noise", "true", "inputs", inputs, "policy_overrides", object{"memory_mb": 999999})
	for range 3 {
		problem := s.as(noisy).refused(http.StatusForbidden, "policy_denied", huge)
		record := s.as(auditor).get("/sandbox/execs/" + problem.str("exec_id"))
		if large := record.at("large_lists.inputs").(map[string]any); large["count"] != 4000.0 || len(record.list("inputs")) != int(large["kept"].(float64)) {
			t.Errorf("the record has %d inputs and says %v", len(record.list("inputs")), large)
		}
	}
	small := shell("noise", "true", "policy_overrides", object{"memory_mb": 999999})
	recorded := 3
	for range 70 {
		if problem := s.as(noisy).refused(http.StatusForbidden, "policy_denied", small); problem.str("exec_id") != "" {
			recorded++
		}
	}
	if recorded < 60 || recorded > 65 { // 60 at once, and 10 in a minute
		t.Errorf("%d refusals are on record", recorded)
	}
	if grown := stateBytes(t, dir) - before; grown > 8<<20 { // WAL included
		t.Errorf("the state dir has grown by %d bytes", grown)
	}
	page := s.as(auditor).send(http.MethodGet, "/sandbox/execs?limit=500&status=rejected", nil)
	if items := page.json(t).list("items"); page.Code != http.StatusOK || len(items) != recorded || len(page.Body) > 2<<20 {
		t.Errorf("the auditor's list: %d, %d items, %d bytes", page.Code, len(items), len(page.Body))
	}

	if err := s.app.Close(); err != nil { // what was not recorded is counted
		t.Fatal(err)
	}
	s.inDatabase(func(ctx context.Context, db audit.Store) {
		rows, err := db.List(ctx, audit.Filter{RequestedBy: noisyID}, nil, 1)
		if err != nil || len(rows) != 1 || rows[0].ErrorReason != audit.RefusalsOmitted || !strings.HasPrefix(rows[0].Detail, fmt.Sprint(73-recorded, " refused requests")) {
			t.Errorf("%v: %+v", err, rows)
		}
	})
}

// stateBytes is how much lies in a server's state dir.
func stateBytes(t *testing.T, dir string) (bytes int64) {
	t.Helper()
	err := filepath.WalkDir(filepath.Join(dir, "state"), func(_ string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		info, err := d.Info()
		if err == nil {
			bytes += info.Size()
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return bytes
}
