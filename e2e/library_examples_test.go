package e2e

import (
	"archive/zip"
	"bytes"
	"encoding/json"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"slices"
	"sort"
	"strings"
	"testing"
)

// example is one of the examples that clients of /v1 were written by: the command and the answer as
// they stand there.
type example struct {
	name, command, answer string
	says                  any // the exact data; nil: only the shape is compared
}

// examples are in an order in which a new user could try them. Two things in them are not ours: the
// archive is called after its skill, and logical paths take the place of directories.
var examples = []example{
	{"upload", `curl -X POST "http://localhost:8003/v1/skills/1001/agent001/upload?scope=overlay" \
     -F "file=@myskill.zip"`, `{
  "status": "success",
  "data": "Upload successful: skill 'myskill' to '/webIde/product/skill/overlay/1001/agent001/myskill'"
}`, "Upload successful: skill 'myskill' to 'overlay/1001/agent001/myskill'"},
	{"list", `curl "http://localhost:8003/v1/skills/1001/agent001/list"`, `{
  "status": "success",
  "data": [
    {
      "name": "天气查询技能",
      "description": "提供全球实时天气查询服务"
    },
    {
      "name": "我的自定义工具",
      "description": "No description available."
    }
  ]
}`, []any{
		map[string]any{"name": "我的自定义工具", "description": "No description available."},
		map[string]any{"name": "skill-creator", "description": creatorDescription},
		map[string]any{"name": "天气查询技能", "description": "提供全球实时天气查询服务"},
	}},
	{"files", `curl "http://localhost:8003/v1/skills/1001/agent001/weather_skill/files"`, `{
  "status": "success",
  "data": [
    "main.py",
    "utils/helper.py",
    "SKILL.md"
  ]
}`, []any{"SKILL.md", "main.py", "utils/helper.py"}},
	{"content", `curl "http://localhost:8003/v1/skills/1001/agent001/weather_skill/content?path=main.py"`, `{
  "status": "success",
  "data": {
    "content": "import sys\nimport os\n\ndef main():\n    print('Hello Sandbox')"
  }
}`, nil},
	{"lines", `curl "http://localhost:8003/v1/skills/1001/agent001/weather_skill/content?path=main.py&start=1&end=2"`, `{
  "status": "success",
  "data": {
    "content": [
      "import sys",
      "import os"
    ]
  }
}`, map[string]any{"content": []any{"import sys", "import os"}}},
	{"execute", `curl -X POST "http://localhost:8003/v1/skills/1001/agent001/weather_skill/execute?command=python3" \
     -H "Content-Type: application/json" \
     -d '["main.py", "--city", "Beijing"]'`, `{
  "status": "success",
  "data": {
    "stdout": "Beijing: 25°C, Sunny",
    "stderror": "",
    "exit_code": 0
  }
}`, map[string]any{"stdout": "Beijing: 25°C, Sunny", "stderror": "", "exit_code": 0.0}},
	{"edit", `curl -X PUT "http://localhost:8003/v1/sandbox/1001/agent001/edit?path=temp.txt" \
     -H "Content-Type: text/plain" \
     -d "Hello General Sandbox"`, `{
  "status": "success",
  "data": "Sandbox file updated successfully."
}`, "Sandbox file updated successfully."},
	{"ls", `curl -X POST "http://localhost:8003/v1/sandbox/1001/agent001/execute?command=ls" \
     -H "Content-Type: application/json" \
     -d '["-la"]'`, `{
  "status": "success",
  "data": {
    "stdout": "total 8\ndrwxr-xr-x 2 root root 4096 Jan 10 10:00 .\n...",
    "stderror": "",
    "exit_code": 0
  }
}`, nil},
	{"sandbox files", `curl "http://localhost:8003/v1/sandbox/1001/agent001/files"`, `{
  "status": "success",
  "data": ["temp.txt", "data/log.txt"]
}`, nil},
	{"sandbox content", `curl "http://localhost:8003/v1/sandbox/1001/agent001/content?path=temp.txt"`, `{
  "status": "success",
  "data": {
    "content": "Hello General Sandbox content\nLine 2\nLine 3"
  }
}`, map[string]any{"content": "Hello General Sandbox"}},
	{"sandbox lines", `curl "http://localhost:8003/v1/sandbox/1001/agent001/content?path=temp.txt&start=1&end=2"`, `{
  "status": "success",
  "data": {
    "content": [
      "Hello General Sandbox content",
      "Line 2"
    ]
  }
}`, map[string]any{"content": []any{"Hello General Sandbox"}}},
}

// TestLibraryExamples runs the commands with the real curl, in a folder that holds the archive.
// Only the address is this server's.
func TestLibraryExamples(t *testing.T) {
	t.Parallel()
	s := shared(t)
	dir := t.TempDir()
	for name, archive := range map[string][]byte{"myskill.zip": mySkill(t), "weather_skill.zip": weatherSkill(t)} {
		if err := os.WriteFile(filepath.Join(dir, name), archive, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	run := func(command string) object {
		t.Helper()
		cmd := exec.CommandContext(t.Context(), "sh", "-c", strings.ReplaceAll(command, "http://localhost:8003/", s.url+"/"))
		cmd.Dir = dir
		out, err := cmd.Output()
		if err != nil {
			t.Fatalf("%s: %v", command, err)
		}
		return answer{Body: out}.json(t)
	}
	run(strings.Replace(examples[0].command, "myskill.zip", "weather_skill.zip", 1))
	for _, e := range examples {
		got := run(e.command)
		var want object
		if err := json.Unmarshal([]byte(e.answer), &want); err != nil {
			t.Fatal(err)
		}
		if g, w := shape(map[string]any(got)), shape(map[string]any(want)); !reflect.DeepEqual(g, w) {
			t.Errorf("%s: the shape is %v, want %v: %v", e.name, g, w, got)
		}
		if e.says != nil && !reflect.DeepEqual(got["data"], e.says) {
			t.Errorf("%s: got %v, want %v", e.name, got["data"], e.says)
		}
	}
	if listing := run(examples[7].command).str("data.stdout"); !strings.HasPrefix(listing, "total ") || !strings.Contains(listing, " temp.txt\n") {
		t.Errorf("ls: %q", listing)
	}
	if files := run(examples[8].command)["data"]; !slices.Contains(files.([]any), any("temp.txt")) {
		t.Errorf("the files are %v", files)
	}

	// curl -d sends a form's Content-Type by default; the body must be stored unchanged.
	run(`curl -X PUT "http://localhost:8003/v1/sandbox/1001/agent001/edit?path=data/form.txt" -d "a=1&b=%20+c"`)
	if got := run(`curl "http://localhost:8003/v1/sandbox/1001/agent001/content?path=data/form.txt"`).str("data.content"); got != "a=1&b=%20+c" {
		t.Errorf("curl -d wrote %q", got)
	}
}

// shape is the structure of a JSON value: field names and types. Only the first item of a list
// counts.
func shape(v any) any {
	switch v := v.(type) {
	case map[string]any:
		names := slices.Collect(maps.Keys(v))
		sort.Strings(names)
		out := make([]any, 0, 2*len(names))
		for _, name := range names {
			out = append(out, name, shape(v[name]))
		}
		return out
	case []any:
		if len(v) == 0 {
			return "an empty list"
		}
		return []any{"list of", shape(v[0])}
	}
	return reflect.TypeOf(v).String()
}

// archiveOf is a ZIP with one top folder. Contents are paths and texts in turn.
func archiveOf(t testing.TB, folder string, contents ...string) []byte {
	t.Helper()
	var b bytes.Buffer
	w := zip.NewWriter(&b)
	for i := 0; i+1 < len(contents); i += 2 {
		entry, err := w.Create(folder + "/" + contents[i])
		if err == nil {
			_, err = entry.Write([]byte(contents[i+1]))
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

func mySkill(t testing.TB) []byte {
	return archiveOf(t, "myskill", "SKILL.md", "# 我的自定义工具\n")
}

func weatherSkill(t testing.TB) []byte {
	return archiveOf(t, "weather_skill",
		"SKILL.md", "---\nname: 天气查询技能\ndescription: 提供全球实时天气查询服务\n---\n# Weather\n",
		"main.py", "import sys\nimport os\nfrom utils.helper import REPORT\n\nprint(REPORT.format(sys.argv[sys.argv.index('--city') + 1]), end='')\n",
		"utils/helper.py", "REPORT = '{}: 25°C, Sunny'\n")
}
