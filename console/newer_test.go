package console_test

import (
	"html"
	"net/http"
	"net/url"
	"regexp"
	"strings"
	"testing"

	"github.com/chromedp/chromedp"
)

var newerAddress = regexp.MustCompile(`hx-get="(/console/history/newer[^"]*)"`)

// TestNewerExecs: a page of the history learns of new execs of its list, and of no others.
func TestNewerExecs(t *testing.T) {
	t.Parallel()
	c := startCore(t)
	v := newVisitor(t, c.url)
	ask := func(page string) (again string, code int, note string) {
		t.Helper()
		m := newerAddress.FindStringSubmatch(page)
		if m == nil {
			t.Fatalf("the page asks for nothing: %s", page)
		}
		resp, note := v.get(html.UnescapeString(m[1]))
		return m[1], resp.StatusCode, note
	}
	_, empty := v.get("/console/history?status=succeeded&columns=status,node")
	if _, code, note := ask(empty); code != http.StatusNoContent || note != "" {
		t.Errorf("nothing new: %d, %s", code, note)
	}
	c.run("", "true")
	c.run("", "false")
	_, note := v.get(html.UnescapeString(newerAddress.FindStringSubmatch(empty)[1]))
	if !strings.Contains(note, "1 new exec.") || !strings.Contains(note, `href="/console/history?columns=status%2Cnode&amp;status=succeeded"`) {
		t.Errorf("one new: %s", note)
	}
	if _, code, _ := ask(note); code != http.StatusNoContent {
		t.Errorf("the same again: %d", code)
	}
	_, page := v.get("/console/history")
	for range 21 {
		c.run("", "true")
	}
	if _, _, note := ask(page); !strings.Contains(note, "More than 20 new execs.") || strings.Contains(note, "hx-trigger") {
		t.Errorf("many new: %s", note)
	}
	if _, page := v.get("/console/history?text=true"); newerAddress.MatchString(page) {
		t.Error("a search asks, too")
	}
	address := html.UnescapeString(newerAddress.FindStringSubmatch(page)[1])
	for _, seen := range []string{"zz", "-1", "+1", "01", "22"} {
		again := regexp.MustCompile(`seen=\d+`).ReplaceAllString(address, "seen="+url.QueryEscape(seen))
		if resp, page := v.get(again); resp.StatusCode != http.StatusBadRequest || !strings.Contains(page, "from 0 to 21") {
			t.Errorf("seen=%s: %d", seen, resp.StatusCode)
		}
	}
	if resp, _ := v.get(address + "&status=failed"); resp.StatusCode != http.StatusBadRequest {
		t.Errorf("the place of another list: %d", resp.StatusCode)
	}
}

// TestNewerExecsInBrowser: the note appears by itself, moves nothing, and its link shows the execs.
func TestNewerExecsInBrowser(t *testing.T) {
	f := fullApp()
	b := open(t, f.serve(t))
	b.visit("/console/history")
	b.do(chromedp.WaitVisible("#newer time"))
	top := eval[float64](b, `document.querySelector("#results table").getBoundingClientRect().top`)
	f.fillNewer()
	b.do(chromedp.Focus("#newer a"))
	// The page asks every twenty seconds; the test does not wait for them.
	if every := eval[string](b,
		`(n => { htmx.ajax("GET", n.getAttribute("hx-get"), {target: n, swap: n.getAttribute("hx-swap")}); return n.getAttribute("hx-trigger"); })(document.querySelector("#newer"))`); every != "every 20s" {
		t.Errorf("the page asks %q", every)
	}
	b.until(`document.querySelector("#newer").textContent.includes("1 new exec.")`)
	b.until(`document.activeElement.closest("#newer")`) // the focus stays where it is
	if now := eval[float64](b, `document.querySelector("#results table").getBoundingClientRect().top`); now != top {
		t.Errorf("the table moved from %v to %v", top, now)
	}
	b.do(chromedp.Click("#newer a"), chromedp.WaitVisible(`#results a[href$="`+execID(61)+`"]`))
}
