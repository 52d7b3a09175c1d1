package e2e

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"

	"secbox/access/tokens"
	"secbox/skills"
)

// versionScript leaves its version as the output of the skill.
func versionScript(version string) string {
	return "VERSION=" + version + "\nprintf '{\"version\": \"%s\"}' $VERSION >$SKILL_OUTPUT\n"
}

// toolFiles is a package that says its version, and whose only input is optional; names and
// contents take turns.
func toolFiles(id, version string) []string {
	return []string{"SKILL.md", "# A tool\n", "run.sh", versionScript(version), "manifest.json", `{
		"schema_version": "1", "id": "` + id + `", "name": "A tool", "description": "Says its version.",
		"interface": {"inputs": {"type": "object", "properties": {"n": {"type": "integer"}}, "additionalProperties": false},
			"outputs": {"type": "object", "properties": {"version": {"type": "string"}}, "required": ["version"]}},
		"runtime": {"kind": "docker", "entrypoint": ["bash", "./run.sh"]},
		"permissions": {"fs": {"read": ["inputs/**"], "write": ["artifacts/**"]}, "net": {"mode": "none"}},
		"limits": {"timeout_ms": 60000}}`}
}

// toolDigest is the name that such a package has as a version.
func toolDigest(id, version string) string {
	files := toolFiles(id, version)
	var list []skills.File
	for i := 0; i < len(files); i += 2 {
		sum := sha256.Sum256([]byte(files[i+1]))
		list = append(list, skills.File{Path: files[i], Size: int64(len(files[i+1])), SHA256: hex.EncodeToString(sum[:])})
	}
	slices.SortFunc(list, func(a, b skills.File) int { return strings.Compare(a.Path, b.Path) })
	return skills.Digest(list)
}

// ran invokes a tool of a user and returns the version that its output says and the one that the
// exec's record names.
func (s *testServer) ran(project, skill string) (version, digest string) {
	s.t.Helper()
	a := s.invoke(skill, object{"project_id": project, "inputs": object{}})
	record := s.get("/sandbox/execs/" + a.str("exec.exec_id"))
	if record.str("skill_id") != skill || record.str("project_id") != project {
		s.t.Errorf("the record of %s in %s: %v", skill, project, record)
	}
	return a.str("outputs.version"), record.str("skill_digest")
}

// editTool writes a version into a user's copy.
func (s *testServer) editTool(owner, skill, version string) {
	s.t.Helper()
	s.send(http.MethodPut, "/v1/skills/"+owner+"/"+skill+"/edit?path=run.sh", versionScript(version), "Content-Type", "text/plain").done(s.t)
}

// toolIDs are the packages that a user can invoke.
func (s *testServer) toolIDs(query string) (ids []string) {
	s.t.Helper()
	for _, one := range s.get("/skills" + query).list("items") {
		if one.str("source") == "package" {
			ids = append(ids, one.str("id"))
		}
	}
	return ids
}

// TestPackageWithManifestIsTool uploads a package with a manifest and runs it as two users, each
// with their own version.
func TestPackageWithManifestIsTool(t *testing.T) {
	t.Parallel()
	s := start(t, noPool)
	_, admin := s.newToken(tokens.Spec{Role: tokens.Admin})
	_, ofAnn := s.newToken(tokens.Spec{Role: tokens.Worker, Agents: []string{"ag"}, Users: []string{"ann"}})
	_, ofBob := s.newToken(tokens.Spec{Role: tokens.Worker, Projects: []string{"ag~bob"}})
	_, auditor := s.newToken(tokens.Spec{Role: tokens.Auditor})
	s = s.as(admin)
	ann, bob := s.as(ofAnn), s.as(ofBob)
	const tool, annsCatalog, bobsCatalog = "text.version", "?agent_id=ag&user_id=ann", "?agent_id=ag&user_id=bob"
	s.upload("ann/ag", "baseline", "x.zip", archiveOf(t, tool, toolFiles(tool, "one")...)).done(t)
	s.upload("ann/ag", "", "x.zip", archiveOf(t, "shell.run", toolFiles("shell.run", "false")...)).done(t)

	if a, b, all := ann.toolIDs(annsCatalog), bob.toolIDs(bobsCatalog), s.toolIDs(""); !slices.Equal(a, []string{tool}) || !slices.Equal(b, a) ||
		len(all) != 0 {
		t.Errorf("ann has %q, bob %q, the catalog %q", a, b, all)
	}
	broken := ann.get("/skills" + annsCatalog + "&broken=true").list("broken")
	if len(broken) != 1 || broken[0].str("folder") != "shell.run" || broken[0].list("problems")[0].str("pointer") != "/id" {
		t.Errorf("a package with a built-in skill's id: %v", broken)
	}
	one := ann.get("/skills/" + tool + annsCatalog)
	one.wants(t, object{"source": "package", "tool": "skill." + tool, "digest": toolDigest(tool, "one"), "readme": "# A tool\n"})

	ann.editTool("ann/ag", tool, "two")
	if version, digest := ann.ran("ag~ann", tool); version != "two" || digest != toolDigest(tool, "two") {
		t.Errorf("ann ran %q of %s", version, digest)
	}
	if version, digest := bob.ran("ag~bob", tool); version != "one" || digest != toolDigest(tool, "one") {
		t.Errorf("bob ran %q of %s", version, digest)
	}
	s.send(http.MethodPost, "/v1/skills/ann/ag/"+tool+"/baseline", nil).done(t)
	s.send(http.MethodPost, "/v1/skills/bob/ag/"+tool+"/sync", nil).done(t)
	if version, digest := bob.ran("ag~bob", tool); version != "two" || digest != toolDigest(tool, "two") {
		t.Errorf("after promotion and sync bob ran %q of %s", version, digest)
	}
	ran := ann.runs("/v1/skills/ann/ag/"+tool+"/execute?command=cat", "run.sh")
	s.get("/sandbox/execs/"+ran.str("exec_id")).wants(t, object{"skill_id": tool, "skill_digest": "", "cmd": "cat"}) // its files may change while it runs
	creator := ann.runs("/v1/skills/ann/ag/skill-creator/execute?command=ls")
	if record := s.get("/sandbox/execs/" + creator.str("exec_id")); len(record.str("skill_digest")) != 64 {
		t.Errorf("a command in skill-creator: %v", record)
	}
	if rows := s.records("skill_digest=" + toolDigest(tool, "two")); len(rows) != 2 {
		t.Errorf("%d execs of version two, want two invokes", len(rows))
	}
	if rows := s.records("skill_id=" + tool + "&skill_digest=" + toolDigest(tool, "one")); len(rows) != 1 || rows[0].str("user_id") != "bob" {
		t.Errorf("version one was run by %v", rows)
	}

	refused := func(s *testServer, path string, status int, code string) {
		t.Helper()
		if a := s.send(http.MethodGet, path, nil); a.Code != status || a.json(t).str("code") != code {
			t.Errorf("%s: %d %s", path, a.Code, a.Body)
		}
	}
	refused(bob, "/skills"+annsCatalog, 403, "forbidden")
	refused(bob, "/skills/"+tool+annsCatalog, 403, "forbidden")
	if list := s.as(auditor).get("/skills" + annsCatalog); !strings.Contains(fmt.Sprint(list), "skill."+tool) {
		t.Errorf("an auditor sees %v", list)
	}
	refused(s, "/skills?agent_id=ag", 400, "invalid_request")
	refused(s, "/skills?user_id=ann", 400, "invalid_request")
	refused(s, "/skills?agent_id=a~b&user_id=ann", 400, "invalid_request")
	refused(s, "/skills?agent_id=..%2Fx&user_id=ann", 400, "invalid_request")
	refused(s, "/skills/"+tool, 404, "unknown_skill")
	bob.refusedInvoke(tool, object{"project_id": "ag~ann"}, 403, "forbidden", "project_id")
	s.refusedInvoke(tool, object{"project_id": "demo"}, 404, "unknown_skill", "skill_id")
	s.refusedInvoke(tool, object{"project_id": "other~ann"}, 404, "unknown_skill", "")
	s.refusedInvoke(tool, object{"project_id": "ag~ann", "inputs": object{"x": 1}}, 422, "invalid_inputs", "inputs.x")

	// An edit that takes the entrypoint away takes the tool away, and says why.
	ann.runs("/v1/skills/ann/ag/"+tool+"/execute?command=mv", "run.sh", "away.sh")
	problem := ann.refusedInvoke(tool, object{"project_id": "ag~ann"}, 404, "unknown_skill", "")
	if !strings.Contains(problem.str("detail"), "/runtime/entrypoint/1") || len(ann.toolIDs(annsCatalog)) != 0 {
		t.Errorf("%v, ann has %q", problem, ann.toolIDs(annsCatalog))
	}
}

// TestInvokesDuringEdits checks that a record names the version that ran while the user edits the
// skill.
func TestInvokesDuringEdits(t *testing.T) {
	t.Parallel()
	s := shared(t)
	const tool = "text.version"
	invokes := scaled(12, 50)
	s.upload("ann/edits", "", "x.zip", archiveOf(t, tool, toolFiles(tool, "0")...)).done(t)
	var mu sync.Mutex
	versions := map[string]string{toolDigest(tool, "0"): "0"}
	stop := make(chan struct{})
	var editing, running sync.WaitGroup
	editing.Go(func() {
		for n := 1; ; n++ {
			select {
			case <-stop:
				return
			default:
			}
			version := fmt.Sprint(n)
			mu.Lock()
			versions[toolDigest(tool, version)] = version
			mu.Unlock()
			if a := s.send(http.MethodPut, "/v1/skills/ann/edits/"+tool+"/edit?path=run.sh", versionScript(version), "Content-Type",
				"text/plain"); a.Code != http.StatusOK {
				t.Errorf("edit: %d %s", a.Code, a.Body)
				return
			}
		}
	})
	var said sync.Map // the version that an exec has printed, by its id
	invoke := func() {
		a := s.send(http.MethodPost, "/skills/"+tool+"/invoke", object{"project_id": "edits~ann"})
		var result object
		if err := json.Unmarshal(a.Body, &result); err != nil {
			t.Errorf("%v in %s", err, a.Body)
			return
		}
		switch {
		case a.Code == http.StatusOK && result.str("exec.status") == "succeeded":
			said.Store(result.str("exec.exec_id"), result.str("outputs.version"))
		case a.Code == http.StatusConflict && result.str("code") == "skill_changed": // edited faster than it can be copied
		default:
			t.Errorf("%d %s", a.Code, a.Body)
		}
	}
	for range invokes / 2 {
		running.Go(func() {
			invoke() // the skill is chosen at once, however long the exec waits for its turn
			invoke()
		})
	}
	running.Wait()
	close(stop)
	editing.Wait()
	ran, different := 0, map[string]bool{}
	for _, row := range s.records("project_id=edits~ann&skill_id=" + tool) {
		printed, ok := said.Load(row.str("exec_id"))
		if !ok {
			t.Errorf("no answer for the row %v", row)
			continue
		}
		ran++
		different[row.str("skill_digest")] = true
		if versions[row.str("skill_digest")] != printed {
			t.Errorf("the record names version %q, and %q ran", versions[row.str("skill_digest")], printed)
		}
	}
	if ran == 0 {
		t.Error("nothing ran")
	}
	t.Logf("%d of %d ran, %d versions", ran, invokes, len(different))
}

// TestTwoUsersInTheOfficialMCPClient: two sessions of the official TypeScript SDK, each with its
// own user's tools.
func TestTwoUsersInTheOfficialMCPClient(t *testing.T) {
	t.Parallel()
	modules := mcpClients(t)
	s := start(t, noPool)
	_, admin := s.newToken(tokens.Spec{Role: tokens.Admin})
	s = s.as(admin)
	s.upload("ann/ag", "baseline", "x.zip", archiveOf(t, "text.version", toolFiles("text.version", "one")...)).done(t)
	s.upload("ann/ag", "", "x.zip", archiveOf(t, "anns.own", toolFiles("anns.own", "own")...)).done(t)
	seen := whatNodeSaw(t, []string{
		"NODE_PATH=" + modules, "MCP_URL=" + s.url, "MCP_TOKEN=" + admin, "EDITED=" + versionScript("two"), "SECBOX=" + secboxBinary(t),
	}, "testdata/mcpclient/packages.cjs")
	seen.wants(t, object{
		"ann.before": []any{"skill_anns_own", "skill_text_version"}, "bob.before": []any{"skill_text_version"},
		"ann.after": []any{"skill_text_version"}, "bob.after": []any{"skill_text_version"}, "bob.heard": false,
		"ann.version": "two", "bob.version": "one", "bob.unknown": float64(-32602),
	})
	for user, version := range map[string]string{"ann": "two", "bob": "one"} {
		if record := s.get("/sandbox/execs/" + seen.str(user+".exec_id")); record.str("skill_digest") != toolDigest("text.version", version) ||
			record.str("user_id") != user {
			t.Errorf("%s: %v", user, record)
		}
	}
}
