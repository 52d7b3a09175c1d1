//go:build linux

package main

import (
	"context"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"
)

// The fewest rounds that tell something when the time limit ends a section.
const (
	leastPairs  = 10
	leastRounds = 2
)

// commonProject is for execs of sections that need no fresh project.
const commonProject = "bench"

// always names one project.
func always(project string) func() string { return func() string { return project } }

// inTurn names n projects in turn.
func inTurn(prefix string, n int64) func() string {
	var next atomic.Int64
	return func() string { return fmt.Sprintf("%s-%d", prefix, next.Add(1)%n) }
}

// fresh names a project that was never seen.
func fresh(prefix string) func() string { return inTurn(prefix, math.MaxInt64) }

// Settings of servers.
const (
	noPool     = poolMax + "0"
	poolMax    = "CORE_API_POOL_MAX="
	poolMemory = "CORE_API_POOL_MAX_MEMORY_MB="
	poolReady  = "CORE_API_POOL_READY="
	concurrent = "CORE_API_SANDBOX_MAX_CONCURRENT_EXECS="
	ociRuntime = "CORE_API_SANDBOX_RUNTIME="
)

// execTurn times the answer of POST /sandbox/execs.
func execTurn(project func() string, j job) turn {
	return func(ctx context.Context, x *subject) ([]float64, error) {
		r, err := x.exec(ctx, project(), j)
		return r.took(), err
	}
}

// ours is the side that measures core-api.
func ours(u unit, t turn) side { return side{name: "core-api", unit: u, turn: t, own: true} }

// calm waits for teardown and refill, which no answer waits for, so that the next turn does not
// share the machine with them.
func calm(ctx context.Context, x *subject) error {
	_, err := x.settled(ctx, nil)
	return err
}

// dockerRun times plain docker run to its end.
func dockerRun(j job) side {
	return side{name: "docker run", unit: ms, turn: timed(func(ctx context.Context, x *subject) error { return x.plain.run(ctx, j) })}
}

func (b *bench) cold(ctx context.Context, xs []*subject) error {
	return b.compare(ctx, comparison{
		section: "cold", title: "answer of POST /sandbox/execs of " + nothing.name + " without a pool", subjects: xs,
		sides: []side{ours(ms, execTurn(always(commonProject), nothing).then(calm)), dockerRun(nothing)}, rounds: b.pairs,
		least: leastPairs,
		rows:  []row{{what: "cold exec of `true`, p50", other: 1, form: times, bound: 1}},
	})
}

// rates are sides of execs per second, some at once, until the last container is gone and the pool
// is as full as before.
func (b *bench) rates(ctx context.Context, xs []*subject, c comparison, project func() string, n, atOnce int, least float64) error {
	c.title = fmt.Sprintf("%s, rounds of %d, %d at once, refill and teardown included", c.title, n, atOnce)
	c.subjects, c.least = xs, leastRounds
	execs := turn(func(ctx context.Context, x *subject) ([]float64, error) {
		before, err := x.pool(ctx)
		if err != nil {
			return nil, err
		}
		begun := time.Now()
		if err := x.execs(ctx, project, n, atOnce); err != nil {
			return nil, err
		}
		end, err := x.settled(ctx, func(p pool) bool { return p.Idle >= before.Idle })
		return []float64{milliseconds(end.Sub(begun))}, err
	})
	c.sides = []side{ours(perSecond, execs.per(int64(n))), {name: "docker run", unit: perSecond, turn: plainRuns(n, atOnce).per(int64(n))}}
	c.rows = []row{{what: c.title, other: 1, stat: paired, form: times, bound: least, least: true}}
	return b.compare(ctx, c)
}

// plainRuns times n plain docker runs, some at once, to the end of the last.
func plainRuns(n, atOnce int) turn {
	return func(ctx context.Context, x *subject) ([]float64, error) {
		begun, err := x.plain.several(ctx, n, atOnce)
		return since(begun), err
	}
}

func (b *bench) coldThroughput(ctx context.Context, xs []*subject) error {
	return b.rates(ctx, xs, comparison{section: "cold-throughput", title: "execs without a pool", rounds: b.rounds}, always(commonProject),
		b.roundExecs, 4, 0.95)
}

// closed measures closed loops over as many projects as execs run at once, with the engine's
// default runtime and with crun. The first loop does not count: the pool grows to the size that
// such a load needs.
func (b *bench) closed(ctx context.Context) error {
	most := concurrent + strconv.Itoa(slices.Max(b.closedAt))
	loops := func(name, title string, least float64, environ ...string) error {
		return b.withSubjects(ctx, name, environ, func(ctx context.Context, xs []*subject) error {
			for _, atOnce := range b.closedAt {
				projects := inTurn("closed-"+strconv.Itoa(atOnce), int64(atOnce))
				for _, x := range xs {
					if err := x.uncounted(func() error { return x.execs(ctx, projects, b.closedExecs, atOnce) }); err != nil {
						return because(ctx, err)
					}
					if err := x.full(ctx); err != nil {
						return err
					}
				}
				if err := b.rates(ctx, xs, comparison{section: "closed", title: title, rounds: (b.rounds + 2) / 3}, projects, b.closedExecs,
					atOnce, least); err != nil {
					return err
				}
			}
			return nil
		})
	}
	if err := loops("closed", "closed loop", 1, most); err != nil {
		return err
	}
	if why := b.lacks(ctx, "crun"); why != "" {
		b.report.Comparisons = append(b.report.Comparisons, &Comparison{Section: "closed", Title: "not measured with crun: " + why})
		return nil
	}
	return loops("closed-crun", "closed loop with crun", 1.15, most, ociRuntime+"crun")
}

// lacks says why the engine starts no containers of an OCI runtime; empty: it does. An engine may
// name a runtime that cannot run on its machine.
func (b *bench) lacks(ctx context.Context, runtime string) string {
	info, err := b.docker.Info(ctx)
	if err != nil {
		return err.Error()
	}
	if _, named := info.Runtimes[runtime]; !named {
		return fmt.Sprintf("the engine has no runtime of that name; install the package %[1]s and name it in /etc/docker/daemon.json",
			runtime)
	}
	err = b.withSubjects(ctx, runtime, []string{noPool}, func(ctx context.Context, xs []*subject) error {
		cmd, err := xs[0].plain.next(nothing)
		if err != nil {
			return err
		}
		cmd.Args = slices.Insert(cmd.Args, 2, "--runtime", runtime) // after "docker run"
		return finish(ctx, cmd)
	})
	if err != nil {
		why, _, _ := strings.Cut(err.Error(), "\n")
		return why
	}
	return ""
}

// output compares a job that prints far more than its limit with docker run >/dev/null.
func (b *bench) output(ctx context.Context, xs []*subject) error {
	flood := shell(fmt.Sprintf("head -c %d /dev/zero", b.outputBytes))
	var growth, peak float64
	flooded := func(ctx context.Context, x *subject) ([]float64, error) {
		if err := resetPeak(x.pid()); err != nil {
			return nil, err
		}
		before, _, err := resident(x.pid())
		if err != nil {
			return nil, err
		}
		r, err := x.exec(ctx, commonProject, flood)
		if err == nil && r.StdoutBytes != b.outputBytes {
			err = fmt.Errorf("exec %s printed %d bytes by its record, %d in truth", r.ExecID, r.StdoutBytes, b.outputBytes)
		}
		if err == nil {
			err = calm(ctx, x)
		}
		_, most, sizeErr := resident(x.pid())
		growth, peak = max(growth, most-before), max(peak, most)
		return r.took(), errors.Join(err, sizeErr)
	}
	what := binarySize(float64(b.outputBytes)) + " of stdout, 1 MiB kept"
	return b.compare(ctx, comparison{
		section: "output", title: what, subjects: xs, sides: []side{ours(ms, flooded), dockerRun(flood)}, rounds: (b.rounds + 1) / 2,
		least: 1,
		rows:  []row{{what: what, other: 1, form: times, bound: 2}},
		note: func(c *Comparison) {
			c.Targets = append(c.Targets, fact(what+": growth of core-api's memory", sizeBytes, growth, 32<<20))
			c.Notes = append(c.Notes, "core-api held at most "+binarySize(peak))
		},
	})
}

// first measures the first exec of a project, at an even pace, and beside a go-judge.
func (b *bench) first(ctx context.Context, xs []*subject) error {
	return b.paced(ctx, xs, "first", "first exec of a project", func(i int) func() string { return fresh(fmt.Sprintf("first-%d", i)) },
		b.goJudge)
}

// warm measures execs of a known project at an even pace.
func (b *bench) warm(ctx context.Context, xs []*subject) error {
	return b.paced(ctx, xs, "warm", "known project", func(i int) func() string { return always(fmt.Sprintf("warm-%d", i)) }, "")
}

// paced measures arrivals at an even pace: the refill behind an exec, and what docker run leaves to
// the engine, go on between turns.
func (b *bench) paced(ctx context.Context, xs []*subject, section, title string, projects func(job int) func() string,
	goJudge string,
) error {
	for i, c := range []struct {
		job
		p50, p95 float64
	}{{nothing, 1. / 20, 1. / 10}, {pythonPrint, 1. / 10, 0}} {
		what := fmt.Sprintf("%s: %s, whole HTTP round trip, a turn every %v", title, c.name, b.pace)
		sides := []side{ours(ms, execTurn(projects(i), c.job)), dockerRun(c.job)}
		rows := []row{
			{what: what + ", p50", other: 1, form: part, bound: c.p50},
			{what: what + ", p95", other: 1, stat: p95, form: part, bound: c.p95},
		}
		if goJudge != "" {
			sides = append(sides, judged(goJudge, c.job))
			rows = append(rows, row{what: what + ", p50", other: 2, form: times, bound: 0.8})
		}
		if err := b.compare(ctx, comparison{
			section: section, title: what, subjects: xs, sides: sides, rounds: b.pairs, least: leastPairs, pace: b.pace, rows: rows,
		}); err != nil {
			return err
		}
	}
	return nil
}

const unevenProjects = 1000

// uneven measures arrivals that do not wait for each other: exponential gaps, the project of each
// drawn at random. A docker run among them would disturb them, so the sides alternate in blocks.
func (b *bench) uneven(ctx context.Context, xs []*subject) error {
	blocks := min(5, b.pairs)
	each := (b.pairs + blocks - 1) / blocks
	for i, c := range []struct {
		job
		p50, p95 float64
	}{{nothing, 1. / 15, 1. / 5}, {pythonPrint, 1. / 10, 0}} {
		random := map[*subject]*rand.Rand{}
		for _, x := range xs {
			random[x] = rand.New(rand.NewPCG(1, 0)) // the same arrivals in each run
		}
		arrivals := turn(func(ctx context.Context, x *subject) ([]float64, error) {
			return x.arrive(ctx, schedule(random[x], each, b.pace), fmt.Sprintf("uneven-%d", i), c.job)
		})
		block := dockerRun(c.job)
		one := block.turn
		block.turn = func(ctx context.Context, x *subject) (values []float64, err error) {
			for range each {
				value, err := one(ctx, x)
				if err != nil {
					return nil, err
				}
				values = append(values, value...)
			}
			return values, nil
		}
		what := fmt.Sprintf("%s, arrivals at random (every %v on average, %d projects)", c.name, b.pace, unevenProjects)
		if err := b.compare(ctx, comparison{
			section: "uneven", title: what, subjects: xs, sides: []side{ours(ms, arrivals.then(calm)), block}, rounds: blocks,
			least: leastRounds,
			rows: []row{
				{what: what + ", p50", other: 1, form: part, bound: c.p50},
				{what: what + ", p95", other: 1, stat: p95, form: part, bound: c.p95},
			},
		}); err != nil {
			return err
		}
	}
	return nil
}

// arrival is an exec that arrives some time after the one before.
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

// arrive lets execs arrive and waits for all answers. The clock of an exec runs from when it was to
// arrive.
func (x *subject) arrive(ctx context.Context, list []arrival, projects string, j job) ([]float64, error) {
	group, ctx := errgroup.WithContext(ctx)
	values := make([]float64, len(list))
	due := time.Now()
	for i, a := range list {
		due = due.Add(a.gap)
		if sleepUntil(ctx, due) != nil {
			break
		}
		at := due
		group.Go(func() error {
			_, err := x.exec(ctx, fmt.Sprintf("%s-%d", projects, a.project), j)
			values[i] = since(at)[0]
			return err
		})
	}
	return values, group.Wait()
}

// bursts compares execs of projects that were never seen, all at once on a pool that has a
// container for each, with as many docker runs, a few at once: the time to the last answer.
func (b *bench) bursts(ctx context.Context) error {
	n := strconv.Itoa(b.burst)
	return b.withSubjects(ctx, "burst", []string{concurrent + n, poolReady + n}, func(ctx context.Context, xs []*subject) error {
		projects := fresh("burst")
		execs := timed(func(ctx context.Context, x *subject) error { return x.execs(ctx, projects, b.burst, b.burst) }).
			after(func(ctx context.Context, x *subject) error { return x.fill(ctx, b.burst) }).then(calm)
		what := fmt.Sprintf("%[1]d at once, of %[1]d new projects, %[1]d containers waiting, last answer", b.burst)
		if err := b.compare(ctx, comparison{
			section: "burst", title: what, subjects: xs, rounds: b.rounds, least: leastRounds,
			sides: []side{ours(ms, execs), {
				name: fmt.Sprintf("docker run, %d at once", burstRuns), unit: ms,
				turn: plainRuns(b.burst, burstRuns),
			}},
			rows: []row{{what: what + ", p50", other: 1, form: part, bound: 1. / 8}},
		}); err != nil {
			return err
		}
		return b.sessionBurst(ctx, xs)
	})
}

// burstRuns is how many docker runs a burst is compared with at once: more are not faster on a
// small machine.
const burstRuns = 4
