package console_test

import (
	"fmt"
	"net/http"
	"regexp"
	"strings"
	"testing"

	"secbox/access/tokens"
	"secbox/skills"
)

// TestSkillsCatalog: what can be used and what is broken, with the reason and the remedy.
func TestSkillsCatalog(t *testing.T) {
	t.Parallel()
	url := fullApp().serve(t)
	all := get(t, url+"/console/skills")
	for _, want := range []string{
		`href="/console/skills/shell.run"`, "Run a script", "built-in", "skills_dir", "manifest.json#/runtime/kind", "must be docker",
		"core-api skills lint", "cccccccccccccccc…",
	} {
		if !strings.Contains(all, want) {
			t.Errorf("the catalog lacks %q", want)
		}
	}
	if strings.Contains(all, `href="/console/skills/text.broken"`) {
		t.Error("a broken skill has a page")
	}
	for query, want := range map[string]int{"text=COUNT": 1, "text=run+script": 3, "text=count+nothing": 0, "source=skills_dir": 2, "source=package": 1} {
		if n := strings.Count(get(t, url+"/console/skills?"+query), `scope="row"`); n != want {
			t.Errorf("%s: %d rows, want %d", query, n, want)
		}
	}
}

// TestSkillsPages: a large catalog has pages, and a place in one list is refused by another.
func TestSkillsPages(t *testing.T) {
	t.Parallel()
	f := newFake()
	for i := range 250 {
		f.skills.usable = append(f.skills.usable, skill(fmt.Sprintf("a.s%03d", i), skills.BuiltIn, "{}"))
		f.skills.broken = append(f.skills.broken, skills.Broken{
			Folder: fmt.Sprintf("a.s%03d", i), Source: skills.SkillsDir,
			Problems: []skills.Problem{{Reason: "is broken"}},
		})
	}
	url := f.serve(t)
	next := regexp.MustCompile(`rel="next" href="([^"]*)"`)
	path, rows, pages := "/console/skills", 0, 0
	for path != "" {
		page := get(t, url+path)
		rows += strings.Count(page, `scope="row"`)
		pages++
		link := next.FindStringSubmatch(page)
		if path = ""; link != nil {
			path = strings.ReplaceAll(link[1], "&amp;", "&")
			if other := get(t, url+path+"&source=built-in"); !strings.Contains(other, "another list") {
				t.Fatal("a place of another list was taken")
			}
		}
	}
	if rows != 500 || pages != 5 {
		t.Errorf("%d rows on %d pages", rows, pages)
	}
}

// TestSkillPage: the contract, the policy with its layers, the command that invokes it, and who ran
// it.
func TestSkillPage(t *testing.T) {
	t.Parallel()
	f := fullApp()
	f.records[3].Status, f.records[3].SkillDigest = "failed", strings.Repeat("c", 64)
	page := get(t, f.serve(t)+"/console/skills/shell.run")
	for _, want := range []string{
		"<code>script</code>", "at least 1 character ·", "at most 4000 characters", "list of string", "one of fast, safe", "<code>limits.seconds</code>",
		"integer or null", "Other fields are refused",
		`<span class="tag">skill</span>`, "20000", "skill_shell_run", "<code>python3 ./run.py</code>", "executable", "# Run a script",
		`/skills/shell.run/invoke`,
		`{&#34;project_id&#34;: &#34;demo&#34;, &#34;inputs&#34;: {&#34;script&#34;: &#34;…&#34;, &#34;mode&#34;: &#34;fast&#34;, &#34;limits&#34;: {&#34;seconds&#34;: 1}}}`,
		`href="/console/history?skill_id=shell.run"`, `href="/console/history?skill_id=shell.run&amp;status=failed"`, "58",
		`href="/console/history?skill_digest=` + strings.Repeat("c", 64) + `&amp;skill_id=shell.run">this version`,
	} {
		if !strings.Contains(page, want) {
			t.Errorf("the page lacks %q", want)
		}
	}
	if n := strings.Count(page, `href="/console/execs/`); n != 10 {
		t.Errorf("%d execs are shown", n)
	}
}

// TestSkillRoles: a caller that may read the catalog by the contract may read its pages. Only those
// who may list execs see the execs of a skill.
func TestSkillRoles(t *testing.T) {
	t.Parallel()
	f := closedApp()
	server := f.serve(t)
	for role, want := range map[tokens.Role]struct{ runs, invokes bool }{
		tokens.Worker: {true, true}, tokens.Auditor: {true, false}, tokens.AgentAdmin: {false, false}, tokens.Admin: {true, true},
	} {
		v := newVisitor(t, server)
		v.signIn("secret-" + string(role))
		if resp, _ := v.get("/console/skills"); resp.StatusCode != http.StatusOK {
			t.Errorf("%s: %d", role, resp.StatusCode)
		}
		resp, page := v.get("/console/skills/shell.run")
		if resp.StatusCode != http.StatusOK || strings.Contains(page, "Who ran it") != want.runs || strings.Contains(page, "cannot invoke") == want.invokes ||
			!strings.Contains(page, "Bearer $SECBOX_TOKEN") {
			t.Errorf("%s: %d", role, resp.StatusCode)
		}
	}
}
