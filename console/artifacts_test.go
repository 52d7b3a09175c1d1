package console_test

import (
	"bytes"
	"encoding/binary"
	"hash/crc32"
	"image"
	"image/gif"
	"image/jpeg"
	"image/png"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"
	"unicode/utf16"
	"unicode/utf8"

	"github.com/chromedp/chromedp"

	"secbox/access/tokens"
	"secbox/audit/retention"
	"secbox/runner"
)

// onePixel is a PNG image.
var onePixel = pngOf(1, 1)

func pngOf(width, height int) string {
	var b bytes.Buffer
	if err := png.Encode(&b, image.NewGray(image.Rect(0, 0, width, height))); err != nil {
		panic(err)
	}
	return b.String()
}

// webP is a lossless WebP image of 1 × 1 pixels.
const webP = "RIFF\x1a\x00\x00\x00WEBPVP8L\x0d\x00\x00\x00\x2f\x00\x00\x00\x10\x07\x10\x11\x11\x88\x88\xfe\x07\x00"

// fileURL is the address of an artifact.
func fileURL(what, file string) string {
	return "/console/execs/" + execID(2) + "/" + what + "/" + (&url.URL{Path: file}).EscapedPath()
}

// fetch returns the answer to a request with a header, which may be empty.
func (v *visitor) fetch(method, path, header, value string) (*http.Response, string) {
	v.t.Helper()
	req, err := http.NewRequestWithContext(v.t.Context(), method, v.url+path, nil)
	must(v.t, err)
	if header != "" {
		req.Header.Set(header, value)
	}
	return v.do(req)
}

// TestArtifactDownloads: files are saved, by range, too, each with an event before its first byte.
func TestArtifactDownloads(t *testing.T) {
	t.Parallel()
	f := fullApp()
	f.addFile(`a "b" #1?.html`, "<script>0</script>")
	v := newVisitor(t, f.serve(t))
	resp, body := v.get(fileURL("artifacts", `a "b" #1?.html`))
	h := resp.Header
	if resp.StatusCode != http.StatusOK || body != "<script>0</script>" || h.Get("Content-Type") != "application/octet-stream" ||
		h.Get("X-Content-Type-Options") != "nosniff" ||
		!strings.HasPrefix(h.Get("Content-Disposition"), `attachment; filename="a _b_ #1_.html"`) ||
		h.Get("Content-Security-Policy") != "sandbox; default-src 'none'; frame-ancestors 'none'" {
		t.Errorf("%d, %q, %v", resp.StatusCode, body, h)
	}
	if resp, _ := v.fetch("GET", fileURL("artifacts", "report.html"), "If-None-Match",
		`"sha256:`+f.files[0].SHA256+`"`); resp.StatusCode != http.StatusNotModified {
		t.Errorf("the same again: %d", resp.StatusCode)
	}
	if resp, body := v.fetch("GET", fileURL("artifacts", "report.html"), "Range", "bytes=4-9"); resp.StatusCode != http.StatusPartialContent ||
		body != "Report" {
		t.Errorf("a range: %d, %q", resp.StatusCode, body)
	}
	if resp, _ := v.fetch("GET", fileURL("artifacts", "report.html"), "Range", "bytes=99-"); resp.StatusCode != http.StatusRequestedRangeNotSatisfiable {
		t.Errorf("beyond the end: %d", resp.StatusCode)
	}
	events := len(f.downloads)
	if resp, body := v.fetch("HEAD", fileURL("artifacts", "report.html"), "", ""); resp.StatusCode != http.StatusOK || body != "" || resp.ContentLength != 15 ||
		len(f.downloads) != events {
		t.Errorf("HEAD: %d, %d bytes, events %q", resp.StatusCode, resp.ContentLength, f.downloads)
	}
	v.get(fileURL("show", "report.html"))
	if want := execID(2) + ` artifact a "b" #1?.html`; f.downloads[0] != want || len(f.downloads) != events {
		t.Errorf("events %q", f.downloads)
	}
	if v.get(fileURL("view", "report.html")); len(f.downloads) != events+1 || f.downloads[events] != execID(2)+" artifact report.html" {
		t.Errorf("events after a view %q", f.downloads)
	}
	resp, body = v.get("/console/execs/" + execID(2) + "/output/stdout/file")
	if resp.StatusCode != http.StatusOK || body != string(f.output["stdout"]) ||
		!strings.HasPrefix(resp.Header.Get("Content-Disposition"), `attachment; filename="`+execID(2)+".stdout.txt") ||
		!strings.HasSuffix(f.downloads[len(f.downloads)-1], " stdout ") {
		t.Errorf("output: %d, %d bytes, %v, events %q", resp.StatusCode, len(body), resp.Header, f.downloads)
	}
	if resp, _ := v.get("/console/execs/" + execID(2) + "/output/stdin/file"); resp.StatusCode != http.StatusNotFound {
		t.Errorf("another stream: %d", resp.StatusCode)
	}
}

// TestArtifactEscapes: no path leads out of the manifest, and refused requests have no event.
func TestArtifactEscapes(t *testing.T) {
	t.Parallel()
	f := fullApp()
	f.addFile("a%2Fb%2541", "percent")
	v := newVisitor(t, f.serve(t))
	for _, what := range []string{"artifacts", "show", "view"} {
		for _, path := range []string{
			"../report.html", "..%2freport.html", "%2e%2e/report.html", "%2e%2e%2freport.html", "..%5creport.html", "%252e%252e%252freport.html",
			"/report.html", "//report.html", "%2fetc%2fpasswd", "/etc/passwd",
			"./report.html", "report.html/", "report.html%00", "%00", "%ff", "REPORT.html", "", "plots", "plots/", "plots//one.png", "plots/../report.html",
			strings.Repeat("a", 3000), strings.Repeat("../", 1000), "C:%5creport.html",
		} {
			resp, _ := v.raw("/console/execs/" + execID(2) + "/" + what + "/" + path)
			want := http.StatusNotFound
			if what+path == "artifacts" { // the page of all artifacts, with a slash at its end
				want = http.StatusPermanentRedirect
			}
			if resp != want {
				t.Errorf("%s/%.60s: %d", what, path, resp)
			}
		}
	}
	if len(f.downloads) != 0 {
		t.Errorf("events %q", f.downloads)
	}
	if _, body := v.get(fileURL("artifacts", "a%2Fb%2541")); body != "percent" {
		t.Errorf("a name with escapes: %q", body)
	}
	if status, body := v.raw("/console/execs/" + execID(2) + "/artifacts/plots%2Fone.png"); status != http.StatusOK || body != onePixel {
		t.Errorf("an escaped slash: %d", status)
	}
	if _, page := v.get("/console/execs/" + execID(2)); !strings.Contains(page, `/artifacts/a%252Fb%252541"`) {
		t.Error("the link to such a name leads elsewhere")
	}
}

// TestRangesBeyondTheEnd: a browser gets a page that says what to do, without the headers of the
// file.
func TestRangesBeyondTheEnd(t *testing.T) {
	t.Parallel()
	v := newVisitor(t, fullApp().serve(t))
	for _, path := range []string{fileURL("artifacts", "report.html"), "/console/execs/" + execID(2) + "/output/stdout/file"} {
		resp, page := v.fetch("GET", path, "Range", "bytes=9000000-")
		h := resp.Header
		if resp.StatusCode != http.StatusRequestedRangeNotSatisfiable || !strings.Contains(page, "<h1>The file has no such part</h1>") ||
			!strings.Contains(page, "download the whole file") || !strings.HasPrefix(h.Get("Content-Range"), "bytes */") {
			t.Errorf("%s: %d, %v: %s", path, resp.StatusCode, h, page)
		}
		if h.Get("Content-Disposition")+h.Get("ETag")+h.Get("Repr-Digest") != "" || h.Get("Cache-Control") != "no-store" ||
			!strings.HasPrefix(h.Get("Content-Security-Policy"), "default-src 'self'") {
			t.Errorf("%s has headers of the file: %v", path, h)
		}
	}
}

// raw sends a GET whose path the client does not change.
func (v *visitor) raw(path string) (status int, body string) {
	v.t.Helper()
	u, err := url.Parse(v.url)
	must(v.t, err)
	u.Opaque = path
	resp, body := v.do((&http.Request{Method: "GET", URL: u, Host: u.Host, Header: http.Header{}}).WithContext(v.t.Context()))
	return resp.StatusCode, body
}

// TestPreviews: only what is certainly an image, by name and content, and UTF-8 text is shown; all
// with a sandbox.
func TestPreviews(t *testing.T) {
	t.Parallel()
	f := fullApp()
	var gifImage, jpegImage bytes.Buffer
	must(t, gif.Encode(&gifImage, image.NewGray(image.Rect(0, 0, 3, 2)), nil))
	must(t, jpeg.Encode(&jpegImage, image.NewGray(image.Rect(0, 0, 3, 2)), nil))
	long := strings.Repeat("0123456789ü", 200_000)
	huge := []byte(onePixel)
	copy(huge[16:], "\x00\x01\x00\x00\x00\x01\x00\x00") // 65,536 × 65,536; its checksum is repaired below
	huge = withPNGChecksum(huge)
	const text = "text/plain; charset=utf-8"
	files := []struct{ name, content, media, says string }{
		{"a.png", onePixel, "image/png", "PNG image, 1 × 1"},
		{"a.JPEG", jpegImage.String(), "image/jpeg", "JPEG image, 3 × 2"},
		{"a.gif", gifImage.String(), "image/gif", "GIF image, 3 × 2"},
		{"a.webp", webP, "image/webp", "WebP image, 1 × 1"},
		{"polyglot.png", onePixel + "<script>0</script>", "image/png", "PNG image, 1 × 1"},
		{"a.txt", "text\n", text, "Text"},
		{"none", "text\n", text, "Text"},
		{"a.html", "<script>0</script>", text, "Text"},
		{"a.svg", "<svg onload='0'/>", text, "Text"},
		{"a.js", "0", text, "Text"},
		{"long.txt", long, text, "The first 1 MiB are shown"},
		{"marks.txt", "a\u202eb\x1b[", text, "Text"},
		{"utf7.html", "+ADw-script+AD4-", text, "Text"},
		{"empty", "", text, "The file is empty"},
		{"html.png", "<script>0</script>", "", "Its name says PNG image, but its content is no PNG image."},
		{"gif.png", gifImage.String(), "", "Its name says PNG image, but its content is no PNG image."},
		{"png.txt", onePixel, "", "neither UTF-8 text nor"},
		{"short.webp", webP[:20], "", "Its name says WebP image, but its content is no WebP image."},
		{"huge.png", string(huge), "", "It has 65536 × 65536 pixels"},
		{"large.png", onePixel + strings.Repeat("\x00", 16<<20), "", "Images of more than 16 MiB"},
		{"nul.txt", "a\x00b", "", "neither UTF-8 text nor"},
		{"utf16.html", utf16Of("<script>0</script>"), "", "neither UTF-8 text nor"},
		{"a.html.gz", "\x1f\x8b\x08\x00", "", "neither UTF-8 text nor"},
		{"latin1.txt", "caf\xe9", "", "neither UTF-8 text nor"},
	}
	for _, file := range files {
		f.addFile(file.name, file.content)
	}
	v := newVisitor(t, f.serve(t))
	for _, file := range files {
		if _, page := v.get(fileURL("show", file.name)); !strings.Contains(page, file.says) ||
			strings.Contains(page, "<iframe") != (file.media != "" && file.content != "") {
			t.Errorf("%s: the page does not say %q", file.name, file.says)
		}
		events := len(f.downloads)
		resp, body := v.get(fileURL("view", file.name))
		if file.media == "" {
			if resp.StatusCode != http.StatusSeeOther || resp.Header.Get("Location") != fileURL("show", file.name) || len(f.downloads) != events {
				t.Errorf("%s: %d to %s", file.name, resp.StatusCode, resp.Header.Get("Location"))
			}
			continue
		}
		h := resp.Header
		if resp.StatusCode != http.StatusOK || h.Get("Content-Type") != file.media || h.Get("X-Content-Type-Options") != "nosniff" ||
			h.Get("Cross-Origin-Resource-Policy") != "same-origin" || len(f.downloads) != events+1 {
			t.Errorf("%s: %d, %v", file.name, resp.StatusCode, h)
		}
		csp := strings.Split(h.Get("Content-Security-Policy"), "; ")
		if csp[0] != "sandbox" || csp[1] != "default-src 'none'" || csp[len(csp)-1] != "frame-ancestors 'self'" {
			t.Errorf("%s: %q", file.name, csp)
		}
		switch {
		case file.name == "marks.txt" && body != "a⟨U+202E⟩b␛[", file.name == "long.txt" && body != long[:1<<20],
			strings.HasPrefix(file.media, "image") && body != file.content:
			t.Errorf("%s: %.40q", file.name, body)
		}
	}
}

// TestManyArtifacts: each is on a page of the list.
func TestManyArtifacts(t *testing.T) {
	t.Parallel()
	f := fullApp()
	f.files = nil
	for i := range 450 {
		f.addFile("file-"+strconv.Itoa(1000+i), "x")
	}
	v := newVisitor(t, f.serve(t))
	for path, want := range map[string][2]int{
		"": {0, 30}, "/artifacts?from=200": {200, 300}, "/artifacts?from=400": {400, 450},
		"/artifacts?from=450": {450, 450},
	} {
		_, page := v.get("/console/execs/" + execID(2) + path)
		for i := range 450 {
			if shown := strings.Contains(page, "/artifacts/file-"+strconv.Itoa(1000+i)+`"`); shown != (i >= want[0] && i < want[1]) {
				t.Fatalf("%s: file %d is shown: %v", path, i, shown)
			}
		}
		if path != "" && len(page) > 75<<10 { // beside the style sheet and the scripts, of at most 150 KiB in all
			t.Errorf("%s: %d bytes", path, len(page))
		}
	}
	for _, from := range []string{"-1", "x", "9999999999999999999999"} {
		if resp, _ := v.get("/console/execs/" + execID(2) + "/artifacts?from=" + from); resp.StatusCode != http.StatusBadRequest {
			t.Errorf("from=%s: %d", from, resp.StatusCode)
		}
	}
}

// TestArtifactsNotKept: what has no content is named with the reason and a visible name, also when
// nothing was kept, and the page says how many there are.
func TestArtifactsNotKept(t *testing.T) {
	t.Parallel()
	f := fullApp()
	f.notKept = runner.ArtifactList{LeftOut: runner.LeftOut{NotKeptCount: 10_003, NotKept: []runner.NotKept{
		{Path: "a\u202egpj.exe", Size: 2048, Why: "it did not fit"}, {Path: `bad\xff`, Why: "its name is not UTF-8"}, {Path: "<b>link", Why: "a symbolic link"},
	}}}
	url := f.serve(t) + "/console/execs/" + execID(2)
	rows := []string{"a⟨U+202E⟩gpj.exe 2 KiB it did not fit", `bad\xff – its name is not UTF-8`, "<b>link – a symbolic link", "3 of 10,003 are shown"}
	says(t, get(t, url), append(rows, "report.html", "Not kept File Size Reason"), []string{"see the detail of the outcome"})
	f.files = nil
	says(t, get(t, url), append(rows, "no artifacts that could be kept"), []string{"report.html", "left no artifacts."})
	if _, table, _ := strings.Cut(get(t, url), "<h3>Not kept</h3>"); !strings.Contains(table, `<table class="cards">`) ||
		!strings.Contains(table, `data-label="Reason"`) {
		t.Error("on a narrow page, the reasons are cut")
	}
	f.notKept.NotKeptCount = 3
	says(t, get(t, url), rows[:3], []string{"3 of 3"})
	f.notKept = runner.ArtifactList{}
	says(t, get(t, url), []string{"The command left no artifacts."}, []string{"Not kept"})
}

// withPNGChecksum repairs the checksum of a PNG's first chunk.
func withPNGChecksum(b []byte) []byte {
	binary.BigEndian.PutUint32(b[29:], crc32.ChecksumIEEE(b[12:29]))
	return b
}

func utf16Of(s string) string {
	b := []byte{0xff, 0xfe}
	for _, u := range utf16.Encode([]rune(s)) {
		b = append(b, byte(u), byte(u>>8))
	}
	return string(b)
}

// TestHostileArtifactsInBrowser: whatever files contain and are called, nothing of them runs, in
// the frame of their page and opened as a page.
func TestHostileArtifactsInBrowser(t *testing.T) {
	var ran atomic.Int64
	beacon := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		ran.Add(1)
		w.Header().Set("Access-Control-Allow-Origin", "*")
	}))
	t.Cleanup(beacon.Close)
	page := `<html><body><script>document.title="hacked";fetch("` + beacon.URL + `/script")</script><img src="` + beacon.URL +
		`/img" onerror="document.title='hacked'"><meta http-equiv=refresh content="0;url=` + beacon.URL + `/refresh"></body></html>`
	svg := `<?xml version="1.0"?><svg xmlns="http://www.w3.org/2000/svg" onload="document.title='hacked'"><script>fetch("` + beacon.URL +
		`/svg")</script><image href="` + beacon.URL + `/image"/></svg>`
	f := fullApp()
	f.files = nil
	const text = "text/plain"
	files := []struct{ name, content, media string }{
		{"page.html", page, text},
		{"page.xhtml", `<html xmlns="http://www.w3.org/1999/xhtml">` + page, text},
		{"none", page, text},
		{"picture.svg", svg, text},
		{"feed.xml", svg, text},
		{"script.js", `document.title="hacked";fetch("` + beacon.URL + `/js")`, text},
		{"utf7.html", "+ADw-script+AD4-document.title=+ACI-hacked+ACI-+ADw-/script+AD4-", text},
		{"bom.html", "\ufeff" + page, text},
		{"comment.png", onePixel + page, "image/png"},
		{"image.gif", "GIF89a\x01\x00\x01\x00\x00\x00\x00/*" + page + "*/", "image/gif"},
		{"page.png", page, ""},
		{"svg.png", svg, ""},
		{"page.utf16.html", utf16Of(page), ""},
		{"page.html.gz", "\x1f\x8b\x08\x00" + page, ""},
		{"page.pdf", "%PDF-1.4\n\xff" + page, ""},
	}
	for _, name := range hostile { // as names of files, which have no NUL, no invalid UTF-8 and no "..", and are not as long
		if len(name) < 1000 && !strings.Contains(name, "\x00") && utf8.ValidString(name) && !strings.HasPrefix(name, "../") {
			files = append(files, struct{ name, content, media string }{name, page, text})
		}
	}
	for _, file := range files {
		f.addFile(file.name, file.content)
	}
	b := open(t, f.serve(t))

	// The content does run where it is served as a page.
	plain := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/html")
		_, _ = w.Write([]byte(page))
	}))
	t.Cleanup(plain.Close)
	b.do(chromedp.Navigate(plain.URL), chromedp.WaitReady("body"))
	if ran.Load() == 0 {
		t.Fatal("the content does nothing anywhere, so the test cannot fail")
	}
	b.do(chromedp.Navigate("about:blank"))
	b.complaints()
	ran.Store(0)

	type seen struct {
		Title, Type, Origin string
		Scripts             int
	}
	look := func(doc string) seen {
		return eval[seen](b, `(d => ({Title: d.title, Type: d.contentType, Origin: self.origin, Scripts: d.scripts.length}))(`+doc+`)`)
	}
	for _, file := range files {
		b.visit(escaped("show", file.name))
		if got := eval[int](b, `document.querySelectorAll("iframe[sandbox='']").length`); got != min(1, len(file.media)) {
			t.Errorf("%.40q: %d frames", file.name, got)
		}
		if got := look("document"); got.Scripts != 2 || !strings.HasSuffix(got.Title, " · secbox") {
			t.Errorf("%.40q: the page is %+v", file.name, got)
		}
		b.do(chromedp.Navigate(b.url+escaped("view", file.name)), chromedp.WaitReady("body"))
		if got := look("document"); file.media != "" && (got.Type != file.media || got.Origin != "null" || got.Scripts != 0 ||
			strings.Contains(got.Title, "hacked")) {
			t.Errorf("%.40q, opened: %+v", file.name, got)
		}
	}
	if n := ran.Load(); n > 0 {
		t.Errorf("the content made %d requests", n)
	}
}

// escaped is fileURL as the pages' own links have it.
func escaped(what, file string) string {
	parts := strings.Split(file, "/")
	for i, part := range parts {
		parts[i] = url.PathEscape(part)
	}
	return "/console/execs/" + execID(2) + "/" + what + "/" + strings.Join(parts, "/")
}

// TestFrameShowsContent: the frame has the content, from an address that other sites and the page
// itself cannot read.
func TestFrameShowsContent(t *testing.T) {
	f := fullApp()
	b := open(t, f.serve(t))
	b.visit(fileURL("show", "report.html"))
	frames := eval[[]string](b, `new Promise(done => { const f = document.querySelector("iframe"); const tell = () => done([f.src, String(f.contentDocument), String(f.getAttribute("sandbox"))]);
		f.contentDocument && f.contentDocument.URL == "about:blank" ? f.addEventListener("load", tell) : tell() })`)
	if frames[0] != b.url+fileURL("view", "report.html") || frames[1] != "null" || frames[2] != "" {
		t.Errorf("%q", frames)
	}
	if len(f.downloads) != 1 {
		t.Errorf("events %q", f.downloads)
	}
	b.visit(fileURL("show", "plots/one.png"))
}

// TestArtifactsOverRealCore: roles, another's exec, ranges, and files that retention removed.
func TestArtifactsOverRealCore(t *testing.T) {
	t.Parallel()
	c := startCore(t)
	worker, other := c.token("worker", tokens.Worker), c.token("other", tokens.Worker)
	id := c.run(worker, `mkdir /workspace/artifacts/sub; echo 0123456789 > "/workspace/artifacts/sub/a b.txt"; echo out`)
	base := "/console/execs/" + id

	v := newVisitor(t, c.url)
	v.signIn(worker)
	if _, page := v.get(base); !strings.Contains(page, base+`/show/sub/a%20b.txt"`) || !strings.Contains(page, base+`/output/stdout/file"`) {
		t.Error("the page has no links to its files")
	}
	if resp, body := v.fetch("GET", base+"/artifacts/sub/a%20b.txt", "Range", "bytes=2-4"); resp.StatusCode != http.StatusPartialContent || body != "234" {
		t.Errorf("a range: %d, %q", resp.StatusCode, body)
	}
	if resp, body := v.get(base + "/view/sub/a%20b.txt"); resp.StatusCode != http.StatusOK || body != "0123456789\n" {
		t.Errorf("the content: %d, %q", resp.StatusCode, body)
	}
	if resp, body := v.get(base + "/output/stdout/file"); resp.StatusCode != http.StatusOK || body != "out\n" {
		t.Errorf("the output: %d, %q", resp.StatusCode, body)
	}
	for _, path := range []string{"../meta.json", "%2e%2e/meta.json", "..%2f..%2fwork", "/etc/passwd", "meta.json", "sub%00", "sub"} {
		if status, body := v.raw(base + "/artifacts/" + path); status != http.StatusNotFound {
			t.Errorf("%s: %d, %.80q", path, status, body)
		}
	}

	stranger := newVisitor(t, c.url)
	stranger.signIn(other)
	paths := []string{"/artifacts", "/artifacts.zip", "/artifacts/sub/a%20b.txt", "/show/sub/a%20b.txt", "/view/sub/a%20b.txt", "/output/stdout/file"}
	for _, path := range paths {
		if resp, body := stranger.get(base + path); resp.StatusCode != http.StatusNotFound || strings.Contains(body, "012") {
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
	events := c.events()[before:]
	if strings.Join(events, ",") != "download by auditor,download by auditor,download by auditor,download by auditor" {
		t.Errorf("events %q", events)
	}

	if _, err := c.log.Step(t.Context()); err != nil {
		t.Fatal(err)
	}
	store := c.db.Retention()
	if ok, err := store.Begin(t.Context(), "run", time.Minute, 0); err != nil || !ok {
		t.Fatal(ok, err)
	}
	gone, err := store.Remove(t.Context(), retention.Query{
		Part: retention.Artifacts, Rule: "audit.artifacts_retention_days", Days: 7,
		Before: time.Now().Add(time.Hour), LostBefore: time.Now().Add(time.Hour),
	}, []string{id}, "run", time.Minute)
	if err != nil || len(gone.Due) != 1 {
		t.Fatal(gone, err)
	}
	if _, page := v.get(base); !strings.Contains(page, "A rule of retention removed the artifacts") || strings.Contains(page, "/show/") {
		t.Error("the page does not say that the artifacts were removed")
	}
	must(t, os.RemoveAll(filepath.Join(c.dir, "workspace", "projects", "demo", "artifacts", id)))
	for _, path := range paths {
		if resp, page := v.get(base + path); resp.StatusCode != http.StatusGone || !strings.Contains(page, "removed_by_retention") {
			t.Errorf("a removed %s: %d", path, resp.StatusCode)
		}
	}
}
