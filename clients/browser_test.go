//go:build unix

package clients

import (
	"context"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/chromedp/chromedp"
)

const inBrowser = `(async () => {
	const { check, Secbox } = await import("/app/dist/src/index.js");
	const client = new Secbox({ url: location.origin, token: "` + adminToken + `" });
	const ran = check(await client.run({ project_id: "browser", exec: { script: "echo one" } }));
	const seen = [ran.stdout];
	for await (const event of client.stream({ project_id: "browser", exec: { script: "echo two" } })) {
		if (event.type === "stdout") seen.push(event.text);
	}
	return seen;
})()`

// runInBrowser uses the TypeScript client in a page below whose address a core-api is, too.
func runInBrowser(t *testing.T, coreAPI string) {
	dir := filepath.Dir(compiled(t))
	const page = `<!DOCTYPE html><script type="importmap">{"imports": {"openapi-fetch": "/app/node_modules/openapi-fetch/dist/index.mjs"}}</script>`
	if err := os.WriteFile(filepath.Join(dir, "page.html"), []byte(page), 0o600); err != nil {
		t.Fatal(err)
	}
	to, err := url.Parse(coreAPI)
	if err != nil {
		t.Fatal(err)
	}
	mux := http.NewServeMux()
	mux.Handle("/app/", http.StripPrefix("/app/", http.FileServer(http.Dir(dir))))
	mux.Handle("/", &httputil.ReverseProxy{FlushInterval: -1, Rewrite: func(r *httputil.ProxyRequest) {
		r.SetURL(to)
		r.Out.Host = r.In.Host // core-api compares it with Origin
	}})
	site := httptest.NewServer(mux)
	t.Cleanup(site.Close)

	path, err := exec.LookPath("chromium")
	if err != nil {
		t.Fatalf("%v; run make setup", err)
	}
	options := append(chromedp.DefaultExecAllocatorOptions[:], chromedp.ExecPath(path), chromedp.NoSandbox, chromedp.WSURLReadTimeout(2*time.Minute))
	all, endAll := chromedp.NewExecAllocator(context.Background(), options...)
	t.Cleanup(endAll)
	ctx, end := chromedp.NewContext(all)
	t.Cleanup(end)
	if err := chromedp.Do(ctx, chromedp.Navigate(site.URL+"/app/page.html")); err != nil {
		t.Fatal(err)
	}
	seen, err := chromedp.Run(ctx, chromedp.Evaluate[[]string](inBrowser, chromedp.EvalAwaitPromise))
	if err != nil || !slices.Equal(seen, []string{"one\n", "two\n"}) {
		t.Errorf("the page has seen %q: %v", seen, err)
	}
}
