package bench

import (
	"context"
	"time"
)

// Answers compare the time to the answer of POST /sandbox/execs with docker run to its end, one at a time.
type Answers struct {
	CoreAPI     Summary `json:"core_api"`
	DockerRun   Summary `json:"docker_run"`
	Ratio       float64 `json:"ratio_p50"`
	PairedRatio float64 `json:"ratio_paired"` // the median of the pairs' ratios: steadier when the machine's load changes
	Phases      []Phase `json:"phases"`
	// CPU time of one exec, in milliseconds; 0 where it cannot be measured.
	ServerCPU    float64 `json:"server_cpu_ms"`     // core-api itself
	ServerCLICPU float64 `json:"server_cli_cpu_ms"` // the docker CLI that core-api starts
	PlainCLICPU  float64 `json:"plain_cli_cpu_ms"`  // the docker CLI of plain docker run
}

func (x *execs) cold(ctx context.Context) (*Answers, error) {
	x.say("cold: %d pairs of POST /sandbox/execs and docker run, one at a time", x.Pairs)
	own, children, cpuErr := cpuOf(x.server.pid())
	results, rans, err := alternate(ctx, x.Pairs, leastPairs,
		func(ctx context.Context) (result, error) {
			r, err := x.server.exec(ctx, commonProject, nothing)
			if err == nil {
				_, err = x.alone(ctx) // the teardown that the answer does not wait for
			}
			return r, err
		},
		func(ctx context.Context) (ran, error) { return x.plainTurn(ctx, nothing) })
	if err != nil {
		return nil, err
	}
	out := &Answers{}
	if ownAfter, childrenAfter, err := cpuOf(x.server.pid()); err == nil && cpuErr == nil {
		out.ServerCPU = milliseconds(ownAfter-own) / float64(len(results))
		out.ServerCLICPU = milliseconds(childrenAfter-children) / float64(len(results))
	}
	var ours, theirs []time.Duration
	var pairs, cpu []float64
	for i := range results {
		ours, theirs = append(ours, results[i].took()), append(theirs, rans[i].took)
		pairs, cpu = append(pairs, float64(results[i].took())/float64(rans[i].took)), append(cpu, milliseconds(rans[i].cpu))
	}
	out.CoreAPI, out.DockerRun = summarise(ours), summarise(theirs)
	out.Ratio, out.PairedRatio, out.PlainCLICPU = out.CoreAPI.P50/out.DockerRun.P50, median(pairs), median(cpu)
	records, err := x.records(ctx, results)
	out.Phases = phases(records)
	return out, err
}
