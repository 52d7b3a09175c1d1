package console_test

import (
	"database/sql"
	"encoding/json"
	"errors"
	"html"
	"net/http"
	"net/url"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"secbox/access/tokens"
	"secbox/audit"
	"secbox/audit/retention"
	"secbox/console/view"
	"secbox/fault"
	"secbox/health"
	"secbox/policy"
	"secbox/replay"
	"secbox/runner/webhooks"
)

// tags are the elements of a page, and all space.
var tags = regexp.MustCompile(`(<[^>]*>|\s)+`)

// textOf returns the text of a page.
func textOf(page string) string { return html.UnescapeString(tags.ReplaceAllString(page, " ")) }

// says checks what a page says, and what it must not say. Elements and spaces count as one space.
func says(t *testing.T, page string, want, not []string) {
	t.Helper()
	text := textOf(page)
	for _, w := range want {
		if !strings.Contains(text, w) {
			t.Errorf("the page does not say %q", w)
		}
	}
	for _, n := range not {
		if strings.Contains(text, n) {
			t.Errorf("the page says %q", n)
		}
	}
	if t.Failed() {
		t.Log(text)
	}
}

// TestFalsifiedExec: the page of an exec whose row or events were changed in the database names
// what differs, and no longer says that they are proven.
func TestFalsifiedExec(t *testing.T) {
	t.Parallel()
	c := startCore(t)
	id := c.run("", "true")
	db, err := sql.Open("sqlite", filepath.Join(c.dir, "core.db"))
	must(t, err)
	defer db.Close()
	change := func(statement string, args ...any) {
		_, err := db.ExecContext(t.Context(), statement, args...)
		must(t, err)
	}
	v := newVisitor(t, c.url)
	page := func() string {
		_, body := v.get("/console/execs/" + id)
		return body
	}
	says(t, page(), []string{"does not have the newest event yet"}, []string{"is not what its events"})
	_, err = c.log.Step(t.Context())
	must(t, err)
	proven := []string{
		"has every event of this exec, the newest as entry", "and the record is what they say", "the tree that the newest checkpoint signs",
		"secbox audit check " + id + ".proof.json --key log.pub", "core-api audit key",
	}
	says(t, page(), proven, []string{"was changed, and not by core-api"})
	change("UPDATE sandbox_execs SET exit_code = 7 WHERE exec_id = ?", id)
	falsified := page()
	says(t, falsified, []string{
		"was changed, and not by core-api: exit_code: expected 0, found 7",
		"The database is not as the log says: exit_code: expected 0, found 7",
	}, []string{"has every event"})
	if strings.Index(falsified, "exit_code: expected 0") > strings.Index(falsified, `id="command"`) {
		t.Error("the warning is not at the top")
	}
	change("DROP TRIGGER sandbox_exec_events_no_update")
	change("DROP TRIGGER sandbox_exec_events_no_delete")
	change("UPDATE sandbox_exec_events SET data = replace(data, '\"exit_code\":0', '\"exit_code\":7') WHERE exec_id = ?", id)
	says(t, page(), []string{"(ended): expected the event of entry", "found another one"}, []string{"has every event"})
	change("DELETE FROM sandbox_exec_events WHERE exec_id = ?", id)
	says(t, page(), []string{"events: expected at least one, found none"}, []string{"has every event"})
}

// TestStoppedLog: while signing is stopped, the page says so, and does not ask to try again.
func TestStoppedLog(t *testing.T) {
	t.Parallel()
	f := newFake().fill(1)
	f.standing.Index = -1
	f.report.Problems = []health.Problem{{Check: "audit_log", Reason: "the database does not have the checkpoint of 12 entries"}}
	page := get(t, f.serve(t)+"/console/execs/"+execID(1))
	says(t, page, []string{"signing is stopped, or behind: the database does not have the checkpoint of 12 entries.", "See the audit log"},
		[]string{"second", "Download the proof"})
	if strings.Contains(page, "data-pending") {
		t.Error("the page goes on asking for the proof")
	}
}

// TestSpooledEnd: the page says that the database does not have the end.
func TestSpooledEnd(t *testing.T) {
	t.Parallel()
	f := newFake().fill(1)
	const notice = "The database does not have the end of this exec."
	says(t, get(t, f.serve(t)+"/console/execs/"+execID(1)), nil, []string{notice})
	f.spooled = true
	says(t, get(t, f.serve(t)+"/console/execs/"+execID(1)), []string{notice}, nil)
}

// TestChangePage: the page of a change says what was done to which file, and no refusal that there
// was not.
func TestChangePage(t *testing.T) {
	t.Parallel()
	before, after := strings.Repeat("1b", 32), strings.Repeat("2a", 32)
	for name, c := range map[string]struct {
		change    func(*audit.Record)
		want, not []string
	}{
		"an edit": {
			func(r *audit.Record) { r.SHA256Before, r.SHA256After = before, after },
			[]string{
				"What changed", "Action changed the file (files.edit)", "Path /workspace/a.txt", "SHA-256 before " + before[:15],
				"SHA-256 after " + after[:15], "Version before no other change of the file is on record",
				"Version after no other change of the file is on record",
			},
			[]string{"Size after"},
		},
		"a new file": {
			func(r *audit.Record) { r.SHA256Before, r.SHA256After, r.SizeAfter = "absent", after, new(int64(2000)) },
			[]string{"Action made the file (files.edit)", "SHA-256 before no file", "Size after 2 KiB (2,000 B)"},
			[]string{"Version before"},
		},
		"not known": {func(r *audit.Record) { r.SHA256After = after }, []string{"SHA-256 before not known"}, nil},
		"an upload": {
			func(r *audit.Record) { r.Cmd, r.SHA256Before = "feishu.upload", before },
			[]string{"SHA-256 of what was sent " + before[:15], "Action sent the file to Feishu"},
			[]string{"SHA-256 before", "Version after"},
		},
		"was refused": {
			func(r *audit.Record) { r.Status, r.SHA256After, r.StartedAt = audit.Rejected, after, time.Time{} },
			[]string{"What was to change", "SHA-256 asked for", "Action was to change the file, and did not"},
			[]string{"SHA-256 after", "Version after", "no command was started"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := newFake().fill(1)
			r := &f.records[0]
			r.Kind, r.Cmd, r.Args, r.PolicySnapshot, r.Status = audit.KindChange, "files.edit", []string{"/workspace/a.txt"}, nil, audit.Succeeded
			c.change(r)
			says(t, get(t, f.serve(t)+"/console/execs/"+execID(1)), c.want,
				append(c.not, "was refused before", "policy is on record", "Nothing was written", "Interpreter", "no input files", "Resources", "not an exec"))
		})
	}
}

// TestProofWithoutKey: a node that cannot verify the log's signature says so.
func TestProofWithoutKey(t *testing.T) {
	t.Parallel()
	f := newFake().fill(1)
	f.standing.Unsigned = errors.New("no key")
	says(t, get(t, f.serve(t)+"/console/execs/"+execID(1)), []string{"could not verify the signature"}, []string{"the newest checkpoint signs"})
}

// TestLostExec: the page says what is not known of an exec whose end was not reported.
func TestLostExec(t *testing.T) {
	t.Parallel()
	f := newFake().fill(1)
	rec := &f.records[0]
	rec.Status, rec.ErrorReason, rec.ExitCode, rec.StdoutBytes, rec.DurationMS, rec.PolicySnapshot = audit.Lost, audit.NodeLost, nil, 0, 0, defaultPolicy()
	page := get(t, f.serve(t)+"/console/execs/"+execID(1))
	says(t, page, []string{
		"It is not known what the command wrote", "It is not known whether the job left artifacts", "Time not known 1 min 00 s –",
		"Memory not known", "Ran not known",
	},
		[]string{"Nothing was written", "left no artifacts", "Time 0 ms", "0 %", "within the limit"})
}

// TestRunningResources: what an exec uses is not on record before its end.
func TestRunningResources(t *testing.T) {
	t.Parallel()
	f := newFake().fill(1)
	rec := &f.records[0]
	rec.Status, rec.ExitCode, rec.EndedAt, rec.DurationMS, rec.PolicySnapshot = audit.Running, nil, time.Time{}, 0, defaultPolicy()
	says(t, get(t, f.serve(t)+"/console/execs/"+execID(1)), []string{"Time – 1 min 00 s –", "Memory –", "when the exec has ended"},
		[]string{"0 ms 1 min", "0 %", "within the limit", "left no artifacts"})
}

// TestMemoryExceeded: one time is not "1 times".
func TestMemoryExceeded(t *testing.T) {
	t.Parallel()
	f := newFake().fill(2)
	for i := range f.records {
		f.records[i].OOMEvents, f.records[i].PolicySnapshot = int64(i+1), defaultPolicy()
	}
	server := f.serve(t)
	says(t, get(t, server+"/console/execs/"+execID(2)), []string{"Memory exceeded once"}, nil)
	says(t, get(t, server+"/console/execs/"+execID(1)), []string{"Memory exceeded 2 times"}, nil)
}

// TestMeasured: CPU time and memory that are on record, and what share of the limit they are.
func TestMeasured(t *testing.T) {
	t.Parallel()
	f := newFake().fill(1)
	rec := &f.records[0]
	rec.PolicySnapshot, rec.DurationMS, rec.CPUUS, rec.MaxRSSBytes = defaultPolicy(), 1000, new(int64(250_400)), new(int64(256<<20))
	says(t, get(t, f.serve(t)+"/console/execs/"+execID(1)), []string{"Memory 256 MiB in its largest process 1 GiB 25 %", "CPU 250 ms of CPU time 1 core 25 %"},
		[]string{"CPU not measured"})
}

// TestWebhookOfExec: the page has the address without its query, the state and what each try got.
func TestWebhookOfExec(t *testing.T) {
	t.Parallel()
	f := fullApp()
	server := f.serve(t)
	says(t, get(t, server+"/console/execs/"+execID(2)),
		[]string{
			"Webhook Address https://hooks.example.com/secbox State due: it is repeated", "Next try", "Tries 2", "500 Internal Server Error 12 ms",
			`<b>no answer</b>`, "15.0 s",
		}, []string{"hunter2"})
	says(t, get(t, server+"/console/execs/"+execID(4)), nil, []string{"Webhook"})
	f.callback.Attempts++ // one that has not ended
	says(t, get(t, server+"/console/execs/"+execID(2)), []string{"being sent", "Tries 3"}, []string{"Next try"})
	for state, want := range map[webhooks.State]string{webhooks.Open: "waits for the end", webhooks.Delivered: "delivered", webhooks.Failed: "no try is left"} {
		f.callback.State = state
		says(t, get(t, server+"/console/execs/"+execID(2)), []string{want}, []string{"Next try"})
	}
}

// TestUnmeasured: the page says which limits have no measurement, and that processes reached
// theirs; the timeline says how its times differ.
func TestUnmeasured(t *testing.T) {
	t.Parallel()
	f := newFake().fill(2)
	f.records[0].PolicySnapshot, f.records[1].PolicySnapshot = defaultPolicy(), defaultPolicy()
	f.records[1].Status, f.records[1].ErrorReason = audit.Failed, audit.PIDsLimit
	server := f.serve(t)
	says(t, get(t, server+"/console/execs/"+execID(2)), []string{
		"CPU not measured 1 core", "Processes not measured 256", "/tmp not measured 256 MiB",
		"The command itself ran 1.0 s, from 0 ms after “created” on.",
	}, nil)
	says(t, get(t, server+"/console/execs/"+execID(1)), []string{"Processes at the limit 256"}, nil)
}

// TestOmittedRefusals: a row that counts refused requests names no command, and its page has none.
func TestOmittedRefusals(t *testing.T) {
	t.Parallel()
	f := newFake().fill(1)
	r := &f.records[0]
	r.Status, r.ErrorReason, r.Cmd, r.Args, r.PolicySnapshot = audit.Rejected, audit.RefusalsOmitted, "", nil, nil
	r.Detail = "7 refused requests of this token have no rows"
	server := f.serve(t)
	for _, path := range []string{"/console/execs/" + execID(1), "/console/history"} {
		page := get(t, server+path)
		says(t, page, []string{"refusals without rows"}, []string{"''", "What was to run"})
		if strings.Contains(page, `"#command"`) {
			t.Errorf("%s leads to a command", path)
		}
	}
}

// TestLimitsHaveNames: a limit has a name for readers and its unit, not the policy's name.
func TestLimitsHaveNames(t *testing.T) {
	t.Parallel()
	limits := view.Limits(audit.Record{Status: audit.Running, PolicySnapshot: defaultPolicy()})
	for _, d := range policy.Describe() {
		if slices.ContainsFunc(limits, func(l view.Limit) bool { return l.Name == d.Name }) {
			t.Errorf("limited in console/view/execlimits.go lacks %s", d.Name)
		}
	}
	if len(limits) == 0 {
		t.Error("no limits")
	}
}

// TestSilentExec: one that wrote nothing has one panel instead of two empty ones.
func TestSilentExec(t *testing.T) {
	t.Parallel()
	f := newFake().fill(1)
	f.records[0].StdoutBytes, f.records[0].StderrBytes = 0, 0
	says(t, get(t, f.serve(t)+"/console/execs/"+execID(1)), []string{"Nothing was written, neither"}, []string{"Standard error Nothing"})
}

// TestCutOutput: if the policy kept only a part of an output, each page says so before the text,
// and so does each download link.
func TestCutOutput(t *testing.T) {
	t.Parallel()
	f := newFake().fill(1)
	f.records[0].StdoutBytes, f.records[0].StdoutTruncated = 3<<20, true
	f.output["stdout"] = []byte(strings.Repeat("x", 1<<20))
	server := f.serve(t)
	for _, path := range []string{"", "?shown=0-0", "/output/stdout?from=65536"} {
		says(t, get(t, server+"/console/execs/"+execID(1)+path), []string{"Cut at 1 MiB: 2 MiB were not kept."}, nil)
	}
	says(t, get(t, server+"/console/execs/"+execID(1)), []string{"Download the 1 MiB that were kept"}, nil)
}

// TestRefusedExec: the page of a request that never ran marks what was refused, and tells nothing
// of a run.
func TestRefusedExec(t *testing.T) {
	t.Parallel()
	f := newFake().fill(1)
	resolver, err := policy.New(policy.Config{SettingsDigest: "sha256:s"})
	must(t, err)
	snapshot, refusal := resolver.Resolve(&policy.Layer{Limits: policy.Limits{MemoryMB: new(int64(1 << 20))}},
		policy.Layer{Limits: policy.Limits{TimeoutMS: new(int64(1 << 40)), CPUCores: new(1.0)}}, policy.Host{})
	text, err := json.Marshal(snapshot)
	must(t, err)
	rec := &f.records[0]
	rec.Status, rec.ErrorReason, rec.Detail, rec.PolicySnapshot = audit.Rejected, audit.PolicyDenied, fault.From(refusal).Message, text
	rec.ExitCode, rec.StartedAt, rec.StdoutBytes, rec.DurationMS, rec.Backend = nil, time.Time{}, 0, 0, ""
	page := get(t, f.serve(t)+"/console/execs/"+execID(1))
	says(t, page, []string{
		"What was to run", "no command was started", "refused: the request asked for 305419 h 53 min (1099511627776)",
		"refused: the skill asked for 1 TiB (1048576)",
		"nothing ran under it",
	},
		[]string{"What ran", "Standard output", "Artifacts File", "Resources", "Nothing was written", "left no artifacts", "Backend"})

	_, refusal = resolver.Resolve(nil, policy.Layer{Image: new("evil:latest")}, policy.Host{})
	rec.Image, rec.Detail = "secbox-sandbox:latest", fault.From(refusal).Message
	server := f.serve(t)
	says(t, get(t, server+"/console/execs/"+execID(1)), []string{"Image evil:latest (refused)"}, []string{"Image secbox-sandbox:latest"})
	says(t, get(t, server+"/console/history?columns=image"), []string{"evil:latest (refused)"}, []string{"secbox-sandbox:latest"})
}

// TestReplayVerdict: the page of a replay begins with the outcome of the comparison, and its policy
// has the layers of the first exec.
func TestReplayVerdict(t *testing.T) {
	t.Parallel()
	f := newFake().fill(2)
	resolver, err := policy.New(policy.Config{SettingsDigest: "sha256:s"})
	must(t, err)
	all := policy.Layer{Limits: policy.Limits{TimeoutMS: new(int64(60_000)), MemoryMB: new(int64(600))}}
	for i, layers := range [][2]policy.Layer{{{}, all}, {{Limits: policy.Limits{MemoryMB: new(int64(600))}}, {}}} { // the replay, and its first exec
		snapshot, err := resolver.Resolve(&layers[0], layers[1], policy.Host{})
		must(t, err)
		text, err := json.Marshal(snapshot)
		must(t, err)
		f.records[i].PolicySnapshot = text
	}
	f.records[0].ReplayOf = execID(1)
	f.replayer.points = []replay.Point{{What: "status", Equal: replay.Yes}, {What: "stdout", Equal: replay.No}, {What: "work", Equal: replay.Unknown}}
	server := f.serve(t)
	page := get(t, server+"/console/execs/"+execID(2))
	says(t, page, []string{
		"It came out the same in 1 of 3 points; different: standard output; not known: other files in work/.",
		"timeout_ms 1 min 00 s (60000) default as in the first exec", "memory_mb 600 MiB skill as in the first exec",
	}, []string{"manifest"})
	if strings.Index(page, "It came out") > strings.Index(page, `id="command"`) {
		t.Error("the verdict is not at the top")
	}
	f.replayer.points = []replay.Point{{What: "status", Equal: replay.Yes}}
	says(t, get(t, server+"/console/execs/"+execID(2)), []string{"It came out the same in 1 of 1 points."}, nil)
}

// TestCancelAsks: the button asks first, and the page after it says that the end was asked for.
func TestCancelAsks(t *testing.T) {
	t.Parallel()
	f := newFake().fill(1)
	f.records[0].Status, f.records[0].ExitCode = audit.Running, nil
	v := newVisitor(t, f.serve(t))
	path := "/console/execs/" + execID(1)
	_, body := v.get(path)
	if _, rest, asks := strings.Cut(body, `<summary class="button danger">Cancel…</summary>`); !asks || !strings.Contains(rest, `action="`+path+`/cancel"`) {
		t.Errorf("it does not ask: %s", body)
	}
	resp, _ := v.post(path, path+"/cancel", url.Values{})
	if resp.StatusCode != http.StatusSeeOther || len(f.canceled) != 1 {
		t.Fatalf("%d, %q", resp.StatusCode, f.canceled)
	}
	_, body = v.get(resp.Header.Get("Location"))
	says(t, body, []string{"The end of this exec was asked for. It comes in a moment; until then the exec is running.", "Cancel…"}, nil)
	f.records[0].Status = audit.Canceled
	_, body = v.get(resp.Header.Get("Location"))
	says(t, body, nil, []string{"was asked for", "Cancel…"})
}

// TestRequestedBy: the requester leads to its other execs.
func TestRequestedBy(t *testing.T) {
	t.Parallel()
	if page := get(t, newFake().fill(1).serve(t)+"/console/execs/"+execID(1)); !strings.Contains(page, `<a href="/console/history?requested_by=t">Ada</a>`) {
		t.Error("it leads nowhere")
	}
}

// TestHeldExec: the page of an exec names the holds that keep it, and leads an admin to the form
// for one, which is filled in.
func TestHeldExec(t *testing.T) {
	t.Parallel()
	f := newFake().fill(1)
	f.audit.holds = []retention.Hold{{ID: execID(9), Kind: retention.HoldProject, Value: "demo", Reason: "case 2026-17", AddedBy: "t"}}
	v := newVisitor(t, f.serve(t))
	path := "/console/execs/" + execID(1)
	_, page := v.get(path)
	says(t, page, []string{"Holds project demo : case 2026-17 Hold this exec…"}, nil)
	form := "/console/audit/holds?kind=exec&value=" + execID(1)
	if !strings.Contains(page, `href="`+html.EscapeString(form)+`#new"`) {
		t.Error("no link leads to the form")
	}
	_, page = v.get(form)
	if !strings.Contains(page, `<option value="exec" selected>`) || !strings.Contains(page, `value="`+execID(1)+`"`) {
		t.Error("the form is empty")
	}
	says(t, page, []string{"project demo 1 case 2026-17"}, nil)
	f.fill(1000)
	_, page = v.get(form)
	says(t, page, []string{"project demo 1,000 or more case 2026-17"}, nil)
	f.caller.Role = tokens.Auditor
	_, page = v.get(path)
	says(t, page, []string{"case 2026-17"}, []string{"Hold this exec"})
	f.caller.Role = tokens.Worker
	_, page = v.get(path)
	says(t, page, nil, []string{"case 2026-17", "Hold this exec"})
}
