package api_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"testing"
	"time"

	"github.com/google/uuid"

	"secbox/access/tokens"
	"secbox/audit"
)

func TestAuditFilters(t *testing.T) {
	t.Parallel()
	f := start(t)
	workerID, worker := f.token(tokens.Spec{Role: tokens.Worker})
	_, auditor := f.token(tokens.Spec{Role: tokens.Auditor})
	ids := map[string]string{}
	for name, change := range map[string]func(*audit.Record){
		"old": func(r *audit.Record) { r.CreatedAt = r.CreatedAt.Add(-30 * 24 * time.Hour) },
		"failed": func(r *audit.Record) {
			r.Status, r.ErrorReason, r.ExitCode, r.RequestedBy = audit.Failed, audit.NonzeroExit, new(3), workerID
		},
		"timeout": func(r *audit.Record) { r.Status, r.ErrorReason, r.AgentID = audit.Timeout, audit.ReasonTimeout, "ag1" },
		"change":  func(r *audit.Record) { r.Kind, r.SHA256Before, r.SHA256After = audit.KindChange, "absent", "00ff" },
		"rejected": func(r *audit.Record) {
			r.Status, r.ErrorReason, r.Args = audit.Rejected, audit.PolicyDenied, []string{"-lc", "x"}
		},
	} {
		r := audit.Record{ExecID: uuid.Must(uuid.NewV7()).String(), ProjectID: "p", Status: audit.Succeeded, RequestedBy: "loopback", ExitCode: new(0)}
		r.CreatedAt = time.Now().UTC().Add(-time.Minute)
		r.EndedAt = r.CreatedAt
		if name == "timeout" || name == "rejected" {
			r.ExitCode = nil
		}
		change(&r)
		if _, err := f.db.Audit().Open(t.Context(), r); err != nil {
			t.Fatal(err)
		}
		ids[r.ExecID] = name
	}
	for query, want := range map[string][]string{
		"":                           {"failed", "old", "rejected", "timeout"},
		"kind=exec":                  {"failed", "old", "rejected", "timeout"},
		"kind=change":                {"change"},
		"kind=all":                   {"change", "failed", "old", "rejected", "timeout"},
		"kind=all&status=succeeded":  {"change", "old"},
		"status=failed,timeout":      {"failed", "timeout"},
		"status=failed,failed":       {"failed"},
		"exit_code_ne=0":             {"failed"},
		"network=used":               {},
		"exit_code_ne=3":             {"old"},
		"agent_id=ag1":               {"timeout"},
		"requested_by=" + workerID:   {"failed"},
		"error_reason=policy_denied": {"rejected"},
		"since=7d":                   {"failed", "rejected", "timeout"},
		"until=24h":                  {"old"},
		"since=7d&status=succeeded":  nil,
		"view=summary&error_reason=policy_denied": {"rejected"},
	} {
		status, body := f.list(auditor, query)
		var got []string
		for _, item := range body.Items {
			got = append(got, ids[item.ExecID])
			if query != "" && item.Args != nil && len(item.Args) > 0 && query[0] == 'v' {
				t.Errorf("%s: a summary with %v", query, item.Args)
			}
			change := ids[item.ExecID] == "change"
			if change != (item.Kind == audit.KindChange) || change && (item.SHA256Before != "absent" || item.SHA256After != "00ff") {
				t.Errorf("%s: %s is %s, %s %s", query, ids[item.ExecID], item.Kind, item.SHA256Before, item.SHA256After)
			}
		}
		slices.Sort(got)
		if status != http.StatusOK || !slices.Equal(got, want) {
			t.Errorf("%s: %d %v, want %v", query, status, got, want)
		}
	}
	// A worker sees only its own execs.
	for query, want := range map[string]int{"": 1, "requested_by=" + workerID: 1, "requested_by=loopback": 0, "status=failed,timeout,rejected": 1} {
		if status, body := f.list(worker, query); status != http.StatusOK || len(body.Items) != want {
			t.Errorf("a worker, %s: %d, %d items; want %d", query, status, len(body.Items), want)
		}
	}
	for _, query := range []string{
		"status=failed,", "status=,failed", "status=none", "exit_code_ne=x", "exit_code_ne=1e3", "view=tiny", "network=x", "kind=x",
		"kind=exec,change", "since=7x", "since=d", "since=-1d", "since=99999d", "until=0h", "since=7dd",
	} {
		if status, _ := f.list(auditor, query); status != http.StatusBadRequest {
			t.Errorf("%s: %d", query, status)
		}
	}
}

type listed struct {
	Items []struct {
		ExecID       string     `json:"exec_id"`
		Args         []string   `json:"args"`
		Kind         audit.Kind `json:"kind"`
		SHA256Before string     `json:"sha256_before"`
		SHA256After  string     `json:"sha256_after"`
	} `json:"items"`
}

// list asks for a list, past the contract, which some of the queries break.
func (f *fixture) list(secret, query string) (status int, body listed) {
	f.t.Helper()
	values, err := url.ParseQuery(query)
	if err != nil {
		f.t.Fatal(err)
	}
	req, err := http.NewRequestWithContext(f.t.Context(), http.MethodGet, fmt.Sprint(f.url, "/sandbox/execs?", values.Encode()), nil)
	if err != nil {
		f.t.Fatal(err)
	}
	req.Header.Set("Authorization", "Bearer "+secret)
	resp, err := f.client.Do(req)
	if err != nil {
		f.t.Fatal(err)
	}
	defer resp.Body.Close()
	if err := json.NewDecoder(resp.Body).Decode(&body); err != nil {
		f.t.Fatal(err)
	}
	return resp.StatusCode, body
}
