package e2e

import (
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"

	"secbox/settings"
)

// badInput is a request that must be refused before anything is started or written.
type badInput struct {
	name   string
	body   any // an object, or a string that is sent as it is
	header []string
	status int
	code   string
	fields []string // all that the problem document must name
	row    string   // the status of the row that the refusal must have; empty: none
}

// change is an ordinary request with one field changed; a path that ends in "-" takes the field
// away.
func change(path string, value any) object {
	o := shell("never", "true")
	at := o
	parts := strings.Split(path, ".")
	for _, part := range parts[:len(parts)-1] {
		next, ok := at[part].(object)
		if !ok {
			next = object{}
			at[part] = next
		}
		at = next
	}
	last := parts[len(parts)-1]
	if name, ok := strings.CutSuffix(last, "-"); ok {
		delete(at, name)
	} else {
		at[last] = value
	}
	return o
}

// invalid makes cases of one field that are all the same 400.
func invalid(what, field string, make func(value string) any, values ...string) (cases []badInput) {
	for _, value := range values {
		name := fmt.Sprintf("%s %.40q", what, value)
		if len(value) > 40 {
			name += fmt.Sprintf(" of %d bytes", len(value))
		}
		cases = append(cases, badInput{name: name, body: make(value), status: 400, code: "invalid_request", fields: []string{field}})
	}
	return cases
}

func input(path string) any {
	return change("inputs", []object{{"path": path, "content": "x", "encoding": "utf-8"}})
}

func inputs(paths ...string) any {
	var list []object
	for i, path := range paths {
		list = append(list, object{"path": path, "content": fmt.Sprint(i)})
	}
	return change("inputs", list)
}

func badPaths() []badInput {
	cases := invalid("input path", "inputs[0].path", input,
		"../x", "/abs", "a/../../x", `C:\x`, `..\x`, "a:b", "CON", "a\x00b", "", strings.Repeat("a/", 2500), strings.Repeat("a", 5000),
		"..", "a/..", ".", "./", "//", "a/../b", "/", "//x", `\\server\share`, `\x`, "C:x", "c:/x", "con.txt", "dir/NUL", "Aux.tar.gz", "COM1", "lpt9.x",
		"COM¹", "a.", "a ", "a./b", ".. /x", "... ", "a\nb", "\t", "a\x7f", "a*", "a?", `a"b`, "<a>", "a|b", strings.Repeat("n", 256),
		strings.Repeat("d/", 65)+"f", ".skill/x", ".SKILL/x", "\u202e/../x",
	)
	for name, two := range map[string][2]string{
		"the same": {"a", "a"}, "the same when cleaned": {"d/a", "./d//a"}, "the same but for case": {"A.txt", "a.TXT"},
		"the same but for Unicode form": {"caf\u00e9", "cafe\u0301"}, "a file and a directory": {"a", "a/b"}, "a directory and a file": {"a/b", "a"},
		"directories that differ by case": {"D/a", "d/b"},
	} {
		cases = append(cases, badInput{
			name: "two inputs with one path: " + name, body: inputs(two[0], two[1]), status: 400, code: "invalid_request", fields: []string{"inputs[1].path"},
		})
	}
	return cases
}

func badProjects() []badInput {
	project := func(id string) any { return change("project_id", id) }
	cases := invalid("project", "project_id", project,
		"a/b", "..", ".", "../x", "a/../b", "/abs", ".a", "a.", "a..", strings.Repeat("p", 129), strings.Repeat("p", 5000), "CON", "con.txt", "nul", "LPT1",
		`a\b`, "C:", "a:b", " ", "a b", " a", "a ", "-a", "_a", "ä", "a\x00", "a\nb", "a*", "~", "a~", "~b", "a~b~c", "a~../b", "a~b.", "CON~u", "a~nul",
		strings.Repeat("a", 64)+"~u", "a~"+strings.Repeat("u", 64), "%2e%2e", "a%2fb",
	)
	asProject := func(id string) any { o := change("project_id", ""); o["conversation_id"] = id; return o }
	cases = append(cases, invalid("conversation as project", "conversation_id", asProject, "../x", "a/b", "CON", "c 1")...)
	cases = append(cases, invalid("conversation as project", "project_id", asProject, "")...)
	cases = append(
		cases,
		badInput{name: "no project", body: change("project_id-", nil), status: 400, code: "invalid_request", fields: []string{"project_id"}},
		badInput{
			name: "another project's name in other case", body: change("project_id", "oRDINARY"),
			status: 409, code: "project_name_conflict", fields: []string{"project_id"},
		},
	)
	for field, value := range map[string]any{
		"user_id": "someone-else", "conversation_id": "new\nline",
		"task_ref": object{"task_id": strings.Repeat("t", 256)},
	} {
		o := change(field, value)
		if o["project_id"] = "agent~user"; field != "user_id" {
			o["project_id"] = "never"
		}
		name := map[string]string{"task_ref": "task_ref.task_id"}[field]
		cases = append(cases, badInput{name: "bad " + field, body: o, status: 400, code: "invalid_request", fields: []string{max(name, field)}})
	}
	return cases
}

func badCommands() []badInput {
	var cases []badInput
	for _, c := range []struct {
		kind, command string
		field         string
	}{
		{"", "bash", "exec.kind"},
		{"Shell", "bash", "exec.kind"},
		{"perl", "perl", "exec.kind"},
		{"docker", "bash", "exec.kind"},
		{"shell ", "bash", "exec.kind"},
		{"shell", "", "exec.command"},
		{"shell", "sh", "exec.command"},
		{"shell", "/bin/bash", "exec.command"},
		{"shell", "bash -c", "exec.command"},
		{"shell", "bash\x00", "exec.command"},
		{"shell", "python", "exec.command"},
		{"python", "python3", "exec.command"},
		{"python", "bash", "exec.command"},
	} {
		o := change("exec.kind", c.kind)
		o["exec"].(object)["command"] = c.command
		cases = append(cases, badInput{
			name: fmt.Sprintf("kind %q command %q", c.kind, c.command), body: o, status: 400, code: "invalid_request", fields: []string{c.field},
		})
	}
	for _, c := range []struct {
		kind  string
		args  []string
		field string
	}{
		{"shell", nil, "exec.args"},
		{"shell", []string{"-lc"}, "exec.args"},
		{"shell", []string{"-ec", "true"}, "exec.args"},
		{"shell", []string{"--rcfile", "x"}, "exec.args"},
		{"shell", []string{"-lc", "a\x00b"}, "exec.args[1]"},
		{"shell", []string{"-lc", strings.Repeat("x", 128<<10)}, "exec.args[1]"},
		{"python", nil, "exec.args"},
		{"python", []string{"-c"}, "exec.args"},
		{"python", []string{"-m", "http.server"}, "exec.args"},
		{"python", []string{"main.py"}, "exec.args"},
		{"python", []string{"/etc/passwd"}, "exec.args"},
		{"python", []string{"/workspace/inputs/../../etc/passwd"}, "exec.args"},
		{"python", []string{"/workspace/x.py"}, "exec.args"},
	} {
		command := map[string]string{"shell": "bash", "python": "python"}[c.kind]
		o := change("exec", object{"kind": c.kind, "command": command, "args": append([]string{}, c.args...)})
		cases = append(cases, badInput{
			name: fmt.Sprintf("%s %.40q", command, c.args), body: o, status: 400, code: "invalid_request", fields: []string{c.field},
		})
	}
	many := change("exec.args", slices.Concat([]string{"-lc"}, slices.Repeat([]string{strings.Repeat("x", 120<<10)}, 13)))
	cases = append(cases, badInput{name: "arguments beyond what Linux takes", body: many, status: 400, code: "invalid_request", fields: []string{"exec"}})

	cases = append(cases, invalid("cwd", "exec.cwd", func(v string) any { return change("exec.cwd", v) },
		"/", "/etc", "/workspace", "/workspace/", "work", "..", "/workspace/work/..", "/workspace/work/../../etc", "/workspace/workshop",
		"/workspace/artifacts/../secret", "/workspace/work\x00", "/workspace/work/"+strings.Repeat("d", 4096), `\workspace\work`,
		"/proc/self/root/workspace/work")...)

	for name, field := range map[string]string{
		"": "exec.env", "A=B": "exec.env.A=B", "=": "exec.env.=", "A\x00B": "exec.env.A\x00B",
		"SECRET_X": "exec.env.SECRET_X", "secret_x": "exec.env.secret_x", "KUBERNETES_SERVICE_HOST": "exec.env.KUBERNETES_SERVICE_HOST",
		"SERVICE_PORT": "exec.env.SERVICE_PORT", strings.Repeat("N", 256): "exec.env",
	} {
		cases = append(cases, badInput{
			name: fmt.Sprintf("variable %.40q", name), body: change("exec.env", object{name: "v"}), status: 400, code: "invalid_request",
			fields: []string{field},
		})
	}
	return append(
		cases,
		badInput{
			name: "a value with a NUL", body: change("exec.env", object{"K": "a\x00b"}), status: 400, code: "invalid_request",
			fields: []string{"exec.env.K"},
		},
		badInput{
			name: "a value beyond what Linux takes", body: change("exec.env", object{"K": strings.Repeat("v", 128<<10)}),
			status: 400, code: "invalid_request", fields: []string{"exec.env.K"},
		},
		badInput{name: "a skill that is not there", body: change("skill_id", "no.such"), status: 404, code: "unknown_skill", fields: []string{"skill_id"}},
		badInput{
			name: "many wrong fields at once", body: func() any {
				o := change("exec.cwd", "/etc")
				o["project_id"], o["inputs"] = "..", []object{{"path": "../x", "content": ""}}
				o["exec"].(object)["env"] = object{"SECRET_X": ""}
				return o
			}(),
			status: 400, code: "invalid_request", fields: []string{"exec.cwd", "exec.env.SECRET_X", "inputs[0].path", "project_id"},
		},
	)
}

// raw is an ordinary request with more fields, as text.
func raw(more string) string {
	return `{"project_id": "never", "exec": {"kind": "shell", "command": "bash", "args": ["-lc", "true"]}, ` + more + `}`
}

func override(field, value string) string {
	return raw(fmt.Sprintf(`"policy_overrides": {%q: %s}`, field, value))
}

func badJSON() []badInput {
	cases := []badInput{
		{name: "unknown field", body: raw(`"policy": {}`), status: 400, code: "invalid_request", fields: []string{"policy"}},
		{name: "unknown field of exec", body: change("exec.privileged", true), status: 400, code: "invalid_request", fields: []string{"exec.privileged"}},
		{
			name: "unknown field of an input", body: raw(`"inputs": [{"path": "a", "content": "", "mode": 511}]`), status: 400, code: "invalid_request",
			fields: []string{"inputs[0].mode"},
		},
		{name: "unknown override", body: override("privileged", "true"), status: 400, code: "invalid_request", fields: []string{"policy_overrides.privileged"}},
		{name: "a field in other case", body: raw(`"User_ID": "x"`), status: 400, code: "invalid_request", fields: []string{"User_ID"}},
		{name: "a field twice", body: raw(`"project_id": "other"`), status: 400, code: "invalid_request", fields: []string{"project_id"}},
		{name: "null", body: raw(`"inputs": null`), status: 400, code: "invalid_request", fields: []string{"inputs"}},
		{name: "a string for a list", body: change("exec.args", "-lc true"), status: 400, code: "invalid_request", fields: []string{"exec.args"}},
		{name: "a number for a string", body: change("project_id", 7), status: 400, code: "invalid_request", fields: []string{"project_id"}},
		{name: "a list for an object", body: change("exec", []string{"true"}), status: 400, code: "invalid_request", fields: []string{"exec"}},
		{
			name: "bad base64", body: raw(`"inputs": [{"path": "a", "content": "?", "encoding": "base64"}]`), status: 400, code: "invalid_request",
			fields: []string{"inputs[0].content"},
		},
		{
			name: "unknown encoding", body: raw(`"inputs": [{"path": "a", "content": "", "encoding": "utf-16"}]`), status: 400, code: "invalid_request",
			fields: []string{"inputs[0].encoding"},
		},
		{name: "no content", body: raw(`"inputs": [{"path": "a"}]`), status: 400, code: "invalid_request", fields: []string{"inputs[0].content"}},
		{name: "not JSON", body: raw("x")[:40], header: []string{"Content-Type", "text/plain"}, status: 415, code: "unsupported_media"},
		{
			name: "a key of 256 bytes", body: shell("never", "true"), header: []string{"Idempotency-Key", strings.Repeat("k", 256)}, status: 400,
			code: "invalid_request", fields: []string{"Idempotency-Key"},
		},
		{
			name: "a key that is not ASCII", body: shell("never", "true"), header: []string{"Idempotency-Key", "ü"}, status: 400, code: "invalid_request",
			fields: []string{"Idempotency-Key"},
		},
		{name: "an empty object", body: "{}", status: 400, code: "invalid_request", fields: []string{"exec"}},
		{name: "a list as body", body: "[]", status: 400, code: "invalid_request"},
	}
	for name, body := range map[string]string{
		"broken JSON": `{"project_id": "never",`, "an empty body": "", "two bodies": raw(`"user_id": ""`) + "{}", "a comment": "// hi\n{}",
		"broken UTF-8": raw("\"user_id\": \"\xff\""), "half a surrogate": raw(`"user_id": "\ud800"`), "NaN": override("cpu_cores", "NaN"),
		"a trailing comma": raw(`"user_id": "",`),
	} {
		cases = append(cases, badInput{name: name, body: body, status: 400, code: "invalid_json"})
	}
	return cases
}

func badNumbers() []badInput {
	var cases []badInput
	for _, field := range []string{
		"timeout_ms", "max_stdout_bytes", "max_stderr_bytes", "max_artifacts_bytes_total", "memory_mb", "cpu_cores", "pids", "tmp_mb", "shm_mb",
	} {
		wrong := []string{"-1", "0", "-0", "-9223372036854775808", `"64"`, "true", "null", "[]", "{}"}
		if field == "cpu_cores" {
			wrong = append(wrong, "1e999", "0.001", "-0.5")
		} else {
			wrong = append(wrong, "9223372036854775808", "-9223372036854775809", "1e-3", "0.5", "1e300", "1"+strings.Repeat("0", 400))
		}
		for _, number := range wrong {
			cases = append(cases, badInput{
				name: fmt.Sprintf("%s %.30s", field, number), body: override(field, number), status: 400, code: "invalid_request",
				fields: []string{"policy_overrides." + field},
			})
		}
		above := map[string]string{
			"timeout_ms": "1800001", "max_stdout_bytes": "16777217", "max_stderr_bytes": "16777217", "max_artifacts_bytes_total": "1073741825",
			"memory_mb": "8193", "cpu_cores": "4.01", "pids": "4097", "tmp_mb": "4097", "shm_mb": "8193",
		}[field]
		huge := "9223372036854775807"
		for _, number := range []string{above, huge} {
			cases = append(cases, badInput{
				name: fmt.Sprintf("%s above its ceiling: %s", field, number), body: override(field, number), status: 403, code: "policy_denied",
				fields: []string{field}, row: "rejected",
			})
		}
	}
	return append(cases, invalid("memory that nothing runs in", "policy_overrides.memory_mb", func(v string) any { return override("memory_mb", v) }, "15",
		"6")...)
}

func badPolicies() []badInput {
	denied := func(name string, body any, fields ...string) badInput {
		return badInput{name: name, body: body, status: 403, code: "policy_denied", fields: fields, row: "rejected"}
	}
	wrong := func(name string, body any, fields ...string) badInput {
		return badInput{name: name, body: body, status: 400, code: "invalid_request", fields: fields}
	}
	return []badInput{
		denied("net.mode host, dotted", override("net.mode", `"host"`), "net.mode"),
		denied("net.mode host, nested", override("net", `{"mode": "host"}`), "net.mode"),
		denied("net.mode bridge", override("net.mode", `"bridge"`), "net.mode"),
		denied("net.mode of another container", override("net.mode", `"container:x"`), "net.mode"),
		denied("net.mode in other case", override("net.mode", `"None"`), "net.mode"),
		wrong("net.mode empty", override("net.mode", `""`), "policy_overrides.net.mode"),
		wrong("net.mode in both spellings", raw(`"policy_overrides": {"net.mode": "none", "net": {"mode": "host"}}`), "policy_overrides.net.mode"),
		denied("image not allowed", change("image", "evil:latest"), "image"),
		denied("image not allowed, as override", override("image", `"debian"`), "image"),
		denied("our image under another name", change("image", "docker.io/library/secbox-sandbox:latest"), "image"),
		denied("our image without its tag", change("image", "secbox-sandbox"), "image"),
		wrong("image that is an option", change("image", "--privileged"), "policy_overrides.image"),
		wrong("image with a space", change("image", "a b"), "policy_overrides.image"),
		wrong("image with a newline", change("image", "a\nb"), "image"),
		wrong("two images", raw(`"image": "allowed-but-absent:1", "policy_overrides": {"image": "secbox-sandbox:latest"}`), "image"),
		{name: "image that is not present", body: change("image", "allowed-but-absent:1"), status: 422, code: "image_missing", row: "error"},
		{name: "image that is not present, as override", body: override("image", `"allowed-but-absent:1"`), status: 422, code: "image_missing", row: "error"},
		denied("writing inputs", override("fs.write", `["inputs/**"]`), "fs.write"),
		denied("writing inputs, nested", override("fs", `{"write": ["work/**", "inputs/**"]}`), "fs.write"),
		wrong("a pattern that no mount can enforce", override("fs.read", `["inputs/*.txt"]`), "policy_overrides.fs.read"),
		wrong("a pattern that leads out", override("fs.write", `["../**"]`), "policy_overrides.fs.write"),
		denied("several at once", raw(`"image": "evil", "policy_overrides": {"net.mode": "host", "pids": 5000, "memory_mb": 999999}`), "image", "memory_mb",
			"net.mode", "pids"),
	}
}

// TestBadInput sends invalid requests to a running server and then checks that they had no effect.
func TestBadInput(t *testing.T) {
	t.Parallel()
	dir := hostileDir(t)
	s := tidyIn(t, dir, noPool, func(c *settings.Settings) {
		c.Sandbox.Images = []string{"allowed-but-absent:1"}
	})
	s.exec(shell("Ordinary", "true", "inputs", []object{{"path": "in.txt", "content": "hi"}}))
	created := s.watchCreations()
	before := describe(t, dir)

	cases := slices.Concat(badPaths(), badProjects(), badCommands(), badJSON(), badNumbers(), badPolicies())
	rows := make([]object, len(cases)) // the problem document of each refusal that has a row
	t.Run("refused", func(t *testing.T) {
		for i, c := range cases {
			t.Run(c.name, func(t *testing.T) {
				problem := s.under(t).refused(c.status, c.code, c.body, c.header...)
				var named []string
				for _, f := range problem.list("errors") {
					named = append(named, f.str("field"))
					if f.str("reason") == "" {
						t.Errorf("no reason for %s", f.str("field"))
					}
					if c.code == "policy_denied" && (f.at("asked") == nil || f.at("ceiling") == nil || f.str("layer") != "request") {
						t.Errorf("a policy violation names the value, the ceiling and the layer, got %v", f)
					}
				}
				slices.Sort(named)
				if c.fields != nil && !slices.Equal(slices.Compact(named), c.fields) {
					t.Errorf("fields %q, want %q", named, c.fields)
				}
				if (problem.str("exec_id") != "") != (c.row != "") {
					t.Errorf("exec_id %q, but the row should be %q", problem.str("exec_id"), c.row)
				}
				rows[i] = problem
			})
		}
	})
	if t.Failed() {
		t.Log("some requests were not refused; later failures may follow from that")
	}
	for _, line := range differences(before, describe(t, dir)) {
		t.Error(line)
	}
	want := 1 // the ordinary one
	for i, c := range cases {
		if c.row == "" || rows[i].str("exec_id") == "" {
			continue
		}
		want++
		s.checkRefusal(c, rows[i])
	}
	if all := s.records(""); len(all) != want {
		t.Errorf("%d rows, want %d", len(all), want)
	}
	last := s.exec(shell("Ordinary", "echo alive"))
	if last.str("stdout") != "alive\n" {
		t.Errorf("%v", last)
	}
	if before := created.upTo(last.str("exec_id")); len(before) > 0 {
		t.Errorf("containers were created for %q", before)
	}
}

// checkRefusal holds the row of a refused request against its answer.
func (s *testServer) checkRefusal(c badInput, problem object) {
	s.t.Helper()
	record := s.get("/sandbox/execs/" + problem.str("exec_id"))
	reason := map[string]string{"policy_denied": "policy_denied", "image_missing": "image_missing"}[c.code]
	if record.str("status") != c.row || record.str("error_reason") != reason || record.at("exit_code") != nil || record.at("started_at") != nil ||
		record.str("ended_at") == "" || record.str("detail") != problem.str("detail") || record.str("artifacts_path") != "" {
		s.t.Errorf("%s: row %v for %v", c.name, record, problem)
	}
	for _, field := range c.fields {
		if !strings.Contains(record.str("detail"), field) {
			s.t.Errorf("%s: the row's detail does not name %s: %s", c.name, field, record.str("detail"))
		}
	}
	if record.at("policy_snapshot.fields.memory_mb.value") == nil {
		s.t.Errorf("%s: the row has no policy: %v", c.name, record)
	}
	id := problem.str("exec_id")
	if list := s.get("/sandbox/execs/" + id + "/artifacts"); len(list.list("items")) != 0 {
		s.t.Errorf("%s: artifacts %v", c.name, list)
	}
	if out := s.send(http.MethodGet, "/sandbox/execs/"+id+"/stdout", nil); out.Code != 200 || len(out.Body) != 0 {
		s.t.Errorf("%s: stdout %d %q", c.name, out.Code, out.Body)
	}
	if out := s.send(http.MethodPost, "/sandbox/execs/"+id+"/cancel", nil); out.Code != 409 || out.json(s.t).str("code") != "exec_ended" {
		s.t.Errorf("%s: cancel %d %s", c.name, out.Code, out.Body)
	}
}
