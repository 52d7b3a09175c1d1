//go:build unix

// Package scripts tests the programs of the built-in skills with the Python, jq and Git of this
// machine. A test of e2e invokes each of them once in a container.
package scripts

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"

	"secbox/fault"
	"secbox/skills"
)

// row runs the programs of skills one after the other, as an invoke does, but below a directory of
// the test: what is /workspace and /tmp in a container is there, and is named so again in the
// results.
type row struct {
	t    testing.TB
	dir  string
	n    *int
	here *strings.Replacer // the paths in programs
}

var builtIn = sync.OnceValues(func() (*skills.Snapshot, error) {
	catalog, err := skills.Open(skills.Config{Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		return nil, err
	}
	return catalog.Now(), nil
})

// python is the interpreter itself: python3 in PATH may be a shell script that looks for it.
var python = sync.OnceValues(func() (string, error) {
	out, err := exec.Command("python3", "-I", "-c", "import sys; print(sys.executable)").Output()
	return strings.TrimSpace(string(out)), err
})

// inRow makes work/ by a shell script, and lays out the skills. Replacements are pairs of old and
// new text of the programs: a bound that takes minutes to reach can be lowered.
func inRow(t *testing.T, script string, replacements ...string) *row {
	t.Helper()
	dir := t.TempDir()
	r := &row{t: t, dir: dir, n: new(int), here: strings.NewReplacer("/workspace", dir+"/workspace", "/tmp/", dir+"/tmp/")}
	for _, name := range []string{"workspace/inputs", "workspace/work", "workspace/artifacts", "tmp", "left"} {
		must(t, os.MkdirAll(filepath.Join(dir, name), 0o755))
	}
	r.bash(script)
	r.moveAside("script")
	catalog, err := builtIn()
	must(t, err)
	replaced := make([]bool, len(replacements))
	for _, skill := range catalog.Skills() {
		for _, file := range skill.Files {
			content, err := fs.ReadFile(skill.FS(), file.Path)
			must(t, err)
			text := string(content)
			for i := 0; i < len(replacements); i += 2 {
				replaced[i] = replaced[i] || strings.Contains(text, replacements[i])
				text = strings.ReplaceAll(text, replacements[i], replacements[i+1])
			}
			name := filepath.Join(dir, "skills", skill.ID(), filepath.FromSlash(file.Path))
			must(t, os.MkdirAll(filepath.Dir(name), 0o755))
			must(t, os.WriteFile(name, []byte(r.here.Replace(text)), 0o644))
		}
	}
	for i := 0; i < len(replaced); i += 2 {
		if !replaced[i] {
			t.Fatalf("no program has %q", replacements[i])
		}
	}
	return r
}

// with is the same row for a subtest, which must not be parallel.
func (r *row) with(t testing.TB) *row {
	mine := *r
	mine.t = t
	return &mine
}

// bash runs a script in work/.
func (r *row) bash(script string) {
	r.t.Helper()
	cmd := exec.CommandContext(r.t.Context(), "bash", "-c", "set -e; "+r.here.Replace(script))
	cmd.Dir = filepath.Join(r.dir, "workspace/work")
	cmd.Env = r.environment("GIT_CONFIG_GLOBAL=/dev/null", "GIT_CONFIG_NOSYSTEM=1", "GIT_COMMITTER_NAME=c", "GIT_COMMITTER_EMAIL=c@example.org")
	if out, err := cmd.CombinedOutput(); err != nil {
		r.t.Fatalf("%v: %s", err, out)
	}
}

func (r *row) environment(more ...string) []string {
	return append([]string{"PATH=" + os.Getenv("PATH"), "LANG=C.UTF-8", "HOME=" + r.dir + "/tmp"}, more...)
}

// use runs a skill, however it ends. The result looks like the answer to an invoke, as far as the
// program decides it; "left" is where its artifacts are.
func (r *row) use(id string, inputs object) object {
	r.t.Helper()
	skill := builtInSkill(r.t, id)
	given, err := json.Marshal(inputs)
	must(r.t, err)
	if err := skill.CheckInputs(r.t.Context(), given); err != nil {
		r.t.Fatalf("%s of %v: %v", id, inputs, err)
	}
	*r.n++
	artifacts, left := filepath.Join(r.dir, "workspace/artifacts"), filepath.Join(r.dir, "left", fmt.Sprint(*r.n))
	input, output := filepath.Join(r.dir, "workspace/inputs/input.json"), filepath.Join(artifacts, "skill_output.json")
	must(r.t, os.WriteFile(input, given, 0o644))

	interpreter, err := python()
	must(r.t, err)
	folder := filepath.Join(r.dir, "skills", id)
	args := []string{"-I"} // as an invoke isolates Python
	for _, arg := range skill.Manifest.Runtime.Entrypoint[1:] {
		if file, ok := strings.CutPrefix(arg, "./"); ok {
			arg = filepath.Join(folder, file)
		}
		args = append(args, arg)
	}
	cmd := exec.CommandContext(r.t.Context(), interpreter, args...)
	cmd.Dir = filepath.Join(r.dir, "workspace/work")
	cmd.Env = r.environment("SKILL_INPUT="+input, "SKILL_OUTPUT="+output, "SKILL_DIR="+folder)
	var stdout, stderr strings.Builder
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	var exit *exec.ExitError
	if err := cmd.Run(); err != nil && !errors.As(err, &exit) {
		r.t.Fatal(err)
	}
	code := cmd.ProcessState.ExitCode()
	if status, ok := cmd.ProcessState.Sys().(syscall.WaitStatus); ok && status.Signaled() {
		code = 128 + int(status.Signal())
	}

	e := map[string]any{
		"status": "succeeded", "error_reason": "", "exit_code": float64(code), "stdout": r.named(stdout.String()), "stderr": r.named(stderr.String()),
		"artifacts": []any{},
	}
	result := object{"exec": e, "left": left}
	switch outputs, err := r.output(skill, output); {
	case err == nil:
		result["outputs"] = outputs
	case code == 0:
		e["status"], e["error_reason"] = "failed", "invalid_output"
	}
	if code != 0 {
		e["status"], e["error_reason"] = "failed", "nonzero_exit"
	}
	must(r.t, os.RemoveAll(output))
	names, err := os.ReadDir(artifacts)
	must(r.t, err)
	for _, name := range names {
		e["artifacts"] = append(e["artifacts"].([]any), map[string]any{"path": name.Name()})
	}
	r.moveAside(fmt.Sprint(*r.n))
	return result
}

// moveAside moves the artifacts to left/name, and empties the directory for temporary files.
func (r *row) moveAside(name string) {
	r.t.Helper()
	artifacts, tmp := filepath.Join(r.dir, "workspace/artifacts"), filepath.Join(r.dir, "tmp")
	must(r.t, errors.Join(os.Rename(artifacts, filepath.Join(r.dir, "left", name)), os.Mkdir(artifacts, 0o755), os.RemoveAll(tmp), os.Mkdir(tmp, 0o755)))
}

// named names the directories as in a container.
func (r *row) named(text string) string { return strings.ReplaceAll(text, r.dir, "") }

// output is what the program returned, when its contract allows it.
func (r *row) output(skill *skills.Skill, name string) (outputs map[string]any, err error) {
	if info, err := os.Lstat(name); err != nil || !info.Mode().IsRegular() || info.Size() > skills.MaxOutputBytes {
		return nil, fmt.Errorf("no output: %v %w", info, err)
	}
	raw, err := os.ReadFile(name)
	if err != nil {
		return nil, err
	}
	checked, err := skill.CheckOutputs(r.t.Context(), []byte(r.named(string(raw))))
	if err != nil {
		return nil, err
	}
	return outputs, json.Unmarshal(checked, &outputs)
}

// uses is use for a call that must succeed; the outputs come back.
func (r *row) uses(id string, inputs object) object {
	r.t.Helper()
	a := r.use(id, inputs)
	outputs, _ := a["outputs"].(map[string]any)
	if a.str("exec.status") != "succeeded" || outputs == nil {
		r.t.Fatalf("%s of %v: %v", id, inputs, a)
	}
	return outputs
}

// anyCode is an exit code that differs between the versions of a program, but is not 0.
const anyCode = -1

// useFails wants a call to end with an exit code and to say something on stderr.
func (r *row) useFails(id string, inputs object, code float64, says string) object {
	r.t.Helper()
	a := r.use(id, inputs)
	if a.str("exec.status") != "failed" || a.str("exec.error_reason") != "nonzero_exit" || code != anyCode && a.num("exec.exit_code") != code ||
		!strings.Contains(a.str("exec.stderr"), says) || strings.Contains(a.str("exec.stderr"), "Traceback") {
		r.t.Errorf("%s of %v: %v; want exit code %v and %q", id, inputs, a, code, says)
	}
	return a
}

// snapshot is all that one can see of work/ from outside.
func (r *row) snapshot() map[string]string {
	r.t.Helper()
	seen := map[string]string{}
	must(r.t, filepath.WalkDir(filepath.Join(r.dir, "workspace/work"), func(path string, d fs.DirEntry, err error) error {
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
	}))
	return seen
}

func builtInSkill(t testing.TB, id string) *skills.Skill {
	t.Helper()
	catalog, err := builtIn()
	must(t, err)
	skill, err := catalog.Get(id)
	must(t, err)
	return skill
}

// refusesInputs wants inputs to be refused, as for an invoke before anything starts, with the field
// at fault.
func refusesInputs(t testing.TB, id string, inputs any, field string) {
	t.Helper()
	given, err := json.Marshal(inputs)
	must(t, err)
	err = builtInSkill(t, id).CheckInputs(context.Background(), given)
	if err == nil {
		t.Errorf("%s takes %.200v; want an error that names %s", id, inputs, field)
		return
	}
	problem := fault.From(err)
	if problem.Code != fault.InvalidInputs || !slices.ContainsFunc(problem.Fields, func(f fault.Field) bool { return f.Field == field && f.Reason != "" }) {
		t.Errorf("%s of %.200v: %v; want an error that names %s", id, inputs, problem, field)
	}
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// same wants equality, as JSON sees it.
func same(t testing.TB, what string, got, want any) {
	t.Helper()
	var normal [2]any
	for i, v := range []any{got, want} {
		text, err := json.Marshal(v)
		must(t, err)
		must(t, json.Unmarshal(text, &normal[i]))
	}
	if !reflect.DeepEqual(normal[0], normal[1]) {
		t.Errorf("%s: %v, want %v", what, normal[0], normal[1])
	}
}

// object is a JSON object.
type object map[string]any

func (o object) at(path string) any {
	var v any = map[string]any(o)
	for key := range strings.SplitSeq(path, ".") {
		m, ok := v.(map[string]any)
		if !ok {
			return nil
		}
		v = m[key]
	}
	return v
}

func (o object) str(path string) string { s, _ := o.at(path).(string); return s }

func (o object) num(path string) float64 { n, _ := o.at(path).(float64); return n }

func (o object) list(path string) []object {
	items, _ := o.at(path).([]any)
	out := make([]object, 0, len(items))
	for _, item := range items {
		if m, ok := item.(map[string]any); ok {
			out = append(out, m)
		}
	}
	return out
}
