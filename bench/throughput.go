package bench

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"secbox/dockercli"
)

// Rates compare execs per second, several at a time, until the last container is gone and the pool is as it was.
type Rates struct {
	Concurrency int       `json:"concurrency"`
	RoundExecs  int       `json:"round_execs"`
	Runtime     string    `json:"runtime,omitempty"` // of core-api's containers, when it is not the engine's default
	CoreAPI     []float64 `json:"core_api_per_second"`
	DockerRun   []float64 `json:"docker_run_per_second"` // by round, as the line above; with the engine's default runtime
	Ratio       float64   `json:"ratio"`                 // of the medians
	PairedRatio float64   `json:"ratio_paired"`          // the median of neighbouring rounds' ratios
	Hits        int       `json:"pool_hits"`
	Misses      int       `json:"pool_misses"`
}

func (x *execs) throughput(ctx context.Context) (*Rates, error) {
	return x.rates(ctx, ColdThroughput, commonProject, Rates{Concurrency: x.Concurrency, RoundExecs: x.RoundExecs}, x.Rounds)
}

// crun is the OCI runtime that starts containers with less work than runc.
const crun = "crun"

// without says why the engine has no containers of an OCI runtime; empty: it has. An engine may name one that cannot run on its machine.
func (x *execs) without(ctx context.Context, runtime string, info dockercli.Info) string {
	if _, named := info.Runtimes[runtime]; !named {
		return fmt.Sprintf("not measured with %[1]s: the engine has no runtime of that name; install the package %[1]s and start the engine with "+
			"`dockerd --add-runtime %[1]s=/usr/bin/%[1]s`, or name it under \"runtimes\" in /etc/docker/daemon.json", runtime)
	}
	r, err := x.plain.next(nothing)
	if err == nil {
		r.args = slices.Insert(r.args, 1, "--runtime", runtime) // after "run"
		_, err = r.start(ctx, nil)
	}
	if err != nil {
		why, _, _ := strings.Cut(err.Error(), "\n")
		return fmt.Sprintf("not measured with %s: %s", runtime, why)
	}
	return ""
}

// closed measures each concurrency, beginning with a full pool.
func (x *execs) closed(ctx context.Context) (out []*Rates, err error) {
	for _, concurrency := range x.ClosedAt {
		fresh := "closed-" + strconv.Itoa(concurrency)
		p, err := x.server.pool(ctx)
		if err != nil {
			return out, because(ctx, err)
		}
		if err := x.fill(ctx, fresh, p.MaxPerKey); err != nil {
			return out, err
		}
		rates, err := x.rates(ctx, Closed, fresh, Rates{
			Concurrency: concurrency, RoundExecs: x.ClosedExecs, Runtime: x.runtime,
		}, x.ClosedRounds)
		if err != nil {
			return out, err
		}
		out = append(out, rates)
	}
	return out, nil
}

func (x *execs) rates(ctx context.Context, section, project string, r Rates, rounds int) (*Rates, error) {
	x.say("%s: %d rounds of %d execs and %d docker runs, %d at a time%s", section, rounds, r.RoundExecs, r.RoundExecs, r.Concurrency, with(r.Runtime))
	before, err := x.server.pool(ctx)
	if err != nil {
		return nil, because(ctx, err)
	}
	full := func(p pool) bool { return p.Idle >= before.Idle }
	ours, theirs, err := alternate(ctx, rounds, leastRounds,
		func(ctx context.Context) (float64, error) {
			begun := time.Now()
			if err := several(ctx, r.RoundExecs, r.Concurrency, func(ctx context.Context, _ int) error {
				_, err := x.server.exec(ctx, project, nothing)
				return err
			}); err != nil {
				return 0, err
			}
			end, err := x.settled(ctx, full)
			return float64(r.RoundExecs) / end.Sub(begun).Seconds(), err
		},
		func(ctx context.Context) (float64, error) {
			var begun time.Time
			err := x.severalPlain(ctx, r.RoundExecs, r.Concurrency, func() { begun = time.Now() })
			return float64(r.RoundExecs) / time.Since(begun).Seconds(), err
		})
	if err != nil {
		return nil, err
	}
	after, err := x.server.pool(context.WithoutCancel(ctx))
	if err != nil {
		return nil, err
	}
	var pairs []float64
	for i := range ours {
		pairs = append(pairs, ours[i]/theirs[i])
	}
	r.CoreAPI, r.DockerRun, r.Ratio, r.PairedRatio = ours, theirs, median(ours)/median(theirs), median(pairs)
	r.Hits, r.Misses = after.Hits-before.Hits, after.Misses-before.Misses
	return &r, nil
}

// with names a runtime that is not the engine's default.
func with(runtime string) string {
	if runtime == "" {
		return ""
	}
	return " with " + runtime
}
