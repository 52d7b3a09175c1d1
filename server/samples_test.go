//go:build unix

package server

import (
	"maps"
	"slices"
	"strings"
	"testing"

	"secbox/audit"
	"secbox/cluster/samples"
	"secbox/health"
)

// TestServerKeepsItsNumbers: a core-api without an engine keeps a sample that says so, and execs
// that end are counted between two samples.
func TestServerKeepsItsNumbers(t *testing.T) {
	t.Parallel()
	s := startCrawl(t, "").server
	s.recorder().Record(t.Context())
	latest, err := s.db.Samples().Latest(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	kept := latest[s.state.NodeID()]
	if kept.Health.Status != "unavailable" || !slices.ContainsFunc(kept.Health.Problems, func(p samples.Problem) bool {
		return p.Check == "engine" && p.Reason != "" && p.Remedy != ""
	}) {
		t.Errorf("its health: %+v", kept.Health)
	}
	for name, want := range map[samples.Name]int64{
		samples.Slots: int64(s.settings.Sandbox.MaxConcurrentExecs), samples.PoolMax: int64(s.settings.Pool.Max), samples.Running: 0, samples.Queued: 0,
		samples.Commands: 0, samples.Ended: 0, samples.Failed: 0, samples.PoolMisses: 0, samples.Spool: 0,
	} {
		if got, known := kept.Values[name]; !known || got != want {
			t.Errorf("%s: %d, %v; want %d", name, got, known, want)
		}
	}
	if kept.Values[samples.WorkspaceFree] == 0 || kept.Values[samples.StateFree] == 0 || kept.Values[samples.Problems] == 0 {
		t.Errorf("%v", kept.Values)
	}
	report := s.checker.Report(t.Context())
	report.AuditLog = health.AuditLog{Entries: 5, Witnesses: []health.AuditWitness{{Entries: 2}}}
	values := s.sample(report, totals{}).Values
	if got, want := slices.Sorted(maps.Keys(values)), slices.Sorted(slices.Values(samples.Names())); !slices.Equal(got, want) {
		t.Errorf("a sample of all has %v, and the names are %v", got, want)
	}
	before := s.totals()
	s.metrics.Ended(audit.Record{Status: audit.Failed})
	s.metrics.Ended(audit.Record{Status: audit.Succeeded})
	if got := s.totals().since(before); got != (totals{ended: 2, failed: 1}) {
		t.Errorf("counted: %+v", got)
	}
}

// TestSampledHealthIsBounded: of many long problems, a sample has the beginning of the first.
func TestSampledHealthIsBounded(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("ü", 10_000)
	report := health.Report{Status: health.Degraded, Problems: slices.Repeat([]health.Problem{{Check: long, Reason: long, Remedy: long}}, 50)}
	got := sampledHealth(report)
	if len(got.Problems) != sampleProblems || len(got.Problems[0].Check) > sampleText || len(got.Problems[4].Remedy) > sampleText {
		t.Errorf("%d problems of %d bytes", len(got.Problems), len(got.Problems[0].Remedy))
	}
}
