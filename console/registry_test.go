package console_test

import (
	"net/http"
	"regexp"
	"strings"
	"testing"

	"secbox/access/tokens"
)

// TestRegistry: what is published, and who published and installed it, for those who may know.
func TestRegistry(t *testing.T) {
	t.Parallel()
	f := closedApp()
	server := f.serve(t)
	for role, sees := range map[tokens.Role]bool{tokens.Worker: false, tokens.AgentAdmin: false, tokens.Auditor: true, tokens.Admin: true} {
		v := newVisitor(t, server)
		v.signIn("secret-" + string(role))
		if _, page := v.get("/console/registry?query=report"); !strings.Contains(page, `href="/console/registry/skills/csv-report"`) ||
			!strings.Contains(page, "1.5 KiB") {
			t.Errorf("%s: the list lacks the skill", role)
		}
		resp, page := v.get("/console/registry/skills/csv-report")
		if resp.StatusCode != http.StatusOK || !strings.Contains(page, "Makes a report.") || strings.Contains(page, "installed") != sees {
			t.Errorf("%s: %d, sees events: %v", role, resp.StatusCode, !sees)
		}
		if resp, page := v.get("/console/registry/skills/withdrawn"); (resp.StatusCode == http.StatusOK) != sees ||
			strings.Contains(page, "has withdrawn it") != sees {
			t.Errorf("%s: a withdrawn skill: %d", role, resp.StatusCode)
		}
		for path, status := range map[string]int{
			"/console/registry/skills/none": 404, "/console/registry/x/csv-report": 404,
			"/console/registry?cursor=x": 400,
		} {
			if resp, _ := v.get(path); resp.StatusCode != status {
				t.Errorf("%s, %s: %d", role, path, resp.StatusCode)
			}
		}
		if !sees {
			continue
		}
		next := regexp.MustCompile(`rel="next" href="([^"]*)"`).FindStringSubmatch(page)
		if next == nil || strings.Count(page, ">installed<") != 50 {
			t.Fatalf("%s: %d events, next %v", role, strings.Count(page, ">installed<"), next)
		}
		if _, last := v.get(next[1]); strings.Count(last, ">installed<") != 9 || strings.Count(last, ">published<") != 1 ||
			strings.Contains(last, `rel="next"`) {
			t.Errorf("%s: the last page of events", role)
		}
		if resp, _ := v.get(strings.Replace(next[1], "csv-report", "other", 1)); resp.StatusCode != http.StatusBadRequest {
			t.Errorf("a cursor of another name: %d", resp.StatusCode)
		}
	}
}
