package invoke_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"secbox/fault"
	"secbox/runner"
	"secbox/skills"
	"secbox/skills/invoke"
)

// put writes a skill; its script has the version in it, so that its digest differs.
func put(t *testing.T, dir string, version int, entrypoint ...string) {
	t.Helper()
	argv, err := json.Marshal(entrypoint)
	if err != nil {
		t.Fatal(err)
	}
	for name, content := range map[string]string{
		"manifest.json": fmt.Sprintf(`{"schema_version": "1", "id": "trial.job", "name": "A trial", "description": "A skill of a test.",
			"interface": {"inputs": {"type": "object", "properties": {"n": {"type": "integer"}}}, "outputs": {"type": "object"}},
			"runtime": {"kind": "docker", "entrypoint": %s},
			"permissions": {"fs": {"read": ["inputs/**"], "write": ["artifacts/**"]}, "net": {"mode": "none"}}, "limits": {}}`, argv),
		"SKILL.md": "# A trial\n", "run": fmt.Sprintf("# version %d\n", version),
	} {
		if err := os.MkdirAll(filepath.Join(dir, "trial.job"), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, "trial.job", name), []byte(content), 0o644); err != nil {
			t.Fatal(err)
		}
	}
}

// asked is a runner that records its requests; the real one is in the end-to-end tests.
type asked struct {
	requests []runner.Request
	answer   func(n int) error
}

func (a *asked) Run(_ context.Context, req runner.Request) (runner.Result, error) {
	a.requests = append(a.requests, req)
	return runner.Result{}, a.answer(len(a.requests))
}

func open(t *testing.T, dir string) *skills.Catalog {
	t.Helper()
	catalog, err := skills.Open(skills.Config{Dir: dir})
	if err != nil {
		t.Fatal(err)
	}
	if broken := catalog.Now().Broken(); len(broken) > 0 {
		t.Fatalf("%+v", broken)
	}
	return catalog
}

func TestCommand(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ entrypoint, want []string }{
		{[]string{"bash", "./run", "x"}, []string{"bash", "DIR/run", "x"}},
		{[]string{"python", "./run"}, []string{"python", "-I", "DIR/run"}},
		{[]string{"python3", "-u", "./run"}, []string{"python3", "-I", "-u", "DIR/run"}},
		{[]string{"/usr/bin/python3.12", "./run"}, []string{"/usr/bin/python3.12", "-I", "DIR/run"}},
		{[]string{"pythonic", "./run"}, []string{"pythonic", "DIR/run"}},
		{[]string{"jq", ".a", "run"}, []string{"jq", ".a", "run"}},
	} {
		dir := t.TempDir()
		put(t, dir, 1, c.entrypoint...)
		catalog := open(t, dir)
		a := &asked{answer: func(int) error { return nil }}
		if _, err := invoke.New(catalog, a).Invoke(t.Context(), invoke.Request{SkillID: "trial.job", ProjectID: "p"}); err != nil {
			t.Fatal(err)
		}
		skill, err := catalog.Now().Get("trial.job")
		if err != nil {
			t.Fatal(err)
		}
		want := slices.Clone(c.want)
		for n, arg := range want {
			if arg == "DIR/run" {
				want[n] = "/workspace/inputs/.skill/" + skill.Digest + "/run"
			}
		}
		r := a.requests[0]
		if got := append([]string{r.Command.Name}, r.Command.Args...); !slices.Equal(got, want) {
			t.Errorf("%q runs %q, want %q", c.entrypoint, got, want)
		}
		if string(r.Skill.Input) != "{}" || r.Skill.Folder.Digest != skill.Digest || len(r.Skill.Folder.Files) != 3 {
			t.Errorf("%+v", r.Skill)
		}
	}
}

// TestSkillReplacedUnderAnInvoke checks that an invoke begins again when the skill has changed, no
// matter which caller has noticed it first.
func TestSkillReplacedUnderAnInvoke(t *testing.T) {
	t.Parallel()
	changed := fault.New(fault.SkillChanged, "changed")
	for name, c := range map[string]struct {
		replace  bool // the folder, at each try
		noticed  bool // by another caller, before the invoke checks
		failures int
		runs     int
		code     fault.Code
	}{
		"replaced once":                 {true, false, 1, 2, ""},
		"replaced and noticed":          {true, true, 1, 2, ""},
		"replaced again and again":      {true, false, 100, 3, fault.SkillChanged},
		"not what was read, and stays":  {false, false, 100, 1, fault.SkillChanged},
		"nothing wrong, nothing begins": {false, false, 0, 1, ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			put(t, dir, 0, "bash", "./run")
			catalog := open(t, dir)
			a := &asked{}
			a.answer = func(n int) error {
				if c.replace {
					put(t, dir, n, "bash", "./run")
				}
				if c.noticed {
					catalog.Reload()
				}
				if n <= c.failures {
					return changed
				}
				return nil
			}
			_, err := invoke.New(catalog, a).Invoke(t.Context(), invoke.Request{SkillID: "trial.job", ProjectID: "p"})
			if fault.CodeOf(err) != c.code || len(a.requests) != c.runs {
				t.Errorf("%v after %d runs, want %q after %d", err, len(a.requests), c.code, c.runs)
			}
			if n := len(a.requests); n > 1 && a.requests[n-1].Skill.Folder.Digest == a.requests[0].Skill.Folder.Digest {
				t.Error("it started again with the same version")
			}
		})
	}
}

// TestErrorsInTheCallersWords checks that an exec's inputs are called files, and that invalid
// inputs never reach the runner.
func TestErrorsInTheCallersWords(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	put(t, dir, 1, "bash", "./run")
	a := &asked{answer: func(int) error { return fault.BadField("inputs[2].path", "is absolute") }}
	invoker := invoke.New(open(t, dir), a)
	_, err := invoker.Invoke(t.Context(), invoke.Request{SkillID: "trial.job", ProjectID: "p"})
	if e := fault.From(err); len(e.Fields) != 1 || e.Fields[0].Field != "files[2].path" || e.Message != "files[2].path: is absolute" {
		t.Errorf("%+v", e)
	}
	for _, bad := range []string{`{"n": "x"}`, `[]`, `{`, `null`, `{"n":1,"n":2}`} {
		if _, err := invoker.Invoke(t.Context(), invoke.Request{SkillID: "trial.job", Inputs: json.RawMessage(bad)}); !fault.Is(err, fault.InvalidInputs) {
			t.Errorf("%s: %v", bad, err)
		}
	}
	if _, err := invoker.Invoke(t.Context(), invoke.Request{SkillID: "trial.none"}); !fault.Is(err, fault.UnknownSkill) {
		t.Error(err)
	}
	if len(a.requests) != 1 {
		t.Errorf("%d requests reached the runner", len(a.requests))
	}
}

// TestClientLeaves gets nothing run: the validation of the inputs ends with its request.
func TestClientLeaves(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	put(t, dir, 1, "bash", "./run")
	a := &asked{answer: func(int) error { return nil }}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, err := invoke.New(open(t, dir), a).Invoke(ctx, invoke.Request{SkillID: "trial.job", ProjectID: "demo"})
	if !errors.Is(err, context.Canceled) || len(a.requests) > 0 {
		t.Errorf("%v; %d ran", err, len(a.requests))
	}
}
