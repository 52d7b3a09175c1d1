package api_test

import (
	"encoding/base64"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strings"
	"testing"

	"secbox/api"
	"secbox/api/wire"
	"secbox/fault"
)

// exec wraps the exec object of a request.
func exec(s string) string { return `{"project_id": "demo", "exec": ` + s + `}` }

func withOverrides(s string) string {
	return `{"project_id": "demo", ` + aCommand + `, "policy_overrides": ` + s + `}`
}

func withInputs(s string) string {
	return `{"project_id": "demo", ` + aCommand + `, "inputs": ` + s + `}`
}

func TestBadBodies(t *testing.T) {
	t.Parallel()
	f := start(t)
	for name, tc := range map[string]struct {
		body   string
		code   fault.Code
		fields []string
		says   string
	}{
		"broken JSON":               {`{"project_id": "demo",,}`, fault.InvalidJSON, nil, "byte 22"},
		"cut off":                   {`{"project_id": "de`, fault.InvalidJSON, nil, "byte 18"},
		"only blanks":               {"  \n ", fault.InvalidJSON, nil, "byte 4"},
		"trailing garbage":          {`{"project_id": "demo", ` + aCommand + `} x`, fault.InvalidJSON, nil, "byte"},
		"two documents":             {`{} {}`, fault.InvalidJSON, nil, "byte"},
		"a comment":                 {`{} // hi`, fault.InvalidJSON, nil, ""},
		"broken UTF-8":              {"{\"project_id\": \"\xff\"}", fault.InvalidJSON, nil, "UTF-8"},
		"half a surrogate pair":     {`{"project_id": "\ud800"}`, fault.InvalidJSON, nil, ""},
		"NaN":                       {withOverrides(`{"timeout_ms": NaN}`), fault.InvalidJSON, nil, ""},
		"very deep":                 {strings.Repeat("[", 20000), fault.InvalidRequest, nil, "an object is expected, not a list"},
		"very deep in an unknown":   {`{"x": ` + strings.Repeat("[", 20000), fault.InvalidRequest, []string{"x"}, ""},
		"a list":                    {`[]`, fault.InvalidRequest, nil, "an object is expected"},
		"a string":                  {`"x"`, fault.InvalidRequest, nil, "an object is expected"},
		"null":                      {`null`, fault.InvalidRequest, nil, "null"},
		"nothing in it":             {`{}`, fault.InvalidRequest, []string{"exec"}, "missing"},
		"unknown field":             {`{"projekt": 1}`, fault.InvalidRequest, []string{"projekt"}, "no such field"},
		"unknown field, other case": {`{"Project_id": "demo"}`, fault.InvalidRequest, []string{"Project_id"}, "no such field; did you mean project_id?"},
		"field of another object":   {`{"project_id": "demo", "command": "bash"}`, fault.InvalidRequest, []string{"command"}, "did you mean exec.command?"},
		"field of the policy": {
			`{"project_id": "demo", "timeout_ms": 1000}`, fault.InvalidRequest,
			[]string{"timeout_ms"},
			"did you mean policy_overrides.timeout_ms?",
		},
		"field of the body":    {exec(`{"script": "true", "user_id": "u"}`), fault.InvalidRequest, []string{"exec.user_id"}, "did you mean user_id?"},
		"unknown field inside": {exec(`{"foo": 1}`), fault.InvalidRequest, []string{"exec.foo"}, "no such field"},
		"unknown field in a list": {
			withInputs(`[{"path": "a", "content": ""}, {"foo": 1}]`), fault.InvalidRequest,
			[]string{"inputs[1].foo"},
			"no such field",
		},
		"unknown field in task_ref":    {`{"task_ref": {"id": "t"}}`, fault.InvalidRequest, []string{"task_ref.id"}, ""},
		"unknown override":             {withOverrides(`{"mem": 1}`), fault.InvalidRequest, []string{"policy_overrides.mem"}, ""},
		"unknown nested override":      {withOverrides(`{"net": {"ports": []}}`), fault.InvalidRequest, []string{"policy_overrides.net.ports"}, ""},
		"a field twice":                {`{"project_id": "a", "project_id": "b"}`, fault.InvalidRequest, []string{"project_id"}, "more than once"},
		"a variable twice":             {exec(`{"env": {"A": "1", "A": "2"}}`), fault.InvalidRequest, []string{"exec.env.A"}, "more than once"},
		"project no string":            {`{"project_id": 7}`, fault.InvalidRequest, []string{"project_id"}, "a string is expected, not a number"},
		"project null":                 {`{"project_id": null}`, fault.InvalidRequest, []string{"project_id"}, "null"},
		"exec null":                    {exec(`null`), fault.InvalidRequest, []string{"exec"}, "null"},
		"exec a string":                {exec(`"ls"`), fault.InvalidRequest, []string{"exec"}, "an object is expected, not a string"},
		"args a string":                {exec(`{"args": "-lc"}`), fault.InvalidRequest, []string{"exec.args"}, "a list is expected, not a string"},
		"an argument no string":        {exec(`{"args": ["-lc", 1]}`), fault.InvalidRequest, []string{"exec.args[1]"}, "a string is expected, not a number"},
		"an argument null":             {exec(`{"args": [null]}`), fault.InvalidRequest, []string{"exec.args[0]"}, "null"},
		"env a list":                   {exec(`{"env": []}`), fault.InvalidRequest, []string{"exec.env"}, "an object is expected, not a list"},
		"a variable's value no string": {exec(`{"env": {"0": 1}}`), fault.InvalidRequest, []string{"exec.env.0"}, "a string is expected, not a number"},
		"a variable null":              {exec(`{"env": {"K": null}}`), fault.InvalidRequest, []string{"exec.env.K"}, "null"},
		"stdin an object":              {exec(`{"stdin": {}}`), fault.InvalidRequest, []string{"exec.stdin"}, "a string is expected, not an object"},
		"inputs an object":             {withInputs(`{}`), fault.InvalidRequest, []string{"inputs"}, "a list is expected, not an object"},
		"an input a string":            {withInputs(`["main.py"]`), fault.InvalidRequest, []string{"inputs[0]"}, "an object is expected, not a string"},
		"an input null":                {withInputs(`[null]`), fault.InvalidRequest, []string{"inputs[0]"}, "null"},
		"content null":                 {withInputs(`[{"path": "a", "content": null}]`), fault.InvalidRequest, []string{"inputs[0].content"}, "null"},
		"content missing":              {withInputs(`[{"path": "a"}]`), fault.InvalidRequest, []string{"inputs[0].content"}, "missing"},
		"path missing or empty": {
			withInputs(`[{"path": "", "content": ""}, {"content": ""}]`), fault.InvalidRequest,
			[]string{"inputs[0].path", "inputs[1].path"},
			"missing",
		},
		"unknown encoding": {
			withInputs(`[{"path": "a", "content": "", "encoding": "hex"}]`), fault.InvalidRequest,
			[]string{"inputs[0].encoding"},
			"utf-8 and base64",
		},
		"unknown mode": {
			withInputs(`[{"path": "a", "content": "", "mode": "4755"}]`), fault.InvalidRequest,
			[]string{"inputs[0].mode"},
			"must be 0644, or 0755",
		},
		"a mode as a number": {
			withInputs(`[{"path": "a", "content": "", "mode": 755}]`), fault.InvalidRequest,
			[]string{"inputs[0].mode"},
			"a string is expected",
		},
		"bad base64":                {withInputs(`[{"path": "a", "content": "aGk", "encoding": "base64"}, {"path": "b", "content": "_-8=", "encoding": "base64"}]`), fault.InvalidRequest, []string{"inputs[0].content", "inputs[1].content"}, "base64"},
		"kind missing":              {exec(`{"command": "bash"}`), fault.InvalidRequest, []string{"exec.kind"}, "missing"},
		"kind unknown":              {exec(`{"kind": "perl", "command": "perl"}`), fault.InvalidRequest, []string{"exec.kind"}, "shell and python"},
		"command missing":           {exec(`{"kind": "shell"}`), fault.InvalidRequest, []string{"exec.command"}, "missing"},
		"command unknown":           {exec(`{"kind": "shell", "command": "/bin/sh"}`), fault.InvalidRequest, []string{"exec.command"}, `"bash"`},
		"command of the other kind": {exec(`{"kind": "python", "command": "bash"}`), fault.InvalidRequest, []string{"exec.command"}, `"python"`},
		"script and command":        {exec(`{"script": "true", "command": "bash"}`), fault.InvalidRequest, []string{"exec"}, "give exec.script alone"},
		"code and args":             {exec(`{"code": "1", "args": ["-c", "1"]}`), fault.InvalidRequest, []string{"exec"}, "give exec.code alone"},
		"script and code":           {exec(`{"script": "true", "code": "1"}`), fault.InvalidRequest, []string{"exec"}, "give one of them"},
		"script of the other kind":  {exec(`{"script": "true", "kind": "python"}`), fault.InvalidRequest, []string{"exec.kind"}, "leave exec.kind out"},
		"an empty script":           {exec(`{"script": ""}`), fault.InvalidRequest, []string{"exec"}, "missing"},
		"a long script": {
			exec(`{"script": "` + strings.Repeat("x", 128<<10) + `"}`), fault.InvalidRequest,
			[]string{"exec.script"},
			"input file",
		},
		"code with a NUL": {exec(`{"code": "\u0000"}`), fault.InvalidRequest, []string{"exec.code"}, "NUL"},
		"beyond int64": {
			withOverrides(`{"timeout_ms": 9223372036854775808}`), fault.InvalidRequest,
			[]string{"policy_overrides.timeout_ms"},
			"out of range",
		},
		"far beyond int64": {
			withOverrides(`{"memory_mb": -1` + strings.Repeat("0", 400) + `}`), fault.InvalidRequest,
			[]string{"policy_overrides.memory_mb"},
			"out of range",
		},
		"beyond float64":              {withOverrides(`{"cpu_cores": 1e999}`), fault.InvalidRequest, []string{"policy_overrides.cpu_cores"}, "out of range"},
		"too large a whole number":    {withOverrides(`{"timeout_ms": 1e300}`), fault.InvalidRequest, []string{"policy_overrides.timeout_ms"}, "whole number"},
		"UTF-16":                      {"\xff\xfe{\x00}\x00", fault.InvalidJSON, nil, "send it as UTF-8"},
		"a fraction of a millisecond": {withOverrides(`{"timeout_ms": 0.5}`), fault.InvalidRequest, []string{"policy_overrides.timeout_ms"}, "whole number"},
		"an exponent":                 {withOverrides(`{"pids": 1e-3}`), fault.InvalidRequest, []string{"policy_overrides.pids"}, "whole number"},
		"a number as a string":        {withOverrides(`{"tmp_mb": "64"}`), fault.InvalidRequest, []string{"policy_overrides.tmp_mb"}, "not a string"},
		"a number as true": {
			withOverrides(`{"max_stdout_bytes": true}`), fault.InvalidRequest,
			[]string{"policy_overrides.max_stdout_bytes"},
			"not true",
		},
		"an override null":   {withOverrides(`{"timeout_ms": null}`), fault.InvalidRequest, []string{"policy_overrides.timeout_ms"}, "null"},
		"net.mode no string": {withOverrides(`{"net.mode": true}`), fault.InvalidRequest, []string{"policy_overrides.net.mode"}, "a string"},
		"net.mode twice": {
			withOverrides(`{"net.mode": "none", "net": {"mode": "none"}}`), fault.InvalidRequest,
			[]string{"policy_overrides.net.mode"},
			"twice",
		},
		"fs twice": {
			withOverrides(`{"fs.read": [], "fs.write": [], "fs": {"read": [], "write": []}}`), fault.InvalidRequest,
			[]string{"policy_overrides.fs.read", "policy_overrides.fs.write"},
			"twice",
		},
		"fs.read null": {withOverrides(`{"fs.read": null}`), fault.InvalidRequest, []string{"policy_overrides.fs.read"}, "null"},
		"several at once": {
			`{"exec": {}, "inputs": [{"path": "", "content": "", "encoding": "x"}]}`, fault.InvalidRequest,
			[]string{"exec", "inputs[0].encoding", "inputs[0].path"},
			"and 2 more",
		},
		"a name of a megabyte": {`{"` + strings.Repeat("x", 1<<20) + `": 1}`, fault.InvalidRequest, []string{strings.Repeat("x", 200) + "…"}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := f.post("/sandbox/execs", tc.body)
			p := r.wants(t, tc.code, tc.fields...)
			if !strings.Contains(p.Detail, tc.says) {
				t.Errorf("%q does not say %q", p.Detail, tc.says)
			}
			if len(r.body) > 4096 {
				t.Errorf("the answer has %d bytes", len(r.body))
			}
		})
	}
	t.Cleanup(func() {
		if n := len(f.runner.seen()); n > 0 {
			t.Errorf("%d of them reached the runner", n)
		}
	})
}

func TestContentTypes(t *testing.T) {
	t.Parallel()
	f := start(t)
	good := `{"project_id": "demo", ` + aCommand + `}`
	for contentType, want := range map[string]fault.Code{
		"": fault.UnsupportedMedia, "text/plain": fault.UnsupportedMedia, "application/x-www-form-urlencoded": fault.UnsupportedMedia,
		"application/json; charset=latin1": fault.UnsupportedMedia, "application/json+x": fault.UnsupportedMedia, "application/json;": "",
		"application/json; charset=UTF-8": "", "APPLICATION/JSON": "", "multipart/form-data; boundary=x": fault.UnsupportedMedia,
	} {
		r := f.do(request{method: "POST", path: "/sandbox/execs", body: good, header: map[string]string{"Content-Type": contentType}})
		if want == "" {
			if r.StatusCode != 200 {
				t.Errorf("%q: %d %s", contentType, r.StatusCode, r.body)
			}
			continue
		}
		r.wants(t, want)
	}
	f.do(request{method: "POST", path: "/sandbox/execs", body: good, header: map[string]string{"Content-Encoding": "gzip"}}).wants(t, fault.UnsupportedMedia)
	f.do(request{method: "POST", path: "/sandbox/execs"}).wants(t, fault.InvalidJSON)
	f.do(request{method: "POST", path: "/sandbox/execs", body: ""}).wants(t, fault.InvalidJSON)
	f.do(request{method: "POST", path: "/sandbox/execs", body: struct{ io.Reader }{strings.NewReader("")}}).wants(t, fault.InvalidJSON) // chunked
}

func TestBodyTooLarge(t *testing.T) {
	t.Parallel()
	const limit = 64 << 10
	f := start(t, func(c *api.Config) { c.MaxBodyBytes = limit })
	body := func(size int) string {
		head, rest := `{"project_id": "demo", "exec": {"kind": "shell", "command": "bash", "stdin": "`, `"}}`
		return head + strings.Repeat("x", size-len(head)-len(rest)) + rest
	}
	chunked := func(s string) io.Reader { return struct{ io.Reader }{strings.NewReader(s)} }
	for name, tc := range map[string]struct {
		body any
		code fault.Code
	}{
		"at the limit":                {body(limit), ""},
		"at the limit, chunked":       {chunked(body(limit)), ""},
		"one over":                    {body(limit + 1), fault.BodyTooLarge},
		"one over, chunked":           {chunked(body(limit + 1)), fault.BodyTooLarge},
		"blanks after it, chunked":    {chunked(body(limit) + strings.Repeat(" ", limit)), fault.BodyTooLarge},
		"far over, chunked":           {chunked(body(16 * limit)), fault.BodyTooLarge},
		"far over, and wrong at once": {chunked(`{"x": 1, "y": "` + body(16*limit)), fault.InvalidRequest},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := f.do(request{method: "POST", path: "/sandbox/execs", body: tc.body})
			if tc.code == "" {
				if r.StatusCode != 200 {
					t.Errorf("%d %s", r.StatusCode, r.body)
				}
				return
			}
			if p := r.problem(t); p.Code != tc.code {
				t.Errorf("got %s, want %s", p.Code, tc.code)
			}
		})
	}
}

// TestBodyAnnouncedTooLarge: the answer comes before the body.
func TestBodyAnnouncedTooLarge(t *testing.T) {
	t.Parallel()
	f := start(t)
	conn, err := net.Dial("tcp", strings.TrimPrefix(f.url, "http://"))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	fmt.Fprintf(conn, "POST /sandbox/execs HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n{", int64(1)<<40)
	answer := make([]byte, 64)
	if _, err := io.ReadFull(conn, answer); err != nil {
		t.Fatal(err)
	}
	if !strings.HasPrefix(string(answer), "HTTP/1.1 413 ") {
		t.Errorf("got %q", answer)
	}
}

func TestIdempotencyKeys(t *testing.T) {
	t.Parallel()
	f := start(t)
	send := func(key, body string) reply {
		return f.do(request{method: "POST", path: "/sandbox/execs", body: body, header: map[string]string{"Idempotency-Key": key}})
	}
	body := `{"project_id": "demo", ` + aCommand + `}`
	for _, key := range []string{strings.Repeat("k", 256), "ключ", "tab\there"} {
		send(key, body).wants(t, fault.InvalidRequest, "Idempotency-Key")
	}
	first := decodeAs[wire.ExecResult](t, send(strings.Repeat("k", 255), body), 200)
	again := send(strings.Repeat("k", 255), body)
	if again.Header.Get("Idempotency-Replayed") != "true" || decodeAs[wire.ExecResult](t, again, 200).ExecID != first.ExecID {
		t.Errorf("the second answer is %v %s", again.Header, again.body)
	}
	req, _ := http.NewRequestWithContext(t.Context(), "POST", f.url+"/sandbox/execs", strings.NewReader(body))
	req.Header = http.Header{"Content-Type": {"application/json"}, "Idempotency-Key": {"a", "b"}}
	resp, err := f.client.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	resp.Body.Close()
	if resp.StatusCode != 400 {
		t.Errorf("two keys: %d", resp.StatusCode)
	}
}

// TestProgramsFromWindows: a byte order mark and line ends of Windows are not part of a script or
// code; args stay as they are.
func TestProgramsFromWindows(t *testing.T) {
	t.Parallel()
	f := start(t)
	for body, want := range map[string]string{
		`{"script": "\ufeffif true\r\nthen echo hi\r\nfi\r\n"}`:                   "if true\nthen echo hi\nfi\n",
		`{"code": "\ufeffimport os\r\nprint(1)"}`:                                 "import os\nprint(1)",
		`{"script": "printf 'a\r\nb'\ntrue"}`:                                     "printf 'a\r\nb'\ntrue",
		`{"kind": "shell", "command": "bash", "args": ["-lc", "\ufefftrue\r\n"]}`: "\ufefftrue\r\n",
	} {
		f.post("/sandbox/execs", `{"project_id": "demo", "exec": `+body+`}`)
		seen := f.runner.seen()
		if args := seen[len(seen)-1].Command.Args; len(args) != 2 || args[1] != want {
			t.Errorf("%s runs %q", body, args)
		}
	}
}

func TestDigestIgnoresOrderAndSpacing(t *testing.T) {
	t.Parallel()
	f := start(t)
	digest := func(body string) string {
		f.post("/sandbox/execs", body)
		seen := f.runner.seen()
		return seen[len(seen)-1].Digest
	}
	base := digest(`{"project_id":"demo","exec":{"kind":"shell","command":"bash","args":["-lc","true"],"env":{"A":"1","B":"2"}},"inputs":[{"path":"a","content":"hi"}],"policy_overrides":{"net.mode":"none","pids":50}}`)
	for _, same := range []string{
		`{ "exec": {"command": "bash", "kind": "shell", "env": {"B": "2", "A": "1"}, "args": ["-lc", "tr\u0075e"]}, "policy_overrides": {"pids": 50, "net": {"mode": "none"}}, "user_id": "", "inputs": [{"encoding": "base64", "path": "a", "content": "aGk=", "mode": "0644"}], "project_id": "demo"}`,
	} {
		if d := digest(same); d != base {
			t.Errorf("another digest for %s", same)
		}
	}
	seen := map[string]string{base: "base"}
	for _, other := range []string{
		`{"project_id":"demo2","exec":{"kind":"shell","command":"bash","args":["-lc","true"],"env":{"A":"1","B":"2"}},"inputs":[{"path":"a","content":"hi"}],"policy_overrides":{"net.mode":"none","pids":50}}`,
		`{"project_id":"demo","exec":{"kind":"shell","command":"bash","args":["-lc","true"],"env":{"A":"1","B":"3"}},"inputs":[{"path":"a","content":"hi"}],"policy_overrides":{"net.mode":"none","pids":50}}`,
		`{"project_id":"demo","exec":{"kind":"shell","command":"bash","args":["-lc","true"],"env":{"A":"1","B":"2"}},"inputs":[{"path":"a","content":"ho"}],"policy_overrides":{"net.mode":"none","pids":50}}`,
		`{"project_id":"demo","exec":{"kind":"shell","command":"bash","args":["-lc","true"],"env":{"A":"1","B":"2"}},"inputs":[{"path":"a","content":"hi","mode":"0755"}],"policy_overrides":{"net.mode":"none","pids":50}}`,
		`{"project_id":"demo","exec":{"kind":"shell","command":"bash","args":["-lc","true"],"env":{"A":"1","B":"2"}},"inputs":[{"path":"a","content":"hi"}],"policy_overrides":{"net.mode":"none","pids":60}}`,
		`{"project_id":"demo","exec":{"kind":"shell","command":"bash","args":["-lc","true"],"env":{"A":"1","B":"2"}},"inputs":[{"path":"a","content":"hi"}],"policy_overrides":{"net.mode":"none","pids":50,"fs.read":[]}}`,
		`{"project_id":"demo","exec":{"kind":"shell","command":"bash","args":["-lc true"],"env":{"A":"1","B":"2"}},"inputs":[{"path":"a","content":"hi"}],"policy_overrides":{"net.mode":"none","pids":50}}`,
		`{"project_id":"demo","exec":{"kind":"shell","command":"bash","args":["-lc","true"],"stdin":"x","env":{"A":"1","B":"2"}},"inputs":[{"path":"a","content":"hi"}],"policy_overrides":{"net.mode":"none","pids":50}}`,
		`{"conversation_id":"demo","exec":{"kind":"shell","command":"bash","args":["-lc","true"],"env":{"A":"1","B":"2"}},"inputs":[{"path":"a","content":"hi"}],"policy_overrides":{"net.mode":"none","pids":50}}`,
	} {
		d := digest(other)
		if was, dup := seen[d]; dup {
			t.Errorf("one digest for\n%s and\n%s", other, was)
		}
		seen[d] = other
	}
}

func TestBadQueries(t *testing.T) {
	t.Parallel()
	f := start(t)
	b64 := func(s string) string { return base64.RawURLEncoding.EncodeToString([]byte(s)) }
	for query, fields := range map[string][]string{
		"limit=0": {"limit"}, "limit=501": {"limit"}, "limit=-1": {"limit"}, "limit=x": {"limit"}, "limit=1.5": {"limit"},
		"limit=99999999999999999999": {"limit"},
		"limit=%2B5":                 {"limit"}, "since=yesterday": {"since"}, "until=2026-13-01T00:00:00Z": {"until"},
		"since=2026-01-01T00:00:00+01:00": {"since"},
		"status=done":                     {"status"}, "status=Failed": {"status"}, "lmit=5": {"lmit"}, "task_id=a&task_id=b": {"task_id"},
		"Task_id=a":   {"Task_id"},
		"task_id=%00": {"task_id"}, "task_id=%ff": {"task_id"}, "user_id=" + strings.Repeat("x", 256): {"user_id"}, "limit=0&since=x&foo=1": {"foo"},
		"limit=0&since=x": {"limit", "since"}, "task_id=%zz": nil, "limit=1;status=failed": nil, "limit=1&status=%": nil,
	} {
		f.get("/sandbox/execs?"+query).wants(t, fault.InvalidRequest, fields...)
	}
	id := "019aa4b6-7c1e-7d35-9a52-0f4f3a1b2c3d"
	for name, cursor := range map[string]string{
		"words": "hello", "not base64": "!!!", "padding": b64("{}") + "=", "not JSON": b64("hello"), "empty object": b64("{}"),
		"no id":        b64(`{"created_at":"2026-11-21T06:50:31.120034Z","exec_id":""}`),
		"no time":      b64(`{"created_at":"","exec_id":"` + id + `"}`),
		"other fields": b64(`{"created_at":"2026-11-21T06:50:31.120034Z","exec_id":"` + id + `","x":1}`),
		"SQL":          b64(`{"created_at":"2026-11-21T06:50:31.120034Z","exec_id":"' OR 1=1 --"}`),
		"wrong types":  b64(`{"created_at":1,"exec_id":2}`), "null": b64("null"), "a NUL": b64("\x00"), "long": strings.Repeat("A", 5000),
	} {
		t.Run("cursor: "+name, func(t *testing.T) {
			f.get("/sandbox/execs?cursor="+url.QueryEscape(cursor)).wants(t, fault.InvalidCursor, "cursor")
		})
	}
	for _, path := range []string{"/healthz", "/docs", "/openapi.yaml", "/sandbox/health", "/sandbox/execs/" + id + "/stdout"} {
		f.get(path+"?x=1").wants(t, fault.InvalidRequest, "x")
	}
	f.get("/sandbox/execs/"+id+"/artifacts?format=tar").wants(t, fault.InvalidRequest, "format")
}

func TestUnknownExecs(t *testing.T) {
	t.Parallel()
	f := start(t)
	for _, id := range []string{
		"019aa4b6-7c1e-7d35-9a52-0f4f3a1b2c3d", "x", "..", "%2e%2e", "019aa4b67c1e7d359a520f4f3a1b2c3d", "%7B019aa4b6-7c1e-7d35-9a52-0f4f3a1b2c3d%7D",
		"urn:uuid:019aa4b6-7c1e-7d35-9a52-0f4f3a1b2c3d", "%00", "%ff", "a%2Fb", "'%20OR%201=1", strings.Repeat("9", 3000),
	} {
		for _, rest := range []string{"", "/artifacts", "/artifacts?format=zip", "/artifacts/a", "/inputs", "/inputs/a", "/stdout", "/stderr"} {
			f.get("/sandbox/execs/"+id+rest).wants(t, fault.UnknownExec)
		}
		f.do(request{method: "POST", path: "/sandbox/execs/" + id + "/cancel"}).wants(t, fault.UnknownExec)
	}
	if len(f.runner.canceled) > 0 {
		t.Errorf("canceled %v", f.runner.canceled)
	}
}

func TestUnknownRoutesAndMethods(t *testing.T) {
	t.Parallel()
	f := start(t)
	for _, path := range []string{
		"/x", "/sandbox", "/sandbox/execs/", "/docs/", "//docs", "/sandbox/execs//stdout", "/sandbox/execs/a/artifacts/",
		"/sandbox/execs/a/b/c", "/../etc/passwd", "/SANDBOX/execs",
	} {
		f.get(path).wants(t, fault.NotFound)
	}
	for _, r := range []request{
		{method: "PUT", path: "/sandbox/execs"},
		{method: "DELETE", path: "/sandbox/execs/019aa4b6-7c1e-7d35-9a52-0f4f3a1b2c3d"},
		{method: "POST", path: "/healthz"},
		{method: "GET", path: "/sandbox/policy/resolve"},
		{method: "TRACE", path: "/docs"},
		{method: "BREW", path: "/docs"},
	} {
		reply := f.do(r)
		reply.wants(t, fault.MethodNotAllowed)
		if reply.Header.Get("Allow") == "" {
			t.Errorf("%s %s: no Allow", r.method, r.path)
		}
	}
	options := f.do(request{method: "OPTIONS", path: "/sandbox/execs"})
	if options.StatusCode != 204 || !strings.Contains(options.Header.Get("Allow"), "POST") || options.Header.Get("Access-Control-Allow-Origin") != "" {
		t.Errorf("OPTIONS: %d %v", options.StatusCode, options.Header)
	}
	for _, path := range []string{"/healthz", "/docs", "/sandbox/execs", "/sandbox/health", "/metrics", "/openapi.yaml"} {
		if head := f.do(request{method: "HEAD", path: path}); head.StatusCode != 200 || len(head.body) > 0 {
			t.Errorf("HEAD %s: %d", path, head.StatusCode)
		}
	}
}
