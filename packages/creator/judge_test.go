//go:build unix

package creator_test

import (
	"archive/zip"
	"bytes"
	"encoding/json"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"secbox/packages/archive"
	"secbox/packages/creator"
	"secbox/packages/metadata"
	"secbox/skills"
)

// judgement has the skill's findings about a folder.
type judgement struct {
	Findings          []string
	Same              bool // packed twice, the archives were the same
	Archive           []byte
	Name, Description string
}

type verdict struct {
	Cases map[string]judgement
	Ran   []struct { // what the commands said
		Code     int
		Out, Err string
	}
	Apart    [][2]string // pairs of names that the skill tells apart
	Accepted []rune      // characters that it takes in a skill's id
	Unicode  string
}

// judge runs the skill's checks on the folders /cases/<n>/<folder> and on pairs of names, and then
// the skill's commands, in one container of the sandbox image.
func judge(t *testing.T, cases string, pairs [][2]string, commands [][]string) verdict {
	t.Helper()
	dir := t.TempDir()
	tool, err := creator.Folder()
	must(t, err)
	must(t, os.CopyFS(filepath.Join(dir, "tool"), tool.FS))
	encoded, err := json.Marshal(map[string]any{"pairs": pairs, "commands": commands})
	must(t, err)
	must(t, os.WriteFile(filepath.Join(dir, "asked.json"), encoded, 0o644))
	script, err := filepath.Abs("testdata/judge.py")
	must(t, err)
	must(t, os.Chmod(dir, 0o755))
	cmd := exec.CommandContext(t.Context(), "docker", "run", "--rm", "--network=none", "--pull=never", "--read-only", "--tmpfs=/tmp",
		"--user="+strconv.Itoa(os.Geteuid()), "--mount=type=bind,readonly,target=/opt/skill-creator,source="+filepath.Join(dir, "tool"),
		"--mount=type=bind,readonly,target=/cases,source="+cases,
		"--mount=type=bind,readonly,target=/asked.json,source="+filepath.Join(dir, "asked.json"),
		"--mount=type=bind,readonly,target=/judge.py,source="+script,
		"--entrypoint=python3", "secbox-sandbox:latest", "-I", "/judge.py")
	var said bytes.Buffer
	cmd.Stderr = &said
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("%v: %s", err, said.String())
	}
	var v verdict
	must(t, json.Unmarshal(out, &v))
	return v
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// server returns the server's reasons to refuse a folder, packed as it is.
func server(t *testing.T, dir string) (refusals []string) {
	t.Helper()
	if err := unpack(t, packed(t, dir), filepath.Base(dir)); err != nil {
		refusals = append(refusals, "the upload: "+err.Error())
	}
	if _, err := os.Lstat(filepath.Join(dir, skills.ManifestFile)); err == nil {
		report, err := skills.Lint(dir, nil)
		if err != nil {
			return append(refusals, "lint: "+err.Error())
		}
		for _, f := range report.Folders {
			for _, p := range f.Problems {
				refusals = append(refusals, "lint: "+p.File+" "+p.Pointer+" "+p.Reason)
			}
		}
	}
	return refusals
}

// unpack uploads an archive, whose skill must be called id.
func unpack(t *testing.T, content []byte, id string) error {
	t.Helper()
	into, err := os.OpenRoot(t.TempDir())
	must(t, err)
	defer into.Close()
	a, err := archive.Open(t.Context(), bytes.NewReader(content), int64(len(content)), "other.zip", archive.DefaultLimits())
	if err != nil {
		return err
	}
	if a.Skill().ID != id {
		t.Errorf("the skill %q is uploaded as %q", id, a.Skill().ID)
	}
	return a.Unpack(t.Context(), into)
}

// packed packs a folder with all entries, even links, under their names on disk.
func packed(t *testing.T, dir string) []byte {
	t.Helper()
	var b bytes.Buffer
	z := zip.NewWriter(&b)
	must(t, filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		must(t, err)
		rel, err := filepath.Rel(filepath.Dir(dir), path)
		must(t, err)
		fi, err := d.Info()
		must(t, err)
		h, err := zip.FileInfoHeader(fi)
		must(t, err)
		if h.Name = rel; d.IsDir() {
			h.Name += "/"
		}
		w, err := z.CreateHeader(h)
		must(t, err)
		if fi.Mode().IsRegular() {
			content, err := os.ReadFile(path)
			must(t, err)
			_, err = w.Write(content)
			must(t, err)
		}
		return nil
	}))
	must(t, z.Close())
	return b.Bytes()
}

// check compares one judgement with the server: the server must accept what the skill accepts.
func (j judgement) check(t *testing.T, name, dir, wants string) {
	t.Helper()
	all := strings.Join(j.Findings, "\n")
	refusals := server(t, dir)
	switch {
	case wants == "" && all != "":
		t.Errorf("%s: is refused: %s", name, all)
	case wants != "" && !strings.Contains(all, wants):
		t.Errorf("%s: it finds %q and not %q; the server: %q", name, all, wants, refusals)
	}
	if all != "" {
		return
	}
	if len(refusals) > 0 {
		t.Errorf("%s: is accepted, but the server refuses it: %q", name, refusals)
	}
	if err := unpack(t, j.Archive, filepath.Base(dir)); err != nil {
		t.Errorf("%s: its archive is refused: %v", name, err)
	}
	if !j.Same {
		t.Errorf("%s: it packs the same folder in two ways", name)
	}
	got := metadata.Describe(os.DirFS(dir), "no name")
	if one := strings.Join(strings.Fields(j.Name), " "); one != got.Name {
		t.Errorf("%s: it reads the name %q, the server %q", name, one, got.Name)
	}
	if one := strings.Join(strings.Fields(j.Description), " "); one != got.Description {
		t.Errorf("%s: it reads the description %q, the server %q", name, one, got.Description)
	}
}
