package console_test

import (
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"secbox/access/tokens"
	"secbox/audit"
)

// TestInputsOfExec: inputs are listed with what is kept of them, downloaded and shown as artifacts
// are, and each is on record.
func TestInputsOfExec(t *testing.T) {
	t.Parallel()
	f := fullApp()
	rec := &f.records[58] // execID(2)
	rec.Inputs = []audit.Input{{Path: "gone.csv", Size: 5, SHA256: strings.Repeat("a", 64)}}
	f.addInput(rec, "page.html", "<script>0</script>")
	f.addInput(rec, "a/one.png", onePixel)
	f.addInput(rec, `a "b" #1?.svg`, "<svg onload='0'/>")
	f.addInput(rec, "tool.exe", "MZ\x00")
	v := newVisitor(t, f.serve(t))
	base := "/console/execs/" + execID(2)
	for _, path := range []string{base, base + "/inputs"} {
		_, page := v.get(path)
		for _, want := range []string{
			`href="` + base + `/show-input/page.html"`, `href="` + base + `/inputs/page.html" download`,
			`href="` + base + `/inputs/a%20%22b%22%20%231%3F.svg" download`, "gone.csv", "not kept",
		} {
			if !strings.Contains(page, want) {
				t.Errorf("%s lacks %q", path, want)
			}
		}
		if strings.Contains(page, "/gone.csv") {
			t.Errorf("%s leads to a content that is not kept", path)
		}
	}
	f.downloads = nil
	for _, file := range []struct{ path, content, shown string }{
		{"page.html", "<script>0</script>", "text/plain; charset=utf-8"},
		{"a/one.png", onePixel, "image/png"},
		{`a "b" #1?.svg`, "<svg onload='0'/>", "text/plain; charset=utf-8"},
		{"tool.exe", "MZ\x00", ""},
	} {
		f.downloads = nil
		path := (&url.URL{Path: file.path}).EscapedPath()
		resp, body := v.get(base + "/inputs/" + path)
		h := resp.Header
		if resp.StatusCode != http.StatusOK || body != file.content || h.Get("Content-Type") != "application/octet-stream" ||
			!strings.HasPrefix(h.Get("Content-Disposition"), "attachment; ") ||
			h.Get("Content-Security-Policy") != "sandbox; default-src 'none'; frame-ancestors 'none'" {
			t.Errorf("%s: %d, %q, %v", file.path, resp.StatusCode, body, h)
		}
		_, page := v.get(base + "/show-input/" + path)
		if framed := strings.Contains(page, `src="`+base+"/view-input/"); framed != (file.shown != "") || strings.Contains(page, "<script>0") ||
			strings.Contains(page, "<svg") {
			t.Errorf("%s: framed %v", file.path, framed)
		}
		resp, body = v.get(base + "/view-input/" + path)
		want := []string{execID(2) + " input " + file.path, execID(2) + " input " + file.path}
		if file.shown == "" {
			want = want[:1]
			if resp.StatusCode != http.StatusSeeOther {
				t.Errorf("%s: the content of the frame: %d", file.path, resp.StatusCode)
			}
		} else if h := resp.Header; resp.StatusCode != http.StatusOK || body != file.content || h.Get("Content-Type") != file.shown ||
			!strings.HasPrefix(h.Get("Content-Security-Policy"), "sandbox; default-src 'none'; ") {
			t.Errorf("%s: the content of the frame: %d, %q, %v", file.path, resp.StatusCode, body, h)
		}
		if !slices.Equal(f.downloads, want) {
			t.Errorf("%s: events %q", file.path, f.downloads)
		}
	}
	if resp, body := v.fetch("GET", base+"/inputs/page.html", "Range", "bytes=1-6"); resp.StatusCode != http.StatusPartialContent || body != "script" {
		t.Errorf("a range: %d, %q", resp.StatusCode, body)
	}
	f.downloads = nil
	for path, status := range map[string]int{
		"gone.csv": http.StatusGone, "none": http.StatusNotFound, "..%2fpage.html": http.StatusNotFound, "../inputs/page.html": http.StatusNotFound,
		"/etc/passwd": http.StatusNotFound, "PAGE.HTML": http.StatusNotFound, "%ff": http.StatusNotFound,
	} {
		for _, what := range []string{"inputs", "show-input", "view-input"} {
			if got, _ := v.raw(base + "/" + what + "/" + path); got != status {
				t.Errorf("%s/%s: %d, want %d", what, path, got, status)
			}
		}
	}
	if len(f.downloads) != 0 {
		t.Errorf("events of refused requests %q", f.downloads)
	}
}

// TestManyInputs: each is on a page of the list, and a cut record says so.
func TestManyInputs(t *testing.T) {
	t.Parallel()
	f := fullApp()
	rec := &f.records[58] // execID(2)
	rec.Inputs = nil
	for i := range 250 {
		f.addInput(rec, "file-"+strconv.Itoa(1000+i), "x")
	}
	rec.LargeLists = map[string]audit.LargeList{"inputs": {Count: 251, Kept: 250}}
	v := newVisitor(t, f.serve(t))
	for path, want := range map[string][2]int{"": {0, 30}, "/inputs": {0, 100}, "/inputs?from=200": {200, 250}, "/inputs?from=250": {250, 250}} {
		_, page := v.get("/console/execs/" + execID(2) + path)
		for i := range 250 {
			if shown := strings.Contains(page, "/inputs/file-"+strconv.Itoa(1000+i)+`"`); shown != (i >= want[0] && i < want[1]) {
				t.Fatalf("%s: file %d is shown: %v", path, i, shown)
			}
		}
		if path == "" && (!strings.Contains(page, `href="/console/execs/`+execID(2)+`/inputs?from=30">`) || !strings.Contains(page, "There were more inputs")) {
			t.Error("the page leads to no further inputs")
		}
	}
	for _, from := range []string{"-1", "x", "9999999999"} {
		if resp, _ := v.get("/console/execs/" + execID(2) + "/inputs?from=" + from); resp.StatusCode != http.StatusBadRequest {
			t.Errorf("from=%s: %d", from, resp.StatusCode)
		}
	}
}

// TestInputsOverRealCore: roles, another's exec, events, and copies that were altered and removed.
func TestInputsOverRealCore(t *testing.T) {
	t.Parallel()
	c := startCore(t)
	worker, other := c.token("worker", tokens.Worker), c.token("other", tokens.Worker)
	id := c.post(worker, map[string]any{
		"project_id": "demo", "exec": map[string]any{"script": "cat /workspace/inputs/sub/in.txt"},
		"inputs": []any{map[string]any{"path": "sub/in.txt", "content": "0123456789"}},
	})
	base := "/console/execs/" + id
	v := newVisitor(t, c.url)
	v.signIn(worker)
	if resp, body := v.fetch("GET", base+"/inputs/sub/in.txt", "Range", "bytes=2-4"); resp.StatusCode != http.StatusPartialContent || body != "234" {
		t.Errorf("a range: %d, %q", resp.StatusCode, body)
	}
	paths := []string{"/inputs", "/inputs/sub/in.txt", "/show-input/sub/in.txt", "/view-input/sub/in.txt"}
	stranger := newVisitor(t, c.url)
	stranger.signIn(other)
	for _, path := range paths {
		if resp, body := stranger.get(base + path); resp.StatusCode != http.StatusNotFound || strings.Contains(body, "0123") {
			t.Errorf("another's %s: %d", path, resp.StatusCode)
		}
	}
	auditor := newVisitor(t, c.url)
	auditor.signIn(c.token("auditor", tokens.Auditor))
	before := len(c.events())
	for _, path := range paths {
		if resp, _ := auditor.get(base + path); resp.StatusCode != http.StatusOK {
			t.Errorf("an auditor's %s: %d", path, resp.StatusCode)
		}
	}
	if events := c.events()[before:]; strings.Join(events, ",") != "download by auditor,download by auditor" {
		t.Errorf("events %q", events)
	}

	var kept string
	must(t, filepath.WalkDir(filepath.Join(c.dir, "workspace", "kept-inputs"), func(path string, d os.DirEntry, err error) error {
		if err == nil && !d.IsDir() {
			kept = path
		}
		return err
	}))
	must(t, os.WriteFile(kept, []byte("9876543210"), 0o600))
	if resp, page := v.get(base + paths[1]); resp.StatusCode != http.StatusConflict || !strings.Contains(page, "artifact_altered") {
		t.Errorf("an altered copy: %d", resp.StatusCode)
	}
	must(t, os.Remove(kept))
	if resp, page := v.get(base + paths[1]); resp.StatusCode != http.StatusGone || !strings.Contains(page, "input_not_kept") {
		t.Errorf("a removed copy: %d", resp.StatusCode)
	}
	if _, page := v.get(base); !strings.Contains(page, "not kept") || strings.Contains(page, "/show-input/") {
		t.Error("the page leads to a content that is gone")
	}
}
