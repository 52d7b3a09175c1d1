package console_test

import (
	"net/http"
	"net/url"
	"slices"
	"strings"
	"testing"

	"secbox/access/tokens"
)

// TestRolesOverRealCore: a worker sees its own execs, an auditor all of them, on record.
func TestRolesOverRealCore(t *testing.T) {
	t.Parallel()
	c := startCore(t)
	worker, other := c.token("worker", tokens.Worker), c.token("other", tokens.Worker)
	own, foreign := c.run(worker, "echo mine"), c.run(other, "echo theirs")

	v := newVisitor(t, c.url)
	v.signIn(worker)
	if _, page := v.get("/console/history"); !strings.Contains(page, own) || strings.Contains(page, foreign) {
		t.Error("a worker's history has other execs than its own")
	}
	if resp, page := v.get("/console/execs/" + own); resp.StatusCode != http.StatusOK || !strings.Contains(page, "mine") ||
		!strings.Contains(page, `rel="prev"`) == strings.Contains(page, foreign) {
		t.Errorf("its own exec: %d", resp.StatusCode)
	}
	for _, path := range []string{"", "/output/stdout", "/proof"} {
		if resp, page := v.get("/console/execs/" + foreign + path); resp.StatusCode != http.StatusNotFound || strings.Contains(page, "theirs") {
			t.Errorf("another's exec%s: %d", path, resp.StatusCode)
		}
	}
	if resp, _ := v.post("/console/history", "/console/execs/"+foreign+"/cancel", url.Values{}); resp.StatusCode != http.StatusNotFound {
		t.Errorf("canceling another's exec: %d", resp.StatusCode)
	}

	auditor := newVisitor(t, c.url)
	auditor.signIn(c.token("auditor", tokens.Auditor))
	if _, page := auditor.get("/console/history"); !strings.Contains(page, own) || !strings.Contains(page, foreign) {
		t.Error("an auditor's history lacks execs")
	}
	if resp, page := auditor.get("/console/execs/" + foreign); resp.StatusCode != http.StatusOK || !strings.Contains(page, "theirs") ||
		!strings.Contains(page, "does not have the newest event yet") {
		t.Errorf("an auditor's page before the log has the exec: %d", resp.StatusCode)
	}
	if _, err := c.log.Step(t.Context()); err != nil {
		t.Fatal(err)
	}
	if _, page := auditor.get("/console/execs/" + foreign); !strings.Contains(page, "/console/execs/"+foreign+"/proof") {
		t.Error("no proof to download")
	}
	if resp, proof := auditor.get("/console/execs/" + foreign + "/proof"); resp.StatusCode != http.StatusOK || !strings.Contains(proof, foreign) ||
		!strings.Contains(resp.Header.Get("Content-Disposition"), "attachment") {
		t.Errorf("the proof: %d, %s", resp.StatusCode, resp.Header.Get("Content-Disposition"))
	}
	events := c.events()
	if want := "download by auditor"; slices.Index(events, want) < 0 || slices.Contains(events, "download by worker") {
		t.Errorf("events %q", events)
	}
}

// TestSessionsOverRealCore: sessions are in the database, with their events, and end with their
// tokens.
func TestSessionsOverRealCore(t *testing.T) {
	t.Parallel()
	c := startCore(t)
	local := newVisitor(t, c.url)
	if resp, page := local.get("/console/history"); resp.StatusCode != http.StatusOK || !strings.Contains(page, "No execs yet") ||
		strings.Contains(page, "Sign out") {
		t.Errorf("on loopback without tokens: %d", resp.StatusCode)
	}
	const open = "This server has no token yet"
	if _, page := local.get("/console/overview"); !strings.Contains(page, open) {
		t.Error("the overview does not say that requests need no token")
	}
	secret := c.token("ada", tokens.Admin)
	if resp, _ := local.get("/console/history"); resp.StatusCode != http.StatusSeeOther {
		t.Errorf("on loopback with tokens: %d", resp.StatusCode)
	}
	v := newVisitor(t, c.url)
	v.signIn(secret)
	if resp, _ := v.get("/console/history"); resp.StatusCode != http.StatusOK {
		t.Errorf("signed in: %d", resp.StatusCode)
	}
	if _, page := v.get("/console/overview"); strings.Contains(page, open) {
		t.Error("the overview says that requests need no token")
	}
	all, err := c.tokens.List(t.Context())
	must(t, err)
	if _, err := c.tokens.Revoke(t.Context(), all[0].ID); err != nil {
		t.Fatal(err)
	}
	if resp, _ := v.get("/console/history"); !strings.HasPrefix(resp.Header.Get("Location"), "/console/sign-in?ended=1") {
		t.Errorf("after the revocation: %d, %s", resp.StatusCode, resp.Header.Get("Location"))
	}
	second := c.token("eve", tokens.Admin)
	v.signIn(second)
	v.post("/console/history", "/console/sign-out", url.Values{})
	want := []string{"signed_in by ada", "signed_in by eve", "signed_out by eve"}
	got := slices.DeleteFunc(c.events(), func(e string) bool { return !strings.HasPrefix(e, "signed") })
	if !slices.Equal(got, want) {
		t.Errorf("events %q", got)
	}
	for range 10 {
		v.post("/console/sign-in", "/console/sign-in", url.Values{"token": {"wrong"}})
	}
	if resp, page := v.post("/console/sign-in", "/console/sign-in", url.Values{"token": {second}}); resp.StatusCode != http.StatusTooManyRequests ||
		!strings.Contains(page, "from this address have failed; try again in") {
		t.Errorf("after ten failures: %d", resp.StatusCode)
	}
}

// TestHistoryOverRealCore: filters, search and pages.
func TestHistoryOverRealCore(t *testing.T) {
	t.Parallel()
	c := startCore(t)
	var ids []string
	for range 52 {
		ids = append(ids, c.run("", "echo common"))
	}
	rare := c.run("", "echo NEEDLE")
	failed := c.run("", "exit 3")
	v := newVisitor(t, c.url)
	shows := func(path string, want ...string) string {
		t.Helper()
		_, page := v.get(path)
		for _, id := range append(slices.Clone(ids), rare, failed) {
			if strings.Contains(page, "/console/execs/"+id+`"`) != slices.Contains(want, id) {
				t.Errorf("%s: exec %s is shown: %v", path, id, !slices.Contains(want, id))
			}
		}
		return page
	}
	shows("/console/history?status=failed", failed)
	shows("/console/history?status=failed&status=lost", failed)
	shows("/console/history?error_reason=nonzero_exit&columns=exit", failed)
	shows("/console/history?text=needle", rare)
	shows("/console/history?text=nowhere&since=1h")
	shows("/console/history?project_id=demo&until=1h")
	shows("/console/history?skill_digest=none")
	first := shows("/console/history", append([]string{failed, rare}, ids[4:]...)...)
	older := regexpOlder.FindStringSubmatch(first)
	if older == nil {
		t.Fatal("no further page")
	}
	next := strings.ReplaceAll(older[1], "&amp;", "&")
	shows(next, ids[:4]...)
	if resp, page := v.get(next + "&status=succeeded"); resp.StatusCode != http.StatusBadRequest || !strings.Contains(page, "not a page of this list") {
		t.Errorf("a cursor of another list: %d", resp.StatusCode)
	}
	if resp, page := v.get("/console/history?stauts=failed"); resp.StatusCode != http.StatusBadRequest ||
		!strings.Contains(page, "there is no such parameter") {
		t.Errorf("a misspelled filter: %d", resp.StatusCode)
	}
}
