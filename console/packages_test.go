package console_test

import (
	"fmt"
	"net/http"
	"regexp"
	"strings"
	"testing"

	"secbox/access/tokens"
	"secbox/packages/library"
)

// TestPackage: versions, who changed the baseline, files, changes and the download of a package.
func TestPackage(t *testing.T) {
	t.Parallel()
	url := fullApp().changed().serve(t)
	has := func(path string, all ...string) {
		t.Helper()
		page := get(t, url+path)
		for _, want := range all {
			if !strings.Contains(page, want) {
				t.Errorf("%s lacks %q", path, want)
			}
		}
	}
	has("/console/packages", `href="/console/packages?agent_id=ag"`, `href="/console/packages?agent_id=other"`)
	has("/console/packages?agent_id=ag", "own", "2222222222222222…")
	has("/console/packages?agent_id=ag&user_id=ann", "4 packages of ann", `href="/console/packages/ag/ann/own"`, "modified", "baseline changed", "out of sync",
		"the user’s own", "cannot be a version", "SKILL.md is not UTF-8")
	has("/console/packages/ag/ann/new", "SKILL.md is not UTF-8")
	has("/console/packages/ag/ann/own", "former baseline", "Grace", "baseline_promoted", "3333333333333333…",
		`href="/console/packages/ag/ann/own/file?path=main.py"`,
		`href="/console/packages/ag/ann/own/diff"`, `href="/console/skills/own?agent_id=ag&amp;user_id=ann"`, "Who ran it",
		`href="/console/history?project_id=ag~ann&amp;skill_id=own"`)
	has("/console/packages/ag/ann/own", `version 3 from the <a class="inline" href="/console/registry/skills/own">`, "the user has changed the files since")
	has("/console/packages?agent_id=ag", `href="/console/baselines/ag/own"`)
	has("/console/baselines/ag/own", "2222222222222222…", "Grace", "3333333333333333…", `href="/console/baselines/ag/own/file?path=main.py"`,
		`href="/console/history?agent_id=ag&amp;skill_id=own"`)
	has("/console/baselines/ag/own/file?path=main.py", "print(&#39;hi&#39;)", "12 B", `href="/console/baselines/ag/own"`)
	has("/console/packages/ag/ann/inherited", "has not used", "this baseline")
	has("/console/packages/ag/ann/own/file?path=main.py", "print(&#39;hi&#39;)", "12 B")
	has("/console/packages/ag/ann/own/file?path=logo.png", "is not UTF-8 text", "6 B", "SHA-256")
	has("/console/packages/ag/ann/own/file?path=empty", "The file is empty")
	has("/console/packages/ag/ann/own/diff", `<span class="t-f2">+print(&#39;hi&#39;)`, `<span class="t-f1">-print(&#39;old&#39;)`, "Binary files a/logo.png")
	for path, status := range map[string]int{
		"/console/baselines/ag/own/file": 400, "/console/baselines/ag/none": 404, "/console/baselines/other/own": 404, "/console/packages/ag/ann/own/file": 400,
		"/console/packages/ag/ann/own/file?path=none": 404, "/console/packages/ag/ann/none": 404, "/console/packages?user_id=ann": 400,
		"/console/packages/a%2Fg/ann/own": 400, "/console/packages/ag/.../own": 400, "/console/packages/ag/ann/own/download": 200,
	} {
		resp, err := http.Get(url + path)
		if err != nil {
			t.Fatal(err)
		}
		resp.Body.Close()
		if resp.StatusCode != status {
			t.Errorf("%s: %d, want %d", path, resp.StatusCode, status)
		}
		if status == 200 && (!strings.HasPrefix(resp.Header.Get("Content-Disposition"), `attachment; filename="own.zip"`) ||
			!strings.HasPrefix(resp.Header.Get("Content-Security-Policy"), "sandbox")) {
			t.Errorf("the download has %v", resp.Header)
		}
	}
}

// TestPackagePages: many packages have pages, each of them once.
func TestPackagePages(t *testing.T) {
	t.Parallel()
	f := newFake()
	for i := range 250 {
		f.skills.packages.listed = append(f.skills.packages.listed, library.Listed{SkillID: fmt.Sprintf("s%03d", i)})
	}
	url := f.serve(t)
	next := regexp.MustCompile(`rel="next" href="([^"]*)"`)
	seen, path := map[string]bool{}, "/console/packages?agent_id=ag&user_id=ann"
	for path != "" {
		page := get(t, url+path)
		for _, id := range regexp.MustCompile(`href="/console/packages/ag/ann/(s\d+)"`).FindAllStringSubmatch(page, -1) {
			if seen[id[1]] {
				t.Errorf("%s is there twice", id[1])
			}
			seen[id[1]] = true
		}
		link := next.FindStringSubmatch(page)
		if path = ""; link != nil {
			path = strings.ReplaceAll(link[1], "&amp;", "&")
			if other := get(t, url+strings.Replace(path, "user_id=ann", "user_id=bob", 1)); !strings.Contains(other, "another list") {
				t.Fatal("a place of another list was taken")
			}
		}
	}
	if len(seen) != 250 {
		t.Errorf("%d packages are shown", len(seen))
	}
}

// TestPackageRoles: tokens see the packages of their scope only, and only auditors and admins see
// who changed a baseline and all agents.
func TestPackageRoles(t *testing.T) {
	t.Parallel()
	f := closedApp().changed()
	f.sessions.byToken["scoped"] = tokens.Token{ID: "s", Name: "s", Role: tokens.Worker, Users: []string{"ann"}}
	f.sessions.byToken["manager"] = tokens.Token{ID: "m", Name: "m", Role: tokens.AgentAdmin, Agents: []string{"ag"}}
	server := f.serve(t)
	for secret, want := range map[string]struct {
		own, foreign, otherAgent, agents, baseline int // statuses
		allAgents, changes, runs                   bool
	}{
		"scoped":         {200, 403, 200, 400, 400, false, false, true},
		"manager":        {200, 200, 403, 403, 200, false, false, false},
		"secret-auditor": {200, 200, 200, 200, 200, true, true, true},
		"secret-admin":   {200, 200, 200, 200, 200, true, true, true},
	} {
		v := newVisitor(t, server)
		v.signIn(secret)
		for path, status := range map[string]int{
			"/console/packages?agent_id=ag&user_id=ann": want.own, "/console/packages/ag/bob/own": want.foreign,
			"/console/packages/ag/bob/own/file?path=main.py": want.foreign,
			"/console/packages/ag/bob/own/diff":              want.foreign, "/console/packages/ag/bob/own/download": want.foreign,
			"/console/packages?agent_id=other&user_id=ann": want.otherAgent,
			"/console/packages?agent_id=other":             want.agents, "/console/baselines/ag/own": want.baseline,
			"/console/baselines/ag/own/file?path=main.py": want.baseline,
		} {
			if resp, _ := v.get(path); resp.StatusCode != status {
				t.Errorf("%s, %s: %d, want %d", secret, path, resp.StatusCode, status)
			}
		}
		if resp, _ := v.get("/console/baselines/other/own"); secret == "manager" && resp.StatusCode != http.StatusForbidden {
			t.Errorf("an agent-admin got a baseline of another agent: %d", resp.StatusCode)
		}
		if _, page := v.get("/console/packages"); strings.Contains(page, "agent_id=other") != want.allAgents {
			t.Errorf("%s: all agents are shown: %v", secret, !want.allAgents)
		}
		if _, page := v.get("/console/packages/ag/ann/own"); strings.Contains(page, "Grace") != want.changes ||
			strings.Contains(page, "Who ran it") != want.runs {
			t.Errorf("%s sees who changed the baseline: %v", secret, !want.changes)
		}
	}
}
