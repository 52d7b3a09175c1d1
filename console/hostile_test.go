package console_test

import (
	"encoding/json"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"
	"unicode"

	"secbox/access/views"
	"secbox/audit"
	"secbox/cluster/nodes"
	"secbox/cluster/samples"
	"secbox/console/view"
	"secbox/health"
	"secbox/replay"
	"secbox/runner"
	"secbox/sandbox/remote"
)

var regexpOlder = regexp.MustCompile(`<a class="button" href="([^"]*cursor=[^"]*)"`)

// hostile are texts that try to run, to leave their element, to hide, and to change what a reader
// sees.
var hostile = []string{
	`<script>window.hacked=1</script>`,
	`"><img src=x onerror="window.hacked=1">`,
	`'><svg/onload=window.hacked=1>`,
	`</pre></code></td></table><h1>Signed out</h1><form action=//evil.example>`,
	`javascript:window.hacked=1`,
	`{{constructor.constructor('window.hacked=1')()}} ${window.hacked=1}`,
	`<div hx-get="/console" hx-trigger="load" hx-on:load="window.hacked=1">`,
	"\u202egpj.exe\u202c \u2066x\u2069 a\u200bb \u00ad \ufeff",
	"\x1b]0;title\x07\x1b[2J\x1b[1A\x1b[31mred\x00\x08\x7f\u0085 \u2028 \u2029",
	"\x1b[" + strings.Repeat("1;", 500) + "m",
	"\xff\xfe invalid \xc3\x28",
	"../../../etc/passwd",
	"%2e%2e/%00?x=1#y",
	"//evil.example/",
	strings.Repeat("W", 3000),
}

// hostileApp returns an application in which every text is s.
func hostileApp(s string) *fakeApp {
	f := fullApp()
	f.caller.Name = s
	f.views.of["t"] = []views.View{{Name: s, Query: s}, {Name: s + " ", Query: "text=" + url.QueryEscape(s)}}
	for i := range f.records {
		r := &f.records[i]
		r.ProjectID, r.TaskID, r.ConversationID, r.AgentID, r.UserID, r.SkillID, r.SkillDigest = s, s, s, s, s, s, s
		r.Image, r.ImageID, r.Cmd, r.Args, r.Cwd, r.EnvKeys = s, s, s, []string{s, s}, s, []string{s}
		r.Inputs = []audit.Input{{Path: s, Size: 1, SHA256: s}}
		r.ErrorReason, r.Detail, r.NodeID, r.Backend, r.Runner, r.RequestedBy, r.IdempotencyKey = audit.Reason(s), s, s, s, s, s, s
		r.ReplayOf, r.InputsKept = s, audit.InputsKept(s)
		asked, _ := json.Marshal(map[string]any{"code": s, "n" + s: s, "list": []string{s}})
		r.Request = string(asked)
	}
	for i := range f.network {
		c := &f.network[i]
		c.Host, c.Address, c.Rule, c.Detail, c.End = s, s, s, s, audit.ConnEnd(s)
	}
	f.fillSessions(s, s)
	f.records[58].Backend = "docker" // else it cannot be replayed, and has no form
	for i := range f.tokens {
		f.tokens[i].Name, f.tokens[i].Projects, f.tokens[i].UserID = s, []string{s, s}, s
	}
	f.records[57].ErrorReason, f.records[57].Detail = audit.PolicyDenied, "timeout_ms: "+s+" is above"
	f.records[57].PolicySnapshot, _ = json.Marshal(map[string]any{"fields": map[string]any{"timeout_ms": map[string]any{
		"value": s, "ceiling": s,
		"ceiling_from": s,
	}}})
	f.recent = func(int) audit.Recent { return hostileMonth(time.Now(), s) }
	f.machines = []remote.RunnerInfo{{UserID: s, Name: s, Version: s, OS: s, Arch: s, Allow: []string{s}, NodeID: s}}
	f.nodes = []nodes.Node{{NodeID: s, Version: s}, {NodeID: "other"}}
	f.latest = map[string]samples.Sample{"other": {Health: samples.Health{Status: s, Problems: []samples.Problem{{Check: s, Reason: s, Remedy: s}}}}}
	f.report = health.Report{
		Status: health.Degraded, NodeID: s, Version: s, DockerVersion: s, WorkspaceRootNative: s,
		Problems: []health.Problem{{Check: s, Reason: s, Remedy: s}},
	}
	f.report.AuditLog = health.AuditLog{Halted: s, Problem: s, Witnesses: []health.AuditWitness{{Name: s, Root: s, Problem: s}}}
	f.pool.NotShared = s
	f.hostileSkills(s)
	f.hostileAudit(s)
	f.fillPeople(s)
	f.people[1].ID = s
	for i := range f.events {
		f.events[i].NodeID, f.events[i].Kind = s, audit.EventKind(s)
	}
	f.replayer.inputs = map[string]string{s: s}
	f.replayer.points = []replay.Point{{What: s, Equal: replay.Equal(s), First: s, Second: s, Why: s}}
	f.files = []runner.Artifact{{Path: s, Size: 1, SHA256: s}}
	f.notKept.NotKept = []runner.NotKept{{Path: s, Size: 1, Why: s}}
	f.output = map[string][]byte{"stdout": []byte(strings.Repeat(s+"\n", 70_000/len(s)+1)), "stderr": []byte(s)}
	return f
}

// TestHostileContent: whatever records, output and names contain, nothing runs, nothing breaks the
// page, and no character is invisible.
func TestHostileContent(t *testing.T) {
	for _, s := range hostile {
		url := hostileApp(s).serve(t)
		for _, page := range pagesUnderTest {
			if strings.Contains(page.path, "?from=") && s != hostile[0] {
				continue // the same parts as on the page of the exec
			}
			body := get(t, url+page.path)
			if i := strings.IndexFunc(body, func(r rune) bool {
				return r != '\n' && r != '\t' && (!unicode.IsPrint(r) || r == unicode.ReplacementChar && !strings.Contains(s, "\xff"))
			}); i >= 0 {
				t.Errorf("%.40q, %s: an invisible character in %q", s, page.name, body[max(0, i-30):min(len(body), i+30)])
			}
		}
	}
	b := open(t, "")
	for _, s := range []string{strings.Join(hostile[:7], " "), strings.Join(hostile[7:14], " "), hostile[14]} {
		app := hostileApp(s)
		b.url = app.serve(t)
		ofExec := strings.Join(strings.Fields(view.PageTitle(app.records[58])), " ")
		for _, path := range []string{
			"/console/history?columns=status,command,reason,project,user,agent,task,conversation,skill,token,backend,node,image",
			"/console/execs/" + execID(2), "/console/refused", "/console/runners", "/console/people", "/console/tokens", "/console/audit",
			"/console/audit/events", "/console/audit/holds", "/console/audit/retention", "/console/skills", "/console/skills/shell.run",
			"/console/packages?agent_id=ag&user_id=ann", "/console/packages/ag/ann/own", "/console/packages/ag/ann/own/file?path=main.py",
			"/console/packages/ag/ann/own/diff", "/console/registry", "/console/registry/skills/csv-report", "/console/overview", "/console/operations",
		} {
			b.visit(path)
			drawn := 0
			switch path {
			case "/console/overview":
				drawn = 2 // its chart, and the part that refreshes itself
			case "/console/runners":
				drawn = 1 // the part that refreshes itself
			case "/console/operations":
				drawn = 1 + numbersOfBusyDay
			}
			got := eval[struct {
				Hacked  bool
				Scripts int
				Odd     int
				Forms   int
				H1      string
				Wide    bool
			}](b, `({Hacked: "hacked" in window, Scripts: document.scripts.length, Odd: document.querySelectorAll("img,svg,iframe,object,embed,base,[onerror],[onload],main [hx-trigger]:not(#newer)").length,
				Forms: [...document.forms].filter(f => new URL(f.action).origin != location.origin).length, H1: [...document.querySelectorAll("h1")].map(h => h.innerText).join("|"),
				Wide: document.documentElement.scrollWidth > innerWidth})`)
			if got.Hacked || got.Scripts != 2 || got.Odd != drawn || got.Forms != 0 || got.Wide ||
				!slices.Contains([]string{
					"History", ofExec, "Refused", "Runners", "People", "Tokens", "Audit log",
					"Administrative events", "Holds", "Retention", "Skills", "shell.run", "Packages", "own", "main.py", "Changes", "Registry", "csv-report",
					"Overview", "Operations",
				}, got.H1) {
				t.Errorf("%.40q, %s: %+v", s, path, got)
			}
		}
	}
}
