package console_test

import (
	"fmt"
	"html"
	"net/http"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"secbox/access/tokens"
	"secbox/api"
	"secbox/api/contract"
	"secbox/cluster/nodes"
	"secbox/cluster/samples"
	"secbox/health"
)

// numbersOfBusyDay is how many charts the page has of busyDay.
const numbersOfBusyDay = 17

// busyDay is the numbers of a node a number of minutes ago.
func busyDay(ago int) map[samples.Name]int64 {
	busy := int64(ago % 60)
	return map[samples.Name]int64{
		samples.Running: busy % 5, samples.Slots: 8, samples.Queued: max(0, busy-50), samples.Commands: busy / 20, samples.Ended: 3 * busy,
		samples.Failed: busy / 30, samples.PoolWaiting: 4 - busy%5, samples.PoolStarting: busy % 2, samples.PoolMax: 4, samples.PoolMisses: busy / 40,
		samples.MemoryFree: (10 + busy) << 28, samples.WorkspaceFree: int64(100+ago) << 27, samples.StateFree: int64(2000-ago) << 25,
		samples.LogEntries: int64(2_976_933 - 50*ago), samples.LogBehind: busy / 10, samples.LogBehindMS: 10 * busy, samples.WitnessBehind: busy,
		samples.Spool: busy / 59, samples.Problems: 1,
	}
}

// fillDay gives all nodes a day with a gap of two hours.
func (f *fakeApp) fillDay(of func(ago int) map[samples.Name]int64) {
	f.day = samples.Day{Now: clock}
	for ago := 24*60 - 1; ago >= 0; ago-- {
		if ago < 600 || ago >= 720 {
			f.day.Samples = append(f.day.Samples, samples.Sample{At: clock.Add(-time.Duration(ago) * time.Minute), Values: of(ago)})
		}
	}
	f.latest = map[string]samples.Sample{"second": {At: clock, Health: samples.Health{
		Status: "unavailable", Problems: []samples.Problem{{Check: "engine", Reason: "the Docker engine does not answer", Remedy: "start it"}},
	}}}
}

// rowOf returns the texts of the row of a number, and the path of its chart.
func rowOf(t *testing.T, page, number string) (cells []string, path string) {
	t.Helper()
	_, rest, found := strings.Cut(page, `<th scope="row">`+number+`</th>`)
	row, _, _ := strings.Cut(rest, "</tr>")
	for _, m := range regexp.MustCompile(`(?s)<td class="num"[^>]*>([^<]*)</td>`).FindAllStringSubmatch(row, -1) {
		cells = append(cells, strings.TrimSpace(m[1]))
	}
	d := regexp.MustCompile(`<path d="([^"]*)"`).FindStringSubmatch(row)
	if !found || d == nil {
		t.Fatalf("no row of %s: %s", number, row)
	}
	return cells, d[1]
}

// TestOperations: the numbers of a day are there as charts and as text, with their gaps, and the
// health of each node with what to do.
func TestOperations(t *testing.T) {
	t.Parallel()
	f := fullApp()
	v := newVisitor(t, f.serve(t))
	_, page := v.get("/console/operations")
	page = html.UnescapeString(page)
	for _, badge := range []string{`badge good">live`, `badge warn">draining`, `badge warn">silent`, `badge ">retired`} {
		if strings.Count(page, badge) != 1 {
			t.Errorf("not once: %s", badge)
		}
	}
	if n := strings.Count(page, "<svg"); n != numbersOfBusyDay || strings.Count(page, "<title>") != n+1 {
		t.Errorf("%d charts, %d titles", n, strings.Count(page, "<title>"))
	}
	for number, want := range map[string][]string{
		"Running execs": {"0 of 8", "0", "4"}, "Waiting containers": {"4 of 4", "0", "4"}, "Execs that ended in a minute": {"0", "0", "177"},
		"Free on the state dir’s disk": {"62.5 GiB", "17.5 GiB", "62.5 GiB"}, "Age of the first of them": {"0 ms", "0 ms", "590 ms"},
	} {
		if got, path := rowOf(t, page, number); !slices.Equal(got, want) || strings.Count(path, "M") != 2 || strings.Contains(path, "NaN") {
			t.Errorf("%s: %q, %s", number, got, path)
		}
	}
	for _, text := range []string{
		"Last 24 hours of the node node", "2 h 00 min have no numbers", `badge bad" title="at 2026-11-23 09:30 UTC">unavailable`,
		"the Docker engine does not answer", "start it", "1vHbWEWqzQ1+…", "does not cosign",
	} {
		if !strings.Contains(page, text) {
			t.Errorf("no %q", text)
		}
	}
	if _, page := v.get("/console/operations?node=second&live=off"); !strings.Contains(page, "Last 24 hours of the node second") ||
		strings.Contains(page, "hx-trigger") {
		t.Error("the day of another node is another")
	}
	if resp, _ := v.get("/console/operations?node=" + strings.Repeat("x", 201)); resp.StatusCode != http.StatusBadRequest {
		t.Errorf("a long id: %d", resp.StatusCode)
	}
}

// TestOperationsOfFewAndMany: without a sample, with one, and with more nodes than a page lists.
func TestOperationsOfFewAndMany(t *testing.T) {
	t.Parallel()
	f := newFake()
	f.report.NodeID = "a"
	v := newVisitor(t, f.serve(t))
	if _, page := v.get("/console/operations"); !strings.Contains(page, "There are no numbers of this node") || strings.Contains(page, "<svg") {
		t.Error("without a sample the page is another")
	}
	f.day = samples.Day{Now: clock, Samples: []samples.Sample{{At: clock.Add(-3 * time.Minute), Values: map[samples.Name]int64{samples.Running: 7}}}}
	_, page := v.get("/console/operations")
	if cells, path := rowOf(t, page, "Running execs"); !slices.Equal(cells, []string{"–", "7", "7"}) || path != "M1435 1h5" {
		t.Errorf("one old sample: %q, %s", cells, path)
	}
	if strings.Count(page, "<svg") != 1 || !strings.Contains(page, "23 h 59 min have no numbers") {
		t.Error("a number that the node does not have has a chart, or the gap is not said")
	}
	f.fillDay(busyDay)
	for i := range 130 {
		f.nodes = append(f.nodes, nodes.Node{NodeID: fmt.Sprintf("node-%03d", i), SeenAt: clock, ReadAt: clock})
	}
	if _, page := v.get("/console/operations"); strings.Count(page, "#day") != 100 || !strings.Contains(page, "30 more nodes") ||
		len(page) > 200_000 {
		t.Errorf("%d nodes on %d bytes", strings.Count(page, "#day"), len(page))
	}
}

// TestBanner: each page says what is wrong with the node to those who may read its health, and
// leads those to the page of operations who may open it.
func TestBanner(t *testing.T) {
	t.Parallel()
	document, err := contract.Load(api.Contract())
	must(t, err)
	i := slices.IndexFunc(document.Operations, func(op contract.Operation) bool { return op.ID == "getHealth" })
	f := fullApp()
	url := f.serve(t)
	sick := f.report
	sick.Status = health.Unavailable
	sick.Problems = append([]health.Problem{{Check: "engine", Reason: "the <b>engine</b> does not answer", Remedy: "start it"}}, sick.Problems...)
	const says = "the &lt;b&gt;engine&lt;/b&gt; does not answer."
	for _, role := range tokens.Roles() {
		f.caller.Role, f.report = role, sick
		for _, path := range []string{"/console/overview", "/console/skills", "/console/execs/none", "/console/operations"} {
			page := get(t, url+path)
			if strings.Contains(page, says) != document.Operations[i].Allows(role) {
				t.Errorf("%s, %s: the banner is there: %v", role, path, !document.Operations[i].Allows(role))
			}
			if role == tokens.Worker && (strings.Contains(page, `/console/operations`) || !strings.Contains(page, "And 1 more problem.")) {
				t.Errorf("%s: a worker is led to the page of operations", path)
			}
		}
	}
	f.caller.Role = tokens.Admin
	banner := func() string {
		_, rest, _ := strings.Cut(get(t, url+"/console/history"), `<div id="banner"`)
		text, _, _ := strings.Cut(rest, `<div class="head">`)
		return text
	}
	if text := banner(); !strings.Contains(text, `class="banner bad"`) || !strings.Contains(text, "This node cannot run execs") ||
		!strings.Contains(text, "start it.") || !strings.Contains(text, `href="/console/operations#health"`) || !strings.Contains(text, "1 more problem") {
		t.Errorf("sick: %s", text)
	}
	f.report.Status, f.report.Problems = health.Degraded, f.report.Problems[1:]
	if text := banner(); !strings.Contains(text, `class="banner warn"`) || !strings.Contains(text, "This node has a problem") {
		t.Errorf("degraded: %s", text)
	}
	for _, report := range []health.Report{{Status: health.OK}, {}} { // the other is not known yet
		f.report = report
		if text := banner(); strings.Contains(text, "problem") || !strings.Contains(text, `class="over"`) {
			t.Errorf("%s: %s", report.Status, text)
		}
	}
	f.caller, f.report = tokens.Token{}, sick
	if page := get(t, url+"/console/sign-in"); strings.Contains(page, "does not answer") {
		t.Error("who is not signed in sees the banner")
	}
}
