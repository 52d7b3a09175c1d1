package bench

import (
	"encoding/json"
	"strings"
	"testing"

	"secbox/dockercli"
)

// full is a report with every section, everything at its bound.
func full() Report {
	return Report{
		Command: "core-api bench", Machine: Machine{Cores: 2, EngineVersion: "20.10.24", CgroupVersion: "1"},
		Cold: &Answers{CoreAPI: Summary{P50: 180}, DockerRun: Summary{P50: 200}, Ratio: 0.9, Phases: []Phase{{"the job", 5}}, ServerCPU: 4},
		ColdThroughput: &Rates{
			Concurrency: 4, RoundExecs: 24, CoreAPI: []float64{8, 7.9}, DockerRun: []float64{8, 8.1}, Ratio: 0.9, PairedRatio: 0.98,
		},
		Output: &Flood{
			Bytes: 1 << 30, Limit: 1 << 20, CoreAPI: Summary{P50: 2000}, DockerRun: Summary{P50: 1000}, Speed: 0.5, Growth: 5 << 20, Peak: 50 << 20,
		},
		Warm: []Paced{
			{Latency: latencyOf(nothing, 1.0/20, 1.0/10), Pace: 500, Turns: 200, Late: 3},
			{Latency: latencyOf(pythonPrint, 1.0/10, 1), Pace: 500, Turns: 200},
		},
		Uneven: []Spread{
			{Latency: latencyOf(nothing, 1.0/15, 1), Seed: 7, Mean: 500, Projects: 3, Blocks: 5},
			{Latency: latencyOf(pythonPrint, 1.0/15, 1), Seed: 7, Mean: 500, Projects: 3, Blocks: 5},
		},
		Closed: []*Rates{
			{Concurrency: 16, RoundExecs: 200, CoreAPI: []float64{8, 8, 8, 8}, DockerRun: []float64{8, 8, 8, 8}, Ratio: 1, PairedRatio: 0.95, Hits: 30, Misses: 170},
			{Concurrency: 16, RoundExecs: 200, Runtime: "crun", CoreAPI: []float64{9, 9, 9, 9}, DockerRun: []float64{8, 8, 8, 8}, Ratio: 1, PairedRatio: 1.15},
		},
		Burst:  &Bursts{Execs: 32, Idle: 4, CoreAPI: Summary{N: 10, P50: 3300}, DockerRun: Summary{N: 10, P50: 3000}, Ratio: 1.1, Hits: 40, Misses: 280},
		Memory: &Idling{Slots: 32, Slot: Held{PSS: 20_000_000, RSS: 40_000_000}, CoreAPI: Held{RSS: 64<<20 - 1}, CoreAPIPeak: 70 << 20},
		Packages: &Packaged{
			Files: 1000, Upload: Summary{P50: 200}, Unzip: Summary{P50: 100}, UnzipSync: Summary{P50: 150}, UploadRatio: 2, SyncedRatio: 1.3,
			Skills: 500, ListPinned: Summary{P50: 10}, ListCopies: Summary{P50: 50}, FirstSkills: 200, LargeBytes: 512_000, FirstRatio: 1.5,
			FirstSmall: Summary{N: 100}, FirstLarge: Summary{N: 100}, Materialise: Summary{P50: 120}, Copy: Summary{P50: 100}, MaterialiseRatio: 1.2,
			ReadPinned: Summary{P50: 2}, ReadCopy: Summary{P50: 2},
		},
		Sandboxes: &Sandboxed{
			Docker: &Contained{
				Exec: Summary{P50: 7}, PlainExec: Summary{P50: 70}, Ratio: 0.1, AtOnce: 4, Rates: []float64{500}, PlainRates: []float64{50}, PairedRatio: 10,
				Operations: 207,
			},
			Runner: &Linked{
				Exec: Summary{P50: 4}, Start: Summary{P50: 1}, Overhead: 3, Files: 1000, FileBytes: 4096, InFlight: 16, FileRates: []float64{5000},
				Large: Streamed{
					Bytes: 400 << 20, Read: []float64{600 << 20}, Put: []float64{1 << 30}, Write: []float64{600 << 20}, Get: []float64{1 << 30},
					ReadRatio: 0.6, WriteRatio: 0.6, HubPeak: 64<<20 - 1, RunnerPeak: 64<<20 - 1,
				},
			},
		},
		Lists: []Listing{
			{Database: "sqlite", Rows: 1_000_000, Plan: "SEARCH", Pages: -1, Good: true},
			{Database: "postgres", Rows: 1_000_000, Plan: "Limit\n  Index Scan\n", Pages: 55, Good: true},
		},
	}
}

func latencyOf(j job, ratio, p95 float64) Latency {
	return Latency{
		Job: j.name, CoreAPI: Summary{N: 100, P50: 10, P95: 20}, DockerRun: Summary{N: 100, P50: 200, P95: 300}, Ratio: ratio, RatioP95: p95,
		Hits: 99, Misses: 1, Phases: []Phase{{"the job", 5}}, ServerCPU: 3,
	}
}

func TestTargets(t *testing.T) {
	t.Parallel()
	const warm, python = "`bash -lc true`, whole HTTP", "Python `print(1)`, whole HTTP"
	cases := []struct {
		name   string
		change func(r *Report)
		missed string // the beginning of what is not reached; empty: all are
		end    string // its end
	}{
		{"everything at or within its bound", func(*Report) {}, "", ""},
		{"a slow answer", func(r *Report) { r.Cold.Ratio = 1.001 }, "cold exec of", ""},
		{"few execs per second", func(r *Report) { r.ColdThroughput.PairedRatio = 0.949 }, "cold execs per second, 4", ""},
		{"a slow flood", func(r *Report) { r.Output.Speed = 0.49 }, "1 GiB of stdout, 1 MiB kept: speed", ""},
		{"memory", func(r *Report) { r.Output.Growth = 32 << 20 }, "1 GiB of stdout, 1 MiB kept: growth", ""},
		{"a slow warm answer", func(r *Report) { r.Warm[0].Ratio = 1 / 19.9 }, warm, "p50"},
		{"a slow warm answer now and then", func(r *Report) { r.Warm[0].RatioP95 = 1 / 9.9 }, warm, "p95"},
		{"a slow Python", func(r *Report) { r.Warm[1].Ratio = 1 / 9.9 }, python, "p50"},
		{"uneven arrivals", func(r *Report) { r.Uneven[0].Ratio = 1 / 14.9 }, "`bash -lc true`, arrivals uneven (Poisson, mean 2/s, 3", "p50"},
		{"uneven arrivals of Python", func(r *Report) { r.Uneven[1].Ratio = 1 / 14.9 }, "Python `print(1)`, arrivals uneven", "p50"},
		{"a closed loop", func(r *Report) { r.Closed[0].PairedRatio = 0.949 }, "closed loop, concurrency 16, 200 execs", ""},
		{"a closed loop with crun", func(r *Report) { r.Closed[1].PairedRatio = 1.149 }, "closed loop with crun, concurrency 16, 200 execs", ""},
		{"a burst", func(r *Report) { r.Burst.Ratio = 1.101 }, "a burst of 32 at once, pool idle at 4, last answer (median of 10)", ""},
		{"slots", func(r *Report) { r.Memory.Slot.PSS++ }, "memory of 32 idle slots", ""},
		{"core-api's memory", func(r *Report) { r.Memory.CoreAPI.RSS++ }, "memory of core-api", ""},
		{"a slow upload", func(r *Report) { r.Packages.UploadRatio = 2.01 }, "upload of a skill of 1000 files", "1000 files"},
		{"a slow list of copies", func(r *Report) { r.Packages.ListCopies.P50 = 51 }, "list with status of 500 skills, nothing changed, copies", ""},
		{"a first access that depends on size", func(r *Report) { r.Packages.FirstRatio = 1.6 }, "first access to 200", ""},
		{"a first access that opens files", func(r *Report) { r.Packages.FirstOpens = 1 }, "files of skills opened during 200", ""},
		{"a slow copy", func(r *Report) { r.Packages.MaterialiseRatio = 1.21 }, "materialising a skill", ""},
		{"a slow read", func(r *Report) { r.Packages.ReadCopy.P50 = 2.1 }, "content of a small file of a copy", ""},
		{"a slow docker sandbox", func(r *Report) { r.Sandboxes.Docker.Ratio = 0.101 }, "`true` in the docker sandbox", ""},
		{"a docker sandbox for one", func(r *Report) { r.Sandboxes.Docker.PairedRatio = 9.9 }, "the same, 4 at once", ""},
		{"files by processes", func(r *Report) { r.Sandboxes.Docker.Processes = 1 }, "processes that 207 operations on files", ""},
		{"a slow runner", func(r *Report) { r.Sandboxes.Runner.Overhead = 3.01 }, "`true` on a loopback runner", ""},
		{"slow small files", func(r *Report) { r.Sandboxes.Runner.FileRates[0] = 4999 }, "1000 files of 4 KiB read from a runner, 16", ""},
		{"a slow stream", func(r *Report) { r.Sandboxes.Runner.Large.ReadRatio = 0.59 }, "a file of 400 MiB from a runner", ""},
		{"a slow stream there", func(r *Report) { r.Sandboxes.Runner.Large.WriteRatio = 0.59 }, "a file of 400 MiB to a runner", ""},
		{"a large Hub", func(r *Report) { r.Sandboxes.Runner.Large.HubPeak++ }, "memory of the Hub", ""},
		{"a large runner", func(r *Report) { r.Sandboxes.Runner.Large.RunnerPeak++ }, "memory of the runner", ""},
		{"a bad plan", func(r *Report) { r.Lists[1].Good = false }, "50 execs by task out of 1000000, postgres", ""},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			r := full()
			c.change(&r)
			list := targets(r)
			if len(list) != allTargets {
				t.Fatalf("%d targets", len(list))
			}
			missed := 0
			for _, target := range list {
				expected := c.missed != "" && strings.HasPrefix(target.What, c.missed) && strings.HasSuffix(target.What, c.end)
				if expected {
					missed++
				}
				if target.Reached == expected {
					t.Errorf("%+v", target)
				}
			}
			if c.missed != "" && missed != 1 {
				t.Errorf("%d targets are called %s…%s", missed, c.missed, c.end)
			}
		})
	}
	if list := targets(Report{}); len(list) != 0 {
		t.Errorf("nothing was measured: %+v", list)
	}
	unmeasured := full()
	unmeasured.Output.Peak = 0
	unmeasured.Packages.FirstOpens = -1
	unmeasured.Sandboxes.Runner.Large.HubPeak, unmeasured.Sandboxes.Runner.Large.RunnerPeak = 0, 0
	if list := targets(unmeasured); len(list) != allTargets-4 {
		t.Errorf("memory that could not be measured: %+v", list)
	}
}

// allTargets is how many a full report has.
const allTargets = 4 + 4 + 4 + 2 + 1 + 2 + 9 + 3 + 6 + 2

func TestReportInBothForms(t *testing.T) {
	t.Parallel()
	r := full()
	r.NoCrun = (&execs{}).without(t.Context(), "crun", dockercli.Info{})
	r.Targets = targets(r)
	var text strings.Builder
	if err := r.WriteText(&text); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		"core-api bench\n", "2 cores", "Docker engine 20.10.24", "cgroup v1", "kernel unknown", "ratio of the medians 0.900",
		"a turn every 500 ms; 3 of 200 turns started late", "p50 1/20.0 of docker run's, p95 1/10.0", "pool: 99 hits, 1 misses", "(seed 7)",
		"pool: 30 hits, 170 misses", "Closed loop: not measured with crun: the engine has no runtime of that name; install the package crun", "with 4 slots idle", "core-api held at most 70 MiB",
		"| what | core-api | docker run | measured | target | |",
		"| `bash -lc true`, whole HTTP round trip, one turn per 500 ms: p50 | 10.0 ms (1 of 100 missed) | 200 ms | 1/20.0 | ≤ 1/20, stretch 1/30 | reached |",
		"| `bash -lc true`, whole HTTP round trip, one turn per 500 ms: p95 | 20.0 ms | 300 ms | 1/10.0 | ≤ 1/10 | reached |",
		"| `bash -lc true`, arrivals uneven (Poisson, mean 2/s, 3 projects): p95 | 20.0 ms | 300 ms | 1/1.0 | – | reported |",
		"| closed loop with crun, concurrency 16, 200 execs, refill and teardown included, by neighbouring rounds | 9.00/s | 8.00/s | 1.150× | ≥ 1.15× | reached |",
		"| a burst of 32 at once, pool idle at 4, last answer (median of 10) | 3.30 s | 3.00 s | 1.10× | ≤ 1.10× | reached |",
		"| memory of 32 idle slots, whole process tree with shims, by slot | 20.0 MB | – | 20.0 MB | ≤ 20 MB | reached |",
		"| cold exec of `true`, time to the answer, p50 | 180 ms | 200 ms | 0.90× | ≤ 1.00× | reached |",
		"| upload of a skill of 1000 files | 200.0 ms | 100.0 ms (unzip) | 2.00× | ≤ 2.0× | reached |",
		"upload of a skill of 1000 files, which is on the disk then | 200.0 ms | 150.0 ms (unzip, sync -f) | 1.30× | – | reported |",
		"| `true` in the docker sandbox, p50 | 7.0 ms | 70.0 ms (docker exec) | 1/10.0 | ≤ 1/10 | reached |",
		"| the same, 4 at once, by neighbouring rounds | 500/s | 50.0/s (docker exec) | 10.0× | ≥ 10× | reached |",
		"| `true` on a loopback runner, p50 | 4.0 ms | 1.0 ms (os/exec) | +3.0 ms | ≤ +3 ms | reached |",
		"| a file of 400 MiB from a runner, by neighbouring rounds | 600 MiB/s | 1 GiB/s (plain HTTP PUT) | 0.60× | ≥ 0.6× | reached |",
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
	if err := json.Unmarshal(encoded, &back); err != nil || back.Cold.CoreAPI != r.Cold.CoreAPI ||
		back.Warm[0].CoreAPI != r.Warm[0].CoreAPI || len(back.Targets) != allTargets {
		t.Errorf("%v %+v", err, back)
	}
	var empty strings.Builder
	if err := (Report{}).WriteText(&empty); err != nil {
		t.Error(err)
	}
}

// TestColumnsOfTheTargets: go-judge has one where it was measured, and the stretch is named where it was reached.
func TestColumnsOfTheTargets(t *testing.T) {
	t.Parallel()
	r := Report{Warm: []Paced{{Latency: latencyOf(nothing, 1.0/30, 1.0/10), Pace: 500}}}
	r.Warm[0].GoJudge = &Summary{N: 100, P50: 5.4, P95: 6.5}
	r.Targets = append(targets(r), Target{What: "another", CoreAPI: "1", Measured: "1", Wanted: "2"})
	var text strings.Builder
	if err := r.WriteText(&text); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		"go-judge    100  5.4", "| what | core-api | docker run | go-judge | measured | target | |\n| --- | --- | --- | --- | --- | --- | --- |\n",
		": p50 | 10.0 ms (1 of 100 missed) | 200 ms | 5.4 ms | 1/30.0, stretch reached | ≤ 1/20, stretch 1/30 | reached |",
		": p95 | 20.0 ms | 300 ms | 6.5 ms | 1/10.0 | ≤ 1/10 | reached |", "| another | 1 | – | – | 1 | 2 | not reached |",
	} {
		if !strings.Contains(text.String(), want) {
			t.Errorf("%q is not in\n%s", want, text.String())
		}
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
		"section": func(o *Options) { o.Only = []string{Cold, "speed"} },
		"pairs":   func(o *Options) { o.Pairs = 0 },
		"rows":    func(o *Options) { o.Rows = 49 },
		"limit":   func(o *Options) { o.TimeLimit = 1 },
		"pace":    func(o *Options) { o.Pace = 0 },
		"closed":  func(o *Options) { o.ClosedAt = []int{4, 0} },
		"none":    func(o *Options) { o.ClosedAt = nil },
		"execs":   func(o *Options) { o.ClosedExecs = 0 },
		"burst":   func(o *Options) { o.Burst = 1025 },
		"slots":   func(o *Options) { o.Slots = 0 },
		"large":   func(o *Options) { o.LargeBytes = 501 << 20 },
		"judge":   func(o *Options) { o.GoJudge = "localhost:5050" },
	} {
		o := Defaults()
		change(&o)
		if err := o.Check(); err == nil {
			t.Errorf("%s: accepted", name)
		}
	}
}
