package bench

import (
	"context"
	"time"
)

// Latency compares the time to the answer of POST /sandbox/execs of one job, its container ready beforehand as far as the pool has one, with
// docker run to its end. What the pool missed is in it.
type Latency struct {
	Job       string   `json:"job"`
	CoreAPI   Summary  `json:"core_api"`
	DockerRun Summary  `json:"docker_run"`
	GoJudge   *Summary `json:"go_judge,omitempty"`
	Ratio     float64  `json:"ratio_p50"`
	RatioP95  float64  `json:"ratio_p95"`
	Hits      int      `json:"pool_hits"`
	Misses    int      `json:"pool_misses"` // by the records
	Phases    []Phase  `json:"phases"`
	ServerCPU float64  `json:"server_cpu_ms"` // of core-api itself for one exec, the refill's share included; 0 where it cannot be measured
}

// latency sums up.
func (x *execs) latency(ctx context.Context, j job, cpu time.Duration, results []result, plain []time.Duration) (Latency, error) {
	records, err := x.records(ctx, results)
	if err != nil {
		return Latency{}, err
	}
	ours := make([]time.Duration, 0, len(results))
	l := Latency{Job: j.name, DockerRun: summarise(plain), Phases: phases(records), ServerCPU: milliseconds(cpu) / float64(len(results))}
	for _, r := range records {
		ours = append(ours, r.took())
		if r.record.Warm {
			l.Hits++
		} else {
			l.Misses++
		}
	}
	l.CoreAPI = summarise(ours)
	l.Ratio, l.RatioP95 = l.CoreAPI.P50/l.DockerRun.P50, l.CoreAPI.P95/l.DockerRun.P95
	return l, nil
}

// serverCPU is the CPU time that core-api itself has used; 0 where it cannot be measured.
func (x *execs) serverCPU() time.Duration {
	own, _, err := cpuOf(x.server.pid())
	if err != nil {
		return 0
	}
	return own
}
