package console_test

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/chromedp/chromedp"

	"secbox/access/tokens"
	"secbox/console"
)

// TestLinksOfOtherSites: a link on another site leads to a page that asks for its address again;
// other requests from there are refused. Nothing is read or recorded.
func TestLinksOfOtherSites(t *testing.T) {
	t.Parallel()
	for who, app := range map[string]*fakeApp{"without tokens": fullApp(), "with tokens": closedApp()} {
		v := newVisitor(t, app.serve(t))
		cookies := ""
		if who == "with tokens" {
			v.signIn("secret-admin") // a browser would not send the cookie
			cookies = v.session()
		}
		before, arrival := app.changes(), document{}
		for _, r := range console.Routes() {
			if r.Method != http.MethodGet || name(r) == "GET "+callback {
				continue
			}
			path := address(t, r)
			for _, site := range []string{"cross-site", "same-site"} {
				for _, c := range []struct {
					mode, dest, method string
				}{
					{"navigate", "document", "GET"},
					{"navigate", "iframe", "GET"},
					{"navigate", "document", "HEAD"},
					{"no-cors", "image", "GET"},
					{"cors", "empty", "GET"},
					{"websocket", "websocket", "GET"},
					{"", "", "GET"},
				} {
					req, err := http.NewRequestWithContext(t.Context(), c.method, v.url+path, nil)
					must(t, err)
					req.Header.Set("Sec-Fetch-Site", site)
					req.Header.Set("Sec-Fetch-Mode", c.mode)
					req.Header.Set("Sec-Fetch-Dest", c.dest)
					resp, page := v.do(req)
					what := fmt.Sprintf("%s, %s: %+v", who, path, c)
					if resp.Header.Get("Set-Cookie") != "" || strings.Contains(page, `aria-label="Main"`) {
						t.Errorf("%s has content: %v: %s", what, resp.Header, page)
					}
					if refresh := resp.Header.Get("Refresh"); c.dest == "document" && c.method == "GET" && isPage[r.Path] {
						if resp.StatusCode != http.StatusOK || refresh != "0; url="+path ||
							!strings.Contains(page, `class="button" href="`+strings.ReplaceAll(path, "&", "&amp;")+`"`) {
							t.Errorf("%s: %d, %s: %s", what, resp.StatusCode, refresh, page)
						}
						arrival = document{"arrival", page}
					} else if resp.StatusCode != http.StatusForbidden || refresh != "" || c.method == "GET" && !strings.Contains(page, "foreign_origin") {
						t.Errorf("%s: %d: %s", what, resp.StatusCode, page)
					}
				}
			}
		}
		if after := app.changes(); after != before || len(app.downloads)+len(app.audit.exports) != 0 || v.session() != cookies {
			t.Errorf("%s: something changed: %s, then %s; downloads %q, %d exports", who, before, after, app.downloads, len(app.audit.exports))
		}
		valid(t, []document{arrival})
	}
}

// isPage has the routes that show a page to the one who follows a link; all others are files,
// streams, parts of pages and the beginning of a sign-in.
var isPage = func() map[string]bool {
	pages := map[string]bool{}
	for _, path := range []string{
		"", "/sign-in", "/overview", "/history", "/sessions", "/refused", "/skills", "/skills/:id", "/packages", "/packages/:agent/:user/:skill",
		"/packages/:agent/:user/:skill/file", "/packages/:agent/:user/:skill/diff", "/baselines/:agent/:skill", "/baselines/:agent/:skill/file",
		"/registry", "/registry/:kind/:name", "/images", "/images/:name", "/runners", "/operations", "/execs/:id", "/execs/:id/output/:stream", "/execs/:id/artifacts",
		"/execs/:id/show/*", "/execs/:id/inputs", "/execs/:id/show-input/*", "/execs/:id/differences", "/audit", "/audit/report",
		"/audit/events", "/audit/holds", "/audit/retention",
		"/audit/export", "/people", "/tokens", "/tokens/:id",
	} {
		pages["/console"+path] = true
	}
	return pages
}()

// TestSharedLinksInBrowser: in a browser, a link on another site opens the page for those who are
// signed in, and without tokens; it starts no export.
func TestSharedLinksInBrowser(t *testing.T) {
	for _, signedIn := range []bool{false, true} {
		c := startCore(t)
		secret := ""
		if signedIn {
			secret = c.token("ada", tokens.Admin)
		}
		id := c.run(secret, "echo hi")
		elsewhere := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", "text/html")
			fmt.Fprintf(w, `<!doctype html><main><a id="exec" href="%[1]s/console/execs/%[2]s">exec</a> <a id="list" href="%[1]s/console/history?status=succeeded&amp;columns=status&amp;columns=exit">list</a>
				<a id="start" href="%[1]s">start</a> <a id="export" href="%[1]s/console/audit/export/file?format=csv">export</a></main>`, c.url, id)
		}))
		t.Cleanup(elsewhere.Close)
		site := strings.Replace(elsewhere.URL, "127.0.0.1", "localhost", 1) // another site for browsers
		b := open(t, c.url)
		if signedIn {
			b.visit("/console/sign-in")
			b.do(chromedp.SendKeys("#token", secret), chromedp.Click("form.panel button"), chromedp.WaitVisible(".who"))
		}
		follow := func(link string) {
			t.Helper()
			b.do(chromedp.Navigate(site), chromedp.Click(link))
		}
		for link, want := range map[string][2]string{
			"#exec": {"/console/execs/" + id, "echo hi"}, "#list": {"/console/history?status=succeeded&columns=status&columns=exit", "History"},
			"#start": {"/console/overview", "Overview"},
		} {
			follow(link)
			if h1 := b.heading(c.url + want[0]); h1 != want[1] {
				t.Errorf("signed in: %v: %s leads to %s", signedIn, link, h1)
			}
		}
		follow("#export")
		b.heading(c.url + "/console/audit/export/file?format=csv")
		if text := b.text(); !strings.Contains(text, "foreign_origin") || !strings.Contains(text, "open the console, and use its own links") {
			t.Errorf("signed in: %v: an export from elsewhere: %s", signedIn, text)
		}
		for _, event := range c.events() {
			if strings.HasPrefix(event, "export") {
				t.Errorf("signed in: %v: %s", signedIn, event)
			}
		}
	}
}
