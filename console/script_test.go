package console_test

import (
	"net/http"
	"strings"
	"testing"

	"github.com/chromedp/chromedp"

	"secbox/access/tokens"
)

// TestFiltersWithScript: htmx replaces the results, and the address has the filters that say
// something.
func TestFiltersWithScript(t *testing.T) {
	f := fullApp()
	b := open(t, f.serve(t))
	b.visit("/console/history")
	b.do(chromedp.SendKeys("#f-text", "nothing-has-this"), chromedp.Click("#filters button.main"), chromedp.WaitVisible("#results .empty"))
	if at := run(b, chromedp.Location()); at != b.url+"/console/history?text=nothing-has-this" {
		t.Errorf("the address is %s", at)
	}
	b.do(chromedp.NavigateBack(), chromedp.WaitVisible("#results table"))
	b.do(chromedp.Click(".pager a"), chromedp.WaitVisible(`.pager a[href="/console/history"]`))
	if n := eval[int](b, `document.querySelectorAll("#results tbody tr").length`); n != 10 {
		t.Errorf("the second page has %d rows", n)
	}
}

// TestShowMore: a part of output follows the one before, up to 1 MiB.
func TestShowMore(t *testing.T) {
	f := fullApp()
	f.output["stdout"] = []byte(strings.Repeat("0123456789ü", 10_000))
	b := open(t, f.serve(t))
	b.visit("/console/execs/" + execID(2))
	b.do(chromedp.Click("#stdout .more a"), chromedp.WaitNotPresent("#stdout .more"))
	if text := eval[string](b, `[...document.querySelectorAll("#stdout pre")].map(p => p.textContent).join("")`); text != string(f.output["stdout"]) {
		t.Errorf("%d characters are shown", len(text))
	}
	if body := get(t, b.url+"/console/execs/"+execID(2)+"/output/stdout?from=65536"); !strings.Contains(body, "From byte 65,536 of") {
		t.Error("without a script there is no page of the next part")
	}
}

// TestSignInWithBrowser signs in, follows a link, and signs out, in a browser that enforces the
// Content-Security-Policy and the cookies.
func TestSignInWithBrowser(t *testing.T) {
	f := closedApp()
	b := open(t, f.serve(t))
	b.visit("/console/execs/" + execID(2))
	b.do(chromedp.SendKeys("#token", "secret-"+string(tokens.Auditor)), chromedp.Click("form.panel button"), chromedp.WaitVisible("#command"))
	if at := run(b, chromedp.Location()); at != b.url+"/console/execs/"+execID(2) {
		t.Errorf("the sign-in leads to %s", at)
	}
	if cookies := eval[string](b, "document.cookie"); cookies != "" {
		t.Errorf("scripts see the cookies %s", cookies)
	}
	b.do(chromedp.Click(".who button"), chromedp.WaitVisible("#token"))
	if len(f.sessions.open) != 0 {
		t.Error("the session is open after the sign-out")
	}
}

// TestAssets are cached for a year under their digest, and compressed.
func TestAssets(t *testing.T) {
	t.Parallel()
	v := newVisitor(t, fullApp().serve(t))
	_, page := v.get("/console/history")
	total := len(page)
	for _, part := range strings.Split(page, `"/console/assets/`)[1:] {
		name, _, _ := strings.Cut(part, `"`)
		req, err := http.NewRequestWithContext(t.Context(), "GET", v.url+"/console/assets/"+name, nil)
		must(t, err)
		req.Header.Set("Accept-Encoding", "br;q=1, gzip")
		resp, body := v.do(req)
		if resp.StatusCode != http.StatusOK || resp.Header.Get("Content-Encoding") != "gzip" ||
			!strings.Contains(resp.Header.Get("Cache-Control"), "immutable") || resp.Header.Get("Set-Cookie") != "" {
			t.Errorf("%s: %d, %v", name, resp.StatusCode, resp.Header)
		}
		total += len(body)
	}
	if total > 150<<10 {
		t.Errorf("a first view takes %d bytes", total)
	}
	if resp, _ := v.get("/console/assets/app.css"); resp.StatusCode != http.StatusNotFound {
		t.Errorf("without a digest: %d", resp.StatusCode)
	}
}
