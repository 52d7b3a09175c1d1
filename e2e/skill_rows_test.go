package e2e

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"secbox/skills"
)

// skillRows runs our own skills' scripts one after the other in one exec, as an invoke runs them: with the same arguments, variables,
// directories and mounts. Tests over HTTP check the rest of an invoke; a table of a script's output needs no container for each row.
type skillRows struct {
	project string
	dir     string // artifacts/ of the exec
	exec    *later // ends with the test

	mu sync.Mutex // one row at a time
	n  int
}

// rowsProgram takes the rows that appear in inputs/rows, in order. It kills processes that a row's script leaves, and moves its artifacts
// aside for the test.
const rowsProgram = `
import json, os, shutil, signal, subprocess, time
rows, artifacts = "/workspace/inputs/rows/", "/workspace/artifacts/"
done = artifacts + "rows/"
os.mkdir(done)
n = 0
while True:
    row = "%s%d" % (rows, n)
    if not os.path.exists(row + ".json"):
        if os.path.exists(rows + "end"):
            break
        time.sleep(0.005)
        continue
    with open(row + ".json") as f:
        argv = json.load(f)
    env = dict(os.environ, SKILL_INPUT=row + ".input", SKILL_OUTPUT=artifacts + "skill_output.json", SKILL_DIR=os.path.dirname(argv[-1]))
    with open(done + "%d.out" % n, "wb") as out, open(done + "%d.err" % n, "wb") as err:
        child = subprocess.Popen(argv, stdin=subprocess.DEVNULL, stdout=out, stderr=err, env=env, start_new_session=True)
    code = child.wait()
    try:
        os.kill(-1, signal.SIGKILL)
    except ProcessLookupError:
        pass
    left = done + "%d.left/" % n
    os.mkdir(left)
    for name in os.listdir(artifacts):
        if name != "rows":
            os.rename(artifacts + name, left + name)
    for name in os.listdir("/tmp"):
        shutil.rmtree("/tmp/" + name, ignore_errors=True) if os.path.isdir("/tmp/" + name) else os.unlink("/tmp/" + name)
    with open(done + "%d.tmp" % n, "w") as f:
        f.write(str(code if code >= 0 else 128 - code))
    os.rename(done + "%d.tmp" % n, done + "%d.code" % n)
    n += 1
shutil.rmtree(done, ignore_errors=True)
`

var ownSkills = sync.OnceValues(func() (*skills.Snapshot, error) {
	catalog, err := skills.Open(skills.Config{Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		return nil, err
	}
	return catalog.Now(), nil
})

// readsWork is how the skills that only look at work/ have it mounted.
var readsWork = object{"fs.read": []string{"inputs/**", "work/**"}, "fs.write": []string{"artifacts/**"}}

// inOneExec is the same server, of which use and its like run skills of the project in one exec. The exec ends with the test, whose
// subtests must not be parallel: it would wait for them. Replacements are
// pairs of old and new text of the scripts: a bound that takes minutes to reach can be lowered.
func (s *testServer) inOneExec(project string, overrides object, replacements ...string) *testServer {
	s.t.Helper()
	catalog, err := ownSkills()
	if err != nil {
		s.t.Fatal(err)
	}
	replaced := make([]bool, len(replacements))
	inputs := []object{{"path": "rows.py", "content": rowsProgram}, {"path": "rows/begin", "content": ""}}
	for _, skill := range catalog.Skills() {
		for _, file := range skill.Files {
			content, err := fs.ReadFile(skill.FS(), file.Path)
			if err != nil {
				s.t.Fatal(err)
			}
			text := string(content)
			for i := 0; i+1 < len(replacements); i += 2 {
				replaced[i] = replaced[i] || strings.Contains(text, replacements[i])
				text = strings.ReplaceAll(text, replacements[i], replacements[i+1])
			}
			inputs = append(inputs, object{"path": "skills/" + skill.ID() + "/" + file.Path, "content": text})
		}
	}
	for i := 0; i < len(replaced); i += 2 {
		if !replaced[i] {
			s.t.Fatalf("no script has %q", replacements[i])
		}
	}
	policy := object{"timeout_ms": 600_000}
	for key, value := range overrides {
		policy[key] = value
	}
	running := s.post(object{
		"project_id": project, "inputs": inputs, "policy_overrides": policy,
		"exec": object{"kind": "python", "command": "python", "args": []string{"/workspace/inputs/rows.py"}},
	})
	r := &skillRows{project: project, exec: running}
	eventually(s.t, "the exec takes rows", func() bool {
		found, _ := filepath.Glob(filepath.Join(s.project(project), "artifacts/*/rows"))
		if len(found) == 1 {
			r.dir = filepath.Dir(found[0])
		}
		return r.dir != "" || len(running.answer) > 0
	})
	if r.dir == "" {
		a := running.any()
		s.t.Fatalf("the exec of the rows: %d %s", a.Code, a.Body)
	}
	s.t.Cleanup(func() {
		if err := os.WriteFile(r.input(s, "end"), nil, 0o644); err != nil {
			s.t.Error(err)
		}
		if a := running.any(); !strings.Contains(string(a.Body), `"succeeded"`) {
			s.t.Errorf("the exec of the rows: %d %s", a.Code, a.Body)
		}
	})
	mine := *s
	mine.rows = r
	return &mine
}

func (r *skillRows) input(s *testServer, name string) string {
	return filepath.Join(s.project(r.project), "inputs/rows", name)
}

// run runs one row. The result looks like the answer to an invoke, as far as the script decides it; "left" is where its artifacts are.
func (r *skillRows) run(s *testServer, id string, inputs object) object {
	s.t.Helper()
	catalog, err := ownSkills()
	if err != nil {
		s.t.Fatal(err)
	}
	skill, err := catalog.Get(id)
	if err != nil {
		s.t.Fatal(err)
	}
	given, err := json.Marshal(inputs)
	if err == nil {
		err = skill.CheckInputs(context.Background(), given)
	}
	if err != nil {
		s.t.Fatalf("%s of %v: %v", id, inputs, err)
	}
	var argv []string
	for i, arg := range skill.Manifest.Runtime.Entrypoint {
		if file, ok := strings.CutPrefix(arg, "./"); ok {
			arg = path.Join("/workspace/inputs/skills", id, file)
		}
		if argv = append(argv, arg); i == 0 {
			argv = append(argv, "-I") // as an invoke isolates Python
		}
	}
	line, err := json.Marshal(argv)
	if err != nil {
		s.t.Fatal(err)
	}

	r.mu.Lock()
	defer r.mu.Unlock()
	row := fmt.Sprint(r.n)
	r.n++
	for _, err := range []error{
		os.WriteFile(r.input(s, row+".input"), given, 0o644), os.WriteFile(r.input(s, row+".new"), line, 0o644),
		os.Rename(r.input(s, row+".new"), r.input(s, row+".json")),
	} {
		if err != nil {
			s.t.Fatal(err)
		}
	}
	done := func(suffix string) string { return filepath.Join(r.dir, "rows", row+suffix) }
	var code []byte
	for deadline := time.Now().Add(answerTimeout); ; time.Sleep(5 * time.Millisecond) {
		if code, err = os.ReadFile(done(".code")); err == nil {
			break
		}
		if ended := len(r.exec.answer)+len(r.exec.failed) > 0; ended || time.Now().After(deadline) {
			s.t.Fatalf("%s of %.500v does not end; the exec of the rows has ended: %v", id, inputs, ended)
		}
	}
	stdout, err1 := os.ReadFile(done(".out"))
	stderr, err2 := os.ReadFile(done(".err"))
	names, err3 := os.ReadDir(done(".left"))
	var exit float64
	_, err4 := fmt.Sscan(string(code), &exit)
	if err := errors.Join(err1, err2, err3, err4); err != nil {
		s.t.Fatal(err)
	}
	artifacts := []any{}
	for _, name := range names {
		if name.Name() != "skill_output.json" {
			artifacts = append(artifacts, map[string]any{"path": name.Name()})
		}
	}
	exec := map[string]any{"status": "succeeded", "error_reason": "", "exit_code": exit, "stdout": string(stdout), "stderr": string(stderr), "artifacts": artifacts}
	result := object{"exec": exec, "left": done(".left")}
	output, err := r.output(skill, done(".left"))
	switch {
	case err == nil:
		var outputs map[string]any
		if err := json.Unmarshal(output, &outputs); err != nil {
			s.t.Fatal(err)
		}
		result["outputs"] = outputs
	case exit == 0:
		exec["status"], exec["error_reason"] = "failed", "invalid_output"
	}
	if exit != 0 {
		exec["status"], exec["error_reason"] = "failed", "nonzero_exit"
	}
	return result
}

// output is what the row's script returned, when its contract allows it.
func (r *skillRows) output(skill *skills.Skill, left string) (json.RawMessage, error) {
	name := filepath.Join(left, "skill_output.json")
	if info, err := os.Lstat(name); err != nil || !info.Mode().IsRegular() || info.Size() > skills.MaxOutputBytes {
		return nil, fmt.Errorf("no output: %v %w", info, err)
	}
	raw, err := os.ReadFile(name)
	if err != nil {
		return nil, err
	}
	return skill.CheckOutputs(context.Background(), raw)
}

// TestRowsRunAsInvokesDo compares what a script sees of an invoke with what it sees as a row: variables, arguments, directories, mounts.
func TestRowsRunAsInvokesDo(t *testing.T) {
	t.Parallel()
	s := shared(t)
	const look = `import os, sys
hidden = {"SKILL_DIR", "SKILL_INPUT", "HOSTNAME"}
print(sorted((k, v) for k, v in os.environ.items() if k not in hidden), os.getcwd(), os.getuid(), os.getgid(), os.umask(0o22), sys.flags, os.listdir("/tmp"))
print(sorted(l.split()[1] + " " + l.split()[3].split(",")[0] for l in open("/proc/self/mounts") if "/workspace" in l))
print(open("/proc/self/limits").read())`
	inputs := object{"code": look}
	invoked := s.use("invoked", "python.run", inputs)
	row := s.inOneExec("row", nil).use("row", "python.run", inputs)
	lines := func(a object) []string { return strings.Split(a.str("outputs.stdout"), "\n") }
	if a, b := lines(invoked), lines(row); !slices.Equal(a, b) || len(a) < 10 {
		t.Errorf("an invoke sees\n%q\na row sees\n%q", a, b)
	}
}
