package api_test

import (
	"context"
	"database/sql"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"secbox/access/tokens"
	"secbox/api"
	"secbox/api/wire"
	"secbox/audit"
	"secbox/audit/admin"
	"secbox/audit/translog/proof"
	"secbox/fault"
	"secbox/internal/quota"
)

// events returns a page of administrative events.
func (f *fixture) events(secret, query string) (items []wire.AdminEvent, next string) {
	f.t.Helper()
	r := f.do(request{path: "/audit/events" + query, token: secret})
	var page struct {
		Items []wire.AdminEvent `json:"items"`
		Next  string            `json:"next_cursor"`
	}
	if err := json.Unmarshal(r.body, &page); err != nil || r.StatusCode != 200 {
		f.t.Fatalf("%s: %d %s", query, r.StatusCode, r.body)
	}
	return page.Items, page.Next
}

// told returns the events of a kind as lines, oldest first.
func (f *fixture) told(secret string, kind admin.Kind) []string {
	f.t.Helper()
	items, _ := f.events(secret, "?limit=500&kind="+string(kind))
	lines := make([]string, len(items))
	for i, e := range items {
		lines[len(items)-1-i] = fmt.Sprintf("%s %s %s %s %s", e.Actor.Type, e.Actor.ID, e.Actor.Name, e.Subject, e.Data)
	}
	return lines
}

func TestAdminEventsTellWhoChangedWhat(t *testing.T) {
	t.Parallel()
	f := start(t)
	id, secret := f.token(tokens.Spec{Role: tokens.Admin, Name: "ops"})
	if got := f.told(secret, admin.TokenCreated); len(got) != 1 || !strings.Contains(got[0], id) {
		t.Errorf("%q", got)
	}
	if r := f.do(request{method: "PUT", path: "/v1/sandbox/u1/backend", token: secret, body: `{"backend":"none"}`}); r.StatusCode != 200 {
		t.Fatalf("%d %s", r.StatusCode, r.body)
	}
	if got, want := f.told(secret, admin.BackendChosen), []string{"token " + id + ` ops u1 {"backend":"none"}`}; !slices.Equal(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
	as := func(r *request) { r.token = secret }
	if r := f.upload("u1/a1", "baseline", "weather.zip", weather(t), as); r.StatusCode != 200 {
		t.Fatalf("%d %s", r.StatusCode, r.body)
	}
	if r := f.do(request{method: "DELETE", path: "/v1/skills/u1/a1/weather_skill?scope=baseline", token: secret}); r.StatusCode != 200 {
		t.Fatalf("%d %s", r.StatusCode, r.body)
	}
	for _, kind := range []admin.Kind{admin.BaselinePromoted, admin.BaselineDeleted} {
		if got := f.told(secret, kind); len(got) != 1 || !strings.HasPrefix(got[0], "token "+id+" ops a1/weather_skill {\"digest\":") {
			t.Errorf("%s: %q", kind, got)
		}
	}
}

func TestDownloadsOfOthersExecsAreEvents(t *testing.T) {
	t.Parallel()
	f := start(t)
	auditor, secret := f.token(tokens.Spec{Role: tokens.Auditor, Name: "eve"})
	worker, own := f.token(tokens.Spec{Role: tokens.Worker, Name: "w"})
	rec := f.record(func(r *audit.Record) { r.RequestedBy = worker })
	f.runner.files = map[string]string{"a.txt": "a"}
	f.logEvents()
	path := "/sandbox/execs/" + rec.ExecID
	var want []string
	for _, get := range []struct{ path, data string }{
		{"/stdout", `{"what":"stdout"}`},
		{"/stderr", `{"what":"stderr"}`},
		{"/proof", `{"what":"proof"}`},
		{"/artifacts/a.txt", `{"path":"a.txt","what":"artifact"}`},
		{"/artifacts?format=zip", `{"what":"artifacts"}`},
	} {
		for _, token := range []string{own, secret} {
			if r := f.do(request{path: path + get.path, token: token}); r.StatusCode != 200 {
				t.Fatalf("%s: %d %s", get.path, r.StatusCode, r.body)
			}
		}
		f.do(request{method: "HEAD", path: path + get.path, token: secret}) // sends nothing
		want = append(want, "token "+auditor+" eve "+rec.ExecID+" "+get.data)
	}
	for _, path := range []string{path, path + "/artifacts", path + "/artifacts/unknown", "/sandbox/execs"} {
		f.do(request{path: path, token: secret})
	}
	if got := f.told(secret, admin.Download); !slices.Equal(got, want) {
		t.Errorf("got\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}

// TestManyDownloads: a client cannot fill the disk with events.
func TestManyDownloads(t *testing.T) {
	t.Parallel()
	f := start(t)
	f.stopClock()
	auditor, secret := f.token(tokens.Spec{Role: tokens.Auditor})
	_, other := f.token(tokens.Spec{Role: tokens.Auditor})
	rec := f.record(func(r *audit.Record) { r.RequestedBy = "w" })
	for range quota.Default.Burst + 7 {
		if r := f.do(request{path: "/sandbox/execs/" + rec.ExecID + "/stdout", token: secret}); r.StatusCode != 200 {
			t.Fatalf("%d %s", r.StatusCode, r.body)
		}
	}
	f.do(request{path: "/sandbox/execs/" + rec.ExecID + "/stdout", token: other})
	f.count()
	f.count()
	if got := f.told(secret, admin.Download); len(got) != quota.Default.Burst+1 {
		t.Errorf("%d downloads have events", len(got))
	}
	if got := f.told(secret, admin.DownloadsOmitted); len(got) != 1 || !strings.Contains(got[0], auditor+` {"count":7,`) {
		t.Errorf("%q", got)
	}
}

// noDownloads is a recorder without a database.
type noDownloads struct{}

func (noDownloads) Record(context.Context, string, string, string) error {
	return fault.New(fault.DatabaseUnavailable, "the database does not answer")
}

func (d noDownloads) RecordSearch(ctx context.Context, _ string, _ map[string][]string) error {
	return d.Record(ctx, "", "", "")
}

// TestNoDownloadWithoutEvent: what the database does not record is not sent.
func TestNoDownloadWithoutEvent(t *testing.T) {
	t.Parallel()
	f := start(t, func(c *api.Config) { c.Downloads = noDownloads{} })
	worker, own := f.token(tokens.Spec{Role: tokens.Worker})
	_, secret := f.token(tokens.Spec{Role: tokens.Auditor})
	rec := f.record(func(r *audit.Record) { r.RequestedBy = worker })
	f.runner.files = map[string]string{"a.txt": "a"}
	f.logEvents()
	for _, path := range []string{"/stdout", "/artifacts/a.txt", "/artifacts?format=zip", "/proof"} {
		path = "/sandbox/execs/" + rec.ExecID + path
		f.do(request{path: path, token: secret}).wants(t, fault.DatabaseUnavailable)
		if r := f.do(request{path: path, token: own}); r.StatusCode != 200 {
			t.Errorf("%s of the worker: %d %s", path, r.StatusCode, r.body)
		}
	}
}

func TestAdminEventPages(t *testing.T) {
	t.Parallel()
	f := start(t)
	hostile := "\x00\x1b[2J<script>" + strings.Repeat("é", 1<<19)
	for i := range 7 {
		if err := admin.Record(t.Context(), f.db.AdminEvents(), admin.Export, fmt.Sprint(i)+hostile, map[string]any{"i": i, "filter": hostile}); err != nil {
			t.Fatal(err)
		}
	}
	var seen []int64
	query, cursor := "?kind=export&limit=3&actor=", ""
	for cursor = ""; ; {
		items, next := f.events("", query+"&cursor="+cursor)
		for _, e := range items {
			seen = append(seen, e.ID)
			if len(e.Subject) > admin.MaxText || !strings.HasPrefix(string(e.Data), `{"omitted_bytes":`) {
				t.Errorf("%d bytes of subject, data %s", len(e.Subject), e.Data)
			}
		}
		if next == "" {
			break
		}
		cursor = next
	}
	if len(seen) != 7 || !slices.IsSortedFunc(seen, func(a, b int64) int { return int(b - a) }) {
		t.Errorf("pages: %v", seen)
	}
	_, cursor = f.events("", "?limit=1")
	for _, query := range []string{"?limit=2&kind=export&cursor=", "?since=1h&cursor=", "?subject=x&cursor="} {
		f.get("/audit/events"+query+cursor).wants(t, fault.InvalidCursor, "cursor")
	}
	if items, _ := f.events("", "?limit=3&cursor="+cursor); len(items) != 3 {
		t.Errorf("another limit: %d items", len(items))
	}
	for _, query := range []string{"cursor=x", "cursor=" + strings.Repeat("A", 512), "cursor=eyJhdCI6IngifQ"} {
		f.get("/audit/events?"+query).wants(t, fault.InvalidCursor, "cursor")
	}
	for _, query := range []string{
		"kind=x", "limit=0", "limit=501", "since=x", "until=x", "actor=%00", "subject=%ff", "subject=" + strings.Repeat("x", 513),
		"x=1", "kind=export&kind=export",
	} {
		field, _, _ := strings.Cut(query, "=")
		f.do(request{path: "/audit/events?" + query}).wants(t, fault.InvalidRequest, field)
	}
}

func TestAdminEventProof(t *testing.T) {
	t.Parallel()
	f := start(t)
	_, secret := f.token(tokens.Spec{Role: tokens.Auditor, Name: "eve"})
	key := f.logEvents()
	items, _ := f.events(secret, "?kind=token_created")
	path := fmt.Sprintf("/audit/events/%d/proof", items[0].ID)
	r := f.do(request{path: path, token: secret})
	result, err := proof.CheckAdmin(r.body, key)
	if err != nil || result.Event.Seq != items[0].ID || result.Event.Data != string(items[0].Data) {
		t.Errorf("%d %s: %+v, %v", r.StatusCode, r.body, result, err)
	}
	f.token(tokens.Spec{Role: tokens.Auditor})
	f.do(request{path: fmt.Sprintf("/audit/events/%d/proof", items[0].ID+1), token: secret}).wants(t, fault.NotLogged)
	for _, id := range []string{"0", "-1", "01", "x", "99999999999999999999", "1e3", "%00"} {
		f.do(request{path: "/audit/events/" + id + "/proof", token: secret}).wants(t, fault.UnknownEvent)
	}
}

// TestDamagedAdminEvent: a value that was changed past core-api fails neither the event nor the
// others.
func TestDamagedAdminEvent(t *testing.T) {
	t.Parallel()
	f := start(t)
	for _, format := range []string{"csv", "jsonl"} {
		if err := admin.Record(t.Context(), f.db.AdminEvents(), admin.Export, format, map[string]any{"state": "begins"}); err != nil {
			t.Fatal(err)
		}
	}
	file, err := sql.Open("sqlite", f.dbFile)
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	for _, statement := range []string{
		"DROP TRIGGER admin_events_no_update",
		`UPDATE admin_events SET data = '[1]', actor_name = CAST(x'ff41' AS TEXT) WHERE subject = 'csv'`,
	} {
		if _, err := file.Exec(statement); err != nil {
			t.Fatal(err)
		}
	}
	items, _ := f.events("", "?kind=export")
	if len(items) != 2 || items[0].Unreadable != nil || string(items[0].Data) != `{"state":"begins"}` {
		t.Fatalf("%+v", items)
	}
	if e := items[1]; string(e.Data) != "{}" || e.Actor.Name != "" || e.Subject != "csv" || e.Unreadable == nil ||
		!maps.Equal(*e.Unreadable, map[string]string{"data": "[1]", "actor_name": "\uFFFDA"}) {
		t.Errorf("%+v", e)
	}
}
