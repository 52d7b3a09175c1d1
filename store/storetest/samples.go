package storetest

import (
	"fmt"
	"reflect"
	"strings"
	"testing"
	"time"

	"secbox/cluster/samples"
	"secbox/fault"
)

func addSample(t *testing.T, f Fixture, nodeID string, running int64, problems ...samples.Problem) {
	t.Helper()
	err := f.Samples().Add(t.Context(), samples.Sample{
		NodeID: nodeID, Values: map[samples.Name]int64{samples.Running: running, samples.StateFree: 1 << 62},
		Health: samples.Health{Status: "degraded", Problems: problems},
	})
	if err != nil {
		t.Fatalf("Add(%s): %v", nodeID, err)
	}
}

// shift moves the samples of a node in time.
func shift(t *testing.T, f Fixture, nodeID string, by time.Duration) {
	t.Helper()
	f.mustSQL(t, fmt.Sprintf("UPDATE node_samples SET minute = minute + %d WHERE node_id = '%s'", by/time.Minute, nodeID))
}

// running returns the running execs of a node's samples, oldest first.
func running(t *testing.T, f Fixture, nodeID string) string {
	t.Helper()
	day, err := f.Samples().Day(t.Context(), nodeID)
	if err != nil {
		t.Fatal(err)
	}
	out := []int64{}
	for _, s := range day.Samples {
		out = append(out, s.Values[samples.Running])
		if s.NodeID != nodeID || s.At.After(day.Now) || day.Now.Sub(s.At) >= samples.Shown || time.Since(day.Now).Abs() > 2*time.Minute {
			t.Errorf("a sample of %s, now %s: %+v", nodeID, day.Now, s)
		}
	}
	return fmt.Sprint(out)
}

func samplesOfNodes(t *testing.T, f Fixture) {
	day, err := f.Samples().Day(t.Context(), "n1")
	latest, other := f.Samples().Latest(t.Context())
	if err != nil || other != nil || len(day.Samples) != 0 || !day.Now.IsZero() || len(latest) != 0 {
		t.Errorf("without a sample: %+v, %v, %v, %v", day, err, latest, other)
	}
	addSample(t, f, "n1", 1, samples.Problem{Check: "old"})
	shift(t, f, "n1", -2*time.Minute)
	addSample(t, f, "n2", 7)
	addSample(t, f, "n1", 2)
	addSample(t, f, "n1", 3, samples.Problem{Check: "engine\x00", Reason: "\xff it does not answer", Remedy: "start it"})
	if got := running(t, f, "n1"); got != "[1 3]" && got != "[1 2 3]" { // the minute may have changed meanwhile
		t.Errorf("n1: %s", got)
	}
	if got := running(t, f, "n2"); got != "[7]" {
		t.Errorf("n2: %s", got)
	}
	latest, err = f.Samples().Latest(t.Context())
	if err != nil || len(latest) != 2 || latest["n2"].Values[samples.StateFree] != 1<<62 || latest["n2"].Health.Status != "degraded" {
		t.Fatalf("%+v, %v", latest, err)
	}
	problems := latest["n1"].Health.Problems
	if len(problems) != 1 || !strings.HasPrefix(problems[0].Check, "engine") || problems[0].Remedy != "start it" {
		t.Errorf("the problems of n1: %+v", problems)
	}
	if got, _ := f.SQL("SELECT count(*) FROM node_samples WHERE health LIKE '%old%'"); got != "0" {
		t.Errorf("%s older samples have their problems", got)
	}
	shift(t, f, "n1", -samples.Lately)
	f.mustSQL(t, "UPDATE node_samples SET numbers = 'no = x=1e9 running=99999999999999999999 =', health = '[' WHERE node_id = 'n2'")
	latest, err = f.Samples().Latest(t.Context())
	if err != nil || len(latest) != 1 || len(latest["n2"].Values) != 0 || !reflect.DeepEqual(latest["n2"].Health, samples.Health{}) {
		t.Errorf("of a silent node and of one whose row is damaged: %+v, %v", latest, err)
	}
	if got := running(t, f, "n2"); got != "[0]" {
		t.Errorf("a damaged row: %s", got)
	}
}

func samplesBounded(t *testing.T, f Fixture) {
	for i, age := range []time.Duration{samples.Keep + time.Minute, samples.Keep - time.Hour + time.Minute, samples.Shown - time.Hour} {
		addSample(t, f, "n1", int64(i))
		f.mustSQL(t, fmt.Sprintf("UPDATE node_samples SET node_id = 'old', minute = minute - %d WHERE node_id = 'n1'", age/time.Minute))
	}
	for _, ahead := range []time.Duration{10 * time.Minute, 100 * 24 * time.Hour} {
		addSample(t, f, "n1", 9)
		f.mustSQL(t, fmt.Sprintf("UPDATE node_samples SET node_id = 'old', minute = minute + %d WHERE node_id = 'n1'", ahead/time.Minute))
	}
	rows := func(want string) {
		t.Helper()
		if got, err := f.SQL("SELECT count(*) FROM node_samples WHERE node_id = 'old'"); got != want || err != nil {
			t.Errorf("%s rows, %v; want %s", got, err, want)
		}
	}
	addSample(t, f, "n2", 1)
	rows("2") // one is kept and not shown
	if got := running(t, f, "old"); got != "[2]" {
		t.Errorf("shown: %s", got)
	}
}

func samplesOfManyNodes(t *testing.T, f Fixture) {
	for i := range samples.MaxNodes {
		addSample(t, f, fmt.Sprintf("n%d", i), 1)
	}
	// The minute may change meanwhile.
	f.mustSQL(t, "INSERT INTO node_samples (node_id, minute, numbers, health) SELECT n.node_id, m.minute + d.n, n.numbers, n.health FROM node_samples AS n,"+
		" (SELECT max(minute) AS minute FROM node_samples) AS m, (SELECT 0 AS n UNION SELECT 1) AS d WHERE true ON CONFLICT DO NOTHING")
	err := f.Samples().Add(t.Context(), samples.Sample{NodeID: "one-more"})
	if !fault.Is(err, fault.ServerBusy) {
		t.Errorf("a node too many: %v", err)
	}
	addSample(t, f, "n0", 2)
	if latest, err := f.Samples().Latest(t.Context()); err != nil || len(latest) != samples.MaxNodes {
		t.Errorf("%d nodes, %v", len(latest), err)
	}
}
