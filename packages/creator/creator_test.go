//go:build unix

package creator_test

import (
	"encoding/json"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"unicode"

	"golang.org/x/sys/unix"

	"secbox/packages/archive"
	"secbox/packages/creator"
	"secbox/pathadapter"
)

const skillMD = "---\nname: Demo\ndescription: Shows something.\n---\n# Demo\n"

// manifest is valid in a folder demo.tool.
const manifest = `{
  "schema_version": "1", "id": "demo.tool", "name": "Demo", "description": "Shows something.",
  "interface": {
    "inputs": {"type": "object", "properties": {"n": {"type": "integer", "minimum": 0, "description": "n"}, "s": {"$ref": "#/$defs/s"}},
      "required": ["n"], "additionalProperties": false, "$defs": {"s": {"type": "string", "pattern": "^a+$", "maxLength": 5, "enum": ["a", "aa"]}}},
    "outputs": {"type": "object", "properties": {"list": {"type": "array", "items": {"type": ["string", "null"]}, "minItems": 1}}, "anyOf": [{"required": ["list"]}, true]}
  },
  "runtime": {"kind": "docker", "image": "secbox-sandbox:latest", "entrypoint": ["python3", "-I", "./run.py"]},
  "permissions": {"fs": {"read": ["inputs/**", "work/**"], "write": ["artifacts/**"]}, "net": {"mode": "none"}},
  "limits": {"timeout_ms": 60000, "memory_mb": 64, "cpu_cores": 0.5, "pids": 16}
}`

func TestSkillCreatorIsValid(t *testing.T) {
	t.Parallel()
	f, err := creator.Folder()
	must(t, err)
	again, err := creator.Folder()
	must(t, err)
	if f.Digest != again.Digest || len(f.Digest) != 64 || len(f.Files) < 5 {
		t.Errorf("%s and %s, %d files", f.Digest, again.Digest, len(f.Files))
	}
	// Every file is embedded, and nothing else is in the folder.
	names := []string{"manifest.schema.json"} // the catalog's own
	must(t, filepath.WalkDir("skill-creator", func(path string, d fs.DirEntry, err error) error {
		if err == nil && !d.IsDir() {
			names = append(names, strings.TrimPrefix(path, "skill-creator/"))
		}
		return err
	}))
	if len(names) != len(f.Files) {
		t.Errorf("on the disk are %v, embedded %d files", names, len(f.Files))
	}
}

// made is a case: it makes a skill's folder, and wants this finding, or "" for none.
type made struct {
	folder string // "": demo
	wants  string
	make   func(dir string)
}

// TestServerAcceptsItsSkills checks a table of bad and good folders with the skill, in a container,
// and with the server.
func TestServerAcceptsItsSkills(t *testing.T) {
	t.Parallel()
	put := func(dir, name, content string) {
		path := filepath.Join(dir, name)
		must(t, os.MkdirAll(filepath.Dir(path), 0o755))
		must(t, os.WriteFile(path, []byte(content), 0o644))
	}
	with := func(files ...string) func(string) {
		return func(dir string) {
			put(dir, "SKILL.md", skillMD)
			for i := 0; i+1 < len(files); i += 2 {
				put(dir, files[i], files[i+1])
			}
		}
	}
	text := func(content string) func(string) { return func(dir string) { put(dir, "SKILL.md", content) } }
	long := strings.Repeat("x", 250)
	deep := func(n int) string { return strings.Repeat("d/", n) + "f" }
	cases := map[string]made{
		"the least":             {"", "", with()},
		"with files":            {"", "", with("a/b/c.txt", "x", "empty", "", "README.md", "x", ".hidden", "x", "天气/数据.txt", "x")},
		"a Chinese name":        {"天气查询", "", with()},
		"an empty folder":       {"", "", func(dir string) { with()(dir); must(t, os.MkdirAll(dir+"/a/b", 0o755)) }},
		"a folder of its name":  {"", "", with("demo/x", "x")},
		"what packs too well":   {"", "", with("spaces", strings.Repeat(" ", 8<<20), "more", strings.Repeat("a", 1<<20))},
		"an executable":         {"", "", func(dir string) { with("run.sh", "#!/bin/sh\n")(dir); must(t, os.Chmod(dir+"/run.sh", 0o755)) }},
		"litter":                {"", "", with("__pycache__/x.pyc", "x", ".DS_Store", "x", "a/._b", "x", "Thumbs.db", "x", ".git/HEAD", "x")},
		"sixteen deep":          {"", "", with(deep(15), "x")},
		"no SKILL.md":           {"", "SKILL.md: does not exist", func(dir string) { put(dir, "main.py", "x") }},
		"nothing":               {"", "SKILL.md: does not exist", func(dir string) { must(t, os.MkdirAll(dir, 0o755)) }},
		"empty SKILL.md":        {"", "SKILL.md: is empty", text("")},
		"blank SKILL.md":        {"", "SKILL.md: is empty", text("\ufeff \n\t\n")},
		"blank README.md":       {"", "README.md: is empty", with("README.md", " \n")},
		"SKILL.md is a folder":  {"", "SKILL.md: does not exist", func(dir string) { must(t, os.MkdirAll(dir+"/SKILL.md", 0o755)) }},
		"SKILL.md is a link":    {"", "SKILL.md: is a link", func(dir string) { put(dir, "a.md", skillMD); must(t, os.Symlink("a.md", dir+"/SKILL.md")) }},
		"SKILL.md below":        {"", "", with("a/SKILL.md", "# x", "templates/x/SKILL.md", "")},
		"Skill.MD below":        {"", "", with("a/Skill.MD", "# x")},
		"two of them":           {"", "differs from", with("skill.md", "# x")},
		"another case":          {"", "Skill.md: SKILL.md is found by exactly this name", func(dir string) { put(dir, "Skill.md", skillMD) }},
		"a link":                {"", "l: is a link", func(dir string) { with()(dir); must(t, os.Symlink("/etc/passwd", dir+"/l")) }},
		"a link to a folder":    {"", "l: is a link", func(dir string) { with()(dir); must(t, os.Symlink(".", dir+"/l")) }},
		"a dangling link":       {"", "l: is a link", func(dir string) { with()(dir); must(t, os.Symlink("nowhere", dir+"/l")) }},
		"a FIFO":                {"", "f: is something special", func(dir string) { with()(dir); must(t, unix.Mkfifo(dir+"/f", 0o644)) }},
		"case":                  {"", "differs from A.txt only by case", with("A.txt", "x", "a.txt", "x")},
		"case of folders":       {"", "differs from", with("Lib/a", "x", "lib/b", "x")},
		"case beyond ASCII":     {"", "only by case", with("Ä", "x", "ä", "x")},
		"final sigma":           {"", "only by case", with("σ", "x", "ς", "x")},
		"Unicode form":          {"", "only by Unicode form", with("\u00e4", "x", "a\u0308", "x")},
		"Kelvin":                {"", "differs from", with("k", "x", "\u212a", "x")},
		"long s":                {"", "differs from", with("s", "x", "\u017f", "x")},
		"not UTF-8":             {"", "is not valid UTF-8", with("a\xff", "x")},
		"a control character":   {"", "holds a control character", with("a\nb", "x")},
		"another control":       {"", "holds a control character", with("a\u0085b", "x")},
		"a backslash":           {"", "holds a path separator", with(`a\b`, "x")},
		"a colon":               {"", "Windows does not allow", with("a:b", "x")},
		"a trailing dot":        {"", "ends in a dot or a space", with("a.", "x")},
		"a trailing space":      {"", "ends in a dot or a space", with("a /b", "x")},
		"a device":              {"", "device name", with("con.txt", "x")},
		"a device with a ³":     {"", "device name", with("COM³", "x")},
		"a device with a space": {"", "device name", with("nul .txt", "x")},
		"seventeen deep":        {"", "more than 15 folders deep", with(deep(16), "x")},
		"a long path":           {"", "more than 1024 bytes", with(long+"/"+long+"/"+long+"/"+long+"/"+long, "x")},
		"an id with a colon":    {"a:b", "it is the skill's id", with()},
		"an id of a device":     {"con", "it is the skill's id", with()},
		"a hidden id":           {".demo", "begins with a dot", with()},
		"an id with a space":    {" demo", "begins or ends with a space", with()},
		"a long id":             {strings.Repeat("天", 67), "longer than 200 bytes", with()},
		"an id not shown":       {"de\u200bmo", "does not show", with()},
		"the reserved id":       {"skill-creator", "installation's own", with()},
		"the reserved, wide":    {"ｓｋｉｌｌ-creator", "installation's own", with()},
		"the reserved, upper":   {"SKILL-Creator", "installation's own", with()},
		"the reserved, Kelvin":  {"s\u212aill-creator", "installation's own", with()},
		"an id with a newline":  {"a\nb", "holds a control character", with()},
	}
	for name, c := range frontMatters {
		cases["front matter, "+name] = made{"", c.wants, text("---\n" + c.text + "\n---\n# x\n")}
	}
	maps.Copy(cases, map[string]made{
		"front matter, none":         {"", "has no front matter", text("# Demo\n")},
		"front matter, no end":       {"", "has no end", text("---\nname: a\ndescription: b\n")},
		"front matter, CRLF":         {"", "", text(strings.ReplaceAll(skillMD, "\n", "\r\n"))},
		"front matter, byte order":   {"", "", text("\ufeff" + skillMD)},
		"front matter, not UTF-8":    {"", "is not valid UTF-8 at byte 10", text("---\nname: \xff\n---\n")},
		"front matter, dots at end":  {"", "", text("---\nname: a\ndescription: b\n...\n# x\n")},
		"front matter, late":         {"", "has no front matter", text("\n" + skillMD)},
		"front matter, without end":  {"", "longer than 65536 bytes", text("---\nname: a\ndescription: b\nx: " + strings.Repeat("y", 70<<10) + "\n---\n")},
		"front matter, NUL in value": {"", "does not show", text("---\nname: a\x00\ndescription: b\n---\n")},
	})
	for name, raw := range manifests(t) {
		cases["manifest, "+name] = made{"demo.tool", "?", with("run.py", "print()\n", "self.sh", "#!/bin/sh\n", ".hid.py", "", "manifest.json", raw)}
	}
	cases["manifest, good"] = made{"demo.tool", "", with("run.py", "print()\n", "manifest.json", manifest)}
	cases["manifest, other folder"] = made{"demo", "/id is demo.tool", with("run.py", "print()\n", "manifest.json", manifest)}
	cases["manifest, a link"] = made{"demo.tool", "manifest.json: is a link", func(dir string) {
		with("run.py", "x", "m", manifest)(dir)
		must(t, os.Symlink("m", dir+"/manifest.json"))
	}}

	dir := t.TempDir()
	must(t, os.Chmod(dir, 0o755))
	names := slices.Sorted(maps.Keys(cases))
	place := func(n int) string {
		folder := cases[names[n]].folder
		if folder == "" {
			folder = "demo"
		}
		return filepath.Join(dir, fmt.Sprintf("%04d", n), folder)
	}
	for n, name := range names {
		must(t, os.MkdirAll(place(n), 0o755))
		cases[name].make(place(n))
	}
	argvs := [][]string{}
	for _, c := range commands {
		argvs = append(argvs, c.argv)
	}
	v := judge(t, dir, folds(), argvs)
	for n, c := range commands {
		got := v.Ran[n]
		if said := got.Out + got.Err; got.Code != c.code || !strings.Contains(said, c.says) || strings.Contains(said, "Traceback") {
			t.Errorf("%q: exit code %d and %q, want %d and %q", c.argv, got.Code, said, c.code, c.says)
		}
	}
	accepted := 0
	for n, name := range names {
		j, ok := v.Cases[fmt.Sprintf("%04d", n)]
		if !ok {
			t.Fatalf("%s was not checked", name)
		}
		wants := cases[name].wants
		if wants == "?" { // any finding, if the server takes accepted ones
			if wants = ""; len(j.Findings) > 0 {
				wants = j.Findings[0]
				if !strings.HasPrefix(wants, "manifest.json: ") {
					t.Errorf("%s: it finds %q", name, wants)
				}
				if refusals := server(t, place(n)); len(refusals) == 0 {
					t.Logf("%s: stricter than the server: %q", name, j.Findings)
				}
			} else {
				accepted++
			}
		}
		j.check(t, name, place(n), wants)
	}
	if accepted < 10 {
		t.Errorf("only %d mutated manifests were accepted", accepted)
	}
	// Of names: what systems take for one, the skill does too, and it takes no character in an id
	// that the server does not.
	if len(v.Apart) > 0 {
		t.Errorf("it tells apart %q", v.Apart)
	}
	for _, r := range v.Accepted {
		if err := archive.CheckID("a" + string(r) + "b"); err != nil && archive.CheckID(normal("a"+string(r)+"b")) != nil {
			t.Errorf("it takes %U (its Unicode is %s), and the server: %v", r, v.Unicode, err)
		}
	}
	if len(v.Accepted) < 20_000 {
		t.Errorf("it takes only %d characters", len(v.Accepted))
	}
}

// folds are pairs of names that some system does not distinguish.
func folds() (pairs [][2]string) {
	for r := rune(0); r <= unicode.MaxRune; r++ {
		for next := unicode.SimpleFold(r); next != r; next = unicode.SimpleFold(next) {
			if a, b := "x"+string(r), "x"+string(next); pathadapter.FoldName(a) == pathadapter.FoldName(b) {
				pairs = append(pairs, [2]string{a, b})
			}
		}
	}
	return pairs
}

// manifests are the valid one with each of its values replaced or removed, and invalid texts.
func manifests(t *testing.T) map[string]string {
	t.Helper()
	all := map[string]string{
		"no JSON": "{", "empty": "", "an array": "[]", "two": manifest + manifest, "NaN": `{"id": NaN}`, "twice": `{"id": "a.b", "id": "a.b"}`,
		"byte order mark": "\ufeff" + manifest, "not UTF-8": "{\"id\": \"\xff\"}", "half a surrogate": strings.Replace(manifest, "Demo", `\ud800`, 1),
		"deep": strings.Repeat("[", 200) + strings.Repeat("]", 200), "deeper": strings.Repeat("[", 200_000),
		"fraction": strings.Replace(manifest, "60000", "60000.0", 1), "exponent": strings.Replace(manifest, "60000", "6e4", 1),
		"huge": strings.Replace(manifest, "60000", "1e999", 1), "digits": strings.Replace(manifest, "60000", strings.Repeat("9", 2000), 1),
		"project_id": strings.Replace(manifest, `"n": {`, `"project_id": {`, 1), "a blank name": strings.Replace(manifest, `"Demo"`, `" \n"`, 1),
		"hidden": strings.Replace(manifest, "./run.py", "./.hid.py", 1), "no file": strings.Replace(manifest, "./run.py", "./none.py", 1),
		"up": strings.Replace(manifest, "./run.py", "./../run.py", 1), "backslash": strings.Replace(manifest, "./run.py", `./a\\run.py`, 1),
		"starts not":    strings.Replace(manifest, `"python3", "-I", `, "", 1),
		"starts itself": strings.Replace(manifest, `"python3", "-I", "./run.py"`, `"./self.sh"`, 1),
		"double slash":  strings.Replace(manifest, "./run.py", ".//run.py", 1), "twice read": strings.Replace(manifest, `"work/**"`, `"inputs/**"`, 1),
		"remote reference":      strings.Replace(manifest, "#/$defs/s", "http://example.org/x", 1),
		"no such part":          strings.Replace(manifest, "#/$defs/s", "#/$defs/t", 1),
		"a trailing line break": strings.Replace(manifest, `"demo.tool"`, `"demo.tool\n"`, 1),
		"write all":             strings.Replace(manifest, `["artifacts/**"]`, `["artifacts/**", "work/**"]`, 1),
		"write not read":        strings.Replace(strings.Replace(manifest, `, "work/**"`, "", 1), `["artifacts/**"]`, `["artifacts/**", "work/**"]`, 1),
	}
	for _, pattern := range []string{
		`a(?=b)`, `(?!a)`, `(a)\\1`, `(?P<n>a)`, `a++`, `[`, `\\d+`, `\\p{L}`, `(?i)a`, `\\Z`, `a{1001}`, `a{1,2}{3}`, `(?:a|b)*?`,
		`\\u00e4`, `\\x41`, `[[:alpha:]]`, `(?<n>a)`, `\\h`, `\\cA`, `a{,3}`, `\\/`, `\\-`, `[\\w-]`, `\\A`, `\\b`, `[\\b]`, `[^\\]]*`, `\\ä`, `\\ `, `(?x)a b`,
		`(?:a{40}){40}`, `a{40}b{40}`, `(a{10}){10}`, `((a{10}){11}){10}`, `a{1001,}`, `\\x4`, `(?a)x`, `(?-i)x`, `\\Qa\\E`,
	} {
		all["pattern "+pattern] = strings.Replace(manifest, `"^a+$"`, `"`+pattern+`"`, 1)
	}
	var document any
	must(t, json.Unmarshal([]byte(manifest), &document))
	var walk func(path string, holder any, set func(any, bool))
	add := func(name string) {
		text, err := json.Marshal(document)
		must(t, err)
		all[name] = string(text)
	}
	walk = func(path string, value any, set func(any, bool)) {
		if path != "" {
			for name, other := range map[string]any{
				"null": nil, "a number": 5, "a text": "x", "a list": []any{}, "an object": map[string]any{}, "true": true, "minus": -1.5,
				"names": []any{"a", "a"},
			} {
				set(other, true)
				add(path + " is " + name)
			}
			set(nil, false)
			add(path + " is gone")
			set(value, true)
		}
		switch v := value.(type) {
		case map[string]any:
			for _, key := range slices.Sorted(maps.Keys(v)) {
				walk(path+"/"+key, v[key], func(other any, keep bool) {
					if v[key] = other; !keep {
						delete(v, key)
					}
				})
			}
			v["unknown"] = "x"
			add(path + " has something more")
			delete(v, "unknown")
		case []any:
			for i := range v {
				walk(fmt.Sprintf("%s/%d", path, i), v[i], func(other any, _ bool) { v[i] = other })
			}
		}
	}
	walk("", document, nil)
	return all
}
