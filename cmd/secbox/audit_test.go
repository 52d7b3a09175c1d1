package main

import (
	"bytes"
	"encoding/base64"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"secbox/audit/report"
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
	const reports = "../../audit/report/testdata/"
	bundle, err := os.ReadFile(reports + "report.jsonl")
	if err != nil {
		t.Fatal(err)
	}
	second, err := os.ReadFile(reports + "report-v2.jsonl")
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	changed := filepath.Join(dir, "changed.json")
	if err := os.WriteFile(changed, bytes.Replace(good, []byte(`"exit_code": 3`), []byte(`"exit_code": 0`), 1), 0o600); err != nil {
		t.Fatal(err)
	}
	unknown := base64.StdEncoding.EncodeToString(make([]byte, 4+8+64)) // a cosignature with its hash and time
	cosigned := regexp.MustCompile(`("tlog_proof": "[^"]*)"`).ReplaceAllString(string(good), `$1— example.com/w1 `+unknown+`\n"`)
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
		"a cosignature without its key": {
			[]string{"-", "--key", proofs + "log.pub"},
			cosigned, 0,
			[]string{`not checked`, `by ["example.com/w1"]: --witness-key KEY checks one`},
			nil,
		},
		"a changed column": {[]string{changed, "--key", proofs + "log.pub"}, "", 6, nil, []string{"exit_code: expected 3, found 0"}},
		"an attestation": {
			[]string{proofs + "attestation.json", "--key", proofs + "attestation.pub"},
			"", 0,
			[]string{"the digests of 2 files", `exit code  3`, `"out/=a.txt"`},
			nil,
		},
		"a report": {
			[]string{reports + "report.jsonl", "--key", reports + "report.pub"},
			"", 0,
			[]string{
				"has all 38 entries", "whose last entry is of 2026-11-29T09:16:12.363671Z", "4 execs, 1 change of files",
				`"policy_denied"`, `"token_created"`, "removed by retention",
			},
			nil,
		},
		"a report from standard input": {
			[]string{"-", "--key", reports + "report.pub"},
			string(bundle), 0,
			[]string{"38 entries"},
			nil,
		},
		"a report that was changed": {
			[]string{"-", "--key", reports + "report.pub"},
			strings.Replace(string(bundle), "too much", "too mucH", 1), 6, nil,
			[]string{"secbox: the file was changed: "},
		},
		"a report of the second format": {
			[]string{reports + "report-v2.jsonl", "--key", reports + "report-v2.pub"},
			"", 0,
			[]string{
				"  refused       171 requests, 161 of them without rows of their own", "\nrefused         171 requests, 161 of",
				`"refusals_omitted"    161 requests without rows of their own`,
				`by "t1" named "ci"`, `"t1" named "ci"  by "token" "tok" named "Ada"`, `"image: i is not allowed", in 1 row`, "4 other messages",
			},
			nil,
		},
		"an event of a report that was changed": {
			[]string{"-", "--key", reports + "report-v2.pub"},
			strings.Replace(string(second), "image: c is", "image: C is", 1), 6, nil,
			[]string{"line 8 of the report: the file was changed: this event is not the one that the log has"},
		},
		"a report that was cut": {
			[]string{"-", "--key", reports + "report.pub"},
			string(bundle[:len(bundle)/2]), 6, nil,
			[]string{"of the report: the file ends here: it was cut off"},
		},
		"a report with another key": {
			[]string{reports + "report.jsonl", "--key", proofs + "log.pub"},
			"", 6, nil,
			[]string{"line 1 of the report: the checkpoint"},
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

// TestCompletenessOfReports: no checkpoint shows what the log got after it.
func TestCompletenessOfReports(t *testing.T) {
	t.Parallel()
	until := time.Date(2026, 3, 4, 13, 0, 0, 0, time.UTC)
	for want, r := range map[string]report.Result{
		"yes: ": {Begins: true, Ends: true, Last: until},
		"as far as the checkpoint goes, whose last entry is of 2026-03-04T12:59:00Z": {Begins: true, Ends: true, Last: until.Add(-time.Minute)},
		"as far as the checkpoint goes, whose last entry has lost its event":         {Begins: true, Ends: true},
		"not shown at the end": {Begins: true},
	} {
		r.Report.Until = until
		if got := completeness(r); !strings.HasPrefix(got, want) {
			t.Errorf("%q, not %q", got, want)
		}
	}
}
