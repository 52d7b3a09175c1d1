package api_test

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"secbox/api"
	"secbox/fault"
)

func TestForeignHosts(t *testing.T) {
	t.Parallel()
	f := start(t, func(c *api.Config) { c.AllowedHosts = []string{"Core.Example", "tunnel.example:9000"} })
	for host, ok := range map[string]bool{
		"": true /* the real one */, "localhost": true, "localhost:8003": true, "LOCALHOST": true, "127.0.0.1": true, "127.0.0.1:1": true,
		"[::1]": true, "[::1]:8003": true, "core.example": true, "core.example:443": true, "tunnel.example:9000": true,
		"tunnel.example": false, "tunnel.example:9001": false, "evil.example": false, "evil.example:8003": false, "localhost.evil.example": false,
		"127.0.0.1.evil.example": false, "localhost.": false, "127.0.0.2": false, "0.0.0.0": false, "169.254.169.254": false, "[::]": false,
		"::1": false, "[::1": false, "localhost:": false, "localhost:0": false, "localhost:x": false, "localhost:99999": false, "a@localhost": false,
		"[localhost]": false, "2130706433": false,
	} {
		for _, path := range []string{"/docs", "/healthz", "/sandbox/execs", "/nowhere"} {
			r := f.do(request{path: path, host: host})
			if refused := strings.Contains(string(r.body), `"foreign_host"`); refused == ok {
				// net/http refuses malformed Host headers itself
				if r.StatusCode == 400 && !ok {
					continue
				}
				t.Errorf("Host %q on %s: %d %s", host, path, r.StatusCode, r.body)
			}
			if !ok {
				r.wants(t, fault.ForeignHost)
			}
		}
	}
}

func TestEmptyHost(t *testing.T) {
	t.Parallel()
	f := start(t)
	r := httptest.NewRequest("GET", "/docs", nil)
	r.Host, r.RemoteAddr = "", "127.0.0.1:1"
	w := httptest.NewRecorder()
	f.server.ServeHTTP(w, r)
	if w.Code != 403 {
		t.Errorf("%d", w.Code)
	}
}

func TestForeignOrigins(t *testing.T) {
	t.Parallel()
	f := start(t)
	own := f.url
	port := own[strings.LastIndexByte(own, ':'):]
	for _, tc := range []struct {
		header, value string
		ok            bool
	}{
		{"Origin", own, true},
		{"Origin", "http://localhost" + port, false}, // another origin than the Host that was asked
		{"Origin", "http://127.0.0.1:1", false},
		{"Origin", "http://127.0.0.1", false},
		{"Origin", "http://evil.example", false},
		{"Origin", "null", false},
		{"Origin", "file://", false},
		{"Origin", own + ".evil.example", false},
		{"Origin", strings.Replace(own, "http://", "http://a@", 1), false},
		{"Origin", own + "/", false},
		{"Origin", "chrome-extension://abc", false},
		{"Origin", "", true},
		{"Sec-Fetch-Site", "same-origin", true},
		{"Sec-Fetch-Site", "none", true},
		{"Sec-Fetch-Site", "same-site", false}, // another port of this machine
		{"Sec-Fetch-Site", "cross-site", false},
		{"Sec-Fetch-Site", "nonsense", false},
	} {
		for _, r := range []request{
			{path: "/docs"},
			{path: "/openapi.yaml"},
			{path: "/sandbox/execs"},
			{path: "/nowhere"},
			{method: "OPTIONS", path: "/sandbox/execs"},
			{method: "POST", path: "/sandbox/execs", body: `{"project_id": "demo", ` + aCommand + `}`},
		} {
			r.header = map[string]string{tc.header: tc.value}
			got := f.do(r)
			if tc.ok == (got.StatusCode == 403) {
				t.Errorf("%s: %q on %s %s: %d", tc.header, tc.value, r.method, r.path, got.StatusCode)
			}
			if !tc.ok {
				got.wants(t, fault.ForeignOrigin)
			}
			if got.Header.Get("Access-Control-Allow-Origin") != "" {
				t.Error("there is no CORS here")
			}
		}
	}
	ran := len(f.runner.seen())
	if ran != 4 {
		t.Errorf("%d execs ran, want those of the 4 good requests", ran)
	}
}

// TestRefusalsOfPages: a browser that is refused on its way to the console gets a page with the
// remedy, which shows nothing else; a program gets a problem document.
func TestRefusalsOfPages(t *testing.T) {
	t.Parallel()
	f := start(t, func(c *api.Config) {
		c.Console = func(http.ResponseWriter, *http.Request, api.Door) { t.Error("the console was asked") }
	})
	const browser = "text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8"
	for name, c := range map[string]struct {
		change func(*http.Request)
		code   fault.Code
		want   string
	}{
		"host": {
			func(r *http.Request) { r.Host = "evil.example<b>" }, fault.ForeignHost,
			"use localhost, or add the name to the setting http.allowed_hosts",
		},
		"origin": {func(r *http.Request) { r.Header.Set("Origin", "https://evil.example") }, fault.ForeignOrigin, "answers only its own pages"},
		"site":   {func(r *http.Request) { r.Header.Set("Sec-Fetch-Site", "cross-site") }, fault.ForeignOrigin, "type the address into the browser"},
		"cookies": {
			func(r *http.Request) { r.Header.Set("Cookie", "a="+strings.Repeat("x", api.MaxHeaderBytes)) }, fault.HeadersTooLarge,
			"remove cookies of this host",
		},
		"address": {func(r *http.Request) { r.RequestURI += "?text=" + strings.Repeat("x", api.MaxHeaderBytes) }, fault.HeadersTooLarge, "shorten the address"},
	} {
		for path, page := range map[string]bool{
			"/": true, "/console": true, "/console/history": true, "/console/assets/app.css": true, "/consoles": false,
			"/docs": false, "/sandbox/execs": false,
		} {
			for accept, html := range map[string]bool{browser: true, "": false, "*/*": false, "application/json": false} {
				r := httptest.NewRequest("GET", path, nil)
				r.Host, r.RemoteAddr = "localhost", "127.0.0.1:1"
				r.Header.Set("Accept", accept)
				c.change(r)
				w := httptest.NewRecorder()
				f.server.ServeHTTP(w, r)
				kind := "application/problem+json"
				if page && html {
					kind = "text/html; charset=utf-8"
				}
				h, body := w.Header(), w.Body.String()
				if w.Code != fault.HTTPStatus(c.code) || h.Get("Content-Type") != kind || !strings.Contains(body, string(c.code)) ||
					!strings.Contains(body, c.want) || strings.Contains(body, "<b>") || h.Get("Set-Cookie") != "" {
					t.Errorf("%s, %s for %q: %d, %v: %.500s", name, path, accept, w.Code, h, body)
				}
				if csp := h.Get("Content-Security-Policy"); !strings.Contains(csp, "default-src 'none'; frame-ancestors 'none'") ||
					strings.Contains(csp, "unsafe") {
					t.Errorf("%s, %s: %s", name, path, csp)
				}
			}
		}
	}
	fits := httptest.NewRequest("GET", "/healthz", nil)
	fits.Host = "localhost"
	fits.Header.Set("Cookie", strings.Repeat("x", api.MaxHeaderBytes-len("GET /healthz HTTP/1.1\r\nHost: localhost\r\nCookie: \r\n")))
	for _, want := range []int{http.StatusOK, http.StatusRequestHeaderFieldsTooLarge} {
		w := httptest.NewRecorder()
		if f.server.ServeHTTP(w, fits); w.Code != want {
			t.Errorf("%d, want %d", w.Code, want)
		}
		fits.Header.Set("Cookie", fits.Header.Get("Cookie")+"x")
	}
}

// TestLinksToTheConsole: another site can lead a browser to the console, as the top of a tab, and
// to nothing else; the console then answers pages only.
func TestLinksToTheConsole(t *testing.T) {
	t.Parallel()
	asked := 0
	f := start(t, func(c *api.Config) { c.Console = func(http.ResponseWriter, *http.Request, api.Door) { asked++ } })
	for name, c := range map[string]struct {
		method, mode, dest, origin string
		passes                     bool
	}{
		"link": {"GET", "navigate", "document", "", true}, "form": {"POST", "navigate", "document", "https://evil.example", false},
		"form without origin": {"POST", "navigate", "document", "", false},
		"HEAD":                {"HEAD", "navigate", "document", "", false}, "frame": {"GET", "navigate", "iframe", "", false},
		"image":  {"GET", "no-cors", "image", "", false},
		"fetch":  {"GET", "cors", "empty", "https://evil.example", false},
		"script": {"GET", "no-cors", "script", "", false}, "prefetch": {"GET", "no-cors", "empty", "", false}, "old browser": {"GET", "", "", "", false},
	} {
		for path, console := range map[string]bool{
			"/console": true, "/console/history": true, "/console/audit/export/file": true, "/": true, "/docs": false,
			"/sandbox/execs": false, "/openapi.json": false,
		} {
			r := httptest.NewRequest(c.method, path, nil)
			r.Host, r.RemoteAddr = "localhost", "127.0.0.1:1"
			for header, value := range map[string]string{
				"Accept": "text/html", "Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": c.mode,
				"Sec-Fetch-Dest": c.dest, "Origin": c.origin,
			} {
				if value != "" {
					r.Header.Set(header, value)
				}
			}
			before, w := asked, httptest.NewRecorder()
			f.server.ServeHTTP(w, r)
			if refused := w.Code == http.StatusForbidden; refused == (console && c.passes) || refused && asked != before {
				t.Errorf("%s to %s: %d", name, path, w.Code)
			}
		}
	}
	if asked != 3 {
		t.Errorf("the console was asked %d times", asked)
	}
}

func TestAllowedHosts(t *testing.T) {
	t.Parallel()
	anyHost := start(t, func(c *api.Config) { c.ListenAddr = ":8003" })
	oneHost := start(t, func(c *api.Config) { c.ListenAddr, c.AllowedHosts = "0.0.0.0:8003", []string{"core.example"} })
	for _, tc := range []struct {
		f    *fixture
		host string
		want int
	}{
		{anyHost, "evil.example", 200},
		{oneHost, "core.example", 200},
		{oneHost, "core.example:8003", 200},
		{oneHost, "evil.example", 403},
		{oneHost, "localhost", 403},
	} {
		r := tc.f.do(request{path: "/healthz", host: tc.host, header: map[string]string{"Origin": "https://core.example"}})
		if r.StatusCode != tc.want {
			t.Errorf("Host %s: %d, want %d", tc.host, r.StatusCode, tc.want)
		}
	}
}

func TestBadHostSettings(t *testing.T) {
	t.Parallel()
	f := start(t)
	for _, change := range []func(*api.Config){
		func(c *api.Config) { c.ListenAddr = "" },
		func(c *api.Config) { c.ListenAddr = "8003" },
		func(c *api.Config) { c.AllowedHosts = []string{"http://core.example"} },
		func(c *api.Config) { c.AllowedHosts = []string{"core.example:http"} },
		func(c *api.Config) { c.AllowedHosts = []string{""} },
	} {
		cfg := f.config
		cfg.ListenAddr = "127.0.0.1:8003"
		change(&cfg)
		if _, err := api.New(cfg); !fault.Is(err, fault.InvalidSettings) {
			t.Errorf("%q %q: %v", cfg.ListenAddr, cfg.AllowedHosts, err)
		}
	}
}

func TestNewNamesWhatIsMissing(t *testing.T) {
	t.Parallel()
	cfg := start(t).config
	cfg.Webhooks, cfg.Live, cfg.UploadDir = nil, nil, ""
	if _, err := api.New(cfg); err == nil || err.Error() != "internal: api.New lacks Live, Webhooks, UploadDir" {
		t.Error(err)
	}
}
