package main

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestAuditCheck(t *testing.T) {
	t.Parallel()
	const proofs = "../../audit/translog/proof/testdata/"
	good, err := os.ReadFile(proofs + "sqlite.json")
	if err != nil {
		t.Fatal(err)
	}
	key, err := os.ReadFile(proofs + "log.pub")
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	changed := filepath.Join(dir, "changed.json")
	if err := os.WriteFile(changed, bytes.Replace(good, []byte(`"exit_code": 3`), []byte(`"exit_code": 0`), 1), 0o600); err != nil {
		t.Fatal(err)
	}
	for name, tc := range map[string]struct {
		args        []string
		stdin       string
		code        int
		out, errOut []string
	}{
		"a good file": {
			[]string{proofs + "sqlite.json", "--key", proofs + "log.pub"},
			"", 0,
			[]string{"all 4 events", `"bash" "-lc"`, "corrected", "in the log since 2026-11-22T", "19 entries"},
			nil,
		},
		"of PostgreSQL":       {[]string{proofs + "postgres.json", "--key", strings.TrimSpace(string(key))}, "", 0, []string{"all 4 events"}, nil},
		"from standard input": {[]string{"-", "--key", proofs + "log.pub"}, string(good), 0, []string{"all 4 events"}, nil},
		"a changed column":    {[]string{changed, "--key", proofs + "log.pub"}, "", 6, nil, []string{"exit_code: expected 3, found 0"}},
		"an attestation": {
			[]string{proofs + "attestation.json", "--key", proofs + "attestation.pub"},
			"", 0,
			[]string{"the digests of 2 files", `exit code  3`, `"out/=a.txt"`},
			nil,
		},
		"of another key": {[]string{proofs + "attestation.json", "--key", proofs + "log.pub"}, "", 6, nil, []string{"no attestation that the key"}},
		"no file": {
			[]string{filepath.Join(dir, "none"), "--key", proofs + "log.pub"},
			"", 2, nil,
			[]string{"cannot open the proof " + filepath.Join(dir, "none")},
		},
		"no key": {[]string{changed}, "", 2, nil, []string{"key"}},
		"no key file": {
			[]string{changed, "--key", filepath.Join(dir, "none")},
			"", 2, nil,
			[]string{"cannot open the key file " + filepath.Join(dir, "none")},
		},
		"a damaged key": {[]string{changed, "--key", "secbox/x+1+x"}, "", 2, nil, []string{"core-api audit key"}},
		"an answer": {
			[]string{"-", "--key", proofs + "log.pub"},
			`{"exec_id":"e","status":"failed"}`, 6, nil,
			[]string{"no proof of an exec, as GET /sandbox/execs/{id}/proof sends it: its format is \"\""},
		},
		"something else": {[]string{proofs + "log.pub", "--key", proofs + "log.pub"}, "", 6, nil, []string{"no proof of an exec"}},
	} {
		var stdout, stderr bytes.Buffer
		code := run(t.Context(), append([]string{"audit", "check"}, tc.args...), func(string) string { return "" }, strings.NewReader(tc.stdin), &stdout,
			&stderr)
		if code != tc.code {
			t.Errorf("%s: exit code %d, want %d: %s", name, code, tc.code, stderr.String())
		}
		for _, want := range tc.out {
			if !strings.Contains(stdout.String(), want) {
				t.Errorf("%s: no %q in %s", name, want, stdout.String())
			}
		}
		for _, want := range tc.errOut {
			if !strings.Contains(stderr.String(), want) {
				t.Errorf("%s: no %q in %s", name, want, stderr.String())
			}
		}
	}
}
