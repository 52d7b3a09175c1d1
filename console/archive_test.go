package console_test

import (
	"archive/zip"
	"bytes"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"

	"secbox/access/tokens"
)

// unzip returns the contents of an archive by name.
func unzip(t *testing.T, archive string) map[string]string {
	t.Helper()
	z, err := zip.NewReader(strings.NewReader(archive), int64(len(archive)))
	must(t, err)
	files := map[string]string{}
	for _, f := range z.File {
		r, err := f.Open()
		must(t, err)
		content, err := io.ReadAll(r)
		must(t, err)
		files[f.Name] = string(content)
	}
	return files
}

// TestArtifactsAsZip: all artifacts in one attachment, on record once, under names that stay in the
// directory into which a user unpacks them.
func TestArtifactsAsZip(t *testing.T) {
	t.Parallel()
	f := fullApp()
	f.files = nil
	path := "/console/execs/" + execID(2) + "/artifacts.zip"
	v := newVisitor(t, f.serve(t))
	if resp, body := v.get(path); resp.StatusCode != http.StatusOK || len(unzip(t, body)) != 0 {
		t.Errorf("no artifacts: %d", resp.StatusCode)
	}
	if _, page := v.get("/console/execs/" + execID(2)); strings.Contains(page, path) {
		t.Error("the page offers an archive of nothing")
	}
	f.addFile("report.html", "<script>0</script>")
	for _, name := range append(slices.Clone(hostile), "../../evil", "/etc/passwd", `C:\evil`) {
		f.addFile(name, name)
	}
	if _, page := v.get("/console/execs/" + execID(2)); !strings.Contains(page, `href="`+path+`" download`) {
		t.Error("the page does not offer the archive")
	}
	if _, page := v.get("/console/execs/" + execID(2) + "/artifacts"); !strings.Contains(page, `href="`+path+`" download`) {
		t.Error("the list does not offer the archive")
	}
	f.downloads = nil // the page shows output, which is one
	resp, body := v.get(path)
	h := resp.Header
	if resp.StatusCode != http.StatusOK || h.Get("Content-Type") != "application/zip" ||
		h.Get("Content-Disposition") != `attachment; filename="`+execID(2)+`.zip"; filename*=UTF-8''`+execID(2)+`.zip` ||
		h.Get("Content-Security-Policy") != "sandbox; default-src 'none'; frame-ancestors 'none'" {
		t.Errorf("%d, %v", resp.StatusCode, h)
	}
	files := unzip(t, body)
	if len(files) != len(f.files) || files["report.html"] != "<script>0</script>" {
		t.Errorf("%d of %d files", len(files), len(f.files))
	}
	for name := range files {
		if strings.HasPrefix(name, "/") || strings.ContainsAny(name, "\\:\x00\x1b") || !utf8.ValidString(name) ||
			slices.Contains(strings.Split(name, "/"), "..") {
			t.Errorf("an entry %.60q", name)
		}
	}
	if want := []string{execID(2) + " artifacts "}; !slices.Equal(f.downloads, want) {
		t.Errorf("events %q", f.downloads)
	}
	if resp, body := v.fetch("HEAD", path, "", ""); resp.StatusCode != http.StatusOK || body != "" || len(f.downloads) != 1 {
		t.Errorf("HEAD: %d, events %q", resp.StatusCode, f.downloads)
	}
}

// TestBrokenArchiveIsVisible: an archive whose end cannot be made does not look complete.
func TestBrokenArchiveIsVisible(t *testing.T) {
	t.Parallel()
	f := fullApp()
	f.files = nil
	f.addFile("a.txt", "short")
	f.addFile("b.txt", strings.Repeat("x", 1<<20))
	f.files[1].Size++ // the content is shorter than the manifest says
	v := newVisitor(t, f.serve(t))
	resp, err := v.client.Get(v.url + "/console/execs/" + execID(2) + "/artifacts.zip")
	if err != nil {
		return // cut off before the header was sent
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if _, zipErr := zip.NewReader(bytes.NewReader(body), int64(len(body))); err == nil && zipErr == nil {
		t.Errorf("%d, a whole archive of %d bytes", resp.StatusCode, len(body))
	}
}

// TestArchiveOfAlteredFiles: an artifact that was changed on the disk is found before anything is
// sent.
func TestArchiveOfAlteredFiles(t *testing.T) {
	t.Parallel()
	c := startCore(t)
	worker := c.token("worker", tokens.Worker)
	id := c.run(worker, `echo one > /workspace/artifacts/one; echo two > /workspace/artifacts/two`)
	path := "/console/execs/" + id + "/artifacts.zip"
	v := newVisitor(t, c.url)
	v.signIn(worker)
	if resp, body := v.get(path); resp.StatusCode != http.StatusOK || unzip(t, body)["two"] != "two\n" {
		t.Errorf("unchanged: %d", resp.StatusCode)
	}
	must(t, os.WriteFile(filepath.Join(c.dir, "workspace", "projects", "demo", "artifacts", id, "two"), []byte("TWO\n"), 0o644))
	if resp, page := v.get(path); resp.StatusCode != http.StatusConflict || resp.Header.Get("Content-Disposition") != "" ||
		!strings.Contains(page, "artifact_altered") {
		t.Errorf("changed: %d, %v", resp.StatusCode, resp.Header)
	}
}
