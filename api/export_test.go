package api_test

import (
	"bufio"
	"context"
	"encoding/csv"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"runtime"
	"slices"
	"strings"
	"testing"

	"secbox/access/tokens"
	"secbox/api"
	"secbox/audit"
	"secbox/audit/admin"
	"secbox/audit/export"
	"secbox/audit/translog/logtest"
	"secbox/fault"
	"secbox/internal/quota"
	"secbox/runner"
)

// exportEnd is the last line of an export.
type exportEnd struct {
	Type       string            `json:"type"`
	Records    int               `json:"records"`
	NotLogged  int               `json:"not_logged"`
	Asked      map[string]string `json:"parameters"`
	Checkpoint string            `json:"checkpoint"`
}

func TestExportHasTheFiltersOfTheList(t *testing.T) {
	t.Parallel()
	f := start(t)
	for i := range 100 {
		f.record(func(r *audit.Record) { r.ProjectID = []string{"p", "q"}[i%2] })
	}
	unlogged := f.get("/audit/export?project_id=p")
	if !strings.Contains(string(unlogged.body), `"type":"secbox/audit-export-not-logged@v1"`) || !strings.Contains(string(unlogged.body), `"not_logged":50`) {
		t.Errorf("before the log has the events: %.300s", unlogged.body[max(0, len(unlogged.body)-300):])
	}
	key := f.logEvents()
	r := f.get("/audit/export?format=jsonl&project_id=p&since=9999d&view=summary")
	lines := strings.Split(strings.TrimSpace(string(r.body)), "\n")
	if r.StatusCode != 200 || len(lines) != 51 || r.Header.Get("Content-Disposition") != `attachment; filename="audit.jsonl"; filename*=UTF-8''audit.jsonl` {
		t.Fatalf("%d, %d lines: %v", r.StatusCode, len(lines), r.Header)
	}
	before := ""
	for _, line := range lines[:50] {
		var rec audit.Record
		if err := json.Unmarshal([]byte(line), &rec); err != nil || rec.ProjectID != "p" || rec.PolicySnapshot != nil && string(rec.PolicySnapshot) != "null" {
			t.Errorf("%s, %v", line, err)
		}
		at := rec.CreatedAt.Format("2006-01-02T15:04:05.000000Z") + rec.ExecID
		if at <= before {
			t.Errorf("%s comes after %s", at, before)
		}
		before = at
	}
	var last exportEnd
	if err := json.Unmarshal([]byte(lines[50]), &last); err != nil || last.Records != 50 || last.NotLogged != 0 || last.Asked["project_id"] != "p" {
		t.Errorf("%s, %v", lines[50], err)
	}
	if err := logtest.Consistent(key, []byte(last.Checkpoint), entriesOf(t, f, key)); err != nil {
		t.Errorf("the checkpoint: %v", err)
	}
	table, err := csv.NewReader(strings.NewReader(string(f.get("/audit/export?format=csv&project_id=q").body))).ReadAll()
	if err != nil || len(table) != 52 || table[0][0] != "exec_id" {
		t.Errorf("%d records, %v", len(table), err)
	}
	f.get("/audit/export?format=xml&status=no&exit_code_ne=x&kind=x&view=x&since=x&until=x").wants(t, fault.InvalidRequest, "exit_code_ne", "format", "kind",
		"since", "status", "until", "view")
	f.get("/audit/export?cursor=x").wants(t, fault.InvalidRequest, "cursor")
	if head := f.do(request{method: "HEAD", path: "/audit/export?format=csv"}); head.StatusCode != 200 ||
		!strings.HasPrefix(head.Header.Get("Content-Type"), "text/csv") {
		t.Errorf("HEAD: %d %v", head.StatusCode, head.Header)
	}
}

func entriesOf(t *testing.T, f *fixture, key string) [][]byte {
	t.Helper()
	entries, err := logtest.Verify(key, func(path string) ([]byte, error) { return f.get("/audit/log/" + path).body, nil })
	if err != nil {
		t.Fatal(err)
	}
	return entries
}

func TestExportIsForAuditors(t *testing.T) {
	t.Parallel()
	f := start(t)
	for role, status := range map[tokens.Role]int{tokens.Admin: 200, tokens.Auditor: 200, tokens.Worker: 403} {
		_, secret := f.token(tokens.Spec{Role: role})
		if r := f.do(request{path: "/audit/export", token: secret}); r.StatusCode != status {
			t.Errorf("%s: %d %s", role, r.StatusCode, r.body)
		}
	}
}

// exportsFunc is exports by a function.
type exportsFunc func(ctx context.Context, w io.Writer, q export.Query) (export.Counts, error)

func (f exportsFunc) Write(ctx context.Context, w io.Writer, q export.Query) (export.Counts, error) {
	return f(ctx, w, q)
}

// TestExportsAreBounded: a token has 2 exports at once, and the exports of pages count. An export
// that ends makes room for another. A client that leaves ends its export.
func TestExportsAreBounded(t *testing.T) {
	t.Parallel()
	entered, left, ofPage := make(chan struct{}), make(chan error), make(chan error, 1)
	f := start(t, func(c *api.Config) {
		c.Console = func(w http.ResponseWriter, r *http.Request, door api.Door) {
			out, in, leave, err := door.Enter(w, r, "/console", tokens.Token{ID: runner.Tokenless}, func() error { return nil })
			if err == nil {
				defer leave()
				err = door.Export(out, in, export.Query{Filter: audit.Filter{TaskID: "short"}, Format: export.Format{Name: "csv"}})
			}
			ofPage <- err
		}
		c.Exports = exportsFunc(func(ctx context.Context, w io.Writer, q export.Query) (export.Counts, error) {
			if q.Filter.TaskID == "short" {
				return export.Counts{}, nil
			}
			_, err := io.WriteString(w, "{}\n")
			if err == nil {
				err = http.NewResponseController(w.(http.ResponseWriter)).Flush()
			}
			entered <- struct{}{}
			<-ctx.Done()
			left <- errors.Join(err, context.Cause(ctx))
			return export.Counts{}, ctx.Err()
		})
	})
	client, hangUp := context.WithCancel(t.Context())
	for range 2 {
		req, err := http.NewRequestWithContext(client, http.MethodGet, f.url+"/audit/export", nil)
		if err != nil {
			t.Fatal(err)
		}
		resp, err := http.DefaultClient.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		if line, err := bufio.NewReader(resp.Body).ReadString('\n'); err != nil || line != "{}\n" {
			t.Fatalf("%q, %v", line, err)
		}
		<-entered
	}
	busy := f.get("/audit/export?task_id=short")
	busy.wants(t, fault.ServerBusy)
	if busy.Header.Get("Retry-After") == "" {
		t.Error("no Retry-After")
	}
	openPage := func() http.Header {
		resp, err := http.Get(f.url + "/console/export") // openapi.yaml has no pages
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		return resp.Header
	}
	openPage()
	if err := <-ofPage; !fault.Is(err, fault.ServerBusy) {
		t.Errorf("an export of a page: %v", err)
	}
	hangUp()
	for range 2 {
		if err := <-left; !errors.Is(err, context.Canceled) {
			t.Error(err)
		}
	}
	for { // until the places are free again
		header := openPage()
		err := <-ofPage
		if fault.Is(err, fault.ServerBusy) {
			continue
		}
		if err != nil || !strings.HasPrefix(header.Get("Content-Type"), "text/csv") {
			t.Errorf("an export of a page: %v, %v", err, header)
		}
		return
	}
}

// TestCutExportCutsTheConnection: a client does not take a failed export for a whole one.
func TestCutExportCutsTheConnection(t *testing.T) {
	t.Parallel()
	f := start(t, func(c *api.Config) {
		c.Exports = exportsFunc(func(_ context.Context, w io.Writer, q export.Query) (export.Counts, error) {
			if q.Filter.TaskID == "early" {
				return export.Counts{}, fault.New(fault.DatabaseUnavailable, "the database is away")
			}
			_, err := io.WriteString(w, strings.Repeat("{}\n", 100_000))
			return export.Counts{}, errors.Join(err, fault.New(fault.DatabaseUnavailable, "the database is away"))
		})
	})
	f.get("/audit/export?task_id=early").wants(t, fault.DatabaseUnavailable)
	resp, err := http.Get(f.url + "/audit/export")
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	if n, err := io.Copy(io.Discard, resp.Body); err == nil {
		t.Errorf("%d bytes without an error", n)
	}
}

// endlessRecords is records without an end.
type endlessRecords struct{}

func (endlessRecords) Walk(ctx context.Context, _ audit.Filter, _ *audit.Cursor, limit int, each func(audit.Record) bool) (*audit.Cursor, error) {
	r := newRecord(runner.Request{ProjectID: "p", Command: runner.Command{Args: []string{strings.Repeat("x", 10<<10)}}})
	for range limit {
		if !each(r) {
			break
		}
	}
	return nil, ctx.Err()
}

// TestCutOffExportIsTold: the event of an export whose client hangs up says that it was cut off,
// and the place of the export is free again.
func TestCutOffExportIsTold(t *testing.T) {
	t.Parallel()
	f := start(t, func(c *api.Config) {
		c.Exports = export.Exporter{Records: endlessRecords{}, Events: c.AdminEvents.(admin.Store)}
	})
	_, secret := f.token(tokens.Spec{Role: tokens.Auditor})
	for range 2 * 2 { // twice as many as a token may have at once
		req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, f.url+"/audit/export?task_id=x", nil)
		if err != nil {
			t.Fatal(err)
		}
		req.Header.Set("Authorization", "Bearer "+secret)
		resp, err := http.DefaultClient.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := io.ReadFull(resp.Body, make([]byte, 100)); err != nil || resp.StatusCode != http.StatusOK {
			t.Fatalf("%d, %v", resp.StatusCode, err)
		}
		resp.Body.Close()
		for before := len(f.told(secret, admin.Export)); before%2 == 1 && before == len(f.told(secret, admin.Export)); {
			runtime.Gosched()
		}
	}
	for i, line := range f.told(secret, admin.Export) {
		if cut := strings.Contains(line, `"state":"cut_off"`); cut != (i%2 == 1) || cut && !strings.Contains(line, `"bytes":`) ||
			!strings.Contains(line, `{"task_id":"x"}`) {
			t.Errorf("%d: %s", i, line)
		}
	}
}

// TestManyExports: a client cannot fill the disk with events, and an export whose begin has none
// has none at its end.
func TestManyExports(t *testing.T) {
	t.Parallel()
	f := start(t)
	f.stopClock()
	auditor, secret := f.token(tokens.Spec{Role: tokens.Auditor})
	_, other := f.token(tokens.Spec{Role: tokens.Auditor})
	for _, token := range append(slices.Repeat([]string{secret}, quota.Default.Burst+2), other) {
		if r := f.do(request{path: "/audit/export", token: token}); r.StatusCode != 200 || !strings.Contains(string(r.body), "secbox/audit-export-end@v1") {
			t.Fatalf("%d %s", r.StatusCode, r.body)
		}
	}
	f.count()
	f.count()
	if got := f.told(secret, admin.Export); len(got) != 2*(quota.Default.Burst+1) {
		t.Errorf("%d events: %q", len(got), got)
	}
	if got := f.told(secret, admin.ExportsOmitted); len(got) != 1 || !strings.Contains(got[0], auditor+` {"count":2,`) {
		t.Errorf("%q", got)
	}
}
