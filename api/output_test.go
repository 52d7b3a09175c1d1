package api_test

import (
	"archive/zip"
	"bytes"
	"context"
	"errors"
	"io"
	"mime"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	"secbox/api"
	"secbox/api/wire"
	"secbox/audit"
	"secbox/fault"
	"secbox/runner"
)

func TestOutputRanges(t *testing.T) {
	t.Parallel()
	f := start(t)
	f.runner.output = map[string]string{"stdout": "0123456789", "stderr": "\xff\x00<script>"}
	rec := f.record(nil)
	path := "/sandbox/execs/" + rec.ExecID + "/stdout"
	for _, tc := range []struct {
		header, value string
		status        int
		body, where   string
	}{
		{"", "", 200, "0123456789", ""},
		{"Range", "bytes=2-4", 206, "234", "bytes 2-4/10"},
		{"Range", "bytes=8-", 206, "89", "bytes 8-9/10"},
		{"Range", "bytes=-3", 206, "789", "bytes 7-9/10"},
		{"Range", "bytes=0-999", 206, "0123456789", "bytes 0-9/10"},
		{"Range", "bytes=0-1,4-5", 200, "0123456789", ""},
		{"Range", "bytes=10-", 416, "", "bytes */10"},
		{"Range", "bytes=5-2", 416, "", ""},
		{"Range", "lines=1-2", 416, "", ""},
		{"Range", "bytes=x", 416, "", ""},
		{"If-Modified-Since", "Fri, 01 Jan 2100 00:00:00 GMT", 304, "", ""},
		{"If-Unmodified-Since", "Sat, 01 Jan 2000 00:00:00 GMT", 412, "", ""},
	} {
		r := f.do(request{path: path, header: map[string]string{tc.header: tc.value}})
		if tc.status == 416 {
			r.wants(t, fault.RangeUnsatisfiable)
		} else if string(r.body) != tc.body {
			t.Errorf("%s: got %q, want %q", tc.value, r.body, tc.body)
		}
		if r.StatusCode != tc.status || r.Header.Get("Content-Range") != tc.where {
			t.Errorf("%s: %d %q, want %d %q", tc.value, r.StatusCode, r.Header.Get("Content-Range"), tc.status, tc.where)
		}
		head := f.do(request{method: "HEAD", path: path, header: map[string]string{tc.header: tc.value}})
		if head.StatusCode != tc.status || len(head.body) > 0 || tc.status < 300 && head.ContentLength != int64(len(tc.body)) {
			t.Errorf("HEAD %s: %d, length %d", tc.value, head.StatusCode, head.ContentLength)
		}
	}
	stderr := f.get("/sandbox/execs/" + rec.ExecID + "/stderr")
	if string(stderr.body) != f.runner.output["stderr"] || stderr.Header.Get("Content-Type") != "text/plain; charset=utf-8" ||
		!strings.Contains(stderr.Header.Get("Content-Security-Policy"), "sandbox") || stderr.Header.Get("X-Content-Type-Options") != "nosniff" {
		t.Errorf("%v %q", stderr.Header, stderr.body)
	}
}

func TestEmptyOutputOfRunningExec(t *testing.T) {
	t.Parallel()
	f := start(t)
	rec := f.record(func(r *audit.Record) { r.Status = audit.Running })
	r := f.get("/sandbox/execs/" + rec.ExecID + "/stdout")
	if r.StatusCode != 200 || len(r.body) > 0 || r.Header.Get("Last-Modified") != "" {
		t.Errorf("%d %v", r.StatusCode, r.Header)
	}
}

func TestArtifacts(t *testing.T) {
	t.Parallel()
	f := start(t)
	f.runner.files = map[string]string{
		"hi.txt": "hi\n", "a/b/c.html": "<script>alert(1)</script>", "blank here.txt": "1", "100%.txt": "2", "q?&#.txt": "3", "ü/日本.txt": "4",
		"%2e%2e": "5", "a\nb": "6", `back\slash`: "7", "empty": "",
	}
	rec := f.record(nil)
	base := "/sandbox/execs/" + rec.ExecID + "/artifacts"
	list := decodeAs[wire.ArtifactList](t, f.get(base), 200)
	if list.ExecID != rec.ExecID || len(list.Items) != len(f.runner.files) || list.TotalBytes == 0 {
		t.Errorf("%+v", list)
	}
	for _, item := range list.Items {
		parts := strings.Split(item.Path, "/")
		for i := range parts {
			parts[i] = url.PathEscape(parts[i])
		}
		for _, path := range []string{strings.Join(parts, "/"), url.PathEscape(item.Path)} {
			r := f.get(base + "/" + path)
			if r.StatusCode != 200 || string(r.body) != f.runner.files[item.Path] {
				t.Errorf("%q as %s: %d %q", item.Path, path, r.StatusCode, r.body)
				continue
			}
			kind, params, err := mime.ParseMediaType(r.Header.Get("Content-Disposition"))
			if err != nil || kind != "attachment" || params["filename"] == "" || strings.ContainsAny(params["filename"], "/\\\n") {
				t.Errorf("%q: Content-Disposition %q: %v", item.Path, r.Header.Get("Content-Disposition"), err)
			}
			if r.Header.Get("Content-Type") != "application/octet-stream" || r.Header.Get("ETag") != `"sha256:`+item.SHA256+`"` ||
				!strings.HasPrefix(r.Header.Get("Content-Security-Policy"), "sandbox") {
				t.Errorf("%q: %v", item.Path, r.Header)
			}
			again := f.do(request{path: base + "/" + path, header: map[string]string{"If-None-Match": r.Header.Get("ETag")}})
			if again.StatusCode != 304 {
				t.Errorf("%q: If-None-Match: %d", item.Path, again.StatusCode)
			}
		}
	}
	part := f.do(request{path: base + "/hi.txt", header: map[string]string{"Range": "bytes=1-"}})
	if part.StatusCode != 206 || string(part.body) != "i\n" {
		t.Errorf("%d %q", part.StatusCode, part.body)
	}
}

// TestArtifactPathsCannotEscape: the path after artifacts/ reaches the runner as one literal name
// or not at all.
func TestArtifactPathsCannotEscape(t *testing.T) {
	t.Parallel()
	f := start(t)
	f.runner.files = map[string]string{"hi.txt": "hi\n"}
	rec := f.record(nil)
	for _, path := range []string{
		"../hi.txt", "..%2fhi.txt", "%2e%2e/%2e%2e/etc/passwd", "/etc/passwd", "%2fetc%2fpasswd", "a/../hi.txt", "./hi.txt", "hi.txt/", "hi.txt%00",
		"HI.TXT", "hi.txt%2f..", `..%5chi.txt`, "%ff", "C:%5chi.txt", "hi%252Etxt", "", strings.Repeat("a/", 2500),
	} {
		// URL.Path would be cleaned by some clients; send it as it stands.
		req, _ := http.NewRequestWithContext(t.Context(), "GET", f.url, nil)
		req.URL.Opaque = "/sandbox/execs/" + rec.ExecID + "/artifacts/" + path
		resp, err := http.DefaultClient.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		body, _ := io.ReadAll(resp.Body)
		resp.Body.Close()
		r := reply{resp, body}
		if p := r.problem(t); p.Code != fault.UnknownArtifact && p.Code != fault.NotFound {
			t.Errorf("%q: %s", path, r.body)
		}
	}
}

func TestPendingArtifacts(t *testing.T) {
	t.Parallel()
	f := start(t)
	f.runner.artifactsError = fault.New(fault.ArtifactsPending, "the exec runs")
	rec := f.record(func(r *audit.Record) { r.Status = audit.Running })
	for _, query := range []string{"", "?format=json", "?format=zip"} {
		r := f.get("/sandbox/execs/" + rec.ExecID + "/artifacts" + query)
		r.wants(t, fault.ArtifactsPending)
		if r.Header.Get("Content-Disposition") != "" {
			t.Error("a problem is no attachment")
		}
	}
}

func TestZipHasSafeNames(t *testing.T) {
	t.Parallel()
	f := start(t)
	files := map[string]string{
		"hi.txt": "hi\n", "d/e/f": strings.Repeat("x", 1<<16), "../evil": "1", "/abs": "2", `C:\x`: "3", "a/../b": "4", "..": "5", "dot.": "6", "100%": "7",
		"nl\n": "8", "ü/日": "9", "100%25": "10", "a//b": "11", "bad\xff": "12", "\uFFFD": "13", "CON:": "14", "empty": "",
	}
	f.runner.files = files
	rec := f.record(nil)
	r := f.get("/sandbox/execs/" + rec.ExecID + "/artifacts?format=zip")
	if r.StatusCode != 200 || r.Header.Get("Content-Type") != "application/zip" ||
		r.Header.Get("Content-Disposition") != `attachment; filename="`+rec.ExecID+`.zip"; filename*=UTF-8''`+rec.ExecID+`.zip` {
		t.Fatalf("%d %v", r.StatusCode, r.Header)
	}
	archive, err := zip.NewReader(bytes.NewReader(r.body), int64(len(r.body)))
	if err != nil {
		t.Fatal(err)
	}
	seen := map[string]bool{}
	for _, entry := range archive.File {
		rc, err := entry.Open()
		if err != nil {
			t.Fatal(err)
		}
		content, err := io.ReadAll(rc)
		if err != nil {
			t.Fatal(err)
		}
		if want, ok := files[original(t, entry.Name)]; !ok || want != string(content) {
			t.Errorf("entry %q holds %.20q", entry.Name, content)
		}
		if seen[entry.Name] || strings.HasPrefix(entry.Name, "/") || strings.ContainsAny(entry.Name, "\\:\n\x00") ||
			slices.Contains(strings.Split(entry.Name, "/"), "..") || slices.Contains(strings.Split(entry.Name, "/"), "") {
			t.Errorf("entry %q", entry.Name)
		}
		seen[entry.Name] = true
	}
	if len(seen) != len(files) {
		t.Errorf("%d entries for %d files", len(seen), len(files))
	}
	head := f.do(request{method: "HEAD", path: "/sandbox/execs/" + rec.ExecID + "/artifacts?format=zip"})
	if head.StatusCode != 200 || head.Header.Get("Content-Type") != "application/zip" {
		t.Errorf("HEAD: %d %v", head.StatusCode, head.Header)
	}
}

// original is the artifact's name that an entry's name came from.
func original(t *testing.T, entry string) string {
	t.Helper()
	parts := strings.Split(entry, "/")
	for i, part := range parts {
		if parts[i] = ""; part != "%" {
			var err error
			if parts[i], err = url.PathUnescape(part); err != nil {
				t.Errorf("entry %q: %v", entry, err)
			}
		}
	}
	return strings.Join(parts, "/")
}

// vanishing loses an artifact after it was opened so many times.
type vanishing struct {
	*fakeRunner
	gone string
	at   *atomic.Int32
}

func (v vanishing) Artifacts(ctx context.Context, rec audit.Record) (runner.Artifacts, error) {
	left, err := v.fakeRunner.Artifacts(ctx, rec)
	return vanishingArtifacts{left, v}, err
}

type vanishingArtifacts struct {
	runner.Artifacts
	vanishing vanishing
}

func (v vanishingArtifacts) Open(ctx context.Context, path string) (io.ReadSeekCloser, runner.Artifact, error) {
	if path == v.vanishing.gone && v.vanishing.at.Add(-1) < 0 {
		return nil, runner.Artifact{}, errors.New("the disk is broken")
	}
	return v.Artifacts.Open(ctx, path)
}

func TestFailedZipCutsTheConnection(t *testing.T) {
	t.Parallel()
	for gone, at := range map[string]int32{"a": 0, "z": 1} { // all are opened once before the first byte
		left := new(atomic.Int32)
		left.Store(at)
		f := start(t, func(c *api.Config) { c.Runner = vanishing{c.Runner.(*fakeRunner), gone, left} })
		random := make([]byte, 1<<20) // does not compress, so it leaves the server before the error
		for i := range random {
			random[i] = byte(i*i>>7 ^ i*31>>3)
		}
		f.runner.files = map[string]string{"a": "1", "m": string(random), "z": "1"}
		rec := f.record(nil)
		resp, err := http.Get(f.url + "/sandbox/execs/" + rec.ExecID + "/artifacts?format=zip")
		if err != nil {
			t.Fatal(err)
		}
		body, err := io.ReadAll(resp.Body)
		resp.Body.Close()
		if gone == "a" {
			reply{resp, body}.wants(t, fault.Internal)
		} else if err == nil {
			t.Errorf("the answer ended like a whole one, with %d bytes and status %d", len(body), resp.StatusCode)
		}
	}
}
