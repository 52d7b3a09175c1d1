package console_test

import (
	"encoding/json"
	"html"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"

	"secbox/access/tokens"
	"secbox/audit"
)

// refuse requests an exec for a user with more time than policy allows.
func (c *core) refuse(secret, user string) {
	c.t.Helper()
	body, err := json.Marshal(map[string]any{
		"project_id": "demo", "user_id": user, "exec": map[string]any{"script": "true"},
		"policy_overrides": map[string]any{"timeout_ms": 9_000_000_000},
	})
	must(c.t, err)
	req, err := http.NewRequestWithContext(c.t.Context(), "POST", c.url+"/sandbox/execs", strings.NewReader(string(body)))
	must(c.t, err)
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("Authorization", "Bearer "+secret)
	resp, err := http.DefaultClient.Do(req)
	must(c.t, err)
	resp.Body.Close()
	if resp.StatusCode != http.StatusForbidden && resp.StatusCode != http.StatusUnprocessableEntity && resp.StatusCode != http.StatusBadRequest {
		c.t.Fatalf("the request got %d", resp.StatusCode)
	}
}

// TestRefusedOverRealCore: refused requests with what was asked and the ceiling, by user, on pages
// whose cursors are of their filters, and to workers their own.
func TestRefusedOverRealCore(t *testing.T) {
	t.Parallel()
	c := startCore(t)
	worker, other := c.token("worker", tokens.Worker), c.token("other", tokens.Worker)
	for range 51 {
		c.refuse(worker, "ada")
	}
	c.refuse(other, "bob")
	ran := c.run(worker, "echo x")
	v := newVisitor(t, c.url)
	v.signIn(c.token("auditor", tokens.Auditor))
	_, page := v.get("/console/refused")
	first := execLinks(page)
	if len(first) != 50 || slices.Contains(first, ran) || !strings.Contains(page, "timeout_ms") || !strings.Contains(page, "9000000000") ||
		!strings.Contains(page, "1800000") {
		t.Errorf("%d rows: %.3000s", len(first), page)
	}
	older := html.UnescapeString(regexpOlder.FindStringSubmatch(page)[1])
	_, page = v.get(older)
	if second := execLinks(page); len(second) != 2 || slices.Contains(first, second[0]) {
		t.Errorf("the second page has %q", second)
	}
	for _, path := range []string{older + "&user_id=ada", strings.Replace(older, "/refused", "/history", 1)} {
		if resp, page := v.get(path); resp.StatusCode != http.StatusBadRequest || len(execLinks(page)) != 0 ||
			!strings.Contains(page, "not a page of this list") {
			t.Errorf("the cursor for %s: %d", path, resp.StatusCode)
		}
	}
	for path, want := range map[string]int{
		"user_id=bob": 1, "user_id=nobody": 0, "error_reason=policy_denied&user_id=bob": 1, "error_reason=forbidden": 0,
		"project_id=demo&user_id=ada": 50,
	} {
		if _, page := v.get("/console/refused?" + path); len(execLinks(page)) != want {
			t.Errorf("%s: %d rows, want %d", path, len(execLinks(page)), want)
		}
	}
	if _, page := v.get("/console/refused?since=today&user_id=bob"); len(execLinks(page)) != 1 ||
		!strings.Contains(page, `aria-current="true" title="Since midnight, UTC"`) {
		t.Errorf("today: %q", execLinks(page))
	}
	if _, page := v.get("/console/history?user_id=bob&text=9000000000"); len(execLinks(page)) != 1 { // of the message
		t.Errorf("a search for what was asked finds %q", execLinks(page))
	}
	change := audit.Record{
		ExecID: uuid.Must(uuid.NewV7()).String(), Kind: audit.KindChange, Status: audit.Rejected, ErrorReason: audit.InputRefused,
		Cmd: "files.edit", Args: []string{"/workspace/a.txt"}, UserID: "cleo", ProjectID: "demo",
		CreatedAt: time.Now(), EndedAt: time.Now(), NodeID: "n",
	}
	_, err := c.db.Audit().Open(t.Context(), change)
	must(t, err)
	for path, want := range map[string]string{
		"": change.ExecID, "?error_reason=input_refused": change.ExecID, "?kind=change": change.ExecID,
		"?kind=exec&user_id=cleo": "", "?kind=exec&user_id=bob": "bob",
	} {
		_, page := v.get("/console/refused" + path)
		if strings.Contains(page, change.ExecID) != (want == change.ExecID) || !strings.Contains(page, want) {
			t.Errorf("%s does not list just %q: %q", path, want, execLinks(page))
		}
		kind := "all"
		if _, after, given := strings.Cut(path, "kind="); given {
			kind, _, _ = strings.Cut(after, "&")
		}
		for _, link := range []string{"kind=" + kind + "&amp;limit=50", "format=csv&amp;kind=" + kind} {
			if want != "" && !strings.Contains(page, link) {
				t.Errorf("%s does not export or repeat %s", path, kind)
			}
		}
	}
	own := newVisitor(t, c.url)
	own.signIn(other)
	// ids may have these letters
	if _, page := own.get("/console/refused"); len(execLinks(page)) != 1 || !strings.Contains(page, ">bob<") || strings.Contains(page, ">ada<") {
		t.Errorf("a worker sees %q", execLinks(page))
	}
}

// TestOperationsOverRealCore: auditors see the page, workers do not.
func TestOperationsOverRealCore(t *testing.T) {
	t.Parallel()
	c := startCore(t)
	for role, want := range map[tokens.Role]int{tokens.Auditor: http.StatusOK, tokens.Admin: http.StatusOK, tokens.Worker: http.StatusForbidden} {
		v := newVisitor(t, c.url)
		v.signIn(c.token(string(role), role))
		resp, page := v.get("/console/operations")
		if resp.StatusCode != want || strings.Contains(page, "This node") != (want == http.StatusOK) {
			t.Errorf("%s: %d", role, resp.StatusCode)
		}
	}
}

// TestRequestedByName: the name of a token is as good as its id, on each page of the list and in
// what leads on from it; not for workers, who see their own requests only.
func TestRequestedByName(t *testing.T) {
	t.Parallel()
	c := startCore(t)
	ci, other := c.token("ci", tokens.Worker), c.token("other", tokens.Worker)
	for range 51 {
		c.refuse(ci, "ada")
	}
	c.refuse(other, "bob")
	ran := c.run(other, "true")
	v := newVisitor(t, c.url)
	auditor := c.token("auditor", tokens.Auditor)
	v.signIn(auditor)
	_, page := v.get("/console/refused?requested_by=ci")
	older := regexpOlder.FindStringSubmatch(page)
	if len(execLinks(page)) != 50 || older == nil || strings.Contains(older[1], "requested_by=ci") ||
		len(execsIn(t, shell(t, curlOn(t, page), "SECBOX_TOKEN="+auditor))) != 50 {
		t.Fatalf("%d rows, then %v", len(execLinks(page)), older)
	}
	if _, page := v.get(html.UnescapeString(older[1])); len(execLinks(page)) != 1 {
		t.Errorf("the second page has %q", execLinks(page))
	}
	if _, page := v.get("/console/history?requested_by=other&status=succeeded"); !slices.Equal(execLinks(page), []string{ran}) {
		t.Errorf("the history has %q", execLinks(page))
	}
	own := newVisitor(t, c.url)
	own.signIn(other)
	if _, page := own.get("/console/refused?requested_by=ci"); len(execLinks(page)) != 0 || strings.Contains(page, "There is a token") {
		t.Errorf("a worker sees %q", execLinks(page))
	}
}
