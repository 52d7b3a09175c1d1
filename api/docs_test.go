package api_test

import (
	"html"
	"maps"
	"net/http"
	"os"
	osexec "os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/getkin/kin-openapi/openapi3"

	"secbox/admin"
	"secbox/api"
	"secbox/audit"
	"secbox/retention"
	"secbox/tokens"
)

// examples are the commands of the page, by the route's id.
func examples(page string) map[string]string {
	out := map[string]string{}
	for _, article := range strings.Split(page, "<article ")[1:] {
		article, _, _ = strings.Cut(article, "</article>")
		id, _, _ := strings.Cut(strings.TrimPrefix(article, `id="`), `"`)
		if m := regexp.MustCompile(`(?s)<h4>Try it</h4><pre tabindex="0"><code>(.*?)</code>`).FindStringSubmatch(article); m != nil {
			out[id] = html.UnescapeString(m[1])
		}
	}
	return out
}

// TestExamplesOfDocsWork runs each command in a shell and expects a declared successful status.
func TestExamplesOfDocsWork(t *testing.T) {
	t.Parallel()
	f, kept := startWithInputs(t, func(c *api.Config) { c.Runners = &dialledIn{} })
	f.runner.files = map[string]string{"hi.txt": "hi\n"}
	doc, err := openapi3.NewLoader().LoadFromData(api.Contract())
	if err != nil {
		t.Fatal(err)
	}
	good, public := map[string][]string{}, map[string]bool{} // by operation
	for _, item := range doc.Paths.Map() {
		for _, op := range item.Operations() {
			public[op.OperationID] = op.Security != nil
			for status := range op.Responses.Map() {
				if status[0] == '2' {
					good[op.OperationID] = append(good[op.OperationID], status)
				}
			}
		}
	}

	commands := examples(string(f.get("/docs").body))
	protocols := []string{"mcpSend", "mcpListen", "mcpEnd", "runnerLink", "runnerTransferOffset", "runnerTransferSend", "runnerTransferFetch"}
	for id := range good {
		if commands[id] == "" && !slices.Contains(protocols, id) {
			t.Errorf("%s has no example", id)
		}
	}

	dir, downloads := t.TempDir(), t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "weather_skill.zip"), []byte(weather(t)), 0o600); err != nil {
		t.Fatal(err)
	}
	// Examples that make things run first, and those that remove them last. No real exec has left a manifest or a policy.
	first := []string{"uploadSkill", "editSkillFile", "editSandboxFile", "publishToRegistry", "installFromRegistry"}
	last := []string{"uninstall", "withdrawFromRegistry", "deletePackage", "removeHold", "followExecs"}
	f.inWork("1001", "agent001", "skills/csv-report/SKILL.md", "# CSV")
	elsewhere := slices.Concat(first, last, []string{"getManifest", "getMeta", "replayExec", "getComparison"})
	order := slices.Concat(first, slices.DeleteFunc(slices.Sorted(maps.Keys(commands)), func(id string) bool {
		return slices.Contains(elsewhere, id)
	}), last)
	execID := f.record(func(r *audit.Record) {
		r.ManifestDigest, r.Inputs = strings.Repeat("ab", 32), []audit.Input{kept.add("main.py", "print(1)")}
	}).ExecID
	if err := admin.Record(t.Context(), f.db.AdminEvents(), admin.Export, "jsonl", nil); err != nil {
		t.Fatal(err)
	}
	f.logEvents()
	for _, id := range order {
		if id == "installFromRegistry" { // the author has it
			if err := os.RemoveAll(filepath.Join(f.root, "projects/agent001~1001/work/skills/csv-report")); err != nil {
				t.Fatal(err)
			}
		}
		command := strings.Replace(commands[id], `"backend": "docker"`, `"backend": "none"`, 1) // there is no engine here
		if strings.Contains(command, "$TOKEN") {
			t.Errorf("%s sends a token, and none is needed:\n%s", id, command)
		}
		if id == "followExecs" { // ends its streams, which have no end otherwise
			f.server.Close()
		}
		if id == "removeHold" {
			holds, err := f.db.Retention().Holds(t.Context(), retention.HoldCursor{}, 1)
			if err != nil || len(holds) == 0 {
				t.Fatal(holds, err)
			}
			command = strings.Replace(command, "019aa4b6-7c1e-7d35-9a52-0f4f3a1b2c3d", holds[0].ID, 1)
		}
		cmd := osexec.CommandContext(t.Context(), "sh", "-c", strings.Replace(command, "curl ", `curl -w '\n%{http_code}' `, 1))
		cmd.Dir = dir
		if id != "uploadSkill" {
			cmd.Dir = downloads // curl overwrites nothing
		}
		cmd.Env = append(os.Environ(), "EXEC_ID="+execID)
		out, err := cmd.CombinedOutput()
		if status := string(out[max(0, len(out)-3):]); err != nil || !slices.Contains(good[id], status) {
			t.Errorf("%s: %v, want %v\n%s\n%.400s", id, err, good[id], command, out)
		}
	}
	for _, name := range []string{"hi.txt", "main.py", "weather_skill.zip"} {
		if _, err := os.Stat(filepath.Join(downloads, name)); err != nil {
			t.Error(err)
		}
	}

	// Once a token is needed, the commands send it.
	f.token(tokens.Spec{Role: tokens.Worker})
	for id, command := range examples(string(f.get("/docs").body)) {
		if strings.Contains(command, "Bearer $TOKEN") == public[id] {
			t.Errorf("%s: public %v, and the command is\n%s", id, public[id], command)
		}
	}
}

// TestFrontDoor: / leads browsers to the console, and tells programs what the service is.
func TestFrontDoor(t *testing.T) {
	t.Parallel()
	f := start(t, func(c *api.Config) { c.Console = func(http.ResponseWriter, *http.Request, api.Door) {} })
	f.client.CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	for _, accept := range []string{
		"text/html,application/xhtml+xml,application/xml;q=0.9,image/avif,image/webp,*/*;q=0.8", // Chromium's
		"text/html", "TEXT/HTML ; q=0.5", "application/json;q=0.4, text/html;q=0.5", "text/html, application/json",
	} {
		for _, method := range []string{"GET", "HEAD"} {
			r := f.do(request{method: method, path: "/", header: map[string]string{"Accept": accept}})
			if r.StatusCode != http.StatusSeeOther || r.Header.Get("Location") != "/console" || r.Header.Get("Vary") != "Accept" || len(r.body) > 0 && method == "HEAD" {
				t.Errorf("%s of a browser, Accept %q: %d, %s", method, accept, r.StatusCode, r.Header.Get("Location"))
			}
		}
	}
	for _, accept := range []string{"", "*/*", "application/json", "text/*", "text/html;q=0", "text/html;q=0.5, application/json", "text/html;q=nonsense", "texthtml;;,"} {
		if r := f.do(request{method: "HEAD", path: "/", header: map[string]string{"Accept": accept}}); r.StatusCode != 200 || r.Header.Get("Content-Type") != "application/json" || len(r.body) > 0 {
			t.Errorf("HEAD of a program, Accept %q: %d, %s", accept, r.StatusCode, r.Header.Get("Content-Type"))
		}
		info := decodeAs[api.ServiceInfo](t, f.do(request{path: "/", header: map[string]string{"Accept": accept}}), 200)
		if info.Service != "core-api" || info.Console != "/console" {
			t.Errorf("Accept %q: %+v", accept, info)
		}
		for _, path := range []string{info.Docs, info.Openapi, info.Health} {
			if r := f.get(path); r.StatusCode != 200 {
				t.Errorf("%s: %d", path, r.StatusCode)
			}
		}
	}
}

// TestNotFoundPage: browsers get a page, programs a problem document.
func TestNotFoundPage(t *testing.T) {
	t.Parallel()
	f := start(t)
	const browser = "text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8"
	for _, path := range []string{"/nowhere", "/sandbox/execs/x/y/z", "/v1/nowhere"} {
		r := f.do(request{path: path, header: map[string]string{"Accept": browser}})
		if r.StatusCode != 404 || r.Header.Get("Content-Type") != "text/html; charset=utf-8" || !strings.Contains(string(r.body), `href="/docs"`) {
			t.Errorf("%s: %d %s %.200s", path, r.StatusCode, r.Header.Get("Content-Type"), r.body)
		}
		if csp := r.Header.Get("Content-Security-Policy"); !strings.Contains(csp, "default-src 'none'") || strings.Contains(csp, "unsafe") {
			t.Errorf("%s: %s", path, csp)
		}
		for _, accept := range []string{"", "*/*", "application/json"} {
			if r := f.do(request{path: path, header: map[string]string{"Accept": accept}}); r.StatusCode != 404 || strings.Contains(r.Header.Get("Content-Type"), "html") {
				t.Errorf("%s with Accept %q: %d %s", path, accept, r.StatusCode, r.Header.Get("Content-Type"))
			}
		}
	}
	// Every client gets the refusals of routes as problem documents.
	if r := f.do(request{path: "/sandbox/execs/nonsense", header: map[string]string{"Accept": browser}}); r.Header.Get("Content-Type") != "application/problem+json" {
		t.Errorf("%d %s", r.StatusCode, r.Header.Get("Content-Type"))
	}
}
