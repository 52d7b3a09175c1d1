package api_test

import (
	"html"
	"net/http"
	"regexp"
	"strings"
	"testing"

	"secbox/api"
	"secbox/api/wire"
)

// examples are the commands of the page, by the route's id.
func examples(page string) map[string]string {
	out := map[string]string{}
	for _, article := range strings.Split(page, "<article ")[1:] {
		article, _, _ = strings.Cut(article, "</article>")
		id, _, _ := strings.Cut(strings.TrimPrefix(article, `id="`), `"`)
		if m := regexp.MustCompile(`(?s)<h4>Try it</h4><pre tabindex="0"><code>(.*?)</code>`).FindStringSubmatch(article); m != nil {
			out[id] = html.UnescapeString(m[1])
		}
	}
	return out
}

// TestFrontDoor: / leads browsers to the console, and tells programs what the service is.
func TestFrontDoor(t *testing.T) {
	t.Parallel()
	f := start(t, func(c *api.Config) { c.Console = func(http.ResponseWriter, *http.Request, api.Door) {} })
	f.client.CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	for _, accept := range []string{
		"text/html,application/xhtml+xml,application/xml;q=0.9,image/avif,image/webp,*/*;q=0.8", // Chromium's
		"text/html", "TEXT/HTML ; q=0.5", "application/json;q=0.4, text/html;q=0.5", "text/html, application/json",
	} {
		for _, method := range []string{"GET", "HEAD"} {
			r := f.do(request{method: method, path: "/", header: map[string]string{"Accept": accept}})
			if r.StatusCode != http.StatusSeeOther || r.Header.Get("Location") != "/console" || r.Header.Get("Vary") != "Accept" ||
				len(r.body) > 0 && method == "HEAD" {
				t.Errorf("%s of a browser, Accept %q: %d, %s", method, accept, r.StatusCode, r.Header.Get("Location"))
			}
		}
	}
	for _, accept := range []string{
		"", "*/*", "application/json", "text/*", "text/html;q=0", "text/html;q=0.5, application/json", "text/html;q=nonsense",
		"texthtml;;,",
	} {
		if r := f.do(request{method: "HEAD", path: "/", header: map[string]string{"Accept": accept}}); r.StatusCode != 200 ||
			r.Header.Get("Content-Type") != "application/json" || len(r.body) > 0 {
			t.Errorf("HEAD of a program, Accept %q: %d, %s", accept, r.StatusCode, r.Header.Get("Content-Type"))
		}
		info := decodeAs[wire.ServiceInfo](t, f.do(request{path: "/", header: map[string]string{"Accept": accept}}), 200)
		if info.Service != "core-api" || info.Console != "/console" {
			t.Errorf("Accept %q: %+v", accept, info)
		}
		for _, path := range []string{info.Docs, info.Openapi, info.Health} {
			if r := f.get(path); r.StatusCode != 200 {
				t.Errorf("%s: %d", path, r.StatusCode)
			}
		}
	}
}

// TestNotFoundPage: browsers get a page, programs a problem document.
func TestNotFoundPage(t *testing.T) {
	t.Parallel()
	f := start(t)
	const browser = "text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8"
	for _, path := range []string{"/nowhere", "/sandbox/execs/x/y/z", "/v1/nowhere"} {
		r := f.do(request{path: path, header: map[string]string{"Accept": browser}})
		if r.StatusCode != 404 || r.Header.Get("Content-Type") != "text/html; charset=utf-8" || !strings.Contains(string(r.body), `href="/docs"`) {
			t.Errorf("%s: %d %s %.200s", path, r.StatusCode, r.Header.Get("Content-Type"), r.body)
		}
		if csp := r.Header.Get("Content-Security-Policy"); !strings.Contains(csp, "default-src 'none'") || strings.Contains(csp, "unsafe") {
			t.Errorf("%s: %s", path, csp)
		}
		for _, accept := range []string{"", "*/*", "application/json"} {
			if r := f.do(request{path: path, header: map[string]string{"Accept": accept}}); r.StatusCode != 404 ||
				strings.Contains(r.Header.Get("Content-Type"), "html") {
				t.Errorf("%s with Accept %q: %d %s", path, accept, r.StatusCode, r.Header.Get("Content-Type"))
			}
		}
	}
	// Every client gets the refusals of routes as problem documents.
	if r := f.do(request{
		path:   "/sandbox/execs/nonsense",
		header: map[string]string{"Accept": browser},
	}); r.Header.Get("Content-Type") != "application/problem+json" {
		t.Errorf("%d %s", r.StatusCode, r.Header.Get("Content-Type"))
	}
}
