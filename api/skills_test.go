package api_test

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"secbox/access/tokens"
	"secbox/api"
	"secbox/api/wire"
	"secbox/fault"
)

// putSkill writes a skill of the operator's; an empty manifest is a good one.
func putSkill(t testing.TB, dir, id, manifest string) {
	t.Helper()
	if manifest == "" {
		manifest = fmt.Sprintf(`{"schema_version": "1", "id": %q, "name": "A trial", "description": "A skill of a test.",
			"interface": {"inputs": {"type": "object", "properties": {"n": {"type": "integer"}}}, "outputs": {"type": "object"}},
			"runtime": {"kind": "docker", "entrypoint": ["bash", "./run.sh"]},
			"permissions": {"fs": {"read": ["inputs/**", "work/**"], "write": ["artifacts/**"]}, "net": {"mode": "none"}}, "limits": {"timeout_ms": 5000}}`, id)
	}
	folder := filepath.Join(dir, id)
	if err := os.MkdirAll(folder, 0o755); err != nil {
		t.Fatal(err)
	}
	for name, content := range map[string]string{"SKILL.md": "# A trial\n", "run.sh": "true\n", "manifest.json": manifest} {
		if err := os.WriteFile(filepath.Join(folder, name), []byte(content), 0o644); err != nil {
			t.Fatal(err)
		}
	}
}

func TestListSkills(t *testing.T) {
	t.Parallel()
	f := start(t)
	putSkill(t, f.dir, "trial.one", "")
	f.skills.Reload()
	first := f.get("/skills")
	list := decodeAs[wire.SkillList](t, first, 200)
	byID := map[string]wire.Skill{}
	for i, s := range list.Items {
		byID[s.ID] = s
		if i > 0 && list.Items[i-1].ID >= s.ID {
			t.Errorf("%s comes after %s", s.ID, list.Items[i-1].ID)
		}
		if s.Readme != nil || s.Files != nil {
			t.Errorf("%s: more than a list shows", s.ID)
		}
	}
	one := byID["trial.one"]
	if one.Tool != "skill.trial.one" || one.Source != "skills_dir" || !one.ReadOnly || len(one.Digest) != 64 || one.Runtime.Entrypoint[1] != "./run.sh" ||
		one.Limits["timeout_ms"] != 5000.0 || one.Permissions.FS.Write[0] != "artifacts/**" || !bytes.Contains(one.Interface.Inputs, []byte(`"integer"`)) {
		t.Errorf("%+v", one)
	}
	if shell := byID["shell.run"]; shell.ReadOnly || shell.Source != "built-in" {
		t.Errorf("%+v", shell)
	}
	if list.Broken != nil {
		t.Error("broken skills are listed by default")
	}

	etag := first.Header.Get("ETag")
	same := f.do(request{path: "/skills", header: map[string]string{"If-None-Match": etag}})
	if same.StatusCode != 304 || len(same.body) > 0 || etag == "" {
		t.Errorf("%d for ETag %s", same.StatusCode, etag)
	}
	if head := f.do(request{method: "HEAD", path: "/skills"}); head.StatusCode != 200 || head.Header.Get("ETag") != etag ||
		head.ContentLength != int64(len(first.body)) {
		t.Errorf("HEAD: %d %v", head.StatusCode, head.Header)
	}
	putSkill(t, f.dir, "trial.two", "{")
	f.skills.Reload()
	now := decodeAs[wire.SkillList](t, f.get("/skills?broken=true"), 200)
	if now.Broken == nil || len(*now.Broken) != 1 || len(now.Items) != len(list.Items) {
		t.Fatalf("%+v", now.Broken)
	}
	if b := (*now.Broken)[0]; b.Folder != "trial.two" || b.Source != "skills_dir" || len(b.Problems) == 0 || b.Problems[0].File != "manifest.json" ||
		b.Problems[0].Reason == "" {
		t.Errorf("%+v", b)
	}
	putSkill(t, f.dir, "trial.two", "")
	f.skills.Reload()
	changed := f.do(request{path: "/skills", header: map[string]string{"If-None-Match": etag}})
	if got := decodeAs[wire.SkillList](t, changed, 200); len(got.Items) != len(list.Items)+1 {
		t.Errorf("%d skills", len(got.Items))
	}
	if now := decodeAs[wire.SkillList](t, f.get("/skills?broken=true"), 200); now.Broken == nil || len(*now.Broken) != 0 {
		t.Errorf("%+v", now.Broken)
	}
	f.get("/skills?broken=yes").wants(t, fault.InvalidRequest, "broken")
	f.get("/skills?borken=true").wants(t, fault.InvalidRequest, "borken")
}

func TestGetSkill(t *testing.T) {
	t.Parallel()
	f := start(t)
	putSkill(t, f.dir, "trial.one", "")
	putSkill(t, f.dir, "trial.two", "{")
	f.skills.Reload()
	r := f.get("/skills/trial.one")
	got := decodeAs[wire.Skill](t, r, 200)
	if got.Readme == nil || *got.Readme != "# A trial\n" || got.Files == nil || len(*got.Files) != 3 || (*got.Files)[1].Path != "manifest.json" {
		t.Errorf("%+v", got)
	}
	if same := f.do(request{path: "/skills/trial.one", header: map[string]string{"If-None-Match": r.Header.Get("ETag")}}); same.StatusCode != 304 {
		t.Error(same.StatusCode)
	}
	for _, id := range []string{"trial.none", "..", "%2e%2e", "trial.one%2f", "SHELL.RUN", "%00", "%ff", strings.Repeat("a", 300)} {
		r := f.get("/skills/" + id)
		if p := r.problem(t); p.Code != fault.UnknownSkill && (p.Code != fault.NotFound || id != "..") {
			t.Errorf("%s: %s", id, p.Code)
		}
	}
	if p := f.get("/skills/trial.two").problem(t); p.Code != fault.UnknownSkill || !strings.Contains(p.Detail, "broken") {
		t.Errorf("%+v", p)
	}
}

func TestInvokeDecodesItsBody(t *testing.T) {
	t.Parallel()
	f := start(t)
	f.runner.skillOutput = `{"exit_code": 9007199254740993, "stdout": "", "stderr": "", "stdout_truncated": false, "stderr_truncated": false}`
	putSkill(t, f.dir, "trial.free", `{"schema_version": "1", "id": "trial.free", "name": "A trial", "description": "A skill of a test.",
		"interface": {"inputs": {"type": "object"}, "outputs": {"type": "object"}}, "runtime": {"kind": "docker", "entrypoint": ["bash", "./run.sh"]},
		"permissions": {"fs": {"read": ["inputs/**"], "write": ["artifacts/**"]}, "net": {"mode": "none"}}, "limits": {}}`)
	f.skills.Reload()
	r := f.post("/skills/trial.free/invoke", `{"project_id": "demo", "conversation_id": "c", "user_id": "u",
		"inputs": {"n": 9007199254740993, "none": null, "deep": [{"none": null}], "e": 1e2},
		"files": [{"path": "a.bin", "content": "/w==", "encoding": "base64"}], "policy_overrides": {"memory_mb": 96, "fs.write": []}, "task_ref": {"task_id": "t"}}`)
	got := decodeAs[struct {
		Exec    wire.ExecResult
		Outputs json.RawMessage
	}](t, r, 200)
	if got.Exec.Status != "succeeded" || !bytes.Contains(got.Outputs, []byte("9007199254740993")) {
		t.Errorf("%s", r.body)
	}
	req := f.runner.seen()[0]
	if string(req.Skill.Input) != `{"n": 9007199254740993, "none": null, "deep": [{"none": null}], "e": 1e2}` {
		t.Errorf("the skill was given %s", req.Skill.Input)
	}
	if req.SkillID != "trial.free" || req.ProjectID != "demo" || req.ConversationID != "c" || req.UserID != "u" || req.TaskID != "t" ||
		req.RequestedBy != "loopback" ||
		*req.Overrides.MemoryMB != 96 || req.Overrides.FSWrite == nil || len(req.Inputs) != 1 || string(req.Inputs[0].Content) != "\xff" ||
		len(req.Digest) != 64 {
		t.Errorf("%+v", req)
	}
	f.runner.skillOutput = `none`
	if got := decodeAs[wire.InvokeResult](t, f.post("/skills/trial.free/invoke", `{"project_id": "demo"}`), 200); got.Outputs != nil {
		t.Errorf("outputs %s", *got.Outputs)
	}
	if in := f.runner.seen()[1].Skill.Input; string(in) != "{}" {
		t.Errorf("without inputs the skill was given %s", in)
	}
}

// TestInvokeDigest: the digest ignores only order and spacing.
func TestInvokeDigest(t *testing.T) {
	t.Parallel()
	f := start(t)
	putSkill(t, f.dir, "trial.one", "")
	putSkill(t, f.dir, "trial.two", "")
	f.skills.Reload()
	f.runner.skillOutput = "{}"
	send := func(skill, body string) reply {
		return f.do(request{method: "POST", path: "/skills/" + skill + "/invoke", body: body, header: map[string]string{"Idempotency-Key": "k"}})
	}
	first := decodeAs[wire.InvokeResult](t, send("trial.one", `{"project_id": "demo", "inputs": {"n": 1, "s": "ä", "o": {"a": [1, 2], "b": null}}}`), 200)
	for _, same := range []string{
		`{"inputs":{"o":{"b":null,"a":[1,2]},"s":"\u00e4","n":1},"project_id":"demo"}`,
		`{"project_id": "demo", "files": [], "inputs": {"s": "ä", "n": 1, "o": {"a": [1, 2], "b": null}}, "policy_overrides": {}}`,
	} {
		r := send("trial.one", same)
		if got := decodeAs[wire.InvokeResult](t, r, 200); got.Exec.ExecID != first.Exec.ExecID || r.Header.Get("Idempotency-Replayed") != "true" {
			t.Errorf("%s is another request: %s", same, r.body)
		}
	}
	digests := map[string]string{}
	for _, c := range [][2]string{
		{"trial.one", `{"project_id": "demo"}`},
		{"trial.two", `{"project_id": "demo"}`},
		{"trial.one", `{"project_id": "demo2"}`},
		{"trial.one", `{"project_id": "demo", "inputs": {"n": 9007199254740992}}`},
		{"trial.one", `{"project_id": "demo", "inputs": {"n": 9007199254740993}}`},
		{"trial.one", `{"project_id": "demo", "inputs": {"n": 1, "o": {"a": [2, 1], "b": null}}}`},
		{"trial.one", `{"project_id": "demo", "inputs": {"n": 1, "o": {"a": [1, 2], "b": null}}}`},
		{"trial.one", `{"project_id": "demo", "files": [{"path": "a", "content": "x"}]}`},
		{"trial.one", `{"project_id": "demo", "files": [{"path": "a", "content": "y"}]}`},
		{"trial.one", `{"project_id": "demo", "policy_overrides": {"memory_mb": 64}}`},
	} {
		before := len(f.runner.seen())
		if r := f.post("/skills/"+c[0]+"/invoke", c[1]); r.StatusCode != 200 {
			t.Fatalf("%v: %s", c, r.body)
		}
		digest := f.runner.seen()[before].Digest
		if twin := digests[digest]; twin != "" {
			t.Errorf("%v has the digest of %s", c, twin)
		}
		digests[digest] = fmt.Sprint(c)
	}
	if a, b := f.post("/skills/trial.one/invoke", `{"project_id": "demo", "inputs": {}}`), f.runner.seen(); a.StatusCode != 200 ||
		digests[b[len(b)-1].Digest] == "" {
		t.Error("no inputs and empty inputs differ")
	}
}

func TestBadInvokes(t *testing.T) {
	t.Parallel()
	f := start(t, func(c *api.Config) { c.MaxBodyBytes = 4096 })
	putSkill(t, f.dir, "trial.one", "")
	f.skills.Reload()
	ran := len(f.runner.seen())
	for body, want := range map[string]struct {
		code  fault.Code
		field string
	}{
		``:                                      {fault.InvalidJSON, ""},
		`[]`:                                    {fault.InvalidRequest, ""},
		`{"inputs": null}`:                      {fault.InvalidRequest, "inputs"},
		`{"inputs": "x"}`:                       {fault.InvalidInputs, "inputs"},
		`{"inputs": []}`:                        {fault.InvalidInputs, "inputs"},
		`{"inputs": {"n": "one"}}`:              {fault.InvalidInputs, "inputs.n"},
		`{"inputs": {"n": 1, "n": 2}}`:          {fault.InvalidRequest, "inputs.n"},
		`{"inputs": {"l": [{"n": 1, "n": 2}]}}`: {fault.InvalidRequest, "inputs.l.0.n"},
		`{"inputs": {"n": 1}`:                   {fault.InvalidJSON, ""},
		`{"inputs": {"n": 01}}`:                 {fault.InvalidJSON, ""},
		`{"inputs": {"s": "` + "\xff" + `"}}`:   {fault.InvalidJSON, ""},
		`{"inputs": {"s": "\ud800"}}`:           {fault.InvalidJSON, ""},
		`{"input": {}}`:                         {fault.InvalidRequest, "input"},
		`{"skill_id": "x"}`:                     {fault.InvalidRequest, "skill_id"},
		`{"exec": {}}`:                          {fault.InvalidRequest, "exec"},
		`{"files": [{"path": "a"}]}`:            {fault.InvalidRequest, "files[0].content"},
		`{"files": [{"content": ""}]}`:          {fault.InvalidRequest, "files[0].path"},
		`{"files": [{"path":"a","content":"!","encoding":"base64"}]}`: {fault.InvalidRequest, "files[0].content"},
		`{"files": null}`:                                        {fault.InvalidRequest, "files"},
		`{"policy_overrides": {"memory": 1}}`:                    {fault.InvalidRequest, "policy_overrides.memory"},
		`{"inputs": {"s": "` + strings.Repeat("x", 5000) + `"}}`: {fault.BodyTooLarge, ""},
	} {
		var fields []string
		if want.field != "" {
			fields = []string{want.field}
		}
		body = strings.Replace(body, "{", `{"project_id": "demo", `, 1)
		f.post("/skills/trial.one/invoke", strings.Replace(body, ", }", "}", 1)).wants(t, want.code, fields...)
	}
	f.post("/skills/trial.none/invoke", `{"project_id": "demo"}`).wants(t, fault.UnknownSkill, "skill_id")
	f.do(request{method: "POST", path: "/skills/trial.one/invoke", body: "{}", header: map[string]string{"Content-Type": "text/plain"}}).wants(t,
		fault.UnsupportedMedia)
	f.do(request{method: "POST", path: "/skills/trial.one/invoke", body: "{}", header: map[string]string{"Idempotency-Key": "ä"}}).wants(t,
		fault.InvalidRequest, "Idempotency-Key")
	f.do(request{method: "POST", path: "/skills/trial.one/invoke", body: io.MultiReader(strings.NewReader(strings.Repeat(" ", 5000)))}).wants(t,
		fault.BodyTooLarge)
	if n := len(f.runner.seen()); n != ran {
		t.Errorf("%d execs were started", n-ran)
	}
}

func TestInvokeScope(t *testing.T) {
	t.Parallel()
	f := start(t)
	_, secret := f.token(tokens.Spec{Role: tokens.Worker, Projects: []string{"mine"}, Users: []string{"u1"}})
	f.runner.skillOutput = `{"exit_code": 0, "stdout": "", "stderr": "", "stdout_truncated": false, "stderr_truncated": false}`
	for body, fields := range map[string][]string{
		`{"project_id": "theirs", "user_id": "u1", "inputs": {"script": "true"}}`: {"project_id"},
		`{"conversation_id": "c", "user_id": "u1"}`:                               {"conversation_id"},
		`{"project_id": "mine", "user_id": "u2"}`:                                 {"user_id"},
	} {
		f.do(request{method: "POST", path: "/skills/shell.run/invoke", body: body, token: secret}).wants(t, fault.Forbidden, fields...)
	}
	if r := f.do(request{
		method: "POST", path: "/skills/shell.run/invoke", body: `{"project_id": "mine", "user_id": "u1", "inputs": {"script": "true"}}`,
		token: secret,
	}); r.StatusCode != 200 {
		t.Errorf("%d %s", r.StatusCode, r.body)
	}
	if seen := f.runner.seen(); len(seen) != 1 || seen[0].ProjectID != "mine" {
		t.Errorf("%+v", seen)
	}
}

// TestMCPAuthentication: the MCP server gets only permitted requests, with their caller, and its
// answers are unchanged.
func TestMCPAuthentication(t *testing.T) {
	t.Parallel()
	var asked []string
	more := make(chan struct{})
	f := start(t, func(c *api.Config) {
		c.MaxBodyBytes = 1000
		c.MCP = func(w http.ResponseWriter, r *http.Request, caller tokens.Token, _ func(int64) (func(), error)) {
			body, err := io.ReadAll(r.Body)
			asked = append(asked, r.Method+" "+caller.ID+" "+string(body[:min(len(body), 10)])+" "+r.URL.RawQuery)
			switch {
			case err != nil:
				http.Error(w, "failed to read body", http.StatusBadRequest)
			case r.Method == http.MethodGet:
				w.Header().Set("Content-Type", "text/event-stream")
				_, _ = io.WriteString(w, "data: 1\n\n")
				if err := http.NewResponseController(w).Flush(); err != nil {
					t.Error(err)
				}
				<-more
				_, _ = io.WriteString(w, "data: 2\n\n")
				w.(http.Flusher).Flush()
			case r.Method == http.MethodDelete:
				w.WriteHeader(http.StatusNoContent)
			default:
				w.WriteHeader(http.StatusAccepted)
			}
		}
	})
	id, secret := f.token(tokens.Spec{Role: tokens.Worker})
	_, auditor := f.token(tokens.Spec{Role: tokens.Auditor})
	send := func(method, query, body, token string) reply {
		return f.do(request{method: method, path: "/mcp" + query, body: map[bool]any{true: body}[body != ""], token: token})
	}
	send("POST", "", "{}", "").wants(t, fault.Unauthenticated)
	send("POST", "", "{}", "nonsense").wants(t, fault.Unauthenticated)
	send("POST", "", "{}", auditor).wants(t, fault.Forbidden)
	send("GET", "", "", auditor).wants(t, fault.Forbidden)
	send("POST", "?name=x", "{}", secret).wants(t, fault.InvalidRequest, "name")
	send("POST", "?names=a&names=b", "{}", secret).wants(t, fault.InvalidRequest, "names")
	send("PUT", "", "{}", secret).wants(t, fault.MethodNotAllowed)
	send("POST", "", strings.Repeat(" ", 1001), secret).wants(t, fault.BodyTooLarge)
	f.do(request{method: "POST", path: "/mcp", body: "{}", token: secret, host: "evil.example"}).wants(t, fault.ForeignHost)
	f.do(request{method: "POST", path: "/mcp", body: "{}", token: secret, header: map[string]string{"Origin": "http://evil.example"}}).wants(t,
		fault.ForeignOrigin)
	if len(asked) > 0 {
		t.Fatalf("reached it: %v", asked)
	}
	if r := f.do(request{
		method: "POST", path: "/mcp", body: io.MultiReader(strings.NewReader(strings.Repeat(" ", 5000))),
		token: secret,
	}); r.StatusCode != 400 {
		t.Errorf("a body without a length and beyond the limit: %d", r.StatusCode)
	}
	if r := send("POST", "?names=underscore&project_id=demo", `{"a":1}`, secret); r.StatusCode != 202 {
		t.Errorf("%d", r.StatusCode)
	}
	if r := send("DELETE", "", "", secret); r.StatusCode != 204 {
		t.Errorf("%d", r.StatusCode)
	}
	if want := []string{
		"POST " + id + "            ", "POST " + id + ` {"a":1} names=underscore&project_id=demo`,
		"DELETE " + id + "  ",
	}; fmt.Sprint(asked) != fmt.Sprint(want) {
		t.Errorf("asked %q, want %q", asked, want)
	}

	req, err := http.NewRequestWithContext(t.Context(), "GET", f.url+"/mcp", nil)
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Authorization", "Bearer "+secret)
	resp, err := f.client.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	lines := bufio.NewReader(resp.Body)
	if line, err := lines.ReadString('\n'); line != "data: 1\n" {
		t.Fatalf("%q %v", line, err) // it came before the answer's end
	}
	close(more)
	if rest, err := io.ReadAll(lines); err != nil || string(rest) != "\ndata: 2\n\n" {
		t.Errorf("%q %v", rest, err)
	}
}

func TestWithoutMCP(t *testing.T) {
	t.Parallel()
	f := start(t)
	for _, method := range []string{"POST", "GET", "DELETE"} {
		f.do(request{method: method, path: "/mcp"}).wants(t, fault.NotFound)
	}
}

// TestExecsNameSkills: an exec may name a skill but has no inputs for it.
func TestExecsNameSkills(t *testing.T) {
	t.Parallel()
	f := start(t)
	f.post("/sandbox/execs", `{"project_id": "demo", "skill_id": "shell.run", `+aCommand+`}`)
	if seen := f.runner.seen(); len(seen) != 1 || seen[0].SkillID != "shell.run" || seen[0].Skill != nil {
		t.Errorf("%+v", seen)
	}
}
