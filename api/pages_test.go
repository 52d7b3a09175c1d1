package api_test

import (
	"bytes"
	"regexp"
	"strings"
	"testing"

	"secbox/access/tokens"
	"secbox/api/wire"
	"secbox/fault"
)

func TestHealth(t *testing.T) {
	t.Parallel()
	f := start(t)
	f.health.report = wire.HealthReport{Version: "0.1.0", Engine: "docker", DockerVersion: "20.10.24", WorkspaceWritable: true, CgroupVersion: "2"}
	got := decodeAs[map[string]any](t, f.get("/sandbox/health"), 200)
	if got["status"] != "ok" || got["docker_version"] != "20.10.24" || got["workspace_writable"] != true || len(got["problems"].([]any)) != 0 {
		t.Errorf("%v", got)
	}
	f.health.report.Status = wire.Unavailable
	f.health.report.Problems = []wire.HealthProblem{{Check: "engine", Reason: "does not answer", Remedy: "start it"}}
	got = decodeAs[map[string]any](t, f.get("/sandbox/health"), 503)
	if got["status"] != "unavailable" || got["problems"].([]any)[0].(map[string]any)["reason"] != "does not answer" {
		t.Errorf("%v", got)
	}
	f.health.report.Status = wire.Degraded
	decodeAs[map[string]any](t, f.get("/sandbox/health"), 200)
}

func TestLivenessAndReadiness(t *testing.T) {
	t.Parallel()
	f := start(t)
	for _, path := range []string{"/healthz", "/readyz"} {
		if r := f.get(path); r.StatusCode != 200 || strings.TrimSpace(string(r.body)) != `{"status":"ok"}` {
			t.Errorf("%s: %d %s", path, r.StatusCode, r.body)
		}
	}
	f.health.ready = fault.New(fault.ShuttingDown, "the server drains")
	f.get("/readyz").wants(t, fault.ShuttingDown)
	// A load balancer gets 503, with the reason for people.
	f.health.ready = fault.New(fault.ImageMissing, "the image is not there")
	if r := f.get("/readyz"); r.StatusCode != 503 || !strings.Contains(string(r.body), `"image_missing"`) || !strings.Contains(string(r.body), `"status":503`) {
		t.Errorf("/readyz: %d %s", r.StatusCode, r.body)
	}
	if r := f.get("/healthz"); r.StatusCode != 200 {
		t.Errorf("/healthz: %d", r.StatusCode)
	}
}

func TestMetricsCountByRoute(t *testing.T) {
	t.Parallel()
	f := start(t)
	f.get("/sandbox/execs/019aa4b6-7c1e-7d35-9a52-0f4f3a1b2c3d")
	f.get("/sandbox/execs/nonsense")
	f.get("/made/up/by/a/stranger")
	f.do(request{method: "BREW", path: "/docs"})
	f.do(request{path: "/docs", host: "evil.example"})
	r := f.get("/metrics")
	for _, line := range []string{
		`secbox_http_requests_total{code="404",method="GET",route="/sandbox/execs/{exec_id}"} 2`,
		`secbox_http_requests_total{code="404",method="GET",route="none"} 1`,
		`secbox_http_requests_total{code="405",method="other",route="none"} 1`,
		`secbox_http_requests_total{code="403",method="GET",route="none"} 1`,
		`secbox_http_requests_in_flight 1`,
		`secbox_http_request_duration_seconds_count{method="GET",route="/sandbox/execs/{exec_id}"} 2`,
	} {
		if !bytes.Contains(r.body, []byte(line+"\n")) {
			t.Errorf("no line %s", line)
		}
	}
	if bytes.Contains(r.body, []byte("stranger")) {
		t.Error("a stranger can make labels")
	}
}

// TestDocsPage: the page has every route, schema and code, its links work, and it loads nothing
// from elsewhere.
func TestDocsPage(t *testing.T) {
	t.Parallel()
	f := start(t)
	r := f.get("/docs")
	page := string(r.body)
	if r.StatusCode != 200 || !strings.HasPrefix(r.Header.Get("Content-Type"), "text/html") {
		t.Fatalf("%d %v", r.StatusCode, r.Header)
	}
	ids := map[string]bool{}
	for _, m := range regexp.MustCompile(` id="([^"]+)"`).FindAllStringSubmatch(page, -1) {
		if ids[m[1]] {
			t.Errorf("id %s twice", m[1])
		}
		ids[m[1]] = true
	}
	for _, m := range regexp.MustCompile(`href="([^"]+)"`).FindAllStringSubmatch(page, -1) {
		if target, ok := strings.CutPrefix(m[1], "#"); ok && !ids[target] {
			t.Errorf("a link to #%s leads nowhere", target)
		} else if !ok && m[1] != "/openapi.yaml" && m[1] != "/openapi.json" && m[1] != "/docs/icon.svg" {
			t.Errorf("a link to %s", m[1])
		}
	}
	page = strings.Replace(page, `<script src="/docs/script.js" defer></script>`, "", 1)
	page = strings.Replace(page, `<link rel="icon" type="image/svg+xml" href="/docs/icon.svg">`, "", 1)
	for _, loads := range []string{"<script", "<link", "<img", "src=", "@import", "url(", "style=", "onclick", "ZgotmplZ"} {
		if strings.Contains(page, loads) {
			t.Errorf("the page has %s", loads)
		}
	}
	for _, id := range []string{"runExec", "downloadArtifact", "schema-ExecRecord", "code-policy_denied", "code-internal"} {
		if !ids[id] {
			t.Errorf("nothing has the id %s", id)
		}
	}
	csp := r.Header.Get("Content-Security-Policy")
	if !strings.Contains(csp, "default-src 'none'") || !strings.Contains(csp, "style-src 'sha256-") || !strings.Contains(csp, "script-src 'self'") ||
		strings.Contains(csp, "unsafe") {
		t.Errorf("CSP %q", csp)
	}
	if script := f.get("/docs/script.js"); script.StatusCode != 200 || !strings.HasPrefix(script.Header.Get("Content-Type"), "text/javascript") {
		t.Errorf("the script: %d %s", script.StatusCode, script.Header.Get("Content-Type"))
	}
	if icon := f.get("/docs/icon.svg"); icon.StatusCode != 200 || icon.Header.Get("Content-Type") != "image/svg+xml" ||
		!strings.Contains(csp, "img-src 'self'") {
		t.Errorf("the icon: %d %v", icon.StatusCode, icon.Header)
	}
	if !strings.Contains(page, "curl -sS &#34;"+f.url+"/sandbox/execs&#34;") {
		t.Error("the example does not go to this server")
	}
	// A problem's type leads to the page's table of codes.
	p := f.get("/nowhere").wants(t, fault.NotFound)
	if anchor, ok := strings.CutPrefix(p.Type, "/docs#"); !ok || !ids[anchor] {
		t.Errorf("type %q leads nowhere", p.Type)
	}
}

func TestEveryAnswerHasTheSecurityHeaders(t *testing.T) {
	t.Parallel()
	f := start(t)
	_, secret := f.token(tokens.Spec{Role: tokens.Admin})
	for _, path := range []string{"/docs", "/openapi.yaml", "/metrics", "/healthz", "/sandbox/execs", "/nowhere", "/sandbox/execs/x"} {
		r := f.do(request{path: path, token: secret})
		for _, name := range []string{"X-Content-Type-Options", "Content-Security-Policy", "Referrer-Policy", "X-Request-Id", "Cache-Control"} {
			if len(r.Header.Values(name)) != 1 {
				t.Errorf("%s: %s is %q", path, name, r.Header.Values(name))
			}
		}
	}
}
