package skills

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"secbox/skills/schema"
)

// good is a manifest with every member, for tests that break one of them.
const good = `{
  "schema_version": "1",
  "id": "text.demo",
  "name": "Demo",
  "description": "Says what it was given.",
  "interface": {
    "inputs": {
      "type": "object",
      "properties": {
        "text": {"type": "string", "description": "What to say."},
        "times": {"type": "integer", "minimum": 1, "description": "How often."}
      },
      "required": ["text"],
      "additionalProperties": false
    },
    "outputs": {"type": "object", "properties": {"said": {"type": "string"}}, "required": ["said"]}
  },
  "runtime": {"kind": "docker", "image": "secbox-sandbox:latest", "entrypoint": ["bash", "./run.sh"]},
  "permissions": {"fs": {"read": ["inputs/**", "work/**"], "write": ["artifacts/**"]}, "net": {"mode": "none"}},
  "limits": {
    "timeout_ms": 1000, "max_stdout_bytes": 1, "max_stderr_bytes": 1, "max_artifacts_bytes_total": 1,
    "memory_mb": 64, "cpu_cores": 0.5, "pids": 16, "tmp_mb": 1
  }
}`

// files are the files of a skill by path; a name that ends in a slash is an empty directory.
type files map[string]string

func demo() files {
	return files{ManifestFile: good, ReadmeFile: "# Demo\n", "run.sh": "echo hi\n"}
}

// with adds or replaces a file.
func (f files) with(path, content string) files {
	f[path] = content
	return f
}

func (f files) without(path string) files {
	delete(f, path)
	return f
}

// write puts the files below dir.
func (f files) write(t testing.TB, dir string) {
	t.Helper()
	for path, content := range f {
		full := filepath.Join(dir, filepath.FromSlash(path))
		if strings.HasSuffix(path, "/") {
			must(t, os.MkdirAll(full, 0o755))
			continue
		}
		must(t, os.MkdirAll(filepath.Dir(full), 0o755))
		must(t, os.WriteFile(full, []byte(content), 0o644))
	}
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// open opens a catalog with the operator's folder dir.
func open(t testing.TB, dir string) *Catalog {
	t.Helper()
	c, err := Open(Config{Dir: dir})
	must(t, err)
	return c
}

// brokenOf returns the problems of a folder in the operator's folder.
func brokenOf(t testing.TB, s *Snapshot, folder string) []Problem {
	t.Helper()
	for _, b := range s.Broken() {
		if b.Folder == folder && b.Source == SkillsDir {
			return b.Problems
		}
	}
	t.Fatalf("%s is not broken; broken are %+v", folder, s.Broken())
	return nil
}

// edit changes a JSON text: change gets the object at the path.
func edit(t testing.TB, text string, path []string, change func(parent map[string]any)) string {
	t.Helper()
	doc, bad := schema.Parse([]byte(text))
	if bad != nil {
		t.Fatal(bad)
	}
	parent, ok := schema.At(doc, path)
	if !ok {
		t.Fatalf("there is no %v", path)
	}
	change(parent.(map[string]any))
	out, err := json.Marshal(doc)
	must(t, err)
	return string(out)
}

// set returns the manifest with another JSON value at a path; remove returns it without the path.
func set(t testing.TB, path, value string) string {
	t.Helper()
	tokens := strings.Split(strings.TrimPrefix(path, "/"), "/")
	return edit(t, good, tokens[:len(tokens)-1], func(parent map[string]any) {
		parent[tokens[len(tokens)-1]] = json.RawMessage(value)
	})
}

func remove(t testing.TB, path string) string {
	t.Helper()
	tokens := strings.Split(strings.TrimPrefix(path, "/"), "/")
	return edit(t, good, tokens[:len(tokens)-1], func(parent map[string]any) { delete(parent, tokens[len(tokens)-1]) })
}
