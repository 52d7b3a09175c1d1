package console_test

import (
	"archive/zip"
	"bytes"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"secbox/api/visible"
	ziparchive "secbox/packages/archive"
	"secbox/packages/library"
	"secbox/packages/versions"
	"secbox/pathadapter"
	"secbox/skills"
	"secbox/store/sqlite"
	"secbox/store/storetest/sqlitetest"
	"secbox/workspace"
)

// TestSkillsOverRealFiles: the pages of a catalog on disk and of a library with uploads, copies,
// and files that others should not name.
func TestSkillsOverRealFiles(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	put := func(path, content string) {
		t.Helper()
		must(t, os.MkdirAll(filepath.Dir(path), 0o755))
		must(t, os.WriteFile(path, []byte(content), 0o644))
	}
	put(filepath.Join(dir, "skills/text.broken/manifest.json"), `{"id": "<b>"}`)
	catalog, err := skills.Open(skills.Config{Dir: filepath.Join(dir, "skills")})
	must(t, err)
	db, err := sqlite.Open(t.Context(), sqlitetest.Migrated(t, filepath.Join(dir, "core.db")))
	must(t, err)
	t.Cleanup(func() { must(t, db.Close()) })
	adapter, err := pathadapter.New(pathadapter.Config{Root: filepath.Join(dir, "workspace")})
	must(t, err)
	owner := -1
	if os.Geteuid() == 0 {
		owner = 1000
	}
	space, err := workspace.Open(workspace.Options{Adapter: adapter, UID: owner, GID: owner})
	must(t, err)
	t.Cleanup(func() { must(t, space.Close()) })
	packages, err := library.New(library.Config{Workspace: space, Versions: versions.New(space), Registry: db.Skills()})
	must(t, err)

	var archive bytes.Buffer
	w := zip.NewWriter(&archive)
	for name, content := range map[string]string{
		"weather/SKILL.md": "---\nname: <i>Weather</i>\ndescription: Says how it is.\n---\n",
		"weather/main.py":  "print('old')\n", "weather/logo.png": "\x89PNG\x00",
	} {
		file, err := w.Create(name)
		must(t, err)
		_, err = io.WriteString(file, content)
		must(t, err)
	}
	must(t, w.Close())
	ann, bob := library.Owner{AgentID: "ag", UserID: "ann"}, library.Owner{AgentID: "ag", UserID: "bob"}
	_, err = packages.UploadSome(t.Context(), ann, library.Baseline, "weather.zip", ziparchive.Pick{}, bytes.NewReader(archive.Bytes()), int64(archive.Len()))
	must(t, err)
	must(t, packages.Edit(t.Context(), bob, "weather", "main.py", []byte("print('new')\n"), nil))
	copied := filepath.Join(dir, "workspace/projects/ag~bob/work/skills/weather")
	must(t, os.Symlink(filepath.Join(dir, "core.db"), filepath.Join(copied, "secret")))
	put(filepath.Join(copied, `"><img src=x>`), "odd")

	f := newFake()
	f.skills.real = &visible.Skills{Catalog: catalog, Library: packages.View(), View: packages.View()}
	url := f.serve(t)
	for path, want := range map[string][]string{
		"/console/skills": {
			`href="/console/skills/text.grep"`, "text.broken", "manifest.json#/name",
			"core-api skills lint",
		},
		"/console/skills?agent_id=ag&user_id=bob":                 {`href="/console/skills/text.grep"`},
		"/console/skills/text.grep":                               {"<code>pattern</code>", "<code>matches[].line</code>", "python3 -B ./grep.py", "grep.py"},
		"/console/skills/text.broken":                             {"is broken"},
		"/console/packages":                                       {"agent_id=ag"},
		"/console/packages?agent_id=ag":                           {"weather"},
		"/console/packages?agent_id=ag&user_id=carol":             {"unchanged", "&lt;i&gt;Weather&lt;/i&gt;"},
		"/console/packages/ag/carol/weather":                      {"has not used", "this baseline"},
		"/console/packages/ag/bob/weather":                        {"modified", "this baseline", "&#34;&gt;&lt;img src=x&gt;", "main.py"},
		"/console/packages/ag/bob/weather/diff":                   {`<span class="t-f1">-print(&#39;old&#39;)`, `<span class="t-f2">+print(&#39;new&#39;)`},
		"/console/packages/ag/bob/weather/file?path=main.py":      {"print(&#39;new&#39;)"},
		"/console/packages/ag/ann/weather/file?path=main.py":      {"print(&#39;old&#39;)"},
		"/console/packages/ag/bob/weather/file?path=logo.png":     {"is not UTF-8 text", "5 B"},
		"/console/packages/ag/bob/weather/file?path=secret":       {"links are never followed"},
		"/console/packages/ag/bob/weather/file?path=../../secret": {"path"},
	} {
		page := get(t, url+path)
		for _, text := range want {
			if !strings.Contains(page, text) {
				t.Errorf("%s lacks %q", path, text)
			}
		}
		if strings.Contains(page, "SQLite format") {
			t.Errorf("%s shows a file outside", path)
		}
	}
	resp, err := http.Get(url + "/console/packages/ag/carol/weather/download")
	must(t, err)
	defer resp.Body.Close()
	sent, err := io.ReadAll(resp.Body)
	must(t, err)
	if got, err := zip.NewReader(bytes.NewReader(sent), int64(len(sent))); err != nil || len(got.File) < 3 {
		t.Errorf("the ZIP: %v", err)
	}
	if rows, err := skills.PointersOf(t.Context(), db.Skills(), "ag", "carol"); err != nil || len(rows) != 0 {
		t.Errorf("looking has pinned carol: %v, %v", rows, err)
	}
}
