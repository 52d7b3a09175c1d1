package e2e

import (
	"archive/zip"
	"bytes"
	"fmt"
	"io"
	"mime/multipart"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"secbox/access/tokens"
	"secbox/settings"
)

// upload sends an archive for an owner "user/agent"; scope may be empty.
func (s *testServer) upload(owner, scope, filename string, archive []byte) answer {
	s.t.Helper()
	var b bytes.Buffer
	form := multipart.NewWriter(&b)
	part, err := form.CreateFormFile("file", filename)
	if err == nil {
		_, err = part.Write(archive)
	}
	if err != nil {
		s.t.Fatal(err)
	}
	form.Close()
	path := "/v1/skills/" + owner + "/upload"
	if scope != "" {
		path += "?scope=" + scope
	}
	return s.send(http.MethodPost, path, b.String(), "Content-Type", form.FormDataContentType())
}

// done is the data of a success.
func (a answer) done(t testing.TB) any {
	t.Helper()
	o := a.json(t)
	if a.Code != http.StatusOK || o.str("status") != "success" {
		t.Fatalf("%d %s", a.Code, a.Body)
	}
	return o["data"]
}

// refuses fails unless the answer is the envelope of an error with this status and code.
func (a answer) refuses(t testing.TB, status int, code string) object {
	t.Helper()
	o := a.json(t)
	if a.Code != status || o.str("status") != "error" || o.str("data.code") != code || o.str("data.message") == "" {
		t.Errorf("got %d %s, want %d %s", a.Code, a.Body, status, code)
	}
	return o
}

// runs posts a restricted command and wants its result.
func (s *testServer) runs(path string, args ...string) object {
	s.t.Helper()
	a := s.send(http.MethodPost, path, append([]string{}, args...))
	result, ok := a.done(s.t).(map[string]any)
	if !ok {
		s.t.Fatalf("%s", a.Body)
	}
	result["exec_id"] = a.Header.Get("X-Exec-Id")
	return result
}

// content is a file's text.
func (s *testServer) content(path, file string) string {
	s.t.Helper()
	data, _ := s.send(http.MethodGet, path+"/content?path="+url.QueryEscape(file), nil).done(s.t).(map[string]any)
	text, _ := data["content"].(string)
	return text
}

func (s *testServer) files(path string) []string {
	s.t.Helper()
	var out []string
	for _, file := range s.send(http.MethodGet, path+"/files", nil).done(s.t).([]any) {
		out = append(out, file.(string))
	}
	return out
}

// stands is the status of a user's skills by id, without the installation's own, which is always
// there.
func (s *testServer) stands(owner string) map[string]string {
	s.t.Helper()
	out := map[string]string{}
	for _, one := range s.send(http.MethodGet, "/v1/skills/"+owner+"/status", nil).json(s.t).list("data") {
		if one.str("skill_id") == "skill-creator" && one.str("status") == "UNCHANGED" {
			continue
		}
		out[one.str("skill_id")] = one.str("status")
		if one["baseline_changed"] == true {
			out[one.str("skill_id")] += " CHANGED"
		}
	}
	return out
}

// TestBaselineAndOverlayOfTwoUsers checks that a user's changes to a skill reach other users only
// when they become the baseline.
func TestBaselineAndOverlayOfTwoUsers(t *testing.T) {
	t.Parallel()
	s := start(t, noPool)
	_, admin := s.newToken(tokens.Spec{Role: tokens.AgentAdmin, Agents: []string{"ag"}})
	_, worker := s.newToken(tokens.Spec{Role: tokens.Worker})
	_, ofAnn := s.newToken(tokens.Spec{Role: tokens.Worker, Agents: []string{"ag"}, Users: []string{"ann"}})
	s.upload("ann/ag", "baseline", "x.zip", weatherSkill(t)).refuses(t, 401, "unauthenticated")
	s = s.as(worker)
	s.upload("ann/ag", "baseline", "x.zip", weatherSkill(t)).refuses(t, 403, "forbidden")
	if got := s.as(admin).upload("ann/ag", "baseline", "x.zip",
		weatherSkill(t)).done(t); got != "Upload successful: skill 'weather_skill' to 'baseline/ag/weather_skill'" {
		t.Error(got)
	}
	ann, bob := s.as(ofAnn), s
	const annsSkill, bobsSkill = "/v1/skills/ann/ag/weather_skill", "/v1/skills/bob/ag/weather_skill"
	ann.runs(annsSkill+"/execute?command=python3", "main.py", "--city", "Beijing").wants(t, object{"stdout": "Beijing: 25°C, Sunny", "exit_code": 0})
	if got := ann.stands("ann/ag")["weather_skill"]; !strings.HasPrefix(got, "UNCHANGED") && !strings.HasPrefix(got, "MODIFIED") {
		t.Errorf("after a command ann's skill is %q", got) // Python leaves its __pycache__
	}
	ann.runs(annsSkill+"/execute?command=bash", "-c", "echo mine > note.txt; rm -f utils/helper.py; exit 3").wants(t, object{"exit_code": 3, "stderror": ""})
	if got := ann.files(annsSkill); slices.Contains(got, "utils/helper.py") || ann.content(annsSkill, "note.txt") != "mine\n" {
		t.Errorf("ann has %q", got)
	}
	if got := bob.files(bobsSkill); !slices.Equal(got, []string{"SKILL.md", "main.py", "utils/helper.py"}) {
		t.Errorf("bob has %q", got)
	}
	if a, b := ann.stands("ann/ag")["weather_skill"], bob.stands("bob/ag")["weather_skill"]; a != "MODIFIED" || b != "UNCHANGED" {
		t.Errorf("ann's is %s, bob's is %s", a, b)
	}
	ann.send(http.MethodGet, bobsSkill+"/files", nil).refuses(t, 403, "forbidden")
	ann.send(http.MethodPost, bobsSkill+"/execute?command=ls", []string{}).refuses(t, 403, "forbidden")
	ann.send(http.MethodPost, "/v1/sandbox/bob/ag/execute?command=ls", []string{}).refuses(t, 403, "forbidden")
	ann.send(http.MethodPost, annsSkill+"/baseline", nil).refuses(t, 403, "forbidden")

	if got := s.as(admin).send(http.MethodPost, annsSkill+"/baseline", nil).done(t); got != "Skill 'weather_skill' is now 'baseline/ag/weather_skill'" {
		t.Error(got)
	}
	if a, b := ann.stands("ann/ag")["weather_skill"], bob.stands("bob/ag")["weather_skill"]; a != "UNCHANGED" || b != "OUT_OF_SYNC CHANGED" {
		t.Errorf("after the baselining ann's is %s, bob's is %s", a, b)
	}
	if got := s.files("/v1/skills/cleo/ag/weather_skill"); !slices.Contains(got, "note.txt") {
		t.Errorf("a new user has %q", got)
	}
	archive := ann.send(http.MethodGet, annsSkill+"/download", nil)
	if _, err := zip.NewReader(bytes.NewReader(archive.Body), int64(len(archive.Body))); err != nil || archive.Code != 200 {
		t.Fatalf("%d %v", archive.Code, err)
	}
	bob.upload("bob/ag", "", "x.zip", archive.Body).done(t)
	if got := bob.stands("bob/ag")["weather_skill"]; got != "UNCHANGED" {
		t.Errorf("the archive that ann downloaded and bob uploaded is %s", got)
	}
	bob.send(http.MethodDelete, bobsSkill, nil).done(t)
	bob.send(http.MethodGet, bobsSkill+"/files", nil).refuses(t, 404, "unknown_skill")
	bob.send(http.MethodPost, bobsSkill+"/execute?command=ls", []string{}).refuses(t, 404, "unknown_skill")
}

// TestArchivesOfOtherProgramsOverHTTP: real archives with Chinese names, some in GBK, one of a
// folder that the file's name stands for.
func TestArchivesOfOtherProgramsOverHTTP(t *testing.T) {
	t.Parallel()
	s := start(t, noPool)
	made := func(name string) []byte {
		archive, err := os.ReadFile(filepath.Join("../packages/archive/testdata/made", name))
		if err != nil {
			t.Fatal(err)
		}
		return archive
	}
	for user, name := range map[string]string{"a": "gbk-infozip.zip", "b": "gbk-bsdtar.zip", "c": "utf8-7zip.zip", "d": "utf8-infozip.zip"} {
		if got := s.upload(user+"/ag", "overlay", name, made(name)).done(t); got != "Upload successful: skill '天气查询' to 'overlay/"+user+"/ag/天气查询'" {
			t.Errorf("%s: %v", name, got)
		}
		path := "/v1/skills/" + user + "/ag/" + url.PathEscape("天气查询")
		if got := s.files(path); !slices.Equal(got, []string{"SKILL.md", "乗法表.txt", "模/a.py", "模/说明.txt"}) {
			t.Errorf("%s: %q", name, got)
		}
		if got := s.content(path, "模/说明.txt"); got != "2\n" {
			t.Errorf("%s: %q", name, got)
		}
	}
	s.runs("/v1/skills/a/ag/"+url.PathEscape("天气查询")+"/execute?command=cat", "模/说明.txt", "./乗法表.txt").wants(t, object{"stdout": "2\n1\n", "exit_code": 0})
	if got := s.upload("e/ag", "", "我的技能.zip", made("streamed-infozip.zip")).done(t); !strings.Contains(fmt.Sprint(got), "skill '我的技能'") {
		t.Error(got)
	}
	for name, code := range map[string]string{
		"link-infozip.zip": "invalid_archive", "fifo-infozip.zip": "invalid_archive", "encrypted-infozip.zip": "invalid_archive",
		"bzip2-7zip.zip": "invalid_archive",
	} {
		s.upload("f/ag", "", name, made(name)).refuses(t, 400, code)
	}
	s.upload("f/ag", "", "x.zip", []byte("no archive")).refuses(t, 400, "invalid_archive")
	s.upload("f/ag", "", "x.zip", archiveOf(t, "skill-creator", "SKILL.md", "# x")).refuses(t, 409, "reserved_skill")
	if got := s.stands("f/ag"); len(got) > 0 {
		t.Errorf("a refused upload has left %v", got)
	}
	if left, err := os.ReadDir(filepath.Join(s.dir, "state", "uploads")); err != nil || len(left) > 0 {
		t.Errorf("left in the state dir: %v %v", left, err)
	}
}

// TestRestrictedCommands checks that refused commands do not run and that all others are recorded.
func TestRestrictedCommands(t *testing.T) {
	t.Parallel()
	s := start(t, noPool, func(s *settings.Settings) {
		s.Sandbox.Policy.TimeoutMS, s.Sandbox.PolicyCeiling.TimeoutMS = new(int64(3000)), new(int64(3000))
	})
	s.upload("u/ag", "", "x.zip", archiveOf(t, "tool",
		"SKILL.md", "# Tool\n",
		"plant.py", "import os\nos.symlink('/etc/passwd', 'planted')\nos.symlink('../../..', 'up')\nos.mkfifo('fifo')\n",
		"big.py", "print('x' * 300000)\n",
		"binary.py", "import sys\nsys.stdout.buffer.write(b'\\xff\\x00ok')\n")).done(t)
	const inSkill, inSandbox = "/v1/skills/u/ag/tool/execute?command=", "/v1/sandbox/u/ag/execute?command="
	for _, c := range []struct {
		command, code string
		args          []string
	}{
		{"perl", "invalid_request", nil},
		{"python", "invalid_request", nil},
		{"/bin/ls", "invalid_request", nil},
		{"sudo", "invalid_request", []string{"ls"}},
		{"cat", "path_refused", []string{"/etc/passwd"}},
		{"cat", "path_refused", []string{"../other/SKILL.md"}},
		{"grep", "path_refused", []string{"--file=/etc/x", "a"}},
		{"grep", "path_refused", []string{"-f/etc/x", "a"}},
		{"cat", "path_refused", []string{"/workspace/work/skills/tool2/x"}},
		{"sed", "path_refused", []string{"/import/r/etc/passwd", "main.py"}},
		{"bash", "path_refused", []string{"-c", "cat /etc/passwd"}},
		{"bash", "path_refused", []string{"-c", "cat <<'END' | sh\nls /\nEND"}},
		{"bash", "path_refused", []string{"-c", "cat <<END\n$(cat /etc/passwd)\nEND"}},
		{"cat", "invalid_request", []string{"a\x00b"}},
	} {
		s.send(http.MethodPost, inSkill+url.QueryEscape(c.command), append([]string{}, c.args...)).refuses(t, 400, c.code)
	}
	s.send(http.MethodPost, inSandbox+"cat", []string{"/etc/passwd"}).refuses(t, 400, "path_refused")
	s.send(http.MethodPost, inSandbox+"cat", []string{"/workspace/../etc/passwd"}).refuses(t, 400, "path_refused")
	for _, row := range s.get("/sandbox/execs").list("items") {
		row.wants(t, object{"status": "rejected", "error_reason": "path_refused", "user_id": "u"})
	}

	result := s.runs(inSkill+"cat", "/workspace/work/skills/tool/SKILL.md", "nothing")
	result.wants(t, object{"stdout": "# Tool\n", "exit_code": 1})
	if !strings.Contains(result.str("stderror"), "nothing") {
		t.Errorf("%v", result)
	}
	records := s.get("/sandbox/execs?skill_id=tool&user_id=u&status=failed").list("items")
	if len(records) != 1 {
		t.Fatalf("%d records", len(records))
	}
	records[0].wants(t, object{
		"exec_id": result.str("exec_id"), "agent_id": "ag", "user_id": "u", "skill_id": "tool", "project_id": "ag~u", "cmd": "cat",
		"args": "[/workspace/work/skills/tool/SKILL.md nothing]", "cwd": "/workspace/work/skills/tool", "status": "failed", "exit_code": 1,
		"requested_by": "loopback",
	})
	s.runs(inSandbox+"find", ".", "-name", "SKILL.md").wants(t, object{"stdout": "./skills/tool/SKILL.md\n"})
	s.get("/sandbox/execs?project_id=ag~u").list("items")[0].wants(t,
		object{"skill_id": "", "agent_id": "ag", "cwd": "/workspace", "cmd": "find", "backend": "docker"})
	s.runs(inSandbox+"cat", "/workspace/skills/tool/SKILL.md").wants(t, object{"stdout": "# Tool\n", "exit_code": 0})

	// Text that only looks like a path is none, and no shell expands arguments.
	s.runs(inSkill+"echo", "</h1> // note, GET /health").wants(t, object{"stdout": "</h1> // note, GET /health\n"})
	s.runs(inSkill+"python3", "-c", `import sys; print(sys.argv[1], "</p>", 6 / 2)`, `{"path": "/errors"}`).wants(t,
		object{"stdout": "{\"path\": \"/errors\"} </p> 3.0\n"})
	s.runs(inSkill+"bash", "-c", "cat > run.sh <<'END'\n#!/bin/sh\necho 'not /etc'\nEND\nchmod +x run.sh; ./run.sh").wants(t,
		object{"stdout": "not /etc\n", "exit_code": 0})
	s.runs(inSkill+"bash", "-c", "ls *.md").wants(t, object{"stdout": "SKILL.md\n"})
	s.runs(inSkill+"ls", "*.md").wants(t, object{"stdout": "", "exit_code": 2})

	if got := s.runs(inSkill+"python3", "big.py"); len(got.str("stdout")) != 300001 {
		t.Errorf("%d bytes of output", len(got.str("stdout")))
	}
	s.runs(inSkill+"python3", "binary.py").wants(t, object{"stdout": "\uFFFD\x00ok"})
	late := s.runs(inSkill+"bash", "-c", "echo begun; sleep 60")
	late.wants(t, object{"stdout": "begun\n", "exit_code": -1})
	if !strings.Contains(late.str("stderror"), "timeout_ms=3000") {
		t.Errorf("%v", late)
	}
	s.get("/sandbox/execs/"+late.str("exec_id")).wants(t, object{"status": "timeout"})

	// Links and FIFOs made by a command are not followed and block no request.
	s.runs(inSkill+"python3", "plant.py").wants(t, object{"exit_code": 0})
	const skill = "/v1/skills/u/ag/tool"
	if got := s.files(skill); slices.Contains(got, "planted") || slices.Contains(got, "fifo") ||
		slices.ContainsFunc(got, func(f string) bool { return strings.HasPrefix(f, "up") }) {
		t.Errorf("listed %q", got)
	}
	for _, path := range []string{"planted", "fifo", "up/x", "up/skills/tool/SKILL.md"} {
		for _, base := range []string{skill, "/v1/sandbox/u/ag"} {
			file := path
			if base != skill {
				file = "skills/tool/" + path
			}
			if a := s.send(http.MethodGet, base+"/content?path="+file, nil); a.Code != 400 && a.Code != 404 || bytes.Contains(a.Body, []byte("root:")) {
				t.Errorf("%s %s: %d %s", base, file, a.Code, a.Body)
			}
		}
		if a := s.send(http.MethodPut, skill+"/edit?path="+path, "x", "Content-Type", "text/plain"); path != "planted" && path != "fifo" && a.Code == 200 {
			t.Errorf("wrote through %s", path)
		}
	}
	if passwd, err := os.ReadFile("/etc/passwd"); err != nil || len(passwd) < 10 {
		t.Errorf("/etc/passwd was written through a link: %d bytes, %v", len(passwd), err)
	}
}

// TestUploadsBeyondTheLimit: by what the client says before it sends, and by what it sends without
// saying.
func TestUploadsBeyondTheLimit(t *testing.T) {
	t.Parallel()
	s := start(t, noPool, func(s *settings.Settings) { s.Skills.MaxUploadBytes = 4096 })
	s.upload("u/ag", "", "x.zip", bytes.Repeat([]byte("x"), 4097)).refuses(t, 413, "archive_too_large")
	s.upload("u/ag", "", "x.zip", bytes.Repeat([]byte("x"), 1<<20)).refuses(t, 413, "archive_too_large")
	s.upload("u/ag", "", "x.zip", bytes.Repeat([]byte("x"), 4096)).refuses(t, 400, "invalid_archive")

	body, writer := io.Pipe()
	form := multipart.NewWriter(writer)
	go func() {
		part, _ := form.CreateFormFile("file", "endless.zip")
		for block := bytes.Repeat([]byte("x"), 1000); ; {
			if _, err := part.Write(block); err != nil {
				return
			}
		}
	}()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, s.url+"/v1/skills/u/ag/upload", body)
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Content-Type", form.FormDataContentType())
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	said, _ := io.ReadAll(resp.Body)
	body.Close()
	answer{resp.StatusCode, resp.Header, said}.refuses(t, 413, "archive_too_large")
	if left, err := os.ReadDir(filepath.Join(s.dir, "state", "uploads")); err != nil || len(left) > 0 {
		t.Errorf("left in the state dir: %v %v", left, err)
	}
}
