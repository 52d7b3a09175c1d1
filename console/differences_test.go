package console_test

import (
	"context"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"sync/atomic"
	"testing"

	"secbox/access/tokens"
	"secbox/engine"
	"secbox/engine/memengine"
)

// TestDifferencesOfReplay: the files of a replay and its first exec are listed, those that differ
// first, and compared by lines where they are text. What a reader sees of others is on record.
func TestDifferencesOfReplay(t *testing.T) {
	t.Parallel()
	f := fullApp()
	f.first.addFile("large.txt", strings.Repeat("x", 600<<10))
	f.addFile("large.txt", "y")
	f.addFile("<b>\u202e.txt", "new\n\u202e<script>\n")
	v := newVisitor(t, f.serve(t))
	base := "/console/execs/" + execID(2) + "/differences"
	_, list := v.get(base)
	says(t, list, []string{"artifacts/data.bin differs 2 B", "artifacts/table.csv equal", "artifacts/<b>⟨U+202E⟩.txt differs it left none"}, nil)
	if strings.Index(list, "artifacts/report.html") > strings.Index(list, "artifacts/table.csv") {
		t.Error("what differs does not come first")
	}
	for of, want := range map[string][]string{
		"artifacts/report.html":   {"--- first exec", "+++ replay", "-<h1>Report</h1> -<p>of before", "+<h1>Report</h1>"},
		"artifacts/data.bin":      {"It is not UTF-8 text"},
		"artifacts/table.csv":     {"Both have the same content."},
		"artifacts/large.txt":     {"Files of more than 512 KiB are not compared by lines."},
		"artifacts/<b>\u202e.txt": {"First exec it left none", "+new", "+⟨U+202E⟩<script>"},
		"stderr":                  {"Both have the same content."},
	} {
		f.downloads = nil
		_, page := v.get(base + "?of=" + url.QueryEscape(of))
		says(t, page, want, nil)
		if strings.Contains(page, "<script>\n") || len(f.downloads) == 0 {
			t.Errorf("%s: downloads %q", of, f.downloads)
		}
	}
	f.downloads = nil
	v.get(base + "?of=artifacts/report.html")
	if want := []string{execID(4) + " artifact report.html", execID(2) + " artifact report.html"}; strings.Join(f.downloads, ",") != strings.Join(want, ",") {
		t.Errorf("on record are %q", f.downloads)
	}
	for path, status := range map[string]int{
		base + "?of=artifacts/none": http.StatusNotFound, base + "?of=meta.json": http.StatusNotFound, base + "?of=artifacts/../meta.json": http.StatusNotFound,
		"/console/execs/" + execID(3) + "/differences": http.StatusNotFound, "/console/execs/" + execID(1) + "/differences": http.StatusNotFound,
	} {
		if resp, _ := v.get(path); resp.StatusCode != status {
			t.Errorf("%s: %d", path, resp.StatusCode)
		}
	}
	_, page := v.get("/console/execs/" + execID(2))
	if !strings.Contains(page, `href="`+base+`?of=stdout"`) || strings.Contains(page, "?of=work") {
		t.Error("the comparison does not lead to what differs")
	}
}

// TestDifferencesOverRealCore: a caller who may not see one of the execs gets no difference.
func TestDifferencesOverRealCore(t *testing.T) {
	t.Parallel()
	var runs atomic.Int64
	c := startCore(t, map[string]memengine.Command{"turn": func(_ context.Context, p *memengine.Process) (int, *engine.Exit, error) {
		_, err := fmt.Fprintf(p.Stdout, "run %d\n", runs.Add(1))
		return 0, nil, err
	}})
	worker := c.token("worker", tokens.Worker)
	first := c.run(worker, "turn > /workspace/artifacts/out.txt")
	v := newVisitor(t, c.url)
	v.signIn(worker)
	page := "/console/execs/" + first
	_, body := v.get(page)
	_, rest, _ := strings.Cut(body, `name="key" value="`)
	key, _, _ := strings.Cut(rest, `"`)
	resp, _ := v.post(page, page+"/replay", url.Values{"key": {key}})
	second := resp.Header.Get("Location")
	v.post(page, page+"/replay", url.Values{"key": {key}}) // waits until it has ended
	_, body = v.get(second + "/differences?of=artifacts/out.txt")
	says(t, body, []string{"-run 1", "+run 2"}, nil)
	stranger := newVisitor(t, c.url)
	stranger.signIn(c.token("other", tokens.Worker))
	if resp, body := stranger.get(second + "/differences?of=artifacts/out.txt"); resp.StatusCode != http.StatusNotFound || strings.Contains(body, "run 1") {
		t.Errorf("a stranger: %d", resp.StatusCode)
	}
}
