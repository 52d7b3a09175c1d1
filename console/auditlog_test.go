package console_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/chromedp/chromedp"

	"secbox/access/tokens"
	"secbox/api/visible"
	"secbox/audit"
	"secbox/audit/admin"
	"secbox/audit/report"
	"secbox/audit/retention"
	"secbox/audit/translog"
	"secbox/fault"
	"secbox/health"
)

// TestAuditLogStates: the page says whether the log goes on, and if not, what to do.
func TestAuditLogStates(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		change func(*fakeApp)
		want   []string
		not    string
	}{
		"signing": {func(*fakeApp) {}, []string{
			">signing<", "1,200", "secbox/test, example.com/w1", "3 events, the first 400 ms old", "/mnt/anchor",
			"does not answer", "not asked yet",
		}, "Signing is stopped"},
		"stopped": {
			func(f *fakeApp) {
				f.report.AuditLog.Halted, f.report.AuditLog.Problem, f.report.AuditLog.AnchorProblem = "the database was rolled back",
					"the database was rolled back", "the database was rolled back"
				f.report.Problems = []health.Problem{
					{Check: "audit_log", Reason: "the database was rolled back", Remedy: "restore the newest one"},
					{Check: "skills", Reason: "a skill is broken"},
				}
			},
			[]string{">stopped<", "Signing is stopped.", "the database was rolled back", "What to do: restore the newest one", "has another log"},
			"a skill is broken",
		},
		"behind": {func(f *fakeApp) {
			f.report.Problems = []health.Problem{{Check: "audit_log", Reason: "the transparency log lacks 9 events", Remedy: "wait"}}
		}, []string{">with problems<", "lacks 9 events"}, "Signing is stopped"},
		"without a key": {
			func(f *fakeApp) { f.report.AuditLog.Problem = "this node has no key" },
			[]string{">with problems<", "this node has no key"},
			"Signing is stopped",
		},
		"lost": {func(f *fakeApp) {
			f.audit.lost = fault.Wrap(fault.Internal, translog.ErrNoState, "the database has lost the state of its transparency log")
		}, []string{">lost<", "the database has lost the state"}, "Newest checkpoint"},
		"empty": {func(f *fakeApp) {
			f.audit.state, f.report.AuditLog = translog.State{}, health.AuditLog{}
		}, []string{">empty<", "The log is empty yet", "secbox audit witness", "audit.anchor_dir"}, "Newest checkpoint"},
	} {
		f := fullApp()
		c.change(f)
		page := get(t, f.serve(t)+"/console/audit")
		for _, want := range c.want {
			if !strings.Contains(page, want) {
				t.Errorf("%s: no %q", name, want)
			}
		}
		if strings.Contains(page, c.not) {
			t.Errorf("%s: there is %q", name, c.not)
		}
	}
}

// TestAuditLogDownloads: the checkpoint, the key and proofs of events, or why there are none.
func TestAuditLogDownloads(t *testing.T) {
	t.Parallel()
	f := fullApp()
	v := newVisitor(t, f.serve(t))
	for path, want := range map[string][2]string{
		"checkpoint": {f.audit.checkpoint, "audit-log.checkpoint"}, "key": {"secbox/test+12345678+AbCd\n", "log.pub"},
		"events/99/proof": {"{}", "event-99.proof.json"},
	} {
		resp, body := v.get("/console/audit/" + path)
		if resp.StatusCode != http.StatusOK || body != want[0] ||
			!strings.Contains(resp.Header.Get("Content-Disposition"), `attachment; filename="`+want[1]+`"`) {
			t.Errorf("%s: %d, %q, %q", path, resp.StatusCode, body, resp.Header.Get("Content-Disposition"))
		}
	}
	for _, id := range []string{"0", "1000", "01", "x", "-1", "%2e%2e"} {
		if resp, _ := v.get("/console/audit/events/" + id + "/proof"); resp.StatusCode != http.StatusNotFound {
			t.Errorf("the proof of %s: %d", id, resp.StatusCode)
		}
	}
	f.audit.state = translog.State{}
	for _, path := range []string{"checkpoint", "key"} {
		if resp, _ := v.get("/console/audit/" + path); resp.StatusCode != http.StatusConflict {
			t.Errorf("%s of an empty log: %d", path, resp.StatusCode)
		}
	}
}

// TestEventPages: filters, pages whose cursors are bound to them, and links to what events are
// about.
func TestEventPages(t *testing.T) {
	t.Parallel()
	v := newVisitor(t, fullApp().serve(t))
	rows := func(path string) (string, int) {
		resp, page := v.get(path)
		if resp.StatusCode != http.StatusOK {
			t.Fatalf("%s: %d", path, resp.StatusCode)
		}
		return page, strings.Count(page, "Proof of event")
	}
	page, n := rows("/console/audit/events")
	older := regexpOlder.FindStringSubmatch(page)
	if n != 50 || older == nil {
		t.Fatalf("%d rows, %v", n, older)
	}
	for _, link := range []string{
		"/console/execs/" + execID(2), "/console/tokens/t1", "/console/audit/events?actor=t1", "/console/audit/events?subject=" + execID(9),
		"/console/audit/retention", "/console/operations", "/console/execs/" + execID(1),
	} {
		if !strings.Contains(page, `href="`+link+`"`) {
			t.Errorf("no link to %s", link)
		}
	}
	for _, text := range []string{
		"<dt>parameters.project_id</dt><dd>demo</dd>", "<dd>addr, audit.anchor_dir</dd>", "2 execs", "unreadable",
		"<dt>bytes</dt><dd>900</dd>",
	} {
		if !strings.Contains(strings.NewReplacer("\n", "", "\t", "", "> <", "><").Replace(page), text) {
			t.Errorf("no %s", text)
		}
	}
	last, n := rows(strings.ReplaceAll(older[1], "&amp;", "&"))
	if n != 33 || strings.Contains(last, ">Older<") || !strings.Contains(last, "Newest") {
		t.Errorf("the last page has %d rows", n)
	}
	if _, n := rows("/console/audit/events?kind=download&actor=&since="); n != 1 {
		t.Errorf("%d downloads", n)
	}
	if page, n := rows("/console/audit/events?kind=schema_migrated"); n != 0 || !strings.Contains(page, "No event matches") {
		t.Errorf("%d rows of no event", n)
	}
	cursor := strings.ReplaceAll(older[1], "&amp;", "&")
	for path, want := range map[string]string{
		cursor + "&kind=download": "not a page of this list", "/console/audit/events?cursor=x": "Show its newest page",
		"/console/audit/events?kind=x":         "must be one of",
		"/console/audit/events?until=tomorrow": "RFC 3339", "/console/audit/events?actor=%00": "control characters",
		"/console/audit/events?actr=x": "there is no such parameter",
	} {
		if resp, page := v.get(path); resp.StatusCode != http.StatusBadRequest || !strings.Contains(page, want) {
			t.Errorf("%s: %d", path, resp.StatusCode)
		}
	}
	if page := get(t, newFake().serve(t)+"/console/audit/events"); !strings.Contains(page, "No events yet") {
		t.Error("no word about an empty list")
	}
}

// TestAuditorsHoldNothing: an auditor sees the same without forms and without links to pages of
// admins.
func TestAuditorsHoldNothing(t *testing.T) {
	t.Parallel()
	f := fullApp()
	f.caller.Role = tokens.Auditor
	url := f.serve(t)
	if page := get(t, url+"/console/audit/holds"); strings.Contains(page, "/release") || strings.Contains(page, "New hold") ||
		!strings.Contains(page, "value-1<") {
		t.Error("the page of holds")
	}
	if page := get(t, url+"/console/audit/events"); strings.Contains(page, "/console/tokens") ||
		!strings.Contains(page, `href="/console/history?requested_by=t1"`) {
		t.Error("the page of events")
	}
}

// TestHoldForms: a refused hold comes back with what was typed, and the reason at its field.
func TestHoldForms(t *testing.T) {
	t.Parallel()
	f := fullApp()
	f.audit.holds = nil
	v := newVisitor(t, f.serve(t))
	post := func(path string, fields url.Values) (*http.Response, string) {
		return v.post("/console/audit/holds", "/console/audit/holds"+path, fields)
	}
	resp, page := post("", url.Values{"kind": {"agent"}, "value": {`"><script>`}, "reason": {" "}})
	if resp.StatusCode != http.StatusBadRequest || len(f.audit.holds) != 0 || strings.Count(page, `aria-invalid="true"`) != 2 {
		t.Fatalf("%d: %s", resp.StatusCode, page)
	}
	for _, want := range []string{
		`value="&#34;&gt;&lt;script&gt;"`, `aria-describedby="p-kind"`, `id="p-kind">must be project, user, task or exec`,
		`id="p-reason">is missing: say why`, "The hold was not placed", "<h1>Holds</h1>",
	} {
		if !strings.Contains(page, want) {
			t.Errorf("no %s", want)
		}
	}
	valid(t, []document{{"refused hold", page}})
	f.audit.holdErr = fault.New(fault.InvalidRequest, "there are 10000 holds already; remove one that is no longer needed")
	fields := url.Values{"kind": {"task"}, "value": {" task-1 "}, "reason": {"case 7"}}
	if resp, page := post("", fields); resp.StatusCode != http.StatusBadRequest || !strings.Contains(page, "10000 holds already") ||
		!strings.Contains(page, `value="task-1"`) || !strings.Contains(page, `value="task" selected`) {
		t.Errorf("too many holds: %d", resp.StatusCode)
	}
	f.audit.holdErr = nil
	if resp, _ := post("", fields); resp.StatusCode != http.StatusSeeOther || resp.Header.Get("Location") != "/console/audit/holds" || len(f.audit.holds) != 1 {
		t.Fatalf("%d, %+v", resp.StatusCode, f.audit.holds)
	}
	h := f.audit.holds[0]
	if h.Kind != retention.HoldTask || h.Value != "task-1" || h.Reason != "case 7" || h.AddedBy != "t" {
		t.Errorf("%+v", h)
	}
	if _, page := v.get("/console/audit/holds"); !strings.Contains(page, `href="/console/history?task_id=task-1"`) ||
		!strings.Contains(page, "/console/audit/holds/"+h.ID+"/release") {
		t.Error("the list lacks the hold")
	}
	if resp, _ := post("/"+h.ID+"/release", url.Values{}); resp.StatusCode != http.StatusSeeOther || len(f.audit.holds) != 0 {
		t.Errorf("release: %d, %+v", resp.StatusCode, f.audit.holds)
	}
	if resp, page := post("/"+h.ID+"/release", url.Values{}); resp.StatusCode != http.StatusNotFound ||
		!strings.Contains(page, "This hold was released before") || !strings.Contains(page, "<h1>Holds</h1>") {
		t.Errorf("release of a released one: %d", resp.StatusCode)
	}
}

// TestHoldSentTwice: a form that is sent again holds nothing more, also after the hold was
// released; a new form has another id.
func TestHoldSentTwice(t *testing.T) {
	t.Parallel()
	f := fullApp()
	f.audit.holds = nil
	v := newVisitor(t, f.serve(t))
	_, page := v.get("/console/audit/holds")
	id := formID.FindStringSubmatch(page)[1]
	send := func(id string) (*http.Response, string) {
		return v.post("/console/audit/holds", "/console/audit/holds", url.Values{"id": {id}, "kind": {"task"}, "value": {"task-1"}, "reason": {"case 7"}})
	}
	if resp, _ := send(id); resp.StatusCode != http.StatusSeeOther || len(f.audit.holds) != 1 || f.audit.holds[0].ID != id {
		t.Fatalf("%d, %+v", resp.StatusCode, f.audit.holds)
	}
	resp, page := send(id)
	if next := formID.FindStringSubmatch(page); resp.StatusCode != http.StatusConflict || !strings.Contains(page, "This form was sent before") ||
		len(f.audit.holds) != 1 || next[1] == id {
		t.Errorf("sent again: %d, %d holds, the next id is %v", resp.StatusCode, len(f.audit.holds), next)
	}
	valid(t, []document{{"sent again", page}})
	v.post("/console/audit/holds", "/console/audit/holds/"+id+"/release", url.Values{})
	if resp, _ := send(id); resp.StatusCode != http.StatusConflict || len(f.audit.holds) != 0 {
		t.Errorf("sent again after the release: %d, %+v", resp.StatusCode, f.audit.holds)
	}
	if resp, page := send("../1"); resp.StatusCode != http.StatusBadRequest || !strings.Contains(page, "must be a UUID") {
		t.Errorf("another id: %d", resp.StatusCode)
	}
}

// TestHoldPages: the lists of holds and of released holds in pages, each with cursors of its own.
func TestHoldPages(t *testing.T) {
	t.Parallel()
	v := newVisitor(t, fullApp().serve(t))
	_, page := v.get("/console/audit/holds")
	released := regexp.MustCompile(`href="([^"]*[?&;]released=[^"#]*)#released"`)
	newer, older := regexpOlder.FindStringSubmatch(page), released.FindStringSubmatch(page)
	if newer == nil || older == nil || strings.Count(page, "Release it") != 50 || strings.Count(page, ">released-") != 9 {
		t.Fatalf("%v, %v, %d rows, %d released", newer, older, strings.Count(page, "Release it"), strings.Count(page, ">released-"))
	}
	_, last := v.get(newer[1])
	if strings.Count(last, "Release it") != 2 || !strings.Contains(last, "Oldest") || regexp.MustCompile(`[?&;]cursor=[^"]*">Newer`).MatchString(last) {
		t.Errorf("the last page has %d rows", strings.Count(last, "Release it"))
	}
	both := strings.ReplaceAll(released.FindStringSubmatch(last)[1], "&amp;", "&")
	if _, page := v.get(both); strings.Count(page, "Release it") != 2 || strings.Count(page, ">released-") != 6 || !strings.Contains(page, ">released-14<") ||
		released.MatchString(page) {
		t.Errorf("%s has %d holds and %d released", both, strings.Count(page, "Release it"), strings.Count(page, ">released-"))
	}
	_, page = v.get("/console/history")
	ofHistory := regexpOlder.FindStringSubmatch(page)[1]
	of := func(address, name string) string {
		u, err := url.Parse(strings.ReplaceAll(address, "&amp;", "&"))
		must(t, err)
		return u.Query().Get(name)
	}
	unbound := visible.EncodeCursor(audit.Cursor{CreatedAt: clock, ExecID: execID(1)}, "") // of GET /sandbox/execs
	for _, query := range []string{
		"cursor=x", "cursor=" + of(ofHistory, "cursor"), "cursor=" + unbound, "cursor=" + of(older[1], "released"), "released=x",
		"released=" + of(newer[1], "cursor"),
	} {
		if resp, page := v.get("/console/audit/holds?" + query); resp.StatusCode != http.StatusBadRequest || !strings.Contains(page, "invalid_cursor") {
			t.Errorf("the place of another list, %s: %d", query, resp.StatusCode)
		}
	}
}

// TestRetentionStates: what is kept, what the last run did, and what is wrong.
func TestRetentionStates(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		report retention.Report
		want   []string
		not    string
	}{
		"off": {retention.Report{}, []string{">off<", "for ever", "as long as their record", "There was no run yet", "--dry-run"}, "Next run"},
		"on": {fullApp().audit.report, []string{
			"with a problem", "an exec is not as the transparency log says", "365 days", "30 days", "52 in force",
			"Last run", "Next run", "the files of 2 removed execs",
		}, "On the node"},
		"running": {
			retention.Report{Enabled: true, RecordDays: 1, State: retention.State{Running: true, Holder: "node-7", BeganAt: clock}},
			[]string{">running<", "Run that goes on", "node-7"},
			">Ended<",
		},
		"workspaces": {
			retention.Report{Enabled: true, WorkspaceHours: 48},
			[]string{"Users’ workspaces", "48 hours after their last use", "sandbox.workspace_ttl_hours"},
			"Nothing is removed",
		},
	} {
		f := fullApp()
		f.audit.report = c.report
		page := get(t, f.serve(t)+"/console/audit/retention")
		for _, want := range c.want {
			if !strings.Contains(page, want) {
				t.Errorf("%s: no %q", name, want)
			}
		}
		if strings.Contains(page, c.not) {
			t.Errorf("%s: there is %q", name, c.not)
		}
	}
}

// TestExportForm: an export is asked for by filters that are checked first, and a HEAD request
// exports nothing.
func TestExportForm(t *testing.T) {
	t.Parallel()
	f := fullApp()
	v := newVisitor(t, f.serve(t))
	resp, _ := v.get("/console/audit/export/file?format=xml&project_id=demo&since=x&status=")
	if to := resp.Header.Get("Location"); resp.StatusCode != http.StatusSeeOther || to != "/console/audit/export?format=xml&project_id=demo&since=x" {
		t.Fatalf("%d, %s", resp.StatusCode, to)
	}
	resp, page := v.get(resp.Header.Get("Location"))
	if resp.StatusCode != http.StatusBadRequest || !strings.Contains(page, `id="p-format">must be jsonl, csv or ocsf`) ||
		!strings.Contains(page, `id="p-since">must be a date like`) || !strings.Contains(page, `name="project_id" value="demo"`) {
		t.Errorf("%d: %s", resp.StatusCode, page)
	}
	req, err := http.NewRequestWithContext(t.Context(), http.MethodHead, v.url+"/console/audit/export/file?format=csv", nil)
	must(t, err)
	if resp, _ := v.do(req); resp.StatusCode != http.StatusOK || !strings.HasPrefix(resp.Header.Get("Content-Type"), "text/csv") || len(f.audit.exports) != 0 {
		t.Errorf("HEAD: %d, %q, %d exports", resp.StatusCode, resp.Header.Get("Content-Type"), len(f.audit.exports))
	}
	resp, body := v.get("/console/audit/export/file?format=csv&project_id=demo&status=failed&user_id=")
	if resp.StatusCode != http.StatusOK || body != "{}\n" || !strings.Contains(resp.Header.Get("Content-Disposition"), "audit.csv") ||
		len(f.audit.exports) != 1 {
		t.Fatalf("%d, %q, %v", resp.StatusCode, body, resp.Header)
	}
	if q := f.audit.exports[0]; q.Filter.ProjectID != "demo" || q.Format.Name != "csv" ||
		fmt.Sprint(q.Asked) != "map[format:csv project_id:demo status:failed]" {
		t.Errorf("%+v", q)
	}
	if page := get(t, v.url+"/console/audit/export?runner=laptop"); !strings.Contains(page, "<details open>") {
		t.Error("a filter that is set is hidden")
	}
	if resp, _ := v.get("/console/audit/export/file?cursor=x"); resp.StatusCode != http.StatusBadRequest {
		t.Errorf("a parameter that an export has not: %d", resp.StatusCode)
	}
}

var shownRoot = regexp.MustCompile(`<code>([A-Za-z0-9+/]{43}=)</code>`)

// TestAuditLogOverRealCore: what the pages show and do is in the database and in the log.
func TestAuditLogOverRealCore(t *testing.T) {
	t.Parallel()
	c := startCore(t)
	v := newVisitor(t, c.url)
	if _, page := v.get("/console/audit"); !strings.Contains(page, "The log is empty yet") {
		t.Error("the page of an empty log")
	}
	secret := c.token("ada", tokens.Admin)
	id := c.run(secret, "echo hi")
	v.signIn(secret)
	_, page := v.get("/console/audit/holds")
	form := url.Values{"id": formID.FindStringSubmatch(page)[1:], "kind": {"exec"}, "value": {id}, "reason": {"case <7>"}}
	for _, want := range []int{http.StatusSeeOther, http.StatusConflict} {
		if resp, _ := v.post("/console/audit/holds", "/console/audit/holds", form); resp.StatusCode != want {
			t.Fatalf("a hold: %d, want %d", resp.StatusCode, want)
		}
	}
	holds, err := c.db.Retention().Holds(t.Context(), retention.HoldCursor{}, 10)
	if err != nil || len(holds) != 1 || holds[0].Value != id {
		t.Fatalf("%+v, %v", holds, err)
	}
	if _, page := v.get("/console/audit/holds"); !strings.Contains(page, "case &lt;7&gt;") || !strings.Contains(page, ">ada</a>") ||
		!strings.Contains(page, "No hold was ever released") {
		t.Error("the list of holds")
	}
	if resp, _ := v.post("/console/audit/holds", "/console/audit/holds/"+holds[0].ID+"/release", url.Values{}); resp.StatusCode != http.StatusSeeOther {
		t.Errorf("release: %d", resp.StatusCode)
	}
	if _, page := v.get("/console/audit/holds"); !strings.Contains(page, "No holds") || !strings.Contains(page, "hold_removed") {
		t.Error("the list of released holds")
	}
	if _, page := v.get("/console/audit/retention"); !strings.Contains(page, "30 days") || !strings.Contains(page, "There was no run yet") {
		t.Error("the page of retention")
	}

	resp, export := v.get("/console/audit/export/file?project_id=demo")
	var end struct {
		Type    string            `json:"type"`
		Records int               `json:"records"`
		Asked   map[string]string `json:"parameters"`
	}
	lines := strings.Split(strings.TrimSpace(export), "\n")
	if err := json.Unmarshal([]byte(lines[len(lines)-1]), &end); err != nil || resp.StatusCode != http.StatusOK || end.Type != "secbox/audit-export-end@v1" ||
		end.Records != 1 || end.Asked["project_id"] != "demo" || !strings.Contains(lines[0], id) {
		t.Errorf("%d, %s, %v", resp.StatusCode, export, err)
	}
	got := c.events()
	for _, want := range []string{"hold_added by ada", "hold_removed by ada", "export by ada"} {
		if !slices.Contains(got, want) {
			t.Errorf("events %q lack %s", got, want)
		}
	}
	if n := len(slices.DeleteFunc(slices.Clone(got), func(e string) bool { return e != "export by ada" })); n != 2 { // it begins, and is complete
		t.Errorf("%d events of an export", n)
	}

	if _, err := c.log.Step(t.Context()); err != nil {
		t.Fatal(err)
	}
	state, err := c.db.TransparencyLog().State(t.Context())
	must(t, err)
	_, page = v.get("/console/audit")
	if root := shownRoot.FindStringSubmatch(page); root == nil || root[1] != state.Root.String() || !strings.Contains(page, state.VerifierKey) ||
		!strings.Contains(page, `title="`) {
		t.Errorf("the page shows the root %v of %s", root, state.Root)
	}
	if _, text := v.get("/console/audit/checkpoint"); text != state.Checkpoint {
		t.Errorf("%q, want %q", text, state.Checkpoint)
	}
	if _, text := v.get("/console/audit/key"); text != state.VerifierKey+"\n" {
		t.Errorf("%q, want %q", text, state.VerifierKey)
	}
	events, err := c.db.AdminEvents().List(t.Context(), admin.Filter{Kind: admin.HoldAdded}, nil, 1)
	must(t, err)
	if resp, proof := v.get(fmt.Sprintf("/console/audit/events/%d/proof", events[0].Seq)); resp.StatusCode != http.StatusOK ||
		!strings.Contains(proof, holds[0].ID) {
		t.Errorf("the proof: %d, %s", resp.StatusCode, proof)
	}
	if _, page := v.get("/console/audit/events?kind=hold_added&since=1h"); strings.Count(page, "Proof of event") != 1 ||
		!strings.Contains(page, "case &lt;7&gt;") {
		t.Error("the events of holds")
	}
}

// TestHoldsWithBrowser: in a browser, filters of events replace the table, and an admin places and
// releases a hold.
func TestHoldsWithBrowser(t *testing.T) {
	f := fullApp()
	f.audit.holds = nil
	b := open(t, f.serve(t))
	b.visit("/console/audit/events")
	b.do(chromedp.SetValue("#f-kind", "download"), chromedp.Click("#filters button.main"), chromedp.WaitNotPresent("#results .pager a"))
	if n := eval[int](b, `document.querySelectorAll("#results tbody tr").length`); n != 1 ||
		run(b, chromedp.Location()) != b.url+"/console/audit/events?kind=download" {
		t.Errorf("%d rows at %s", n, run(b, chromedp.Location()))
	}
	b.visit("/console/audit/holds")
	b.do(chromedp.SendKeys("#f-reason", "case 7"), chromedp.Click("#new button.main"), chromedp.WaitVisible("#p-value"))
	if kept := eval[string](b, `document.querySelector("#f-reason").value`); kept != "case 7" || len(f.audit.holds) != 0 {
		t.Errorf("the form has the reason %q", kept)
	}
	b.do(chromedp.SetValue("#f-kind", "project"), chromedp.SendKeys("#f-value", "demo"), chromedp.Click("#new button.main"),
		chromedp.WaitVisible("tbody summary"))
	b.do(chromedp.Click("tbody summary"), chromedp.WaitVisible("tbody button.danger"), chromedp.Click("tbody button.danger"), chromedp.WaitVisible(".empty"))
	if text := b.text(); len(f.audit.holds) != 0 || !strings.Contains(text, "No holds") {
		t.Errorf("%+v: %s", f.audit.holds, text)
	}
}

// TestReportPage: a link leads to a list that has what the number counts and nothing else, what was
// not counted is said, and the file is of the same span.
func TestReportPage(t *testing.T) {
	t.Parallel()
	f := fullApp()
	f.now = func() time.Time { return clock.Add(time.Hour) }
	v := newVisitor(t, f.serve(t))
	_, page := v.get("/console/audit/report?since=2h&until=30m")
	span := "since=" + url.QueryEscape(clock.Add(-time.Hour).Format(time.RFC3339Nano)) + "&amp;until=" +
		url.QueryEscape(clock.Add(30*time.Minute).Format(time.RFC3339Nano))
	counted := strings.Replace(span, url.QueryEscape(clock.Add(-time.Hour).Format(time.RFC3339Nano)), url.QueryEscape(clock.Format(time.RFC3339Nano)), 1)
	for _, want := range []string{
		"/console/audit/report/file?" + span + `"`, "/console/refused?error_reason=policy_denied&amp;" + counted + `"`,
		"/console/audit/events?kind=token_created&amp;" + counted + `"`, "There is more than was counted.", "at least 57 execs", "expected 3, found 0",
		"/console/audit/events?kind=execs_removed&amp;" + strings.Replace(counted, "until", "subject=audit.retention_days&amp;until", 1) + `"`,
		"does not have 3 events yet", "and found the differences above.",
		`/console/history?kind=all&amp;requested_by=t&amp;` + counted + `">Ada</a>`, `/console/history?kind=all&amp;requested_by=t&amp;` + counted + `">60</a>`,
		`>56</span>`, "user_id=ada\">3 changes</a>", "1 rejected</a>,", "<code>timeout_ms</code>", "since=today", "core-api audit key",
		"is above the ceiling of 1800000", "addr, audit.anchor_dir", "1 workspace",
	} {
		if !strings.Contains(page, want) {
			t.Errorf("no %s", want)
		}
	}
	if resp, file := v.get("/console/audit/report/file?since=2h"); file != "since "+clock.Add(-time.Hour).Format(time.RFC3339)+"\n" ||
		!strings.Contains(resp.Header.Get("Content-Disposition"), "audit-report.jsonl") {
		t.Errorf("%q, %v", file, resp.Header)
	}
	if resp, page := v.get("/console/audit/report?since=x&until=9999-01-01"); resp.StatusCode != http.StatusBadRequest ||
		!strings.Contains(page, `aria-invalid="true"`) || strings.Contains(page, "Who ran what") {
		t.Errorf("a wrong time: %d", resp.StatusCode)
	}
	if resp, _ := v.get("/console/audit/report/file?since=1h&until=2h"); resp.Header.Get("Location") != "/console/audit/report?since=1h&until=2h" {
		t.Errorf("a file of no span: %d", resp.StatusCode)
	}
	*f.audit.unproven = report.Unproven{}
	f.records, f.audit.events = nil, nil
	if _, page := v.get("/console/audit/report"); !strings.Contains(page, "Nothing was run.") || !strings.Contains(page, "Nothing changed.") ||
		!strings.Contains(page, "No request was refused.") ||
		!strings.Contains(page, "compared only the newest 64 entries of the transparency log "+
			"until the end of this time with the database, and found no difference") {
		t.Error("the report of a time without anything")
	}
	f.audit.unproven = nil
	if resp, _ := v.get("/console/audit/report"); resp.StatusCode != http.StatusServiceUnavailable {
		t.Errorf("without a database: %d", resp.StatusCode)
	}
	f.caller.Role = tokens.Worker
	for _, path := range []string{"", "/file"} {
		if resp, _ := newVisitor(t, f.serve(t)).get("/console/audit/report" + path); resp.StatusCode != http.StatusForbidden {
			t.Errorf("as a worker: %d", resp.StatusCode)
		}
	}
}

// omissions are four refused requests of a token; three records count others without rows.
func omissions(token string) (list []audit.Record) {
	for i, detail := range []string{
		"161 refused requests of this token from 2026-11-23T11:00:00Z to 2026-11-23T11:00:59Z have no rows: a token gets 60 such rows at once, and 10 a minute",
		"1079 refused requests of this token from 2026-11-23T12:00:00Z to 2026-11-23T12:00:59Z have no rows: a token gets 60 such rows at once, and 10 a minute",
		"something else", "",
	} {
		list = append(list, audit.Record{
			ExecID: execID(i + 1), Kind: audit.KindExec, Status: audit.Rejected, ErrorReason: audit.RefusalsOmitted, Detail: detail, RequestedBy: token,
			CreatedAt: clock.Add(-time.Duration(i) * time.Second), Args: []string{}, EnvKeys: []string{},
		})
	}
	list[3].ErrorReason, list[3].Detail, list[3].ProjectID = audit.Forbidden, "no", "demo"
	return list
}

// TestRefusedRequestsWithoutRows: the report and the list of refused requests say how many requests
// have no rows of their own, and who sent them.
func TestRefusedRequestsWithoutRows(t *testing.T) {
	t.Parallel()
	f := fullApp()
	f.records = omissions("t")
	for i := range 6 {
		r := f.records[3]
		r.ExecID, r.Detail = execID(10+i), strings.Repeat("x", i+1)
		f.records = append(f.records, r)
	}
	f.records[4].Detail = f.records[3].Detail
	v := newVisitor(t, f.serve(t))
	_, page := v.get("/console/audit/report")
	for _, want := range []string{
		"<p>1,248 refused requests, 1,241 of them without rows of their own.</p>", ": 1,248 refused requests, 1,241 of them without rows of their own</span>",
		`1,241 <span class="note">without rows of their own, counted by <a href="/console/refused?error_reason=refusals_omitted&amp;`, ">3 rows</a>",
		`<td class="num" data-label="Rows with it">2</td>`, "and 1 older message",
	} {
		if !strings.Contains(page, want) {
			t.Errorf("no %s", want)
		}
	}
	if _, page := v.get("/console/refused"); !strings.Contains(page, "1,241 further refused requests have no rows.") {
		t.Error("the list does not say what its rows count")
	}
	f.records = f.records[3:]
	if _, page := v.get("/console/refused"); strings.Contains(page, "have no rows") {
		t.Error("the rows that are listed count no others")
	}
}

// TestProofMark: the title of an exec says how it stands to the log, and who has witnessed that.
func TestProofMark(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		standing translog.Standing
		want     []string
		not      string
	}{
		"proven": {
			translog.Standing{Index: 7, LoggedAt: clock, Witnesses: []translog.Witnessed{
				{Name: "example.com/w1", Has: true, Entries: 2216, At: clock.Add(time.Hour), Key: "example.com/w1+1234abcd+AbCd"},
				{Name: "example.com/w2"},
			}},
			[]string{
				">in the log<", "since", "witnessed by 1 of 2", `title="cosigned by example.com/w1"`, "for a log of 2,216 entries",
				clock.Add(time.Hour).UTC().Format("2006-01-02 15:04:05"), "--key log.pub --witness-key example.com/w1+1234abcd+AbCd<",
			},
			"not in the log",
		},
		"without witnesses": {translog.Standing{Index: 7, LoggedAt: clock}, []string{">in the log<", "no witness is asked"}, "witnessed by"},
		"not witnessed": {
			translog.Standing{Index: 7, LoggedAt: clock, Witnesses: []translog.Witnessed{{Name: "w"}}},
			[]string{"witnessed by 0 of 1", "no witness has cosigned it since"},
			"--witness-key",
		},
		"not yet": {translog.Standing{Index: -1}, []string{">not in the log yet<"}, "witnessed by"},
		"altered": {
			translog.Standing{Index: 7, LoggedAt: clock, Differences: []translog.Difference{{What: "exit_code"}}},
			[]string{">altered<"},
			">in the log<",
		},
	} {
		f := fullApp()
		f.standing = c.standing
		page := get(t, f.serve(t)+"/console/execs/"+execID(2))
		for _, want := range c.want {
			if !strings.Contains(page, want) {
				t.Errorf("%s: no %q", name, want)
			}
		}
		if strings.Contains(page, c.not) {
			t.Errorf("%s: there is %q", name, c.not)
		}
	}
}

// TestEventsByName: the filters take the words that the list shows. A name that several have lists
// the events of all, each of them once, and leads to the list of each.
func TestEventsByName(t *testing.T) {
	t.Parallel()
	c := startCore(t)
	v := newVisitor(t, c.url)
	v.signIn(c.token("audra", tokens.Auditor))
	ids := []string{}
	for i, by := range []admin.Actor{
		{Type: admin.ByCommand, ID: admin.CommandID, Name: "root"},
		{Type: admin.ByCommand, ID: admin.CommandID, Name: "ops"},
	} {
		for range 2 {
			tok, _, err := c.tokens.Create(admin.By(t.Context(), by), tokens.Spec{Name: fmt.Sprint("ci", i), Role: tokens.Worker})
			must(t, err)
			ids = append(ids, tok.ID)
		}
	}
	must(t, admin.Record(admin.By(t.Context(), admin.Caller(ids[0], "ci0")), c.db.AdminEvents(), admin.Export, "csv", nil))
	for path, want := range map[string]int{
		"actor=root": 2, "actor=ops": 2, "actor=core-api": 4, "actor=audra": 1, "actor=ci0": 1, "actor=" + ids[0]: 1, "actor=nobody": 0,
		"subject=ci0": 2, "subject=ci1": 2, "subject=audra": 2, "subject=" + ids[3]: 1, "subject=csv": 1, "subject=nobody": 0,
		"actor=root&subject=ci0": 2, "actor=root&subject=ci1": 0, "actor=audra&subject=audra": 1, "actor=ci0&kind=export": 1,
	} {
		_, page := v.get("/console/audit/events?" + path)
		if n := strings.Count(page, "Proof of event"); n != want || strings.Contains(page, "No event matches") != (want == 0) {
			t.Errorf("%s: %d events, want %d", path, n, want)
		}
		// the API knows no names
		if ofIDs := strings.Contains(path, ids[0]) || strings.Contains(path, ids[3]); ofIDs && !strings.Contains(page, "Repeat with curl") ||
			want > 0 && strings.Contains(path, "ci") && strings.Contains(page, "Repeat with curl") {
			t.Errorf("%s: the command for curl", path)
		}
	}
	_, page := v.get("/console/audit/events?subject=ci0")
	for _, id := range ids[:2] {
		if !strings.Contains(page, "token ci0 (…"+id[len(id)-4:]+`): <a href="/console/audit/events?subject=`+id+`"`) {
			t.Errorf("no list of %s alone", id)
		}
	}
}

// TestSearchEventHasNoPage: the event of a search in output is about no single exec.
func TestSearchEventHasNoPage(t *testing.T) {
	t.Parallel()
	f := newFake()
	f.audit.events = []admin.Event{event(1, admin.Download, admin.Searched, "{}")}
	if page := get(t, f.serve(t)+"/console/audit/events"); strings.Contains(page, "/console/execs/search") || !strings.Contains(page, ">search<") {
		t.Error("the subject of a search is a link, or missing")
	}
}

// TestWitnessesFit: on a laptop's screen, no column of the table of witnesses is hidden.
func TestWitnessesFit(t *testing.T) {
	f := fullApp()
	f.report.AuditLog.Witnesses[0].Entries = 2_976_933
	b := open(t, f.serve(t))
	b.do(chromedp.EmulateViewport(1366, 768))
	b.visit("/console/audit")
	if hidden := eval[int](b, `(e => e.scrollWidth - e.clientWidth)(document.querySelector("#witnesses .scroll"))`); hidden > 0 {
		t.Errorf("%d pixels of the table are hidden", hidden)
	}
}
