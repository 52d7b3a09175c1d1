package console_test

import (
	"fmt"
	"html"
	"net/http"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/chromedp/chromedp"
	"github.com/google/uuid"

	"secbox/access/tokens"
	"secbox/access/views"
	"secbox/api/visible"
	"secbox/audit"
)

var regexpChip = regexp.MustCompile(`<a class="chip" href="([^"]*)" title="Remove this filter">` +
	`<span class="hide">Remove the filter </span>([^<]*): <b>([^<]*)</b>`)

// chipsOf returns the chips of a page, as label and value, with their addresses.
func chipsOf(page string) (names, addresses []string) {
	for _, m := range regexpChip.FindAllStringSubmatch(page, -1) {
		names, addresses = append(names, html.UnescapeString(m[2]+": "+m[3])), append(addresses, html.UnescapeString(m[1]))
	}
	return names, addresses
}

// TestSearch: ids of execs and tasks are found by index, projects and users are named, and commands
// and ids are searched in the newest records. The words that are found once have letters that no id
// has.
func TestSearch(t *testing.T) {
	t.Parallel()
	c := startCore(t)
	first := c.post("", map[string]any{
		"project_id": "alpha", "user_id": "turing", "task_ref": map[string]any{"task_id": "Task-7"}, "exec": map[string]any{"script": "echo one"},
	})
	second := c.post("", map[string]any{"project_id": "beta", "task_ref": map[string]any{"task_id": "Task-7"}, "exec": map[string]any{"script": "exit 3"}})
	third := c.post("", map[string]any{"project_id": "beta", "task_ref": map[string]any{"task_id": "other"}, "exec": map[string]any{"script": "echo Task-7"}})
	v := newVisitor(t, c.url)
	for path, want := range map[string][]string{
		"text=nonzero_EXIT": {second},
		"text=" + first:     {first}, "text=" + strings.ToUpper(first) + "&status=failed&since=1m": {first}, // whatever else
		"text=+Task-7+": {second, first}, "text=Task-7&status=failed": {second}, "text=Task-7&task_id=other": {third},
		"text=task-7": {third, second, first}, "text=ask-7": {third, second, first}, // by words
		"text=ALPH": {first}, "text=turing": {first}, "text=beta": {third, second}, "text=" + first[:18] + "&project_id=alpha": {first},
		"text=nowhere": nil, "text=00000000-0000-7000-8000-000000000000": nil, "status=failed,succeeded": {third, second, first},
		"status=failed&status=succeeded&project_id=beta": {third, second},
	} {
		_, page := v.get("/console/history?" + path)
		if got := execLinks(page); !slices.Equal(got, want) {
			t.Errorf("%s finds %q, want %q", path, got, want)
		}
	}
	for path, want := range map[string]string{
		"text=" + first: "This is the exec with the id", "text=Task-7": "These are the execs of the task Task-7.",
		"text=beta":               `There is a project beta: <a href="/console/history?project_id=beta">`,
		"text=turing&status=lost": "No exec matches",
		"text=turing":             `There is a user turing: <a href="/console/history?user_id=turing">`,
		"text=one":                "1 found. Searched the newest 3 execs of these filters, to the oldest.",
		"text=nowhere&since=1h":   "0 found. Searched the newest 3 execs",
	} {
		if _, page := v.get("/console/history?" + path); !strings.Contains(strings.Join(strings.Fields(page), " "), want) {
			t.Errorf("%s does not say %s: %s", path, want, page)
		}
	}
	_, page := v.get("/console/history?text=Task-7")
	if command := curlOn(t, page); !slices.Equal(execsIn(t, shell(t, command)), []string{second, first}) ||
		!strings.Contains(page, `/console/history/export?format=csv&amp;task_id=Task-7"`) {
		t.Errorf("the page of a task repeats %s", command)
	}
	if _, page := v.get("/console/history?text=" + first); !strings.Contains(shell(t, curlOn(t, page)), `"exec_id":"`+first+`"`) {
		t.Errorf("the page of an exec repeats %s", curlOn(t, page))
	}
}

// TestSearchSeesOwnExecs: a search finds nothing that the caller may not see, by no way.
func TestSearchSeesOwnExecs(t *testing.T) {
	t.Parallel()
	c := startCore(t)
	one, two := c.token("one", tokens.Worker), c.token("two", tokens.Worker)
	foreign := c.post(one, map[string]any{
		"project_id": "secret", "user_id": "eve", "task_ref": map[string]any{"task_id": "hidden"}, "exec": map[string]any{"script": "echo needle"},
	})
	v := newVisitor(t, c.url)
	v.signIn(two)
	for _, text := range []string{foreign, "hidden", "secret", "eve", "needle", "needle&output=on"} {
		_, page := v.get("/console/history?text=" + text)
		if strings.Contains(page, "/console/execs/"+foreign) || strings.Contains(page, "There is a ") || strings.Contains(page, "This is the exec") ||
			strings.Contains(page, "These are the execs") {
			t.Errorf("%s finds the exec of another token", text)
		}
	}
}

// TestSearchLeadsOn: what is no exec of the list, or is not in its record, is one click away.
func TestSearchLeadsOn(t *testing.T) {
	t.Parallel()
	f := newFake().fill(3)
	change, invoke := &f.records[0], &f.records[1]
	change.Kind, change.Cmd, change.Args = audit.KindChange, "files.edit", []string{"/workspace/src/m3.py"}
	invoke.SkillID, invoke.Cmd, invoke.Args = "python.run", "python3", []string{"/workspace/inputs/.skill/" + strings.Repeat("a1", 32) + "/run.py"}
	for id, name := range map[string]string{"0198-dae": "agents-eu", "0198-daf": "agents-eu", "01980000-0000-7000-8000-000000000bbb": "other"} {
		f.tokens = append(f.tokens, tokens.Token{ID: id, Name: name, Role: tokens.Worker})
	}
	server := f.serve(t)
	const files, output, name = "File changes match, too", ">Search in output, too</a>", "none of them has this name"
	for path, want := range map[string][2][]string{
		"text=M3.py":             {{files, `href="/console/history?kind=all&amp;text=M3.py">show them`}, {output}},
		"text=nowhere":           {{"No exec matches", output, "1 of them have the command of a skill"}, {files, "There is a token"}},
		"text=nowhere&output=on": {nil, {output}},
		"user_id=ada":            {{files, "Execs, newest first"}, nil},
		"":                       {nil, {files}},
		"kind=change":            {{"Changes of files, newest first"}, {files}},
		"text=agents-eu": {{
			"There is a token agents-eu (…-dae)", "(…-daf)",
			`href="/console/history?kind=all&amp;requested_by=0198-dae"`,
		}, {"0bbb)"}},
		"requested_by=agents-eu&text=nowhere": {{
			"There is a token agents-eu (…-dae)", "(…-daf)",
			`href="/console/history?requested_by=0198-dae&amp;text=nowhere">all its requests`,
		}, {name}},
		"requested_by=other&text=nowhere":       {{`value="01980000-0000-7000-8000-000000000bbb"`}, {name, "all its requests"}},
		"requested_by=nobody&text=nowhere":      {{name}, nil},
		"requested_by=oidc:a%23b&text=nowhere":  {nil, {name}},
		"requested_by=loopback&text=nowhere":    {nil, {name}},
		"requested_by=" + execID(1) + "&text=x": {nil, {name}},
	} {
		page := get(t, server+"/console/history?"+path)
		for i, texts := range want {
			for _, text := range texts {
				if strings.Contains(page, text) != (i == 0) {
					t.Errorf("%s: has %q: %v", path, text, i == 1)
				}
			}
		}
	}
	f.caller = tokens.Token{ID: "w", Name: "W", Role: tokens.Worker}
	if page := get(t, server+"/console/history?text=agents-eu"); strings.Contains(page, "There is a token") {
		t.Error("a worker learns the name of another token")
	}
}

// TestSearchSaysWhatItFound: a later page denies no find of an earlier one, and a search that only
// changes of files match leads to them.
func TestSearchSaysWhatItFound(t *testing.T) {
	t.Parallel()
	c := startCore(t)
	v := newVisitor(t, c.url)
	c.run("", "true one")
	change := audit.Record{
		ExecID: uuid.Must(uuid.NewV7()).String(), Kind: audit.KindChange, Status: audit.Running, Cmd: "files.edit", Args: []string{"/workspace/src/m3.py"},
		CreatedAt: time.Now(), NodeID: "n",
	}
	_, err := c.db.Audit().Open(t.Context(), change)
	must(t, err)
	c.run("", "true two")

	_, page := v.get("/console/history?text=src/m3.py")
	link := regexp.MustCompile(`<h2>No exec matches, but changes of files match</h2>\s*<p><a class="button main" href="([^"]*)"`).FindStringSubmatch(page)
	if link == nil {
		t.Fatalf("the changes are not the answer: %s", page)
	}
	if _, page := v.get(html.UnescapeString(link[1])); !slices.Equal(execLinks(page), []string{change.ExecID}) || strings.Contains(page, "<details open>") {
		t.Errorf("the link leads to %q", execLinks(page))
	}

	last := func(list string) string { // after all execs
		at := time.Now().Add(-time.Hour)
		return list + "&cursor=" + visible.EncodeCursor(audit.Cursor{CreatedAt: at, ExecID: change.ExecID}, list)
	}
	for list, want := range map[string]string{
		"/console/history?text=one": "No further exec matches", "/console/history?output=on&text=one": "No further exec matches",
		"/console/history?project_id=demo": "No further exec matches", "/console/refused?project_id=demo": "No further refused request matches",
	} {
		_, page := v.get(last(list))
		if !strings.Contains(page, "<h2>"+want+"</h2>") || !strings.Contains(page, "what was found is on the pages before") ||
			strings.Contains(list, "text") && !strings.Contains(page, "0 more found. Searched the next 0 execs") {
			t.Errorf("%s: does not say %s: %s", list, want, page)
		}
	}
	_, page = v.get("/console/history?text=nowhere")
	if !strings.Contains(page, "<h2>No exec matches</h2>") || strings.Contains(page, "further exec matches") {
		t.Error("the first page has a page before it")
	}
}

// TestSearchInOutput: output is searched on request, and a line that the page shows is on record.
func TestSearchInOutput(t *testing.T) {
	t.Parallel()
	c := startCore(t)
	worker := c.token("worker", tokens.Worker)
	found := c.post(worker, map[string]any{"project_id": "demo", "exec": map[string]any{
		"script": "echo first; echo $ODD; cat none", "env": map[string]string{"ODD": "a <b>Needle\u202e"},
	}})
	c.run(worker, "true")
	named := c.run(worker, "true needle")
	v := newVisitor(t, c.url)
	v.signIn(c.token("auditor", tokens.Auditor))
	downloads := func() int { return strings.Count(strings.Join(c.events(), "\n"), "download by auditor") }
	_, page := v.get("/console/history?text=needle")
	if got := execLinks(page); !slices.Equal(got, []string{named}) || downloads() != 0 {
		t.Errorf("without the request: %q, %d downloads", got, downloads())
	}
	_, page = v.get("/console/history?text=needle&output=on")
	if got := execLinks(page); !slices.Equal(got, []string{named, found}) || downloads() != 1 {
		t.Errorf("%q, %d downloads: %s", got, downloads(), page)
	}
	for _, want := range []string{
		`href="/console/execs/` + found + `/output/stdout">stdout</a> <code>a &lt;b&gt;Needle⟨U+202E⟩</code>`,
		"Searched the newest 3 execs of these filters and the first 1 MiB",
	} {
		if !strings.Contains(strings.Join(strings.Fields(page), " "), want) {
			t.Errorf("the page does not say %s: %s", want, page)
		}
	}
	if v.fetch("HEAD", "/console/history?text=needle&output=on", "", ""); downloads() != 2 {
		t.Errorf("the length of the page is not on record: %d downloads", downloads())
	}
	if strings.Contains(page, "/console/history/export") {
		t.Error("it leads to an export, which does not search in output")
	}
	if _, page := v.get("/console/history?text=none&output=on"); !slices.Equal(execLinks(page), []string{found}) || !strings.Contains(page, "/output/stderr") {
		t.Errorf("stderr: %q", execLinks(page))
	}
	if resp, page := v.get("/console/history?text=needle&output=off"); resp.StatusCode != http.StatusBadRequest ||
		!strings.Contains(page, "must be on or left out") {
		t.Errorf("a wrong switch: %d", resp.StatusCode)
	}
}

// TestFilterAddresses: the address of a page has its filters, each chip removes exactly one of
// them, and each value of a row leads to the page with its filter.
func TestFilterAddresses(t *testing.T) {
	t.Parallel()
	c := startCore(t)
	odd := `a b&c=d+"é,;%`
	id := c.post("", map[string]any{
		"project_id": "demo", "user_id": "ada", "task_ref": map[string]any{"task_id": odd}, "conversation_id": "x/y",
		"exec": map[string]any{"script": "exit 3"},
	})
	v := newVisitor(t, c.url)
	asked := url.Values{
		"status": {"failed,lost,timeout"}, "task_id": {odd}, "user_id": {"ada"}, "project_id": {"demo"}, "since": {"7d"}, "until": {"2100-01-01"},
		"kind": {"all"}, "text": {"exit"}, "output": {"on"}, "columns": {"status,task"},
	}
	_, page := v.get("/console/history?" + asked.Encode())
	names, addresses := chipsOf(page)
	want := []string{
		"Search: exit", "Search: in output, too", "Status: failed", "Status: lost", "Status: timeout", "Project: demo", "User: ada", "Task: " + odd,
		"Records of: all", "Since: 7 days ago", "Until: 2100-01-01 (UTC)",
	}
	if !slices.Equal(names, want) || !slices.Equal(execLinks(page), []string{id}) {
		t.Fatalf("chips %q", names)
	}
	for i, address := range addresses {
		_, without := v.get(address)
		left, _ := chipsOf(without)
		rest := slices.Delete(slices.Clone(names), i, i+1)
		if i == 0 {
			rest = rest[1:] // the search in output goes with the text
		}
		if !slices.Equal(left, rest) || !strings.Contains(address, "columns=status%2Ctask") {
			t.Errorf("without %s: %q, want %q", names[i], left, rest)
		}
	}
	_, page = v.get("/console/history?columns=status,command,reason,exit,duration,project,user,agent,task,conversation,skill,token,backend,node,image,output")
	for label, filter := range map[string]string{
		"Status: failed": "status=failed", "Reason: nonzero_exit": "error_reason=nonzero_exit", "Project: demo": "project_id=demo", "User: ada": "user_id=ada",
		"Task: " + odd: url.Values{"task_id": {odd}}.Encode(), "Conversation: x/y": "conversation_id=x%2Fy",
		"Backend: docker": "backend=docker",
	} {
		link := regexp.MustCompile(`<a class="value" href="([^"]*` + regexp.QuoteMeta(html.EscapeString(filter)) + `[^"]*)"`).FindStringSubmatch(page)
		if link == nil {
			t.Errorf("no value leads to %s", filter)
			continue
		}
		_, only := v.get(html.UnescapeString(link[1]))
		if names, _ := chipsOf(only); !slices.Equal(names, []string{label}) || !slices.Equal(execLinks(only), []string{id}) {
			t.Errorf("%s leads to %q", link[1], names)
		}
	}
	for _, q := range []string{"since=15m", "since=1h", "since=today", "since=7d", ""} {
		_, page := v.get("/console/history?" + strings.TrimPrefix(q+"&status=failed", "&"))
		if strings.Count(page, `aria-current="true"`) != 1 || !strings.Contains(page, `<nav aria-label="Time (UTC)"`) {
			t.Errorf("%q: not one current span of time", q)
		}
	}
}

// TestHostileFilters: no value of a filter leaves its place, and each that is taken comes back as
// it is, in the address of every link.
func TestHostileFilters(t *testing.T) {
	t.Parallel()
	v := newVisitor(t, fullApp().serve(t))
	var documents []document
	for _, s := range hostile {
		for _, param := range []string{"project_id", "text", "status", "since", "requested_by"} {
			path := "/console/history?" + url.Values{param: {s}, "kind": {"all"}}.Encode()
			resp, page := v.get(path)
			taken := audit.IsParam(s) && param != "status" && param != "since" ||
				param == "text" && len(s) <= 200 && utf8.ValidString(s) && !strings.Contains(s, "\x00")
			if (resp.StatusCode == http.StatusOK) != taken {
				t.Errorf("%.80s: %d", path, resp.StatusCode)
			}
			if strings.Contains(page, "<script>window") || strings.Contains(page, "<img") || strings.Contains(page, "<h1>Signed") {
				t.Errorf("%.80s: the value is markup", path)
			}
			_, addresses := chipsOf(page)
			if taken && (len(addresses) != 2 || addresses[0] != "/console/history?kind=all") {
				t.Errorf("%.80s: chips %q", path, addresses)
			}
			if taken {
				back, err := url.Parse(addresses[1])
				if err != nil || len(back.Query()) != 1 || back.Query().Get(param) != s {
					t.Errorf("%.80s: the other chip leads to %s", path, addresses[1])
				}
			}
			if param == "project_id" {
				documents = append(documents, document{path, page})
			}
		}
	}
	valid(t, documents)
}

// TestSavedViews: a view is its owner's, has the parameters of the page and nothing else, and is
// bounded.
func TestSavedViews(t *testing.T) {
	t.Parallel()
	c := startCore(t)
	ada, ben := newVisitor(t, c.url), newVisitor(t, c.url)
	ada.signIn(c.token("ada", tokens.Auditor))
	ben.signIn(c.token("ben", tokens.Auditor))
	save := func(v *visitor, name, query string) (*http.Response, string) {
		t.Helper()
		return v.post("/console/history", "/console/history/views", url.Values{"name": {name}, "query": {query}})
	}
	_, page := ada.get("/console/history?status=failed&since=1h")
	query := regexp.MustCompile(`name="query" value="([^"]*)"`).FindStringSubmatch(page)
	if query == nil || html.UnescapeString(query[1]) != "since=1h&status=failed" {
		t.Fatalf("the page saves %q", query)
	}
	resp, _ := save(ada, " <i>failed</i> ", html.UnescapeString(query[1]))
	if to := resp.Header.Get("Location"); resp.StatusCode != http.StatusSeeOther || to != "/console/history?since=1h&status=failed" {
		t.Fatalf("%d, to %s", resp.StatusCode, to)
	}
	own := `href="/console/history?since=1h&amp;status=failed">&lt;i&gt;failed&lt;/i&gt;</a>`
	if _, page := ada.get("/console/history"); !strings.Contains(page, own) {
		t.Errorf("the view is not there: %s", page)
	}
	if _, page := ada.get("/console/history?status=failed&since=1h"); !strings.Contains(page, `aria-current="page">&lt;i&gt;failed`) {
		t.Error("the view is not current on its page")
	}
	if _, page := ben.get("/console/history"); strings.Contains(page, "Saved views") {
		t.Error("another person sees it")
	}
	ben.post("/console/history", "/console/history/views/remove", url.Values{"name": {"<i>failed</i>"}, "query": {""}})
	if _, page := ada.get("/console/history"); !strings.Contains(page, own) {
		t.Error("another person has removed it")
	}
	for _, query := range []string{
		"cursor=x", "stauts=failed", "status=failed&status=lost", "status=nosuch", "status=", "%zz", "since=yesterday", "columns=none",
		"next=//evil.example", "text=" + strings.Repeat("x", 201), "project_id=" + strings.Repeat("x", 300), "output=off",
	} {
		if resp, _ := save(ada, "wrong", query); resp.StatusCode != http.StatusBadRequest {
			t.Errorf("%.40s is saved: %d", query, resp.StatusCode)
		}
	}
	for name, why := range map[string]string{"": "must be 1 to 60 characters", strings.Repeat("é", 61): "must be 1 to 60", "a\tb": "without control"} {
		resp, page := save(ada, name, "status=lost")
		if resp.StatusCode != http.StatusBadRequest || !strings.Contains(page, `id="p-name">`) || !strings.Contains(page, why) ||
			!strings.Contains(page, `name="query" value="status=lost"`) || !strings.Contains(page, `<details id="save-view" class="save" open>`) {
			t.Errorf("%.20q: %d", name, resp.StatusCode)
		}
	}
	for n := range views.MaxPerOwner - 1 {
		save(ada, fmt.Sprint("view ", n), "kind=all")
	}
	if resp, page := save(ada, "one more", "kind=all"); resp.StatusCode != http.StatusBadRequest || !strings.Contains(page, "20 views are saved") {
		t.Errorf("beyond the limit: %d", resp.StatusCode)
	}
	resp, _ = ada.post("/console/history", "/console/history/views/remove", url.Values{"name": {"view 3"}, "query": {"kind=all"}})
	if _, page := ada.get(resp.Header.Get("Location")); strings.Contains(page, "view 3<") || !strings.Contains(page, "view 4<") {
		t.Errorf("after the removal: %d", resp.StatusCode)
	}
}

// TestFiltersAreReadable: no hint in a field is cut, a sentence with a time has no blank before its
// full stop, and a span of the overview is named by its begin.
func TestFiltersAreReadable(t *testing.T) {
	f := fullApp()
	f.barren = true
	b := open(t, f.serve(t))
	for _, width := range []int64{390, 1280, 1366} {
		b.do(chromedp.EmulateViewport(width, 800))
		for _, path := range []string{"history", "refused", "audit/events", "audit/report", "audit/export"} {
			b.visit("/console/" + path)
			cut := eval[[]string](b, `(() => {
				for (const d of document.querySelectorAll("details")) d.open = true;
				const pen = document.createElement("canvas").getContext("2d");
				return [...document.querySelectorAll("input[placeholder]")].filter(i => {
					const s = getComputedStyle(i);
					pen.font = s.fontSize + " " + s.fontFamily;
					return pen.measureText(i.placeholder).width > i.clientWidth - parseFloat(s.paddingLeft) - parseFloat(s.paddingRight);
				}).map(i => i.placeholder);
			})()`)
			if len(cut) > 0 {
				t.Errorf("%s at %d pixels cuts %q", path, width, cut)
			}
		}
	}
	b.visit("/console/refused?since=2026-11-28T15:00:00Z")
	if text := eval[string](b, `document.querySelector(".segments [aria-current]").innerText`); text != "Since 2026-11-28 15:00:00 UTC" {
		t.Errorf("the span is called %q", text)
	}
	b.visit("/console/history?text=x")
	blank := regexp.MustCompile(`UTC\s+[.,;]`)
	if text := eval[string](b, `document.querySelector("#results").innerText`); blank.MatchString(text) || !strings.Contains(text, " UTC. Older ones") {
		t.Errorf("the page says %s", text)
	}
}

// TestHistoryShowsWho: the list says who requested what, and fits a window of 1280 pixels.
func TestHistoryShowsWho(t *testing.T) {
	f := fullApp()
	for i := range f.records {
		r := &f.records[i]
		r.Args, r.ProjectID, r.UserID, r.SkillID = []string{"-lc", strings.Repeat("echo a long line; ", 20)}, "analyst~ana.smith", "ana.smith", "python.run"
		r.Status, r.ErrorReason, r.DurationMS = audit.OOMKilled, audit.PolicyDenied, 187_000
	}
	b := open(t, f.serve(t))
	b.do(chromedp.EmulateViewport(1280, 800))
	b.visit("/console/history")
	type seen struct {
		Who    string
		Hidden int
	}
	got := eval[seen](b, `(t => ({
		Who: t.rows[1].cells[[...t.rows[0].cells].findIndex(c => c.textContent === "Requested by")]?.innerText ?? "",
		Hidden: t.scrollWidth - t.parentElement.clientWidth,
	}))(document.querySelector("#results table"))`)
	if got.Who != "Ada" || got.Hidden > 0 {
		t.Errorf("%+v", got)
	}
}
