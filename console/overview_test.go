package console_test

import (
	"fmt"
	"html"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/chromedp/chromedp"

	"secbox/access/tokens"
	"secbox/audit"
	"secbox/health"
)

// overviewAt is the time at which the overview is opened in these tests: the second of the third
// hour of a day.
var overviewAt = time.Date(2026, 11, 23, 2, 0, 1, 0, time.UTC)

func overviewApp(recent audit.Recent) *fakeApp {
	f := newFake().fill(3)
	f.now = func() time.Time { return overviewAt }
	f.recent = func(int) audit.Recent { return recent }
	return f
}

func hourOf(ago int, status audit.Status, reason audit.Reason, execs int64) audit.HourCount {
	return audit.HourCount{Hour: overviewAt.Truncate(time.Hour).Add(-time.Duration(ago) * time.Hour), Status: status, ErrorReason: reason, Execs: execs}
}

var (
	barTitle  = regexp.MustCompile(`<title>(\S+ \S+) to (\S+) UTC: (.*?)</title>`)
	tableRow  = regexp.MustCompile(`(?s)<tr><th scope="row".*?datetime="(.*?)".*?</tr>`)
	tableCell = regexp.MustCompile(`<td class="num" data-label="[^"]*">([\d,]+)</td>`)
	legendOf  = regexp.MustCompile(`<a id="all[^"]*" href="([^"]*)"><b>([\d,]+)</b>`)
	firstInt  = regexp.MustCompile(`^[\d,]+`)
)

func number(t *testing.T, s string) int64 {
	t.Helper()
	n, err := strconv.ParseInt(strings.ReplaceAll(s, ",", ""), 10, 64)
	must(t, err)
	return n
}

// TestOverviewNumbers: chart, table and legend say the same, for each span.
func TestOverviewNumbers(t *testing.T) {
	t.Parallel()
	recent := audit.Recent{Complete: true, Hours: []audit.HourCount{
		hourOf(0, audit.Succeeded, "", 1234), hourOf(0, audit.Failed, audit.NonzeroExit, 20), hourOf(0, audit.Running, "", 3),
		hourOf(1, audit.Timeout, audit.ReasonTimeout, 4), hourOf(2, audit.Rejected, audit.PolicyDenied, 5), hourOf(23, audit.Lost, audit.NodeLost, 6),
		hourOf(24, audit.Errored, audit.StartFailed, 7), hourOf(167, audit.Succeeded, "", 8), hourOf(700, audit.OOMKilled, audit.OOM, 9),
		hourOf(800, audit.Succeeded, "", 1000), // of an earlier question
		hourOf(0, "of another version", "", 2),
	}}
	for _, c := range []struct {
		path       string
		bars       int
		legend     []int64 // all, and by outcome
		titles     map[string]string
		firstSince string
	}{
		{"", 24, []int64{1274, 1234, 3, 20, 4, 5, 8}, map[string]string{
			"2026-11-23 02:00": "1,259 execs: 1,234 succeeded, 3 running, 20 failed, 2 canceled or lost", "2026-11-22 03:00": "6 execs: 6 canceled or lost",
			"2026-11-22 12:00": "0 execs",
		}, "2026-11-22T03:00:00Z"},
		{"?span=week", 56, []int64{1289, 1242, 3, 27, 4, 5, 8}, map[string]string{
			"2026-11-23 00:00": "1,268 execs: 1,234 succeeded, 3 running, 20 failed, 4 at a limit, 5 refused, 2 canceled or lost",
			"2026-11-16 03:00": "8 execs: 8 succeeded",
		}, "2026-11-16T03:00:00Z"},
		{"?span=month", 60, []int64{1298, 1242, 3, 27, 13, 5, 8}, map[string]string{
			"2026-11-23 00:00": "1,268 execs: 1,234 succeeded, 3 running, 20 failed, 4 at a limit, 5 refused, 2 canceled or lost",
			"2026-10-24 12:00": "9 execs: 9 at a limit",
		}, "2026-10-24T12:00:00Z"},
	} {
		page := html.UnescapeString(get(t, overviewApp(recent).serve(t)+"/console/overview"+c.path))
		bars := barTitle.FindAllStringSubmatch(page, -1)
		if len(bars) != c.bars {
			t.Fatalf("%s: %d bars", c.path, len(bars))
		}
		inBars := map[string]int64{} // by time
		for _, b := range bars {
			inBars[strings.Replace(b[1], " ", "T", 1)+":00.000Z"] = number(t, firstInt.FindString(b[3]))
			if want, ok := c.titles[b[1]]; ok && want != b[3] {
				t.Errorf("%s: the bar of %s says %q, want %q", c.path, b[1], b[3], want)
			}
		}
		sums := make([]int64, 7) // by outcome, then all
		for _, row := range tableRow.FindAllStringSubmatch(page, -1) {
			cells := tableCell.FindAllStringSubmatch(row[0], -1)
			var sum int64
			for i, cell := range cells {
				n := number(t, cell[1])
				if sums[i] += n; i < 6 {
					sum += n
				}
			}
			if len(cells) != 7 || sum != number(t, cells[6][1]) || sum != inBars[row[1]] {
				t.Errorf("%s: the row of %s has %d execs, its last cell %s, the bar %d", c.path, row[1], sum, cells[6][1], inBars[row[1]])
			}
			delete(inBars, row[1])
		}
		for at, n := range inBars {
			if n != 0 {
				t.Errorf("%s: the table lacks the %d execs of %s", c.path, n, at)
			}
		}
		var legend []int64
		for _, entry := range legendOf.FindAllStringSubmatch(page, -1) {
			legend = append(legend, number(t, entry[2]))
			if !strings.Contains(entry[1], "since="+strings.ReplaceAll(c.firstSince, ":", "%3A")) {
				t.Errorf("%s: %s is not of the same time", c.path, entry[1])
			}
		}
		if !slices.Equal(legend, c.legend) || !slices.Equal(append(sums[6:], sums[:6]...), c.legend) {
			t.Errorf("%s: the legend has %d, the table %d, want %d", c.path, legend, sums, c.legend)
		}
	}
}

// TestOverviewChart: the parts of a bar are as high as their counts, and lie upon each other.
func TestOverviewChart(t *testing.T) {
	t.Parallel()
	page := get(t, overviewApp(audit.Recent{Complete: true, Hours: []audit.HourCount{
		hourOf(0, audit.Succeeded, "", 10), hourOf(0, audit.Failed, audit.NonzeroExit, 5), hourOf(1, audit.Canceled, audit.ReasonCanceled, 20),
		hourOf(2, audit.Succeeded, "", 1), hourOf(2, audit.Timeout, audit.ReasonTimeout, 1),
	}}).serve(t)+"/console/overview")
	for _, want := range []string{
		`<span class="most">20</span>`,
		`<path class="o-good" d="M211 100v-5h8v5zM231 100v-50h8v50z">`,
		`<path class="o-bad" d="M231 50v-25h8v25z">`,
		`<path class="o-limit" d="M211 95v-5h8v5z">`,
		`<path class="o-calm" d="M221 100v-100h8v100z">`,
	} {
		if !strings.Contains(page, want) {
			t.Errorf("no %s in %s", want, page[strings.Index(page, "<svg"):strings.Index(page, "<rect")])
		}
	}
	if strings.Contains(page, `class="o-warn" d=`) {
		t.Error("nothing was refused, and it is drawn")
	}
}

// TestOverviewCountsRows: the overview counts rows, and says that some count further requests.
func TestOverviewCountsRows(t *testing.T) {
	t.Parallel()
	one, more := hourOf(0, audit.Rejected, audit.Forbidden, 73), hourOf(0, audit.Rejected, audit.RefusalsOmitted, 3)
	for want, hours := range map[string][]audit.HourCount{
		`>76 rows</a> of requests for execs. <a id="refusals-omitting" href="/console/refused?error_reason=refusals_omitted&amp;kind=exec&amp;`: {one, more},
		`>73 rows</a> of requests for execs. <a id="refusals-changes" href="/console/refused?kind=change&amp;`:                                  {one},
	} {
		page := get(t, overviewApp(audit.Recent{Complete: true, Hours: hours}).serve(t)+"/console/overview")
		if !strings.Contains(page, want) {
			t.Errorf("no %s", want)
		}
	}
}

// TestOverviewLinks: every link of the page leads to a page, with filters that it takes.
func TestOverviewLinks(t *testing.T) {
	t.Parallel()
	f := fullApp()
	url := f.serve(t)
	links := map[string]bool{}
	for _, m := range regexp.MustCompile(`href="(/console/[^"]+)"`).FindAllStringSubmatch(get(t, url+"/console/overview"), -1) {
		if link := html.UnescapeString(m[1]); !strings.HasPrefix(link, "/console/assets/") {
			links[link] = true
		}
	}
	v := newVisitor(t, url)
	for link := range links {
		if resp, _ := v.get(link); resp.StatusCode != http.StatusOK {
			t.Errorf("%s: %d", link, resp.StatusCode)
		}
	}
	since := time.Now().UTC().Truncate(time.Hour).Add(-23 * time.Hour).Format("2006-01-02T15:04:05Z")
	since = strings.ReplaceAll(since, ":", "%3A")
	for _, want := range []string{
		"/console/execs/" + execID(60), "/console/execs/" + execID(11), "/console/operations#health", "/console/history?status=queued%2Crunning",
		"/console/history?since=" + since + "&status=failed%2Cerror", "/console/refused?kind=exec&since=" + since,
		"/console/refused?error_reason=policy_denied&kind=exec&since=" + since, "/console/history?error_reason=nonzero_exit&since=" + since,
	} {
		if !links[want] {
			t.Errorf("no link to %s", want)
		}
	}
}

// TestOverviewOfRoles: a worker gets nothing of the node, and only those who may run execs are told
// how.
func TestOverviewOfRoles(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		role       tokens.Role
		node, curl bool
	}{{tokens.Worker, false, true}, {tokens.Auditor, true, false}, {tokens.Admin, true, true}} {
		f := newFake()
		f.caller.Role = c.role
		page := html.UnescapeString(get(t, f.serve(t)+"/console/overview"))
		if strings.Contains(page, `id="node"`) != c.node || strings.Contains(page, `id="log"`) != c.node {
			t.Errorf("%s: parts about the node are there: %v", c.role, !c.node)
		}
		if !strings.Contains(page, "No execs yet") || strings.Contains(page,
			`/sandbox/execs -H 'Content-Type: application/json' -d '{"project_id"`) != c.curl || strings.Contains(page, "<svg") {
			t.Errorf("%s: the empty page is another", c.role)
		}
	}
}

// TestOverviewLive: it refreshes itself unless it is paused, sooner while counts are being made.
func TestOverviewLive(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		path   string
		recent audit.Recent
		want   []string
		not    string
	}{
		{"", audit.Recent{Complete: true}, []string{
			`hx-get="/console/overview"`, `hx-trigger="every 5s"`, "Each bar is an hour", "No exec has ended",
			`live=off`,
		}, "still counting"},
		{"?span=month", audit.Recent{Uncounted: 700}, []string{
			`hx-get="/console/overview?span=month"`, `hx-trigger="every 1s"`, "Still missing: 700 hours.",
			"still being looked for",
		}, "Each bar"},
		{"?span=week&live=off", audit.Recent{Complete: true}, []string{`href="/console/overview?span=week"`, "Go on", "Each bar is 3 hours"}, "hx-trigger"},
	} {
		page := get(t, overviewApp(c.recent).serve(t)+"/console/overview"+c.path)
		for _, want := range c.want {
			if !strings.Contains(page, want) {
				t.Errorf("%s: no %s", c.path, want)
			}
		}
		if strings.Contains(page, c.not) {
			t.Errorf("%s: it has %s", c.path, c.not)
		}
	}
	v := newVisitor(t, overviewApp(audit.Recent{}).serve(t))
	for _, query := range []string{"span=year", "live=on", "span=day,week", "spam=day"} {
		if resp, page := v.get("/console/overview?" + query); resp.StatusCode != http.StatusBadRequest || !strings.Contains(page, query[:4]) {
			t.Errorf("%s: %d", query, resp.StatusCode)
		}
	}
	if resp, _ := v.get("/console"); resp.Header.Get("Location") != "/console/overview" {
		t.Errorf("/console leads to %s", resp.Header.Get("Location"))
	}
}

// TestOverviewRefreshes: new numbers replace the old ones while the table stays open, the focus
// where it is, and everything in its place.
func TestOverviewRefreshes(t *testing.T) {
	f := fullApp()
	var execs atomic.Int64
	execs.Store(1)
	f.recent = func(int) audit.Recent {
		recent := busyMonth(time.Now())
		recent.Hours[0].Execs, recent.Complete = execs.Load(), execs.Load() > 1 // soon, then complete
		return recent
	}
	b := open(t, f.serve(t))
	b.visit("/console/overview")
	b.do(chromedp.Click("#numbers-summary"), chromedp.WaitVisible("#numbers tbody"), chromedp.Focus("#all-good"))
	const places = `[...document.querySelectorAll("section, table, .axis")].map(e => [e.id, ...Object.values(e.getBoundingClientRect().toJSON()).map(Math.round)].join(" "))`
	before := eval[[]string](b, places)
	execs.Store(4321)
	b.do(chromedp.WaitVisible(`svg[aria-label*="succeeded"] ~ .axis`))
	eval[bool](b,
		`new Promise(done => { const look = () => document.querySelector("#numbers tbody td").textContent == "4,321" ? done(true) : setTimeout(look, 20); look(); })`)
	if after := eval[[]string](b, places); !slices.Equal(before, after) {
		t.Errorf("the page jumped:\n%s\n%s", strings.Join(before, "\n"), strings.Join(after, "\n"))
	}
	if focus := eval[string](b, `document.activeElement.id + " " + document.getElementById("numbers").open`); focus != "all-good true" {
		t.Errorf("the focus and the table are %s", focus)
	}
}

// TestOverviewSaysThatItIsStale: while refreshes fail, the page says since when; the first one that
// succeeds takes that away.
func TestOverviewSaysThatItIsStale(t *testing.T) {
	f := fullApp()
	inner := f.serve(t)
	var down atomic.Bool
	proxy := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if down.Load() && r.Header.Get("HX-Request") != "" {
			w.WriteHeader(http.StatusServiceUnavailable)
			return
		}
		back, _ := url.Parse(inner)
		(&httputil.ReverseProxy{Rewrite: func(p *httputil.ProxyRequest) { p.SetURL(back) }}).ServeHTTP(w, r)
	}))
	t.Cleanup(proxy.Close)
	f.recent = func(int) audit.Recent { return audit.Recent{Uncounted: 700} } // refreshes each second
	b := open(t, proxy.URL)
	b.visit("/console/overview")
	if eval[bool](b, `document.getElementById("stale").checkVisibility()`) {
		t.Error("a page that was refreshed says that it was not")
	}
	down.Store(true)
	b.do(chromedp.WaitVisible("#stale"))
	if text := eval[string](b,
		`document.getElementById("stale").textContent`); !regexp.MustCompile(`^Not refreshed since \d\d:\d\d:\d\d: the server cannot answer \(status 503\)\.`).MatchString(text) {
		t.Error(text)
	}
	b.accessible("stale overview")
	down.Store(false)
	b.do(chromedp.WaitNotVisible("#stale"))
}

// TestOverviewOfStoppedLog: the banner says that signing is stopped, before anything else, with the
// remedy; problems are named.
func TestOverviewOfStoppedLog(t *testing.T) {
	t.Parallel()
	f := fullApp()
	f.report.AuditLog.Halted, f.report.AuditLog.Problem, f.report.AuditLog.HaltedRemedy = "it was rolled back", "it was rolled back",
		"restore the newest database"
	f.report.Problems = []health.Problem{
		{Check: "audit_log", Reason: "it was rolled back", Remedy: "restore the newest database"},
		{Check: "skills", Reason: "a skill is broken"},
	}
	page := get(t, f.serve(t)+"/console/overview")
	says(t, page, []string{
		"This node has a problem: it was rolled back. What to do: restore the newest database. 1 more problem",
		"2 problems audit_log : it was rolled back skills : a skill is broken", "State stopped",
	}, []string{"Halted"})
	if strings.Count(page, "it was rolled back") != 2 || strings.Index(page, "rolled back") > strings.Index(page, `id="execs"`) {
		t.Error("that the log is stopped is said once more, or late")
	}
}

// TestOverviewOverRealCore: a worker's numbers are of its own execs, and the command of the empty
// page runs one.
func TestOverviewOverRealCore(t *testing.T) {
	t.Parallel()
	c := startCore(t)
	secret := c.token("new", tokens.Worker)
	first := newVisitor(t, c.url)
	first.signIn(secret)
	complete := func(v *visitor) string {
		t.Helper()
		for {
			resp, page := v.get("/console/overview")
			if resp.StatusCode != http.StatusOK {
				t.Fatalf("%d: %s", resp.StatusCode, page)
			}
			if !strings.Contains(page, `every 1s`) {
				return page
			}
		}
	}
	page := complete(first)
	command := regexp.MustCompile(`aria-label="Command that runs the first exec">(curl.*)</pre>`).FindStringSubmatch(page)
	if command == nil {
		t.Fatal("the empty page has no command")
	}
	parts := regexp.MustCompile(`^curl -s (\S+) -H "(Authorization): (Bearer) \$SECBOX_TOKEN" -H '(Content-Type): (.*)' -d '(.*)'$`).FindStringSubmatch(html.UnescapeString(command[1]))
	if parts == nil || parts[1] != c.url+"/sandbox/execs" {
		t.Fatalf("the command is %s", command[1])
	}
	req, err := http.NewRequestWithContext(t.Context(), "POST", parts[1], strings.NewReader(parts[6]))
	must(t, err)
	req.Header.Set(parts[2], parts[3]+" "+secret)
	req.Header.Set(parts[4], parts[5])
	if resp, body := first.do(req); resp.StatusCode != http.StatusOK || !strings.Contains(body, "hello") {
		t.Errorf("the command of the empty page: %d, %s", resp.StatusCode, body)
	}

	worker, other := c.token("worker", tokens.Worker), c.token("other", tokens.Worker)
	c.run(worker, "echo mine")
	c.run(worker, "exit 3")
	c.run(other, "exit 3")
	for _, r := range []struct {
		secret   string
		all, bad int
		failures int
	}{{worker, 2, 1, 1}, {c.token("auditor", tokens.Auditor), 4, 2, 2}} {
		v := newVisitor(t, c.url)
		v.signIn(r.secret)
		page := complete(v)
		for _, want := range []string{
			fmt.Sprintf("<b>%d</b> in 24 hours", r.all), fmt.Sprintf("<b>%d</b> Failed", r.bad),
			fmt.Sprintf(`nonzero_exit</a></td><td class="num">%d</td>`, r.failures),
		} {
			if !strings.Contains(page, want) {
				t.Errorf("%d execs: no %s", r.all, want)
			}
		}
	}
}
