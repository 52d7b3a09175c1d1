package storetest

import (
	"slices"
	"strings"
	"testing"

	"secbox/audit"
	"secbox/audit/retention"
	"secbox/audit/translog"
)

// requests: an exec has its request wherever it is read, but neither in summaries, events nor
// proofs; and it is removed with its exec.
func requests(t *testing.T, f Fixture) {
	s := f.Audit()
	const text = `{"code":"print('\u202e\u0000')","n":[1,null]}`
	asked := closedExec(t, f, func(r *audit.Record) { r.Request, r.IdempotencyKey = text, "k" })
	other := closedExec(t, f, unchanged)
	if got := mustGet(t, s, asked.ExecID).Request; got != text {
		t.Errorf("Get: %q", got)
	}
	for name, c := range map[string]struct {
		filter audit.Filter
		want   string
	}{
		"whole":            {audit.Filter{}, text},
		"by statuses":      {audit.Filter{Statuses: []audit.Status{audit.Failed, audit.Lost}}, text},
		"with commands":    {audit.Filter{Commands: true, ProjectID: "demo"}, text},
		"only commands":    {audit.Filter{OnlyCommands: true, OldestFirst: true}, text},
		"without commands": {audit.Filter{Summary: true}, ""},
	} {
		list, _, err := s.List(t.Context(), c.filter, nil, 10)
		got := map[string]string{}
		for _, r := range list {
			got[r.ExecID] = r.Request
		}
		if err != nil || len(got) != 2 || got[asked.ExecID] != c.want || got[other.ExecID] != "" {
			t.Errorf("%s: %q, %v", name, got, err)
		}
	}
	for _, e := range mustEvents(t, s, asked.ExecID) {
		if strings.Contains(string(e.Data), "print(") {
			t.Errorf("an event has the request: %s", e.Data)
		}
	}

	twice := in(record(), func(r *audit.Record) { r.Request, r.IdempotencyKey = `{"other":1}`, "k" })
	if taken, err := s.Open(t.Context(), twice); err != nil || taken == nil {
		t.Errorf("a key that is taken: %+v, %v", taken, err)
	}
	odd := closedExec(t, f, func(r *audit.Record) { r.Request = "\x00 \xff'; DROP TABLE x--" })
	if got := mustGet(t, s, odd.ExecID).Request; got != "␀ \uFFFD'; DROP TABLE x--" {
		t.Errorf("%q", got)
	}
	queued := in(record(), func(r *audit.Record) { r.Status, r.Request = audit.Queued, text })
	job := audit.Job{ExpiresAt: base, Sealed: []byte("x")}
	limits := audit.JobLimits{Waiting: 9, WaitingPerToken: 9, Bytes: 99, BytesPerToken: 99}
	if taken, err := enqueueOne(t, s, queued, job, limits); err != nil || taken != nil {
		t.Fatalf("%+v, %v", taken, err)
	}
	if got := mustGet(t, s, queued.ExecID).Request; got != text {
		t.Errorf("of a job: %q", got)
	}
	requestsRemoved(t, f, asked)
}

// requestsRemoved: retention removes a request with its exec.
func requestsRemoved(t *testing.T, f Fixture, asked audit.Record) {
	kept := func() string {
		got, err := f.SQL("SELECT count(*) FROM sandbox_exec_requests")
		if err != nil {
			t.Fatal(err)
		}
		return got
	}
	file, key := logKey(t)
	l := translog.Log{Store: f.TransparencyLog()}
	logAll(t, sequencer(t, l.Store, "n1", file))
	proof, err := l.Prove(t.Context(), mustGet(t, f.Audit(), asked.ExecID))
	if err != nil || strings.Contains(string(proof), "print(") {
		t.Errorf("%s, %v", proof, err)
	}
	verifyLog(t, l.Store, key)
	if n := kept(); n != "3" {
		t.Errorf("%s requests are kept", n)
	}
	beginRun(t, f.Retention())
	if removed := mustRemove(t, f.Retention(), expired(retention.Records), asked.ExecID); !slices.Equal(removed, []string{asked.ExecID}) {
		t.Errorf("removed: %v", removed)
	}
	if n := kept(); n != "2" {
		t.Errorf("%s requests are kept after retention", n)
	}
}
