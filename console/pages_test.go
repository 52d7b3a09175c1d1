package console_test

import (
	"html"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/chromedp/chromedp"

	"secbox/access/tokens"
	"secbox/access/views"
	"secbox/audit"
	"secbox/cluster/nodes"
	"secbox/engine"
	"secbox/health"
	"secbox/replay"
	"secbox/runner"
	"secbox/runner/webhooks"
	"secbox/sandbox/remote"
	"secbox/workspace/diskspace"
)

// pagesUnderTest has an address of every page; each is checked for accessibility in light and dark,
// for valid HTML and for hostile content. A page that needs other content than fullApp gives has it
// added there.
var pagesUnderTest = []struct{ name, path string }{
	{"overview", "/console/overview"},
	{"overview of a month", "/console/overview?span=month&live=off"},
	{"history", "/console/history"},
	{"history with a search", "/console/history?text=echo&status=succeeded&columns=status,command,token,node"},
	{"history with filters", "/console/history?status=failed,lost&project_id=demo&user_id=ada&since=today&until=2030-01-01T00:00:00Z&requested_by=t"},
	{"history with a search in output", "/console/history?text=e&output=on"},
	{"history of an exec", "/console/history?text=" + execID(2)},
	{"history of a task", "/console/history?text=task-1"},
	{"history without a match", "/console/history?text=nothing-has-this"},
	{"sessions", "/console/sessions"},
	{"sessions with filters", "/console/sessions?state=running&project_id=demo&user_id=ada&requested_by=t&since=today&live=off"},
	{"session", "/console/execs/" + execID(20)},
	{"ended session", "/console/execs/" + execID(23)},
	{"exec of a session", "/console/execs/" + execID(21)},
	{"refused", "/console/refused"},
	{"refused without a match", "/console/refused?project_id=nothing-has-this"},
	{"images", "/console/images"},
	{"image", "/console/images/data"},
	{"runners", "/console/runners"},
	{"runners of a user", "/console/runners?user_id=nobody"},
	{"operations", "/console/operations"},
	{"operations with the day of another node", "/console/operations?node=second&live=off"},
	{"exec", "/console/execs/" + execID(2)},
	{"running exec", "/console/execs/" + execID(1)},
	{"exec with a terminal", "/console/execs/" + execID(5)},
	{"change", "/console/execs/" + execID(10)},
	{"output", "/console/execs/" + execID(2) + "/output/stdout?from=65536"},
	{"artifacts", "/console/execs/" + execID(2) + "/artifacts"},
	{"no artifacts", "/console/execs/" + execID(2) + "/artifacts?from=1000"},
	{"artifact of text", "/console/execs/" + execID(2) + "/show/report.html"},
	{"artifact of an image", "/console/execs/" + execID(2) + "/show/plots/one.png"},
	{"artifact without a preview", "/console/execs/" + execID(2) + "/show/data.bin"},
	{"artifact with a rendering", "/console/execs/" + execID(2) + "/show/notes.md"},
	{"artifact with a rendering, as text", "/console/execs/" + execID(2) + "/show/table.csv?as=text"},
	{"artifact in a viewer", "/console/execs/" + execID(2) + "/show/report.pdf"},
	{"files of a replay", "/console/execs/" + execID(2) + "/differences"},
	{"difference of a file", "/console/execs/" + execID(2) + "/differences?of=artifacts/report.html"},
	{"difference of a file without lines", "/console/execs/" + execID(2) + "/differences?of=artifacts/data.bin"},
	{"inputs", "/console/execs/" + execID(2) + "/inputs"},
	{"no inputs", "/console/execs/" + execID(2) + "/inputs?from=1000"},
	{"input of text", "/console/execs/" + execID(2) + "/show-input/src/main.py"},
	{"input without a preview", "/console/execs/" + execID(2) + "/show-input/data.parquet"},
	{"input that is not kept", "/console/execs/" + execID(2) + "/show-input/gone.csv"},
	{"skills", "/console/skills"},
	{"skills without a match", "/console/skills?text=nothing-has-this"},
	{"skill", "/console/skills/shell.run"},
	{"unknown skill", "/console/skills/no.skill"},
	{"registry", "/console/registry"},
	{"registry without a match", "/console/registry?kind=agents&query=nothing"},
	{"published skill", "/console/registry/skills/csv-report"},
	{"withdrawn skill", "/console/registry/skills/withdrawn"},
	{"agents with packages", "/console/packages"},
	{"baselines of an agent", "/console/packages?agent_id=ag"},
	{"baseline", "/console/baselines/ag/own"},
	{"file of a baseline", "/console/baselines/ag/own/file?path=main.py"},
	{"packages", "/console/packages?agent_id=ag&user_id=ann"},
	{"no packages", "/console/packages?agent_id=none&user_id=ann"},
	{"package", "/console/packages/ag/ann/own"},
	{"package that the user has not touched", "/console/packages/ag/ann/inherited"},
	{"unknown package", "/console/packages/ag/ann/none"},
	{"file of a package", "/console/packages/ag/ann/own/file?path=main.py"},
	{"binary file of a package", "/console/packages/ag/ann/own/file?path=logo.png"},
	{"changes of a package", "/console/packages/ag/ann/own/diff"},
	{"people", "/console/people"},
	{"people beyond the last", "/console/people?after=t"},
	{"tokens", "/console/tokens"},
	{"tokens with revoked ones", "/console/tokens?revoked=1&before=t3"},
	{"token", "/console/tokens/t1"},
	{"revoked token", "/console/tokens/t2"},
	{"audit log", "/console/audit"},
	{"report", "/console/audit/report"},
	{"report of a wrong time", "/console/audit/report?since=x"},
	{"events", "/console/audit/events?actor=t1"},
	{"events without a match", "/console/audit/events?subject=nothing-has-this"},
	{"holds", "/console/audit/holds"},
	{"retention", "/console/audit/retention"},
	{"export", "/console/audit/export?project_id=demo"},
	{"refused export", "/console/audit/export?format=xml&since=x&exit_code_ne=y"},
	{"sign in", "/console/sign-in?next=/console/history"},
	{"signed out", "/console/sign-in?ended=here"},
	{"unknown exec", "/console/execs/none"},
	{"refused parameter", "/console/history?nothing=1"},
}

// TestBarrenPagesGoOn: a page that has looked at many records and found none says how far it came,
// and leads to older ones.
func TestBarrenPagesGoOn(t *testing.T) {
	t.Parallel()
	f := newFake().fill(60)
	f.barren = true
	url := f.serve(t)
	for _, path := range []string{"/console/history", "/console/history?status=failed&project_id=demo", "/console/refused?user_id=ada"} {
		page := get(t, url+path)
		older := regexpOlder.FindStringSubmatch(page)
		if !strings.Contains(page, "No record matches back to") || strings.Contains(page, "<tbody>") || older == nil {
			t.Fatalf("%s: %.3000s", path, page)
		}
		if page := get(t, url+html.UnescapeString(older[1])); strings.Count(page, "<tr>") < 50 {
			t.Errorf("%s: the next page has no rows", path)
		}
	}
	valid(t, []document{{"barren", get(t, url+"/console/history")}})
}

// fullApp returns an application with something on every page.
func fullApp() *fakeApp {
	f := newFake().fill(60)
	running, ended := &f.records[59], &f.records[58] // execID(1), execID(2)
	running.Status, running.ExitCode = audit.Running, nil
	ended.Inputs = []audit.Input{{Path: "gone.csv", Size: 5, SHA256: strings.Repeat("a", 64)}}
	f.addInput(ended, "src/main.py", "print(1)\n")
	f.addInput(ended, "data.parquet", "PAR1\x00")
	ended.InputsKept = audit.Kept
	ended.EnvKeys = []string{"LANG", "TZ"}
	ended.SkillID, ended.TaskID, ended.AgentID = "shell.run", "task-1", "agent-1"
	ended.Request = `{"script":"set -e\nmake report","args":["--all","two words"],"stdin":"a\nb","n":2}`
	for _, n := range []int{49, 50, 51} { // execID(10) is between two others
		r := &f.records[n]
		r.Kind, r.Cmd, r.Args, r.PolicySnapshot, r.Status = audit.KindChange, "files.edit", []string{"/workspace/notes/a.txt"}, nil, audit.Succeeded
		r.SHA256Before, r.SHA256After, r.SizeAfter = strings.Repeat("1b", 32), strings.Repeat("2a", 32), new(int64(70_000))
	}
	ended.PolicySnapshot, ended.ArtifactsPath = defaultPolicy(), "projects/demo/artifacts/x"
	ended.StdoutBytes = 200_000
	f.records[55].TTYRecord = audit.RecordOutput // execID(5)
	refused := &f.records[57]                    // execID(3)
	refused.Status, refused.ErrorReason, refused.ExitCode = audit.Rejected, audit.PolicyDenied, nil
	refused.Detail = "timeout_ms: 9000000 is above the ceiling of 1800000; ask for at most that"
	refused.PolicySnapshot = ended.PolicySnapshot
	f.fillSessions("analysis", "main")
	f.recent = func(int) audit.Recent { return busyMonth(time.Now()) }
	f.machines = []remote.RunnerInfo{{
		UserID: "ada", Name: "laptop", Version: "0.1.0", OS: "linux", Arch: "amd64", Allow: []string{"exec"},
		ConnectedSince: clock, HeardAt: clock, Latency: time.Millisecond, InFlight: 2,
	}}
	leased := nodes.Node{Version: "test", StartedAt: clock, SeenAt: clock, ReadAt: clock, Epoch: 1, LeaseUntil: clock.Add(time.Minute), Running: 2, Queued: 1}
	draining, silent, retired := leased, leased, leased
	draining.Draining, silent.LeaseUntil, retired.LeaseUntil = true, clock, time.Time{}
	leased.NodeID, draining.NodeID, silent.NodeID, retired.NodeID = "node", "second", "third", "fourth"
	f.nodes = []nodes.Node{leased, draining, silent, retired}
	f.fillDay(busyDay)
	f.report = health.Report{
		Status: health.Degraded, NodeID: "node", Version: "test", DockerVersion: "20.10.24", Database: "sqlite", WorkspaceRootNative: "/srv/workspace",
		WorkspaceFree: &diskspace.Space{Bytes: 1 << 38},
		Problems:      []health.Problem{{Check: "skills", Reason: "a skill is broken", Remedy: "repair it"}},
	}
	f.report.AuditLog = health.AuditLog{
		Entries: 2_976_933, SignedAt: clock, BehindEvents: 3, BehindMS: 400, AnchoredEntries: 2_976_000,
		Witnesses: []health.AuditWitness{{Name: "w.example", Entries: 2_976_900}},
	}
	f.pool = engine.PoolStats{
		Max: 4, Waiting: 2, Starting: 1, Hits: 1200, Misses: 3, NotShared: engine.NotKnownYet + "no container has waited",
		MemoryLow: true,
	}
	ended.ReplayOf, ended.Kind, ended.StdinBytes = execID(4), audit.KindExec, 5
	f.replayer.points = []replay.Point{
		{What: "status", Equal: replay.Yes, First: "succeeded", Second: "succeeded"},
		{What: "stdout", Equal: replay.No, First: strings.Repeat("a", 64), Second: strings.Repeat("b", 64), Why: "they wrote something else"},
		{What: "work", Equal: replay.Unknown, Why: "its former state is not kept"},
	}
	for i, end := range audit.ConnEnds {
		f.network = append(f.network, audit.Connection{
			ExecID: execID2, Seq: int64(i + 1), Protocol: audit.ProtocolConnect, Host: "api.example.org", Port: 443, Address: "93.184.215.14",
			Allowed: end == audit.ConnClosed, Rule: "*.example.org", BytesOut: 524, BytesIn: 70_000, StartedAt: clock, EndedAt: clock, End: end,
			Detail: "evil.example.net:443 is not allowed by net.allow of this exec's policy",
		})
	}
	ended.NetConnections, ended.NetDenied, ended.NetBytesOut, ended.NetBytesIn = 14, 13, 524, 70_000
	f.callback = &webhooks.Delivery{
		State: webhooks.Due, URL: "https://hooks.example.com/secbox?key=hunter2", Attempts: 2, NextAt: clock.Add(time.Minute),
		Tries: []webhooks.Try{
			{At: clock, Status: 500, MS: 12}, {At: clock.Add(time.Second), Error: `<b>no answer</b>\u202e`, MS: 15_000},
		},
	}
	f.addFile("report.html", "<h1>Report</h1>")
	f.addFile("plots/one.png", onePixel)
	f.addFile("data.bin", "\x00\x01")
	f.addFile("notes.md", "# Notes\n\n- [x] a [link](https://example.com) and <b>HTML</b>\n\n| a | b |\n|---|---|\n| 1 | 2 |\n")
	f.addFile("table.csv", "name,amount\n\"a, b\",1\n")
	f.addFile("report.pdf", "%PDF-1.4\n")
	f.first = &fakeApp{}
	f.first.addFile("report.html", "<h1>Report</h1>\n<p>of before")
	f.first.addFile("data.bin", "\x00\x02")
	f.first.addFile("table.csv", f.content["table.csv"])
	f.notKept = runner.ArtifactList{Truncated: true, LeftOut: runner.LeftOut{NotKeptCount: 1402, NotKept: []runner.NotKept{
		{Path: "large.bin", Size: 73 << 20, Why: "it did not fit"},
		{Path: `dir/name\xff`, Why: "its name is not UTF-8"},
		{Path: "latest", Why: "a symbolic link"},
	}}}
	f.output["stdout"] = []byte("\x1b[31mred\x1b[0m \x1b[1;44mbold on blue\x1b[0m\rprogress\n" + strings.Repeat("line\n", 40_000))
	f.tokens = []tokens.Token{
		{ID: "t1", Name: "Ada", Role: tokens.Admin, CreatedAt: clock},
		{ID: "t2", Name: "CI", Role: tokens.Worker, Projects: []string{"demo"}, Agents: []string{"a", "b"}, CreatedAt: clock, RevokedAt: clock},
		{ID: "t3", Name: "Laptop", Role: tokens.Runner, UserID: "ada", CreatedAt: clock},
	}
	f.output["stderr"] = []byte("warning\n")
	f.views.of["t"] = []views.View{{Name: "failed today", Query: "since=today&status=failed"}, {Name: "All columns", Query: "columns=status%2Cnode"}}
	f.fillSkills()
	f.fullAudit()
	return f.fillPeople("Ada Lovelace (ada@idp.example)")
}

// get returns the body of a page as it is sent.
func get(t *testing.T, url string) string {
	t.Helper()
	resp, err := http.Get(url)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil || !strings.HasPrefix(resp.Header.Get("Content-Type"), "text/html") {
		t.Fatalf("%s: %d, %s, %v", url, resp.StatusCode, resp.Header.Get("Content-Type"), err)
	}
	return string(body)
}

// TestPagesAreAccessible checks each page with axe-core by WCAG 2.2 AA, in light and dark. From 360
// pixels to 4K, only tables scroll sideways; at 360 pixels the large ones are cards, which do not.
func TestPagesAreAccessible(t *testing.T) {
	t.Parallel()
	b := open(t, fullApp().serve(t))
	for _, page := range pagesUnderTest {
		b.visit(page.path)
		for _, width := range []int64{360, 3840} {
			b.do(chromedp.EmulateViewport(width, 900))
			if beyond := eval[int](b, `document.documentElement.scrollWidth - innerWidth`); beyond > 0 {
				b.t.Errorf("%s is %d pixels wider than %d", page.name, beyond, width)
			}
			if hidden := eval[int](b,
				`Math.max(0, ...[...document.querySelectorAll(".cards")].map(t => t.scrollWidth - t.parentElement.clientWidth))`); hidden > 0 && width == 360 {
				b.t.Errorf("%s: a table of cards is %d pixels wider than its frame", page.name, hidden)
			}
		}
		b.do(chromedp.EmulateViewport(1280, 900), chromedp.Evaluate[chromedp.Void](withoutLikeRows))
		b.accessible(page.name)
	}
}

// withoutLikeRows leaves two of the table rows that have the same elements with the same classes:
// most of axe's time is per element.
const withoutLikeRows = `{
	const found = {};
	for (const row of document.querySelectorAll("tbody tr")) {
		const like = [row, ...row.querySelectorAll("*")].map(e => e.tagName + "." + e.getAttribute("class")).join();
		found[like] = (found[like] ?? 0) + 1;
		if (found[like] > 2) row.remove();
	}
}`

// TestPagesAreValidHTML checks each page with html-validate.
func TestPagesAreValidHTML(t *testing.T) {
	t.Parallel()
	url := fullApp().serve(t)
	var documents []document
	for _, page := range pagesUnderTest {
		documents = append(documents, document{page.name, get(t, url+page.path)})
	}
	valid(t, documents)
}
