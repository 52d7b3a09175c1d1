package bench

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"time"

	"github.com/google/uuid"

	"secbox/engine"
)

// The least that a section needs to say anything when its time limit ends it.
const (
	leastPairs  = 10
	leastRounds = 2
)

// execs is a core-api and the plain side to compare it with.
type execs struct {
	Options
	server *server
	plain  *plain
}

// withExecs starts both sides, warms them up, and takes them down after f.
func withExecs(ctx context.Context, o Options, dir string, f func(*execs)) (err error) {
	s, err := serve(ctx, o, filepath.Join(dir, "server"))
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, s.stop()) }()
	first, err := s.exec(ctx, "true")
	if err != nil {
		return err
	}
	p := &plain{docker: o.Docker, environ: o.Environ, node: uuid.NewString(), dir: filepath.Join(dir, "plain")}
	if err := os.Mkdir(p.dir, 0o700); err != nil {
		return err
	}
	if p.flags, err = flagsOf(filepath.Join(s.dir, "workspace", first.ArtifactsDir)); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, p.clean()) }()
	x := &execs{Options: o, server: s, plain: p}
	if _, err := x.alone(ctx); err != nil {
		return err
	}
	if _, err := x.plainTurn(ctx); err != nil {
		return err
	}
	f(x)
	return nil
}

// alone waits until no container of the server is left and returns since when that is so. The server's docker CLIs end when their
// containers are removed, so it first waits for those: asking docker over and over would take from the machine what is being measured.
func (x *execs) alone(ctx context.Context) (since time.Time, err error) {
	for {
		running, err := childrenOf(x.server.pid())
		if err != nil && !errors.Is(err, errors.ErrUnsupported) {
			return time.Time{}, err
		}
		if running == 0 {
			since = time.Now()
			left, err := x.Docker.Containers(ctx, engine.LabelNode+"="+x.server.node)
			if err != nil || len(left) == 0 {
				return since, err
			}
		}
		select {
		case <-ctx.Done():
			return time.Time{}, context.Cause(ctx)
		case <-time.After(10 * time.Millisecond):
		}
	}
}

// execTurn is one exec; the teardown that its answer does not wait for is over when it returns.
func (x *execs) execTurn(ctx context.Context) (result, error) {
	r, err := x.server.exec(ctx, "true")
	if err == nil {
		_, err = x.alone(ctx)
	}
	return r, err
}

func (x *execs) plainTurn(ctx context.Context) (ran, error) {
	r, err := x.plain.next("true")
	if err != nil {
		return ran{}, err
	}
	return r.start(ctx, nil)
}

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

// Phase is a part of an exec's time to the answer.
type Phase struct {
	Name string  `json:"name"`
	P50  float64 `json:"p50_ms"`
}

func (x *execs) answers(ctx context.Context) (*Answers, error) {
	x.say("answer: %d pairs of POST /sandbox/execs and docker run, one at a time", x.Pairs)
	own, children, cpuErr := cpuOf(x.server.pid())
	results, rans, err := alternate(ctx, x.Pairs, leastPairs, x.execTurn, x.plainTurn)
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
	out.Phases, err = x.phases(ctx, results)
	return out, err
}

// phases tells where the time to the answer goes, by the times in the records; server and client read the same clock.
func (x *execs) phases(ctx context.Context, results []result) ([]Phase, error) {
	var before, starting, running, after []time.Duration
	for _, r := range results {
		record, err := x.server.record(context.WithoutCancel(ctx), r.ExecID) // the time limit was for the measuring
		if err != nil {
			return nil, err
		}
		before = append(before, record.CreatedAt.Sub(r.sent))
		starting = append(starting, record.StartedAt.Sub(record.CreatedAt))
		running = append(running, record.EndedAt.Sub(record.StartedAt))
		after = append(after, r.answered.Sub(record.EndedAt))
	}
	return []Phase{
		{"request read, policy, directories", summarise(before).P50},
		{"row opened, docker run until sandbox-init answers", summarise(starting).P50},
		{"the job, until its exit is reported", summarise(running).P50},
		{"artifacts collected, output published, row closed, answer", summarise(after).P50},
	}, nil
}

// Rates compare execs per second, several at a time, until the last container is gone.
type Rates struct {
	Concurrency int       `json:"concurrency"`
	RoundExecs  int       `json:"round_execs"`
	CoreAPI     []float64 `json:"core_api_per_second"` // by round
	DockerRun   []float64 `json:"docker_run_per_second"`
	Ratio       float64   `json:"ratio"`        // of the medians
	PairedRatio float64   `json:"ratio_paired"` // the median of neighbouring rounds' ratios
}

func (x *execs) throughput(ctx context.Context) (*Rates, error) {
	x.say("throughput: %d rounds of %d execs and %d docker runs, %d at a time", x.Rounds, x.RoundExecs, x.RoundExecs, x.Concurrency)
	ours, theirs, err := alternate(ctx, x.Rounds, leastRounds,
		func(ctx context.Context) (float64, error) {
			begun := time.Now()
			if err := x.several(ctx, func(ctx context.Context, _ int) error {
				_, err := x.server.exec(ctx, "true")
				return err
			}); err != nil {
				return 0, err
			}
			end, err := x.alone(ctx)
			return float64(x.RoundExecs) / end.Sub(begun).Seconds(), err
		},
		func(ctx context.Context) (float64, error) {
			runs := make([]run, x.RoundExecs)
			for i := range runs {
				var err error
				if runs[i], err = x.plain.next("true"); err != nil {
					return 0, err
				}
			}
			begun := time.Now()
			err := x.several(ctx, func(ctx context.Context, i int) error {
				_, err := runs[i].start(ctx, nil)
				return err
			})
			return float64(x.RoundExecs) / time.Since(begun).Seconds(), err
		})
	if err != nil {
		return nil, err
	}
	var pairs []float64
	for i := range ours {
		pairs = append(pairs, ours[i]/theirs[i])
	}
	return &Rates{
		Concurrency: x.Concurrency, RoundExecs: x.RoundExecs, CoreAPI: ours, DockerRun: theirs,
		Ratio: median(ours) / median(theirs), PairedRatio: median(pairs),
	}, nil
}

// several does RoundExecs things, Concurrency at a time, and returns the first error, after which no more are begun.
func (x *execs) several(ctx context.Context, do func(ctx context.Context, i int) error) error {
	ctx, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	var next atomic.Int64
	var workers sync.WaitGroup
	for range x.Concurrency {
		workers.Go(func() {
			for i := int(next.Add(1)) - 1; i < x.RoundExecs && ctx.Err() == nil; i = int(next.Add(1)) - 1 {
				if err := do(ctx, i); err != nil {
					stop(fmt.Errorf("%d of %d: %w", i+1, x.RoundExecs, err))
				}
			}
		})
	}
	workers.Wait()
	return context.Cause(ctx)
}
