package console_test

import (
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/chromedp/cdproto/cdp"
	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/cdproto/input"
	"github.com/chromedp/cdproto/network"
	"github.com/chromedp/cdproto/page"
	"github.com/chromedp/chromedp"
)

// at sets the clock of pages that the tab opens from now on.
func (b *tab) at(now time.Time) {
	b.t.Helper()
	call(b, page.AddScriptToEvaluateOnNewDocument,
		page.AddScriptToEvaluateOnNewDocumentParams{Source: fmt.Sprintf("window.testNow = %d; Date.now = () => window.testNow", now.UnixMilli())})
}

// keys presses keys, one after the other.
func (b *tab) keys(keys string, options ...chromedp.KeyOption) {
	b.t.Helper()
	for _, key := range keys {
		if len(options) > 0 || key < ' ' {
			b.do(chromedp.KeyEvent(string(key), options...))
			continue
		}
		// One event, so that a page that takes the key keeps the browser from typing it.
		call(b, input.DispatchKeyEvent, input.DispatchKeyEventParams{Type: "keyDown", Key: string(key), Text: string(key)})
		call(b, input.DispatchKeyEvent, input.DispatchKeyEventParams{Type: "keyUp", Key: string(key)})
	}
}

// focused tells what has the focus: an id, else the address of a link, else the name of the
// element.
func (b *tab) focused() string {
	b.t.Helper()
	return eval[string](b, `(e => e.id || e.getAttribute("href") || e.localName)(document.activeElement)`)
}

func (b *tab) focuses(what, want string) {
	b.t.Helper()
	if got := b.focused(); got != want {
		b.t.Errorf("%s: the focus is on %s, not on %s", what, got, want)
	}
}

// TestKeys: single keys lead to the search and through the rows, but not while a person types, not
// with Ctrl or Alt, and not after they were turned off.
func TestKeys(t *testing.T) {
	b := open(t, fullApp().serve(t))
	b.visit("/console/history")
	if got := eval[string](b, `document.querySelector("#f-text").getAttribute("aria-keyshortcuts")`); got != "/" {
		t.Errorf("aria-keyshortcuts %q", got)
	}
	b.keys("/")
	b.focuses("/", "f-text")
	b.keys("jk?/")
	if got := eval[string](b, `document.querySelector("#f-text").value`); got != "jk?/" {
		t.Errorf("the search has %q", got)
	}
	b.keys("\x1b")
	b.focuses("Esc", "body")
	row := func(n int) string { return "/console/execs/" + execID(61-n) }
	b.keys("j")
	b.focuses("j", row(1))
	b.keys("jjk")
	b.focuses("jjk", row(2))
	b.keys("kkk")
	b.focuses("the first row", row(1))
	b.keys("j", chromedp.KeyModifiers(chromedp.ModifierCtrl))
	b.keys("j", chromedp.KeyModifiers(chromedp.ModifierAlt))
	b.focuses("with Ctrl and Alt", row(1))
	if got := eval[struct {
		Outline string
		Seen    bool
	}](b,
		`(a => ({Outline: getComputedStyle(a).outlineStyle, Seen: a.getBoundingClientRect().bottom < innerHeight}))(document.activeElement)`); got.Outline == "none" || !got.Seen {
		t.Errorf("the focus is not to be seen: %+v", got)
	}
	b.keys(strings.Repeat("j", 60))
	b.focuses("the last row", row(50))
	b.keys("\r")
	b.do(chromedp.WaitVisible("#command"))
	if at := run(b, chromedp.Location()); at != b.url+row(50) {
		t.Errorf("Enter leads to %s", at)
	}
	b.visit("/console/history")
	b.keys("/ech")
	b.do(chromedp.KeyEvent("o\r"))
	b.until(`document.activeElement.id === "results" && location.search === "?text=echo"`)
	if outline := eval[string](b, `getComputedStyle(document.activeElement).outlineStyle`); outline == "none" {
		t.Error("the focus of the results is not to be seen")
	}
	b.keys("j")
	b.focuses("Enter and j", row(1))
	for path, want := range map[string]string{"/console/overview": "run-" + execID(60), /* not in the closed table */
		"/console/refused": "/console/execs/" + execID(60), "/console/runners": "runner-1e7e4e133da41290", /* of ada */
		"/console/operations": "node-545ea538461003ef" /* node */, "/console/tokens": "/console/tokens/t3"} {
		b.visit(path)
		b.keys("j")
		b.focuses("j on "+path, want)
	}
}

// TestKeysCanBeTurnedOff: the help explains the keys, is a dialog that Esc closes, and has the
// switch that this browser remembers.
func TestKeysCanBeTurnedOff(t *testing.T) {
	b := open(t, fullApp().serve(t))
	b.visit("/console/history")
	b.keys("?")
	b.do(chromedp.WaitVisible("dialog[open]"))
	b.accessible("help")
	b.keys("j")
	if got := eval[bool](b, `document.querySelector("dialog").contains(document.activeElement)`); !got {
		t.Error("keys act behind the help")
	}
	b.keys("\x1b")
	b.do(chromedp.WaitNotVisible("#keys"))
	b.keys("?")
	b.do(chromedp.Click("#keys-on"), chromedp.Click("#keys [data-close]"), chromedp.WaitNotVisible("#keys"))
	for range 2 { // also after a reload
		b.keys("j/?")
		if at := b.focused(); at == "f-text" || strings.HasPrefix(at, "/console/execs/") {
			t.Errorf("turned off, a key leads to %s", at)
		}
		if eval[bool](b, `document.querySelector("dialog").open || document.querySelector("#f-text").hasAttribute("aria-keyshortcuts")`) {
			t.Error("a key opened the help, or is announced")
		}
		b.visit("/console/history")
	}
	b.do(chromedp.Click("[data-open=keys]"), chromedp.WaitVisible("dialog[open]"), chromedp.Click("#keys-on"), chromedp.Click("#keys [data-close]"),
		chromedp.WaitNotVisible("#keys"))
	b.keys("/")
	b.focuses("turned on", "f-text")
}

// TestTimesWithScript: how long ago, the local time or UTC, in the same width; the exact times are
// on hover, and beside a focused link.
func TestTimesWithScript(t *testing.T) {
	b := open(t, fullApp().serve(t))
	b.at(clock.Add(time.Minute + 3*time.Minute + 30*time.Second)) // the newest exec began at 09:31
	call(b, emulation.SetTimezoneOverride, emulation.SetTimezoneOverrideParams{TimezoneID: "Asia/Tokyo"})
	b.visit("/console/history")
	type seen struct {
		Text, Title, Tip string
		Left             float64 // of the second column
	}
	look := func() seen {
		return eval[seen](b,
			`(t => ({Text: t.textContent, Title: t.title, Tip: getComputedStyle(t, "::after").content, Left: t.closest("tr").children[1].getBoundingClientRect().left}))(document.querySelector("tbody time"))`)
	}
	first := look()
	if first.Text != "3 minutes ago" || first.Title != "2026-11-23 18:31:00.000000 Asia/Tokyo\n2026-11-23 09:31:00.000000 UTC" {
		t.Errorf("%+v", first)
	}
	for at, want := range map[string]string{
		"-4000": "just now", "-10000": "in 10 seconds", "70000": "1 minute ago", "7300000": "2 hours ago", "90000000": "1 day ago", "180000000": "2 days ago",
		"9000000000": "2026-11-23 18:31:00",
	} {
		b.do(chromedp.Evaluate[chromedp.Void](`window.testNow = Date.parse("2026-11-23T09:31:00Z") + ` + at +
			`; document.dispatchEvent(new Event("visibilitychange"))`))
		if got := look(); got.Text != want || got.Left != first.Left {
			t.Errorf("after %s ms: %+v", at, got)
		}
	}
	b.keys("j")
	if got := look(); !strings.Contains(got.Tip, "18:31:00.000000 Asia/Tokyo") || got.Left != first.Left {
		t.Errorf("a focused link: %+v", got)
	}
	b.keys("\x1b")
	if got := look(); strings.Contains(got.Tip, "Tokyo") && eval[string](b,
		`getComputedStyle(document.querySelector("tbody time"), "::after").display`) != "none" {
		t.Errorf("Esc does not hide the exact times: %+v", got)
	}
	for _, how := range []string{"utc", "local"} {
		want := map[string]string{"utc": "2026-11-23 09:31:00", "local": "2026-11-23 18:31:00"}[how]
		b.do(chromedp.SetValue("#times", how),
			chromedp.Evaluate[chromedp.Void](`document.querySelector("#times").dispatchEvent(new Event("change", {bubbles: true}))`))
		for range 2 { // also after a reload
			if got := look(); got.Text != want || got.Left != first.Left {
				t.Errorf("%s: %+v", how, got)
			}
			b.visit("/console/history")
		}
	}
	type own struct{ Zone, Since string }
	if got := eval[own](b, `(f => { f.value = "2026-11-23T14:30"; f.dispatchEvent(new Event("change", {bubbles: true}));
		return {Zone: document.querySelector("[data-zone]").textContent,
			Since: document.querySelector("#f-since").value}; })(document.querySelector("#own-since"))`); got !=
		(own{"Asia/Tokyo", "2026-11-23T14:30:00+09:00"}) {
		t.Errorf("own times: %+v", got)
	}
	b.visit("/console/execs/" + execID(2))
	if got := eval[string](b, `document.querySelector("#timeline time").textContent`); got != "2026-11-23 18:30:00 +09:00" {
		t.Errorf("the timeline: %s", got)
	}
}

// TestNoLayoutShift: neither what the script changes nor what arrives later moves a page. The pages
// come slowly, so that Chromium could paint a part of them.
func TestNoLayoutShift(t *testing.T) {
	b := open(t, fullApp().serve(t))
	b.do(chromedp.EmulateViewport(1280, 3000))
	slow := cdp.Command[network.OverrideNetworkStateParams, cdp.Empty]{Method: "Network.emulateNetworkConditions"} // of Chromium before 150
	call(b, slow, network.OverrideNetworkStateParams{DownloadThroughput: 400_000, UploadThroughput: -1})
	for _, path := range []string{
		"/console/overview", "/console/history", "/console/refused", "/console/execs/" + execID(2), "/console/runners",
		"/console/operations", "/console/audit/report",
		"/console/tokens",
	} {
		b.visit(path)
		shift := eval[struct {
			Sum   float64
			Moved []string
		}](b, `new Promise(done => {
			let Sum = 0, Moved = [];
			new PerformanceObserver(l => { for (const e of l.getEntries()) {
				Sum += e.value;
				for (const {node, previousRect: p, currentRect: c} of e.sources) Moved.push([node?.nodeName, node?.id, node?.className, p.x, p.y, p.width, p.height, "to", c.x, c.y, c.width, c.height].join(" "));
			} }).observe({type: "layout-shift", buffered: true});
			requestAnimationFrame(() => requestAnimationFrame(() => setTimeout(() => done({Sum, Moved}), 0)));
		})`)
		if shift.Sum > 0 {
			t.Errorf("%s moves by %f: %q", path, shift.Sum, shift.Moved)
		}
	}
}

// TestCopyButtons: they are there only with a script, and copy what they say.
func TestCopyButtons(t *testing.T) {
	f := fullApp()
	b := open(t, f.serve(t))
	b.visit("/console/execs/" + execID(2))
	for button, want := range map[string]string{
		`#for button[data-copy]`:    execID(2),
		`.repeat button[data-copy]`: `curl -sS -H "Authorization: Bearer $SECBOX_TOKEN" '` + b.url + "/sandbox/execs/" + execID(2) + "'",
	} {
		b.do(chromedp.Click(button), chromedp.WaitVisible(button+".done"))
		if said := eval[string](b, `document.querySelector("#status").textContent`); said != "Copied." {
			t.Errorf("screen readers hear %q", said)
		}
		b.visit("/console/history")
		b.keys("/")
		call(b, input.DispatchKeyEvent, input.DispatchKeyEventParams{Type: "rawKeyDown", Commands: []string{"paste"}})
		if got := eval[string](b, `document.querySelector("#f-text").value`); got != want {
			t.Errorf("%s copied %q", button, got)
		}
		b.visit("/console/execs/" + execID(2))
	}
	call(b, emulation.SetScriptExecutionDisabled, emulation.SetScriptExecutionDisabledParams{Value: true})
	b.visit("/console/execs/" + execID(2))
	if n := eval[int](b, `[...document.querySelectorAll("button[data-copy]")].filter(e => e.checkVisibility({visibilityProperty: true})).length`); n != 0 {
		t.Errorf("%d copy buttons are there without a script", n)
	}
}

// TestRefusedByHTMX: a refusal that the reader asked for is shown with what to do.
func TestRefusedByHTMX(t *testing.T) {
	b := open(t, fullApp().serve(t))
	b.visit("/console/history")
	b.do(chromedp.SendKeys("#f-since", "yesterday"), chromedp.Click("#filters button.main"), chromedp.WaitVisible(".problem"))
	if at := run(b, chromedp.Location()); at != b.url+"/console/history?since=yesterday" {
		t.Errorf("the address is %s", at)
	}
}

// TestRefusedFilters: a filter that is refused is shown with what was typed and the reason beside
// its field.
func TestRefusedFilters(t *testing.T) {
	t.Parallel()
	v := newVisitor(t, fullApp().serve(t))
	var documents []document
	for path, want := range map[string][]string{
		"/console/history?since=%22yesterday%22&status=nosuch&kind=odd&columns=none&text=" + strings.Repeat("x", 201): {
			`value="&#34;yesterday&#34;"`, `aria-describedby="p-since"`, `id="p-since">must be a date like`, `id="p-status">must be a comma-separated`,
			`value="nosuch" checked`,
			`id="p-kind">must be`, `<option value="odd" selected>`, `id="p-text">must be at most 200 bytes`, `id="p-columns">&#34;none&#34; is no column`,
			"<details open",
		},
		"/console/refused?until=tomorrow":    {`value="tomorrow"`, `id="p-until">must be`},
		"/console/refused?cursor=x&since=7d": {"not a page of this list", `href="/console/refused?since=7d"`},
	} {
		resp, page := v.get(path)
		for _, text := range want {
			if resp.StatusCode != http.StatusBadRequest || !strings.Contains(page, text) {
				t.Errorf("%.40s: %d, without %s", path, resp.StatusCode, text)
			}
		}
		if strings.Count(page, "must be a date like") > 1 || strings.Contains(page, "this:<") {
			t.Errorf("%.40s gives a reason twice", path)
		}
		if strings.Contains(page, "<tbody>") || strings.Contains(page, "Repeat with curl") {
			t.Errorf("%.40s lists execs", path)
		}
		documents = append(documents, document{path, page})
	}
	valid(t, documents)
}

// TestEndedSessions: the sign-in leads back to the page, or to that with the form, which was not
// obeyed.
func TestEndedSessions(t *testing.T) {
	t.Parallel()
	f := closedApp()
	v := newVisitor(t, f.serve(t))
	v.signIn("secret-admin")
	_, page := v.get("/console/tokens?revoked=1")
	clear(f.sessions.open)
	resp, _ := v.post("/console/sign-in", "/console/tokens", url.Values{"name": {"x"}, "role": {"admin"}}, func(r *http.Request, f url.Values) {
		r.Header.Set("Referer", v.url+"/console/tokens?revoked=1")
		f.Set("csrf_token", csrfToken(page))
	})
	to := resp.Header.Get("Location")
	if resp.StatusCode != http.StatusSeeOther || to != "/console/sign-in?ended=form&next=%2Fconsole%2Ftokens%3Frevoked%3D1" || len(f.tokens) != 3 {
		t.Fatalf("%d, %s, %d tokens", resp.StatusCode, to, len(f.tokens))
	}
	if _, page := v.get(to); !strings.Contains(page, "changed nothing") || !strings.Contains(page, `name="next" value="/console/tokens?revoked=1"`) {
		t.Errorf("the sign-in: %s", page)
	}
	for _, from := range []string{"https://evil.example/console/history", "//evil.example/console", v.url + "/docs", "%zz"} {
		resp, _ := v.post("/console/sign-in", "/console/tokens", url.Values{}, func(r *http.Request, _ url.Values) { r.Header.Set("Referer", from) })
		if to := resp.Header.Get("Location"); to != "/console/sign-in?ended=form" {
			t.Errorf("from %s to %s", from, to)
		}
	}
}

// TestFirstVisitsAtOnce: of pages that a browser opens at once, each can sign in, and then no
// cookie of theirs is left.
func TestFirstVisitsAtOnce(t *testing.T) {
	t.Parallel()
	server := closedApp().serve(t)
	var first []string
	v := newVisitor(t, server)
	u, _ := url.Parse(server)
	var set []*http.Cookie
	for range 3 {
		resp, page := newVisitor(t, server).get("/console/sign-in") // without the cookies of the others
		first, set = append(first, csrfToken(page)), append(set, resp.Cookies()...)
	}
	v.client.Jar.SetCookies(u, set)
	for i, token := range first {
		resp, _ := v.post("/console/sign-in", "/console/sign-in", url.Values{"token": {"wrong"}},
			func(_ *http.Request, f url.Values) { f.Set("csrf_token", token) })
		if resp.StatusCode != http.StatusUnauthorized {
			t.Errorf("page %d: %d", i, resp.StatusCode)
		}
	}
	v.signIn("secret-admin")
	if left := v.client.Jar.Cookies(u); len(left) != 1 || left[0].Name != sessionCookie(v.url) {
		t.Errorf("cookies %v", left)
	}
}
