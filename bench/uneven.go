package bench

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"time"
)

const (
	unevenProjects = 3
	unevenBlocks   = 5 // of one side; fewer when there are fewer pairs
)

// Spread is one job with arrivals at random.
type Spread struct {
	Latency
	Seed     uint64  `json:"seed"`
	Mean     float64 `json:"mean_gap_ms"` // of the time between two arrivals
	Projects int     `json:"projects"`
	Blocks   int     `json:"blocks"` // into which the arrivals are divided, each followed or preceded by as many docker runs
}

// uneven measures with arrivals that do not wait for each other: exponential gaps, the project of each drawn at random. A docker run among
// them would disturb and be disturbed, so the sides alternate in blocks; docker run has its block for itself, one at a time.
func (x *execs) uneven(ctx context.Context) (out []Spread, err error) {
	for i, j := range []job{nothing, pythonPrint} {
		s, err := x.spread(ctx, fmt.Sprintf("uneven-%d", i), j)
		if err != nil {
			return out, err
		}
		out = append(out, s)
	}
	return out, nil
}

func (x *execs) spread(ctx context.Context, projects string, j job) (Spread, error) {
	blocks := min(unevenBlocks, x.Pairs)
	each := (x.Pairs + blocks - 1) / blocks
	x.say("uneven: %d blocks of %d arrivals and %d docker runs of %s, an arrival every %v on average", blocks, each, each, j.name, x.Pace)
	random := rand.New(rand.NewPCG(x.Seed, 0))
	var cpu time.Duration
	ours, theirs, err := alternate(ctx, blocks, leastRounds,
		func(ctx context.Context) ([]result, error) {
			before := x.serverCPU()
			results, err := x.arrive(ctx, schedule(random, each, x.Pace), projects, j)
			if err == nil {
				_, err = x.alone(ctx) // a refill must not disturb docker run
			}
			cpu += x.serverCPU() - before
			return results, err
		},
		func(ctx context.Context) (took []time.Duration, err error) {
			for range each {
				r, err := x.plainTurn(ctx, j)
				if err != nil {
					return nil, err
				}
				took = append(took, r.took)
			}
			return took, nil
		})
	if err != nil {
		return Spread{}, err
	}
	s := Spread{Seed: x.Seed, Mean: milliseconds(x.Pace), Projects: unevenProjects, Blocks: len(ours)}
	s.Latency, err = x.latency(ctx, j, cpu, slices.Concat(ours...), slices.Concat(theirs...))
	return s, err
}

// arrival is when, after the one before, an exec of which project arrives.
type arrival struct {
	gap     time.Duration
	project int
}

func schedule(random *rand.Rand, n int, mean time.Duration) []arrival {
	out := make([]arrival, n)
	for i := range out {
		out[i] = arrival{time.Duration(random.ExpFloat64() * float64(mean)), random.IntN(unevenProjects)}
	}
	return out
}

// arrive lets execs arrive, whatever became of those before, and waits for all answers. The clock of an exec runs from when it was to
// arrive.
func (x *execs) arrive(ctx context.Context, list []arrival, projects string, j job) ([]result, error) {
	ctx, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	results := make([]result, len(list))
	var open sync.WaitGroup
	due := time.Now()
	for i, a := range list {
		due = due.Add(a.gap)
		at := due
		if sleepUntil(ctx, at) != nil {
			break
		}
		open.Go(func() {
			r, err := x.server.exec(ctx, fmt.Sprintf("%s-%d", projects, a.project), j)
			if err != nil {
				stop(err)
			}
			r.sent = at
			results[i] = r
		})
	}
	open.Wait()
	return results, context.Cause(ctx)
}
