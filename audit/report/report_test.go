package report_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"os"
	"strings"
	"testing"
	"time"

	"secbox/audit"
	"secbox/audit/admin"
	"secbox/audit/report"
	"secbox/fault"
)

// TestReportsDoNotDependOnTheOrder: the same facts in any order are the same report. Only states of
// one exec come in theirs.
func TestReportsDoNotDependOnTheOrder(t *testing.T) {
	t.Parallel()
	span := report.Span{Since: noon, Until: noon.Add(time.Hour)}
	want := ""
	for seed := range uint64(20) {
		b := report.NewBuilder(span)
		for _, i := range rand.New(rand.NewPCG(seed, 0)).Perm(300) {
			at := noon.Add(time.Duration(i) * time.Second)
			b.Exec(report.ExecOf(audit.Record{
				ExecID: fmt.Sprint(i), ProjectID: fmt.Sprint("p", i%150), Status: []audit.Status{audit.Rejected, audit.Failed}[i%2], CreatedAt: at,
				ErrorReason: audit.Reason(fmt.Sprint("r", i%7)), Detail: fmt.Sprint(i),
			}))
			b.Event(admin.Event{
				Seq: int64(i), At: at, Kind: admin.Kinds()[i%len(admin.Kinds())], Subject: fmt.Sprint(i),
				Data: `{"part":"record","entries":{"` + fmt.Sprint(i) + `":[1]}}`,
			})
		}
		got, err := json.Marshal(b.Report())
		if err != nil {
			t.Fatal(err)
		}
		if want == "" {
			want = string(got)
		}
		if string(got) != want {
			t.Fatalf("seed %d:\n%s\nand before:\n%s", seed, got, want)
		}
	}
	if !strings.Contains(want, `"execs":300`) || !strings.Contains(want, `"who_omitted":100`) {
		t.Error(want)
	}
}

// omission is the text of a record that counts refused requests.
const omission = "%d refused requests of this token from 2026-03-04T12:00:00Z to 2026-03-04T12:00:09Z have no rows: " +
	"a token gets 60 such rows at once, and 10 a minute"

// TestRefusedRequestsWithoutRowsCount: a record that stands for several refused requests counts as
// these, in the sum, for its caller and for its reason.
func TestRefusedRequestsWithoutRowsCount(t *testing.T) {
	t.Parallel()
	b := report.NewBuilder(report.Span{Since: noon, Until: noon.Add(time.Hour)})
	add := func(token string, status audit.Status, reason audit.Reason, detail string) {
		b.Exec(report.ExecOf(audit.Record{
			ExecID: fmt.Sprint(b.Size()), RequestedBy: token, Status: status, ErrorReason: reason, Detail: detail, CreatedAt: noon,
		}))
	}
	for range 3 {
		add("a", audit.Rejected, audit.Forbidden, "no")
	}
	add("a", audit.Rejected, audit.RefusalsOmitted, fmt.Sprintf(omission, 161))
	add("a", audit.Rejected, audit.RefusalsOmitted, fmt.Sprintf(omission, 79))
	add("b", audit.Rejected, audit.RefusalsOmitted, fmt.Sprintf(omission, 7))
	add("b", audit.Succeeded, "", "")
	r := b.Report()
	if r.Refusals != (report.Refusals{Requests: 250, Unrecorded: 247}) || r.ByStatus["rejected"] != 6 {
		t.Errorf("%+v", r)
	}
	if len(r.Who) != 2 || r.Who[0].Refusals != (report.Refusals{Requests: 243, Unrecorded: 240}) || r.Who[1].Requests != 7 {
		t.Errorf("%+v", r.Who)
	}
	if len(r.Refused) != 2 || r.Refused[0].Reason != audit.RefusalsOmitted || r.Refused[0].Count != 3 || r.Refused[0].Unrecorded != 247 ||
		r.Refused[1].Refusals != (report.Refusals{Requests: 3}) {
		t.Errorf("%+v", r.Refused)
	}
}

// TestExamplesHaveDifferentMessages: many refusals with one message do not hide a few with another,
// and numbers and ids make no message different.
func TestExamplesHaveDifferentMessages(t *testing.T) {
	t.Parallel()
	b := report.NewBuilder(report.Span{Since: noon, Until: noon.Add(time.Hour)})
	n := 0
	add := func(reason audit.Reason, detail string) {
		n++
		b.Exec(report.ExecOf(audit.Record{
			ExecID: fmt.Sprint(n), Status: audit.Rejected, ErrorReason: reason, Detail: detail, CreatedAt: noon.Add(time.Duration(n) * time.Second),
		}))
	}
	for range 5 {
		add(audit.Forbidden, "the project is not in the token's scope")
	}
	for i := range 68 {
		add(audit.Forbidden, fmt.Sprintf("exec 01a227c%d-2521-7dda: the agent is not in the token's scope", i))
	}
	for i := range 9 {
		add(audit.PolicyDenied, fmt.Sprintf("image: %c is not allowed", 'a'+rune(i)))
	}
	r := b.Report()
	agent, project := r.Refused[0].Examples[0], r.Refused[0].Examples[1]
	if len(r.Refused[0].Examples) != 2 || r.Refused[0].Messages != 2 || agent.ExecID != "73" || agent.Records != 68 ||
		project.ExecID != "5" || project.Records != 5 {
		t.Errorf("%+v", r.Refused[0])
	}
	if images := r.Refused[1]; len(images.Examples) != 5 || images.Messages != 9 || images.Examples[4].ExecID != "78" || images.Examples[4].Records != 1 {
		t.Errorf("%+v", images)
	}
}

// TestBundlesOfTheFirstFormat: a bundle whose report has no refused requests is verified as it is,
// and they are counted.
func TestBundlesOfTheFirstFormat(t *testing.T) {
	t.Parallel()
	file, err := os.ReadFile("testdata/report.jsonl")
	if err != nil {
		t.Fatal(err)
	}
	key, err := os.ReadFile("testdata/report.pub")
	if err != nil {
		t.Fatal(err)
	}
	got, err := report.CheckBundle(bytes.NewReader(file), string(key))
	if err != nil || got.Report.Refusals != (report.Refusals{Requests: 1}) || bytes.Contains(file, []byte("refused_requests")) {
		t.Errorf("%+v, %v", got.Report, err)
	}
	changed := bytes.Replace(file, []byte("too much"), []byte("too mucH"), 1)
	if _, err := report.CheckBundle(bytes.NewReader(changed), string(key)); !fault.Is(err, fault.InvalidProof) ||
		!strings.HasPrefix(fault.From(err).Message, "the file was changed: ") || !strings.Contains(fault.From(err).Message, "does not show which line") {
		t.Errorf("a changed event: %v", err)
	}
}

// TestEveryKindHasAnArea: a new kind of event is in the report, and a change of settings counts as
// a change.
func TestEveryKindHasAnArea(t *testing.T) {
	t.Parallel()
	b := report.NewBuilder(report.Span{Since: noon, Until: noon.Add(time.Hour)})
	for i, kind := range admin.Kinds() {
		b.Event(admin.Event{Seq: int64(i), At: noon, Kind: kind, Data: "{}"})
	}
	b.Event(admin.Event{Seq: 1000, At: noon, Kind: admin.NodeStarted, Data: `{"settings_changed":["addr"]}`})
	b.Event(admin.Event{Seq: 1001, At: noon, Kind: admin.NodeStarted, Data: `[1]`})
	b.Event(admin.Event{Seq: 1002, At: noon.Add(time.Hour), Kind: admin.NodeStarted, Data: `{}`})
	n, changes := int64(0), 0
	for _, e := range b.Report().Events {
		n += e.Count
		if e.Area.Changed() {
			changes++
		}
		if e.Area == report.Other {
			t.Errorf("%s has no area", e.Kind)
		}
	}
	if n != int64(len(admin.Kinds()))+2 || changes != 18 {
		t.Errorf("%d events, %d kinds of changes", n, changes)
	}
}

// TestLongTextsAreCut: what a report holds of a fact is bounded.
func TestLongTextsAreCut(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("é", 5000)
	b := report.NewBuilder(report.Span{Since: noon, Until: noon.Add(time.Hour)})
	b.Exec(report.ExecOf(audit.Record{
		ExecID: long, ProjectID: long, UserID: long, AgentID: long, SkillID: long, RequestedBy: long, Status: audit.Rejected,
		ErrorReason: audit.Reason(long), Detail: long, Kind: audit.Kind(long), CreatedAt: noon,
	}))
	b.Event(admin.Event{
		At: noon, Kind: admin.Kind(long), Subject: long, Data: `"` + long + `"`,
		Actor: admin.Actor{Type: admin.ActorType(long), ID: long, Name: long},
	})
	text, err := json.Marshal(b.Report())
	if err != nil || len(text) > 8<<10 || b.Size() > 8<<10 {
		t.Errorf("%d bytes of JSON, %d held, %v", len(text), b.Size(), err)
	}
}
