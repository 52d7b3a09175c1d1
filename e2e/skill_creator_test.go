package e2e

import (
	"bytes"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"secbox/skills"
)

const creatorDescription = "Makes, checks and packs skills. Use it when a new skill is to be begun, when an existing one is to be uploaded, or when an upload was refused."

// TestSkillCreator makes, validates, packs and uploads a skill with skill-creator, from the sandbox
// and as a skill.
func TestSkillCreator(t *testing.T) {
	t.Parallel()
	s := shared(t)
	const inSandbox, inCreator = "/v1/sandbox/u/creator/execute?command=", "/v1/skills/u/creator/skill-creator/execute?command="
	s.runs(inSandbox+"python3", "/opt/skill-creator/skill.py", "scaffold", "my-skill", "--dir", "/workspace/skills").wants(t,
		object{"exit_code": 0, "stderror": ""})
	s.runs(inCreator+"python3", "skill.py", "scaffold", "Zeilen zählen", "--tool", "text.count", "--dir", "/workspace/work/skills").wants(t,
		object{"exit_code": 0, "stderror": ""})
	if got := s.stands("u/creator"); got["my-skill"] != "NEW" || got["text.count"] != "NEW" {
		t.Errorf("the new skills are %v", got)
	}
	report, err := skills.Lint(filepath.Join(s.project("creator~u"), "work/skills/text.count"), nil)
	if err != nil || len(report.Folders) != 1 || report.Broken() > 0 || report.Warnings() > 0 || report.Folders[0].ID != "text.count" {
		t.Errorf("the scaffolded tool: %+v %v", report, err)
	}
	for _, skill := range []string{"my-skill", "text.count"} {
		s.runs(inCreator+"python3", "-I", "/opt/skill-creator/skill.py", "validate", "/workspace/work/skills/"+skill).wants(t,
			object{"exit_code": 0, "stderror": ""})
		packed := s.runs(inCreator+"python3", "skill.py", "package", "/workspace/work/skills/"+skill)
		packed.wants(t, object{"exit_code": 0, "stderror": ""})
		archive := s.artifact(packed.str("exec_id"), skill+".zip")
		if archive.Code != http.StatusOK {
			t.Fatalf("%d %s", archive.Code, archive.Body)
		}
		s.runs(inSandbox+"python3", "/opt/skill-creator/skill.py", "package", "skills/"+skill).wants(t, object{"exit_code": 0, "stderror": ""})
		if again, err := os.ReadFile(filepath.Join(s.project("creator~u"), "work", skill+".zip")); err != nil || !bytes.Equal(again, archive.Body) {
			t.Errorf("from the sandbox: %d bytes, not %d, %v", len(again), len(archive.Body), err)
		}
		s.upload("v/creator", "", skill+".zip", archive.Body).done(t)
		for _, file := range s.files("/v1/skills/u/creator/" + skill) {
			if a, b := s.content("/v1/skills/u/creator/"+skill, file), s.content("/v1/skills/v/creator/"+skill, file); a != b || a == "" {
				t.Errorf("%s of %s came as %q", file, skill, b)
			}
		}
	}
	if got := s.stands("v/creator"); len(got) != 2 || got["my-skill"] != "NEW" {
		t.Errorf("after the uploads there are %v", got)
	}
	list := s.get("/v1/skills/v/creator/list").list("data")
	if len(list) != 3 || list[2].str("name") != "Zeilen zählen" {
		t.Errorf("the list is %v", list)
	}
	// A skill with errors is not packed, and the errors are listed.
	s.runs(inSandbox+"bash", "-c", "cd skills/my-skill && ln -s SKILL.md link && : > SKILL.md").wants(t, object{"exit_code": 0})
	bad := s.runs(inCreator+"python3", "skill.py", "package", "/workspace/work/skills/my-skill", "-o", "/workspace/work/x.zip")
	bad.wants(t, object{"exit_code": 1, "stderror": "nothing was packed\n"})
	if out := bad.str("stdout"); !strings.Contains(out, "SKILL.md: is empty") || !strings.Contains(out, "link: is a link") {
		t.Errorf("it says %q", out)
	}
	if _, err := os.Lstat(filepath.Join(s.project("creator~u"), "work/x.zip")); !os.IsNotExist(err) {
		t.Errorf("something was packed: %v", err)
	}
	// The record knows which version ran.
	ran := s.get("/sandbox/execs/" + bad.str("exec_id"))
	status := s.get("/v1/skills/u/creator/status").list("data")
	at := slices.IndexFunc(status, func(o object) bool { return o.str("skill_id") == "skill-creator" })
	if at < 0 || status[at].str("status") != "UNCHANGED" || status[at].str("description") != creatorDescription {
		t.Fatalf("status: %v", status)
	}
	ran.wants(t, object{"skill_id": "skill-creator", "skill_digest": status[at].str("digest"), "cwd": "/opt/skill-creator"})
}

// TestSkillCreatorIsReadOnly tries to change the installation's skill over the API, by commands,
// cold and warm, and by files in the place of a user's copy.
func TestSkillCreatorIsReadOnly(t *testing.T) {
	t.Parallel()
	s := tidy(t)
	const skill, sandbox = "/v1/skills/u/ag/skill-creator", "/v1/sandbox/u/ag"
	text := s.content(skill, "SKILL.md")
	if !strings.Contains(text, "name: skill-creator") {
		t.Fatalf("SKILL.md is %q", text)
	}
	files := s.files(skill)

	s.send(http.MethodPut, skill+"/edit?path=SKILL.md", "x", "Content-Type", "text/plain").refuses(t, 409, "reserved_skill")
	s.send(http.MethodPut, sandbox+"/edit?path=skills/skill-creator/SKILL.md", "x", "Content-Type", "text/plain").refuses(t, 409, "reserved_skill")
	for _, scope := range []string{"baseline", "overlay"} {
		s.send(http.MethodDelete, skill+"?scope="+scope, nil).refuses(t, 409, "reserved_skill")
		s.upload("u/ag", scope, "x.zip", archiveOf(t, "Skill-Creator", "SKILL.md", "# x")).refuses(t, 409, "reserved_skill")
	}
	s.send(http.MethodPost, skill+"/baseline?force=true", nil).refuses(t, 409, "reserved_skill")
	s.send(http.MethodPost, skill+"/sync?force=true", nil).refuses(t, 409, "reserved_skill")
	s.send(http.MethodGet, "/v1/skills/u/ag/Skill-Creator/files", nil).refuses(t, 404, "unknown_skill")
	s.send(http.MethodPost, "/v1/skills/u/ag/Skill-Creator/execute?command=ls", []string{}).refuses(t, 409, "reserved_skill")
	if diff := s.send(http.MethodGet, skill+"/diff", nil).done(t); diff != "" {
		t.Errorf("the diff is %v", diff)
	}

	const attack = `cd /opt/skill-creator; touch x; echo x >> SKILL.md; rm -f skill.py; mv names.py y; chmod 777 .; ln -s a b; mkdir c
		cat SKILL.md; ls; test ! -w . && echo closed`
	for _, how := range []serving{"", warm} {
		result := s.serving(how).exec(shell("ag~u", attack))
		result.wants(t, object{"warm": how == warm, "exit_code": 0, "stdout": text + strings.Join(files, "\n") + "\nclosed\n"})
	}
	if got := s.exec(shell("plain", "ls /opt/skill-creator; exit 0")); strings.Contains(got.str("stdout"), "SKILL.md") {
		t.Errorf("a project that is no workspace has it: %q", got.str("stdout"))
	}

	for _, plant := range []string{
		"rm skills/skill-creator && mkdir skills/skill-creator skills/Skill-Creator && echo mine > skills/skill-creator/SKILL.md && cp " +
			"skills/skill-creator/SKILL.md skills/Skill-Creator/",
		"rm -rf skills/skill-creator && ln -s ../../inputs skills/skill-creator",
		"rm -f skills/skill-creator && echo mine > skills/skill-creator",
	} {
		s.exec(shell("ag~u", "mkdir -p skills && "+plant)).wants(t, object{"exit_code": 0})
		if got := s.content(skill, "SKILL.md"); got != text {
			t.Errorf("after %s the skill reads %q", plant, got)
		}
		if got := s.content(sandbox, "skills/skill-creator/SKILL.md"); got != text {
			t.Errorf("after %s the sandbox reads %q", plant, got)
		}
		if got := s.files(skill); !slices.Equal(got, files) {
			t.Errorf("after %s its files are %v", plant, got)
		}
		if got := s.stands("u/ag"); len(got) > 0 {
			t.Errorf("after %s there are also %v", plant, got)
		}
		if got := s.runs(skill+"/execute?command=cat", "SKILL.md").str("stdout"); got != text {
			t.Errorf("after %s a command reads %q", plant, got)
		}
		if got := s.files(sandbox); slices.ContainsFunc(got, func(f string) bool { return strings.Contains(strings.ToLower(f+"/"), "/skill-creator/") }) {
			t.Errorf("after %s the sandbox lists %v", plant, got)
		}
	}

	// A damaged folder is not mounted, and nothing runs.
	source := filepath.Join(s.dir, "workspace/tools/skill-creator")
	if err := os.Rename(source, source+".moved"); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink("skill-creator.moved", source); err != nil {
		t.Fatal(err)
	}
	if a := s.send(http.MethodPost, "/sandbox/execs", shell("ag~u", "echo ran")); a.Code != 500 || !strings.Contains(string(a.Body), "restart core-api") {
		t.Errorf("with a link as source: %d %s", a.Code, a.Body)
	}
	s.exec(shell("plain", "echo hi")).wants(t, object{"stdout": "hi\n"})
}
