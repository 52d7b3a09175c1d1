package e2e

import (
	"archive/zip"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
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

// use invokes one of our own skills, and wants an exec, however it ended.
func (s *testServer) use(project, skill string, inputs object, more ...any) object {
	s.t.Helper()
	request := object{"project_id": project, "inputs": inputs}
	for i := 0; i+1 < len(more); i += 2 {
		request[more[i].(string)] = more[i+1]
	}
	a := s.send(http.MethodPost, "/skills/"+skill+"/invoke", request)
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

// lay runs a job of the project that makes files in work/, so that they have the owner of a job's
// files.
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

// snapshot is all that one can see of a project's work/ from outside: of what the trap has shut, a
// user other than root sees mode and time.
func (s *testServer) snapshot(project string) map[string]string {
	s.t.Helper()
	seen := map[string]string{}
	top := filepath.Join(s.project(project), "work")
	err := filepath.WalkDir(top, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return unlessShut(err)
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
		return unlessShut(err)
	})
	if err != nil {
		s.t.Fatal(err)
	}
	if len(seen) < 2 {
		s.t.Fatalf("%s has nothing to see", top)
	}
	return seen
}

// unlessShut is err, or nil if what is not readable is of mode 0.
func unlessShut(err error) error {
	var of *fs.PathError
	if errors.As(err, &of) && errors.Is(err, fs.ErrPermission) {
		if fi, statErr := os.Lstat(of.Path); statErr == nil && fi.Mode().Perm() == 0 {
			return nil
		}
	}
	return err
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

// trap is a script that fills work/ with files that leave an artifact when a skill runs or imports
// them, and with some that no skill can read.
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
echo 'needle' > closed; chmod 000 closed; mkdir shut; chmod 000 shut
git init -q repo && cd repo && echo a > a && seq 500 > n && /usr/bin/git add a n && echo b > a && seq 500 | tac > n
`

// smoke has, for each of our skills, a call that must succeed beside the files of trap, and one
// that reaches a limit. Keys are paths in the outputs, or in the exec when they begin with "exec.";
// values are printed. Package skills/scripts tests the programs in full.
var smoke = map[string]struct {
	inputs  object
	want    map[string]string
	refused object // inputs.path, or the program, is not what it must be
	field   string
	much    object
	cut     []string // what is true of much
}{
	"shell.run": {
		inputs: object{
			"script": `ls >/dev/null; cat; echo "$@"; pwd; echo $HOME; touch $SKILL_DIR/x 2>/dev/null || echo read-only; sleep 1000 & (while :; do echo y >&2; done) & disown -a
jq -n 1; git --version >/dev/null; python3 -I -c 'import json, os; print(sorted(os.listdir("/proc/self/fd")))'; exit 7`,
			"args": []string{"a b", "-x"}, "stdin": "in ü\n",
		},
		want: map[string]string{
			"stdout": "in ü\na b -x\n/workspace/work\n/tmp\nread-only\n1\n['0', '1', '2', '3']\n", "stdout_truncated": "false", "exit_code": "7",
			"exec.status": "failed", "exec.error_reason": "nonzero_exit", "exec.exit_code": "7",
		},
		refused: object{"script": ""}, field: "inputs.script",
		much: object{"script": "head -c 3000000 /dev/zero | tr '\\0' '\\1' >&2; printf x; yes ü | tr -d '\\n' | head -c 3000000"},
		cut:  []string{"outputs.stdout_truncated", "outputs.stderr_truncated", "exec.stdout_truncated", "exec.stderr_truncated"},
	},
	"python.run": {
		inputs: object{
			"code": "import json, re, os, site, sys, subprocess\nprint(input(), sys.argv, os.getcwd(), os.access(os.environ['SKILL_DIR'], os.W_OK), " +
				"sorted(os.listdir('/proc/self/fd')), flush=True)\n" +
				"subprocess.run(['echo', 'of a child']); subprocess.Popen(['sleep', '1000'])",
			"args": []string{"a b"}, "stdin": "in ü",
		},
		want: map[string]string{
			"stdout": "in ü ['/tmp/main.py', 'a b'] /workspace/work False ['0', '1', '2', '3']\nof a child\n", "stderr": "", "exit_code": "0",
			"exec.status": "succeeded",
		},
		refused: object{"code": 1}, field: "inputs.code",
		much: object{"code": "import sys\nsys.stderr.write('\\1' * 3000000)\nsys.stdout.write('x' + 'ü' * 1500000)"},
		cut:  []string{"outputs.stdout_truncated", "outputs.stderr_truncated", "exec.stdout_truncated", "exec.stderr_truncated"},
	},
	"text.grep": {
		inputs: object{"pattern": "needle", "fixed": true, "glob": "[!g]*"},
		want: map[string]string{
			"matches": "[map[line:1 path:hay.txt text:needle in the hay]]", "files_skipped": "4", "truncated": "false",
			"exec.status": "succeeded",
		},
		refused: object{"pattern": "x", "path": "../inputs"}, field: "inputs.path",
		much: object{"pattern": ".", "max_matches": 1}, cut: []string{"outputs.truncated"},
	},
	"json.query": {
		inputs:  object{"filter": ".a", "path": "a.data"},
		want:    map[string]string{"results": "[1]", "truncated": "false", "exec.status": "succeeded"},
		refused: object{"filter": ".", "path": "/etc/passwd"}, field: "inputs.path",
		much: object{"filter": "repeat(1)", "null_input": true}, cut: []string{"outputs.truncated"},
	},
	"archive.pack": {
		inputs: object{"exclude": []string{"repo", "*.py", ".*"}},
		want: map[string]string{
			"archive": "archive.zip", "skipped_total": "4", "exec.status": "succeeded",
			"skipped": "[map[path:closed reason:not readable: Permission denied] map[path:out reason:a link, which is not followed] " +
				"map[path:pipe reason:neither a file nor a folder] map[path:shut reason:not readable: Permission denied]]",
		},
		refused: object{"path": "a/.."}, field: "inputs.path", // its limit takes an archive of 250 MiB
	},
	"git.diff": {
		inputs: object{"path": "repo", "paths": []string{"a"}},
		want: map[string]string{
			"files": "[map[additions:1 deletions:1 path:a status:modified]]", "truncated": "false", "exec.status": "succeeded",
			"diff": "diff --git a/a b/a\nindex 7898192..6178079 100644\n--- a/a\n+++ b/a\n@@ -1 +1 @@\n-a\n+b\n",
		},
		refused: object{"path": ".."}, field: "inputs.path",
		much: object{"path": "repo", "max_bytes": 1000}, cut: []string{"outputs.truncated"},
	},
}

// TestSkillsInContainers lays traps for every skill in work/ and looks whether one springs, whether
// work/ stays as it is where the skill promises so, and whether the container gives the skill what
// it needs: its folder, work/ and the room for its output.
func TestSkillsInContainers(t *testing.T) {
	t.Parallel()
	s := shared(t)
	const project = "trap"
	s.lay(project, trap)
	before := s.snapshot(project)
	for skill, c := range smoke {
		t.Run(skill, func(t *testing.T) {
			s := s.under(t)
			s.refusesInputs(skill, c.refused, c.field)
			a := s.use(project, skill, c.inputs)
			for path, want := range c.want {
				if !strings.HasPrefix(path, "exec.") {
					path = "outputs." + path
				}
				if got := fmt.Sprint(a.at(path)); got != want {
					t.Errorf("%s is %q, want %q in %v", path, got, want, a)
				}
			}
			if slices.ContainsFunc(a.list("exec.artifacts"), func(f object) bool { return f.str("path") == "hijacked" }) {
				t.Errorf("a trap has sprung: %v", a)
			}
			same(t, "work/", s.snapshot(project), before)
			readOnly, there := s.workMount(a)
			if !there || readOnly != slices.Contains(readers, skill) {
				t.Errorf("work/ is mounted: %v, read-only: %v", there, readOnly)
			}
			if skill == "archive.pack" {
				got := s.artifact(a.str("exec.exec_id"), "archive.zip")
				z, err := zip.NewReader(bytes.NewReader(got.Body), int64(len(got.Body)))
				if err != nil || float64(len(got.Body)) != a.num("outputs.size") ||
					!slices.ContainsFunc(z.File, func(f *zip.File) bool { return f.Name == "hay.txt" }) {
					t.Errorf("the archive: %d, %d bytes, %v", got.Code, len(got.Body), err)
				}
				return
			}
			a = s.use(project, skill, c.much)
			for _, path := range c.cut {
				if a.at(path) != true {
					t.Errorf("%s is %v", path, a.at(path))
				}
			}
		})
	}
}

// TestBuiltInSkills checks the list of built-in skills, their descriptions and their read_only
// flags.
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

// TestSkillsShareContainers: what waits for one skill that reads serves every other, and what waits
// for an exec serves a script.
func TestSkillsShareContainers(t *testing.T) {
	t.Parallel()
	s := start(t) // counts all the containers that wait
	s.lay("demo", "git init -q repo; echo '{}' > a.data")
	for skill, inputs := range map[string]object{
		"shell.run": {"script": ":"}, "python.run": {"code": "pass"}, "text.grep": {"pattern": "x"},
		"archive.pack": {},
	} {
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
