package bench

import (
	"encoding/json"
	"strings"
	"testing"
)

// full is a report with every section.
func full() Report {
	return Report{
		Command: "core-api bench", Machine: Machine{Cores: 2, EngineVersion: "20.10.24", CgroupVersion: "1"},
		Answer: &Answers{CoreAPI: Summary{P50: 180}, DockerRun: Summary{P50: 200}, Ratio: 0.9, Phases: []Phase{{"the job", 5}}, ServerCPU: 4},
		Throughput: &Rates{
			Concurrency: 4, RoundExecs: 24, CoreAPI: []float64{8, 7.9}, DockerRun: []float64{8, 8.1}, Ratio: 0.9, PairedRatio: 0.98,
		},
		Output: &Flood{
			Bytes: 1 << 30, Limit: 1 << 20, CoreAPI: Summary{P50: 2000}, DockerRun: Summary{P50: 1000}, Speed: 0.5, Growth: 5 << 20, Peak: 50 << 20,
		},
		Lists: []Listing{
			{Database: "sqlite", Rows: 1_000_000, Plan: "SEARCH", Pages: -1, Good: true},
			{Database: "postgres", Rows: 1_000_000, Plan: "Limit\n  Index Scan\n", Pages: 55, Good: true},
		},
	}
}

func TestTargets(t *testing.T) {
	t.Parallel()
	cases := []struct {
		name   string
		change func(r *Report)
		missed string // the beginning of what is not reached; empty: all are
	}{
		{"everything at or within its bound", func(*Report) {}, ""},
		{"a slow answer", func(r *Report) { r.Answer.Ratio = 1.001 }, "cold exec of"},
		{"few execs per second", func(r *Report) { r.Throughput.PairedRatio = 0.949 }, "cold execs per second, 4"},
		{"a slow flood", func(r *Report) { r.Output.Speed = 0.49 }, "1 GiB of stdout, 1 MiB kept: speed"},
		{"memory", func(r *Report) { r.Output.Growth = 32 << 20 }, "1 GiB of stdout, 1 MiB kept: growth"},
		{"a bad plan", func(r *Report) { r.Lists[1].Good = false }, "50 execs by task out of 1000000, postgres"},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			r := full()
			c.change(&r)
			list := targets(r)
			if len(list) != 6 {
				t.Fatalf("%d targets", len(list))
			}
			for _, target := range list {
				if missed := c.missed != "" && strings.HasPrefix(target.What, c.missed); target.Reached == missed {
					t.Errorf("%+v", target)
				}
			}
		})
	}
	if list := targets(Report{}); len(list) != 0 {
		t.Errorf("nothing was measured: %+v", list)
	}
	unmeasured := full()
	unmeasured.Output.Peak = 0
	if list := targets(unmeasured); len(list) != 5 {
		t.Errorf("memory that could not be measured: %+v", list)
	}
}

func TestReportInBothForms(t *testing.T) {
	t.Parallel()
	r := full()
	r.Targets = targets(r)
	var text strings.Builder
	if err := r.WriteText(&text); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		"core-api bench\n", "2 cores", "Docker engine 20.10.24", "cgroup v1", "kernel unknown", "ratio of the medians 0.900",
		"| cold exec of `true`, time to the answer, p50 | 180 ms | 200 ms | 0.90× | ≤ 1.00× | reached |",
		"| 50 execs by task out of 1000000, postgres | 0.0 ms | – | index, no sort, 55 pages | index, no sort, ≤ 100 pages | reached |",
	} {
		if !strings.Contains(text.String(), want) {
			t.Errorf("%q is not in\n%s", want, text.String())
		}
	}
	encoded, err := json.Marshal(r)
	if err != nil {
		t.Fatal(err)
	}
	var back Report
	if err := json.Unmarshal(encoded, &back); err != nil || back.Answer.CoreAPI != r.Answer.CoreAPI || len(back.Targets) != 6 {
		t.Errorf("%v %+v", err, back)
	}
	var empty strings.Builder
	if err := (Report{}).WriteText(&empty); err != nil {
		t.Error(err)
	}
}

func TestBinarySize(t *testing.T) {
	t.Parallel()
	for n, want := range map[int64]string{0: "0 B", 1023: "1023 B", 1 << 20: "1 MiB", 3 << 29: "1.5 GiB", 5 << 40: "5120 GiB"} {
		if got := binarySize(n); got != want {
			t.Errorf("%d: %q, want %q", n, got, want)
		}
	}
}

func TestOptionsAreChecked(t *testing.T) {
	t.Parallel()
	if err := Defaults().Check(); err != nil {
		t.Fatal(err)
	}
	for name, change := range map[string]func(*Options){
		"section": func(o *Options) { o.Only = []string{Answer, "speed"} },
		"pairs":   func(o *Options) { o.Pairs = 0 },
		"rows":    func(o *Options) { o.Rows = 49 },
		"limit":   func(o *Options) { o.TimeLimit = 1 },
	} {
		o := Defaults()
		change(&o)
		if err := o.Check(); err == nil {
			t.Errorf("%s: accepted", name)
		}
	}
}
