package recipe_test

import (
	"archive/tar"
	"bytes"
	"encoding/base64"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"secbox/fault"
	"secbox/images/recipe"
)

const hash = "--hash=sha256:8abb2f1d86890a2dfb989f9a77cfcfd3e47c2a354b01111771326f8aa26e0254"

// TestFilesThatAreRefused: each refusal names the line and what is wrong.
func TestFilesThatAreRefused(t *testing.T) {
	t.Parallel()
	for file, want := range map[string]string{
		"":                                           "the file is empty",
		"apt: [jq]\nbse: x":                          `line 2: there is no key bse; the keys are base, apt`,
		"pip:\n  locks: x":                           `line 2: pip has no key "locks"`,
		"apt: jq":                                    "line 1: cannot unmarshal",
		"apt:\n  - jq\n  - [x]":                      "line 3: must be one text",
		"apt: [jq]\n---\napt: [jq]":                  "more than one YAML document",
		"apt: ['jq; rm -rf /']":                      `line 1: apt: "jq; rm -rf /" is not a package`,
		"apt: ['-oDir=/x']":                          "is not a package",
		"npm: [left-pad]":                            "exact version",
		"npm: ['left-pad@latest']":                   "exact version",
		"npm: ['$(id)@1.0.0']":                       "exact version",
		"pip: [six]":                                 "a package with hashes",
		"pip: ['six==1.16.0']":                       "a package with hashes",
		"pip: {wheels: w}":                           "nothing to install",
		"base: 'x\nRUN id'":                          "base: ",
		"base: '--platform=x'":                       "base: ",
		"files: {../x: /opt/x}":                      "not a path below the directory",
		"files: {/etc/shadow: /opt/x}":               "not a path below the directory",
		"files: {x: opt/x}":                          "not an absolute path",
		"files: {x: /opt/../proc/x}":                 "not an absolute path",
		"files: {x: '/opt/$HOME'}":                   "not an absolute path",
		"files: {x: /opt/secbox/sandbox-init}":       "jobs do not see /opt/secbox/sandbox-init",
		"files: {x: /workspace}":                     "jobs do not see /workspace",
		"env: {'A B': x}":                            "not the name of a variable",
		"env: {A: \"x\\ny\"}":                        "must be one line",
		"env: {A: b}\nrun: ['']":                     "line 2: run: must be a line",
		"run: [" + strings.Repeat("x", 25<<10) + "]": "run has more than",
		"# " + strings.Repeat("x", recipe.MaxBytes):  "more than 64 KiB",
	} {
		_, err := recipe.Parse([]byte(file))
		if !fault.Is(err, fault.InvalidRequest) || !strings.Contains(fault.From(err).Message, want) {
			t.Errorf("%.60q: %v, want %q", file, err, want)
		}
	}
}

var blob = regexp.MustCompile(`echo (\S+) \| base64 -d`)

// TestDockerfileQuotes: texts of the file reach neither the syntax of the Dockerfile nor the outer
// shell.
func TestDockerfileQuotes(t *testing.T) {
	t.Parallel()
	r, err := recipe.Parse([]byte(`
apt: [sqlite3]
env: {A: 'x" \ $HOME '' y'}
run: ["echo 'it''s' $(id) <<EOF # \nRUN x"]
files: {a: /opt/a}
`))
	if err != nil {
		t.Fatal(err)
	}
	text := r.Dockerfile(recipe.Build{Base: "secbox-sandbox:latest", Labels: map[string]string{"secbox.x": "1"}})
	for _, want := range []string{
		"FROM secbox-sandbox:latest\nUSER 0:0\nLABEL secbox.x=\"1\"\n", `ENV A="x\" \\ \$HOME ' y"` + "\n", `COPY ["files/0", "/opt/a"]`, "\nUSER 1000:1000\n",
	} {
		if !strings.Contains(text, want) {
			t.Errorf("no %q in\n%s", want, text)
		}
	}
	if strings.Contains(text, "\nRUN x") || strings.Count(text, "\nRUN ") != 1 {
		t.Errorf("a line of the file became an instruction:\n%s", text)
	}
	script, err := base64.StdEncoding.DecodeString(blob.FindStringSubmatch(text)[1])
	if err != nil {
		t.Fatal(err)
	}
	if want := `sh -ec 'echo '\''it'\'''\''s'\'' $(id) <<EOF # ` + "\n" + `RUN x'`; !strings.Contains(string(script), want) {
		t.Errorf("no %q in\n%s", want, script)
	}
}

func root(t *testing.T, files map[string]string) *os.Root {
	t.Helper()
	dir := t.TempDir()
	for name, content := range files {
		path := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(content), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	r, err := os.OpenRoot(dir)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { r.Close() })
	return r
}

// TestLock: a lock has only exact versions with hashes.
func TestLock(t *testing.T) {
	t.Parallel()
	r := recipe.Recipe{Pip: recipe.Pip{Lock: "lock"}}
	for lock, want := range map[string]string{
		"six==1.16.0 " + hash + "\n": "",
		"# made by x\nsix[a]==1.16.0 ; python_version >= '3' \\\n    " + hash + " \\\n    " + hash + "  # via y\n": "",
		"":                              "has no packages",
		"six\n":                         "line 1: \"six\" has no exact version",
		"# x\n\nsix==1.16.0\n":          "line 3: \"six==1.16.0\" has no --hash",
		"--index-url https://x.example": "line 1: \"--index-url https://x.example\" is an option",
		"-r other.txt":                  "is an option",
		"six @ https://x.example/six.whl " + hash:                       "has no exact version",
		"six==1.16.0 --hash=md5:abc":                                    "has no --hash=sha256",
		"six==1 ; x \\ \n--index-url=https://x.example " + hash:         "is not name==version",
		"six==1 ; x\u2028--index-url=https://x.example " + hash:         "is not name==version",
		strings.Repeat("x\\\n", 100_000) + "six==1.16.0 " + hash + "\n": "line 1: the package has more than 64 KiB",
	} {
		err := r.Check(root(t, map[string]string{"lock": lock}))
		if want == "" && err != nil || want != "" && (err == nil || !strings.Contains(fault.From(err).Message, want)) {
			t.Errorf("%q: %v, want %q", lock, err, want)
		}
	}
}

// TestLockInContext: pip gets the packages of a lock only. It ends lines at more characters than
// other programs, and reads an encoding in a comment.
func TestLockInContext(t *testing.T) {
	t.Parallel()
	r := recipe.Recipe{Pip: recipe.Pip{Lock: "lock"}}
	lock := "# coding: utf-7 +AAo---index-url=https://x.example\n# x\r--index-url=https://x.example\nsix==1.16.0 ; a == 'x-b' and \\\n  c \t\\ \n " + hash + " # \u2028-r x\r\n"
	var out bytes.Buffer
	if err := r.WriteContext(&out, root(t, map[string]string{"lock": lock}), "FROM x\n"); err != nil {
		t.Fatal(err)
	}
	archive := tar.NewReader(&out)
	for h, err := archive.Next(); h == nil || h.Name != "pip/lock.txt"; h, err = archive.Next() {
		if err != nil {
			t.Fatal(err)
		}
	}
	got, err := io.ReadAll(archive)
	if err != nil || string(got) != "six==1.16.0 ; a == 'x-b' and c "+hash+"\n" {
		t.Errorf("%q, %v", got, err)
	}
}

// TestContextStaysBelowItsDirectory: nothing outside the directory of the file gets into an image.
func TestContextStaysBelowItsDirectory(t *testing.T) {
	t.Parallel()
	dir := root(t, map[string]string{"lib/a.txt": "a", "b": "b"})
	r := recipe.Recipe{Files: []recipe.File{{From: "b", To: "/opt/b"}, {From: "lib", To: "/opt/lib"}}}
	var out bytes.Buffer
	if err := r.WriteContext(&out, dir, "FROM x\n"); err != nil {
		t.Fatal(err)
	}
	var names []string
	for archive := tar.NewReader(&out); ; {
		h, err := archive.Next()
		if err == io.EOF {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		names = append(names, h.Name)
	}
	if got := strings.Join(names, " "); got != "Dockerfile files/0 files/1/ files/1/a.txt" {
		t.Errorf("the context has %s", got)
	}
	if err := os.Symlink("/etc/passwd", filepath.Join(dir.Name(), "lib", "link")); err != nil {
		t.Fatal(err)
	}
	if err := r.WriteContext(io.Discard, dir, "FROM x\n"); !fault.Is(err, fault.InvalidRequest) {
		t.Errorf("a link in a directory: %v", err)
	}
	for _, from := range []string{"lib/link", "lib/link/x", "nosuch"} {
		bad := recipe.Recipe{Files: []recipe.File{{From: from, To: "/opt/x"}}}
		if err := bad.WriteContext(io.Discard, dir, ""); !fault.Is(err, fault.InvalidRequest) {
			t.Errorf("%s: %v", from, err)
		}
	}
}

func FuzzParse(f *testing.F) {
	f.Add([]byte("apt: [jq]\nenv: {A: b}\nfiles: {a: /opt/a}\nrun: [id]\npip: {lock: x}\n"))
	f.Add([]byte("pip: ['six==1 " + hash + "']\nnpm: ['@a/b@1.0.0']\nbase: a@sha256:x"))
	f.Fuzz(func(t *testing.T, data []byte) {
		r, err := recipe.Parse(data)
		if err != nil {
			return
		}
		text := r.Dockerfile(recipe.Build{Base: "b", Labels: map[string]string{"l": "1"}})
		for line := range strings.Lines(text) {
			word, _, _ := strings.Cut(line, " ")
			if !strings.Contains(" FROM USER LABEL ENV COPY RUN ", " "+strings.TrimSpace(word)+" ") {
				t.Fatalf("an instruction of the file's own: %q", line)
			}
		}
	})
}
