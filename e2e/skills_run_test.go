package e2e

import (
	"encoding/json"
	"io/fs"
	"net/http"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
)

// readers are the skills that only look at work/.
var readers = []string{"archive.pack", "git.diff", "json.query", "text.grep"}

// use invokes one of our own skills, or runs it as a row, and wants an exec, however it ended.
func (s *testServer) use(project, skill string, inputs object) object {
	s.t.Helper()
	if s.rows != nil && s.rows.project == project {
		return s.rows.run(s, skill, inputs)
	}
	a := s.send(http.MethodPost, "/skills/"+skill+"/invoke", object{"project_id": project, "inputs": inputs})
	if a.Code != http.StatusOK {
		s.t.Fatalf("%s: %d %s", skill, a.Code, a.Body)
	}
	return a.json(s.t)
}

// uses is use for a call that must succeed; the outputs come back.
func (s *testServer) uses(project, skill string, inputs object) object {
	s.t.Helper()
	a := s.use(project, skill, inputs)
	outputs, _ := a["outputs"].(map[string]any)
	if a.str("exec.status") != "succeeded" || outputs == nil {
		s.t.Fatalf("%s of %v: %v", skill, inputs, a)
	}
	return outputs
}

// anyCode is an exit code that differs between the versions of a program, but is not 0.
const anyCode = -1

// useFails wants a call to end with an exit code and to say something on stderr.
func (s *testServer) useFails(project, skill string, inputs object, code float64, says string) object {
	s.t.Helper()
	a := s.use(project, skill, inputs)
	if a.str("exec.status") != "failed" || a.str("exec.error_reason") != "nonzero_exit" || code != anyCode && a.num("exec.exit_code") != code ||
		!strings.Contains(a.str("exec.stderr"), says) || strings.Contains(a.str("exec.stderr"), "Traceback") {
		s.t.Errorf("%s of %v: %v; want exit code %v and %q", skill, inputs, a, code, says)
	}
	return a
}

// refusesInputs wants inputs to be refused before anything starts, with the field at fault.
func (s *testServer) refusesInputs(skill string, inputs any, field string) {
	s.t.Helper()
	a := s.send(http.MethodPost, "/skills/"+skill+"/invoke", object{"project_id": "refused", "inputs": inputs})
	problem := a.json(s.t)
	named := slices.ContainsFunc(problem.list("errors"), func(f object) bool { return f.str("field") == field && f.str("reason") != "" })
	if a.Code != http.StatusUnprocessableEntity || problem.str("code") != "invalid_inputs" || !named {
		s.t.Errorf("%s of %.200v: %d %.600s; want 422 naming %s", skill, inputs, a.Code, a.Body, field)
	}
}

// lay runs a job of the project that makes files in work/, so that they have the owner of a job's files.
func (s *testServer) lay(project, script string) {
	s.t.Helper()
	if result := s.unprepared().exec(shell(project, "set -e; "+script)); result.str("status") != "succeeded" {
		s.t.Fatalf("%v", result)
	}
}

// same wants equality, as JSON sees it.
func same(t testing.TB, what string, got, want any) {
	t.Helper()
	var normal [2]any
	for i, v := range []any{got, want} {
		text, err := json.Marshal(v)
		if err == nil {
			err = json.Unmarshal(text, &normal[i])
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	if !reflect.DeepEqual(normal[0], normal[1]) {
		t.Errorf("%s: %v, want %v", what, normal[0], normal[1])
	}
}

// snapshot is all that one can see of a project's work/ from outside.
func (s *testServer) snapshot(project string) map[string]string {
	s.t.Helper()
	seen := map[string]string{}
	top := filepath.Join(s.project(project), "work")
	err := filepath.WalkDir(top, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		fi, err := d.Info()
		if err != nil {
			return err
		}
		content := []byte(nil)
		if fi.Mode().IsRegular() {
			content, err = os.ReadFile(path)
		}
		seen[path] = fi.Mode().String() + " " + fi.ModTime().String() + " " + string(content)
		return err
	})
	if err != nil {
		s.t.Fatal(err)
	}
	return seen
}

// workMount is how the exec of an invoke had work/ mounted, by its meta.json.
func (s *testServer) workMount(a object) (readOnly, there bool) {
	s.t.Helper()
	content, err := os.ReadFile(filepath.Join(s.dir, "workspace", a.str("exec.artifacts_dir"), "meta.json"))
	if err != nil {
		s.t.Fatal(err)
	}
	var meta object
	if err := json.Unmarshal(content, &meta); err != nil {
		s.t.Fatal(err)
	}
	for _, m := range meta.list("docker_mounts") {
		if m.str("target") == "/workspace/work" {
			return m.at("read_only") == true, true
		}
	}
	return false, false
}

// trap is a script that fills work/ with files that leave an artifact when a skill runs or imports them.
const trap = `
mine='open("/workspace/artifacts/hijacked", "w").close()'
for m in json re os select codecs stat fnmatch zipfile subprocess math capture tree sitecustomize usercustomize site encodings; do echo "$mine" > $m.py; done
mkdir -p .local/lib/python3.11/site-packages .config/git
cp sitecustomize.py .local/lib/python3.11/site-packages/usercustomize.py
for f in .bashrc .bash_profile .bash_login .profile .jq jq git bash python3 ls cat; do
	printf '#!/bin/sh\ntouch /workspace/artifacts/hijacked\n' > $f; chmod 755 $f
done
printf '[core]\n\tfsmonitor = "touch /workspace/artifacts/hijacked"\n\tpager = "touch /workspace/artifacts/hijacked"\n' | tee .gitconfig > .config/git/config
ln -s /etc out; mkfifo pipe; echo 'needle in the hay' > hay.txt; echo '{"a": 1}' > a.data
`

// calls has one call of each of our skills that must succeed beside the files of trap.
var calls = map[string]object{
	"shell.run":    {"script": "ls >/dev/null; cat a.data; jq -n 1; git --version; python3 -I -c 'import json'"},
	"python.run":   {"code": "import json, re, os, site\nprint(json.dumps(1), re.compile('x'), os.sep)"},
	"text.grep":    {"pattern": "needle", "fixed": true},
	"json.query":   {"filter": ".a", "path": "a.data"},
	"archive.pack": {"exclude": []string{".git"}},
	"git.diff":     {"path": "repo"},
}

// TestSkillsAreNotHijacked lays traps for every skill in work/ and looks whether one springs, and whether work/ stays as it is where the
// skill promises so.
func TestSkillsAreNotHijacked(t *testing.T) {
	t.Parallel()
	s := shared(t)
	const project = "trap"
	s.lay(project, trap+"git init -q repo && cd repo && echo a > a && /usr/bin/git add a && echo b > a")
	before := s.snapshot(project)
	for skill, inputs := range calls {
		t.Run(skill, func(t *testing.T) {
			s := s.under(t)
			a := s.use(project, skill, inputs)
			if a.str("exec.status") != "succeeded" || a["outputs"] == nil {
				t.Fatalf("%v", a)
			}
			if slices.ContainsFunc(a.list("exec.artifacts"), func(f object) bool { return f.str("path") == "hijacked" }) {
				t.Errorf("a trap has sprung: %v", a)
			}
			same(t, "work/", s.snapshot(project), before)
			readOnly, there := s.workMount(a)
			if !there || readOnly != slices.Contains(readers, skill) {
				t.Errorf("work/ is mounted: %v, read-only: %v", there, readOnly)
			}
		})
	}
}

// TestBuiltInSkills checks the list of built-in skills, their descriptions and their read_only flags.
func TestBuiltInSkills(t *testing.T) {
	t.Parallel()
	s := shared(t)
	var ids []string
	for _, skill := range s.get("/skills").list("items") {
		id := skill.str("id")
		ids = append(ids, id)
		if skill.at("read_only") != slices.Contains(readers, id) {
			t.Errorf("%s: read_only is %v", id, skill.at("read_only"))
		}
		if skill.at("interface.inputs.additionalProperties") != false || skill.at("interface.outputs.additionalProperties") != false {
			t.Errorf("%s allows fields that its manifest does not name", id)
		}
		for _, side := range []string{"inputs", "outputs"} {
			properties, _ := skill.at("interface." + side + ".properties").(map[string]any)
			for name := range properties {
				if skill.str("interface."+side+".properties."+name+".description") == "" {
					t.Errorf("%s: %s.%s has no description", id, side, name)
				}
			}
		}
		if readme := s.get("/skills/" + id).str("readme"); !strings.Contains(readme, "/skills/"+id+"/invoke") {
			t.Errorf("%s: SKILL.md shows no call", id)
		}
		s.refusesInputs(id, object{"unknown": 1}, "inputs.unknown")
		s.refusesInputs(id, []string{"x"}, "inputs")
	}
	want := append([]string{"python.run", "shell.run"}, readers...)
	slices.Sort(want)
	if !slices.Equal(ids, want) {
		t.Errorf("skills %v, want %v", ids, want)
	}
	if page := s.get("/sandbox/execs?project_id=refused"); len(page.list("items")) != 0 {
		t.Errorf("refused inputs have run: %v", page)
	}
}

// TestSkillsShareContainers: what waits for one skill that reads serves every other, and what waits for an exec serves a script.
func TestSkillsShareContainers(t *testing.T) {
	t.Parallel()
	s := start(t)
	s.lay("demo", "git init -q repo; echo '{}' > a.data")
	for skill, inputs := range map[string]object{"shell.run": {"script": ":"}, "python.run": {"code": "pass"}, "text.grep": {"pattern": "x"}, "archive.pack": {}} {
		s.uses("demo", skill, inputs)
	}
	kinds := 2
	if canShare() { // the same containers serve those that read, and those that write
		kinds = 1
	}
	if keys := s.get("/sandbox/pool").list("keys"); len(keys) != kinds {
		t.Errorf("%d kinds of containers wait: %v", len(keys), keys)
	}
}

// paths that lead out of work/, or could be taken for something else than a path below it.
var pathsThatLeave = []string{"/etc/passwd", "..", "../inputs", "a/../..", "a//b", "", "\x00", "a/..", "./../x"}

// TestSkillsRefusePaths that leave work/: by their words before anything starts, and through links when they run.
func TestSkillsRefusePaths(t *testing.T) {
	t.Parallel()
	s := shared(t)
	base := map[string]object{
		"text.grep": {"pattern": "root"}, "json.query": {"filter": "."}, "archive.pack": {}, "git.diff": {},
	}
	const project = "paths"
	s.lay(project, `mkdir -p real/..ok; echo '{"root": 1}' > real/f; ln -s /etc out; ln -s real in; ln -s /etc/passwd real/link; mkfifo pipe; ln -s loop loop`)
	s = s.inOneExec(project, readsWork)
	for _, skill := range readers {
		t.Run(skill, func(t *testing.T) {
			s := s.with(t)
			with := func(path string) object {
				inputs := object{"path": path}
				for k, v := range base[skill] {
					inputs[k] = v
				}
				return inputs
			}
			for _, path := range pathsThatLeave {
				s.refusesInputs(skill, with(path), "inputs.path")
			}
			s.refusesInputs(skill, with(strings.Repeat("x", 4001)), "inputs.path")
			for _, path := range []string{"out", "out/passwd", "in", "in/f", "real/link", "loop", "./in/./f"} {
				s.useFails(project, skill, with(path), 2, "links are not followed")
			}
			s.useFails(project, skill, with("nothing/here"), 2, "No such file or directory")
			s.useFails(project, skill, with("--help"), 2, "No such file or directory")
			s.useFails(project, skill, with(strings.Repeat("x", 300)), 2, "File name too long")
			s.useFails(project, skill, with("real/f/x"), 2, "Not a directory")
		})
	}
}
