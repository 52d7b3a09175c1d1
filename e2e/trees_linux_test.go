package e2e

import (
	"fmt"
	"net/http"
	"net/url"
	"path/filepath"
	"strings"
	"testing"

	"secbox/settings"
)

// onFastDisk boots a server whose workspace is in memory, so that large trees do not depend on the
// disk.
func onFastDisk(t *testing.T, how serving, more ...func(*settings.Settings)) *testServer {
	t.Helper()
	dir := hostileDir(t)
	newSmallDisk(t, filepath.Join(dir, "workspace"), 2048)
	return tidyIn(t, dir, append(more, how.settings)...).serving(how)
}

// TestManyFiles runs a job that leaves more files than a manifest lists.
func TestManyFiles(t *testing.T) {
	t.Parallel()
	s := onFastDisk(t, cold)
	many := scaled(20_000, 100_000)
	result := s.exec(shell("files", python(fmt.Sprintf(`
os.mkdir("many")
for i in range(%d): os.close(os.open("many/%%05d" %% i, os.O_CREAT | os.O_WRONLY))
open("one more", "w").write("x")`, many))))
	if result.str("status") != "succeeded" {
		t.Fatalf("%.2000v", result)
	}
	manifest := s.manifest(result)
	files := manifest.list("files")
	// many/ itself is among the 10,000 entries that are kept.
	if len(files) != 10_000-1 || files[0].str("path") != "many/00000" || len(result.list("artifacts")) != len(files) {
		t.Errorf("%d files in the manifest, %d in the answer", len(files), len(result.list("artifacts")))
	}
	if reasons := omissions(manifest); reasons["too_many"] != 1000 || len(reasons) != 1 || manifest.at("truncated") != true {
		t.Errorf("omitted: %v, truncated %v", reasons, manifest.at("truncated"))
	}
	if want := float64(many + 1 - len(files)); manifest.num("omitted_count") != want {
		t.Errorf("omitted_count %v, want %v", manifest.num("omitted_count"), want)
	}
	id := result.str("exec_id")
	if a := s.artifact(id, url.PathEscape("one more")); a.Code != http.StatusOK || string(a.Body) != "x" {
		t.Errorf("%d %s", a.Code, a.Body)
	}
	s.noArtifact("many/19999", s.artifact(id, "many/19999"))
	s.checkPublished(result)
}

// TestDeepDirectories runs a job that nests directories deeper than the longest path name, in
// artifacts/ and in work/.
func TestDeepDirectories(t *testing.T) {
	t.Parallel()
	const how = warm
	deep := scaled(10_000, 60_000)
	// The disk guard kills a job that nests directories deeper than it can measure, unless growth
	// has no bound.
	s := onFastDisk(t, how, func(s *settings.Settings) { s.Sandbox.DiskGrowthMaxBytes, s.Sandbox.DiskGrowthMaxEntries = 0, 0 })
	result := s.exec(shell("deep", python(fmt.Sprintf(`
for top, depth in ("/workspace/artifacts", %d), ("/workspace/work", 5_000):
    os.chdir(top)
    for i in range(depth):
        os.mkdir("d"); os.chdir("d")
    open("bottom", "w").write("reached")
    print(depth)`, deep))))
	if result.str("status") != "succeeded" || result.str("stdout") != fmt.Sprintf("%d\n5000\n", deep) || len(result.list("artifacts")) != 0 {
		t.Fatalf("%.2000v", result)
	}
	manifest := s.manifest(result)
	omitted := manifest.list("omitted")
	if len(manifest.list("files")) != 0 || len(omitted) != 1 || omitted[0].str("reason") != "too_deep" || manifest.at("truncated") != true ||
		omitted[0].str("path") != strings.Repeat("d/", 64)+"d" {
		t.Errorf("%v", manifest)
	}
	// The directories below the 64th, and the file at the bottom.
	if want := float64(deep - 64 + 1); manifest.num("omitted_count") != want {
		t.Errorf("omitted_count %v, want %v", manifest.num("omitted_count"), want)
	}
	for _, path := range []string{"d", strings.Repeat("d/", 64) + "d", strings.Repeat("d/", 2000) + "bottom"} {
		s.noArtifact(path, s.artifact(result.str("exec_id"), path))
	}
	s.checkPublished(result)
	if again := s.exec(shell("deep", "cd d/d/d && ls")); again.str("stdout") != "d\n" || again.str("status") != "succeeded" {
		t.Errorf("the next exec of the project: %v", again)
	}
}

// omissions counts why something was omitted.
func omissions(manifest object) map[string]int {
	reasons := map[string]int{}
	for _, o := range manifest.list("omitted") {
		reasons[o.str("reason")]++
	}
	return reasons
}
