//go:build linux

package main

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"secbox/engine"
)

// subject is a core-api under test.
type subject struct {
	*server
	name  string // in a report that compares two
	bench *bench
	plain *plainDocker // starts containers with this server's flags
	max   int          // containers of its pool

	watched string // the exec that runs during all turns of viewers; empty: none

	mu       sync.Mutex
	results  []result      // since begin
	own, cli time.Duration // CPU time until begin
}

// withSubjects starts the core-api under test, and the other one when there are two to compare, and
// ends them after f. environ is settings.
func (b *bench) withSubjects(ctx context.Context, name string, environ []string, f func(context.Context, []*subject) error) (err error) {
	programs := []struct{ name, path string }{{"new", b.server}}
	if b.against != "" {
		programs = append(programs, struct{ name, path string }{"old", b.against})
	}
	var subjects []*subject
	for _, p := range programs {
		dir := filepath.Join(b.dir, name+"-"+p.name)
		s, err := b.serve(ctx, p.path, dir, environ...)
		if err != nil {
			return err
		}
		defer func() { err = errors.Join(err, s.stop()) }()
		x := &subject{server: s, name: p.name, bench: b}
		if err := x.warmUp(ctx, filepath.Join(dir, "plain")); err != nil {
			return because(ctx, err)
		}
		defer func() { err = errors.Join(err, x.plain.clean()) }()
		subjects = append(subjects, x)
	}
	return f(ctx, subjects)
}

// warmUp runs one exec, and one container by plain docker run with the same flags, and waits until
// the pool is full.
func (x *subject) warmUp(ctx context.Context, dir string) error {
	first, err := x.exec(ctx, commonProject, nothing)
	if err != nil {
		return err
	}
	if x.plain, err = newPlainDocker(x.bench, dir, filepath.Join(x.dir, "workspace", first.ArtifactsDir)); err != nil {
		return err
	}
	p, err := x.pool(ctx)
	if err != nil {
		return err
	}
	x.max = p.Max
	if err := x.full(ctx); err != nil {
		return err
	}
	return x.plain.run(ctx, nothing)
}

// begin starts the collection of what notes tells.
func (x *subject) begin() {
	x.results = nil
	x.own, x.cli, _ = cpuOf(x.pid())
}

// notes tells where the time of the execs since begin went, by their records; server and client
// read the same clock.
func (x *subject) notes(ctx context.Context) ([]string, error) {
	if len(x.results) == 0 {
		return nil, nil
	}
	if err := calm(ctx, x); err != nil { // the CPU time of the last refill belongs to it
		return nil, err
	}
	own, cli, err := cpuOf(x.pid())
	if err != nil {
		return nil, err
	}
	var misses int
	var phases [4][]float64
	for _, r := range x.results {
		var record result
		if err := x.call(ctx, http.MethodGet, "/sandbox/execs/"+r.ExecID, nil, &record); err != nil {
			return nil, err
		}
		if !record.Warm {
			misses++
		}
		at := []time.Time{r.sent, record.CreatedAt, record.StartedAt, record.EndedAt, r.answered}
		for i := range phases {
			phases[i] = append(phases[i], milliseconds(at[i+1].Sub(at[i])))
		}
	}
	n := len(x.results)
	out := []string{
		fmt.Sprintf("p50 in ms: request read, policy, directories %.1f; row opened, container ready %.1f; job %.1f; artifacts, row "+
			"closed, answer %.1f",
			quantile(phases[0], 0.5), quantile(phases[1], 0.5), quantile(phases[2], 0.5), quantile(phases[3], 0.5)),
		fmt.Sprintf("CPU per exec: core-api %.1f ms, its docker CLI %.1f ms", milliseconds(own-x.own)/float64(n),
			milliseconds(cli-x.cli)/float64(n)),
	}
	if x.max > 0 {
		p, err := x.pool(ctx)
		if err != nil {
			return nil, err
		}
		whose := "one project"
		if p.Shared {
			whose = "any project"
		}
		out = append(out, fmt.Sprintf("pool of containers for %s: %d of %d execs missed", whose, misses, n))
	}
	if x.bench.against != "" {
		for i := range out {
			out[i] = x.name + ": " + out[i]
		}
	}
	return out, nil
}

// exec runs a job in a project.
func (x *subject) exec(ctx context.Context, project string, j job) (result, error) {
	var r result
	return r, x.timed(&r, func() error {
		return x.call(ctx, http.MethodPost, "/sandbox/execs", map[string]any{
			"project_id": project, "exec": map[string]any{"kind": j.kind, "command": j.command, "args": j.args},
		}, &r)
	})
}

// timed times a call that runs an exec, and remembers the exec.
func (x *subject) timed(r *result, call func() error) error {
	sent := time.Now()
	err := call()
	r.sent, r.answered = sent, time.Now()
	if err == nil && r.Status != "succeeded" {
		err = fmt.Errorf("exec %s: %s: %s", r.ExecID, r.Status, r.Detail)
	}
	x.mu.Lock()
	defer x.mu.Unlock()
	x.results = append(x.results, *r)
	return err
}

// execs runs n execs, some at once.
func (x *subject) execs(ctx context.Context, project func() string, n, atOnce int) error {
	return several(ctx, n, atOnce, func(ctx context.Context, _ int) error {
		_, err := x.exec(ctx, project(), nothing)
		return err
	})
}

// pool is the part of GET /sandbox/pool that bench reads.
type pool struct {
	Max           int    `json:"max"`                // containers; 0 without a pool
	Shared        bool   `json:"shared"`             // containers wait for any project
	NotShared     string `json:"not_shared_because"` // begins with notDecided until a container has shown whether it can
	ShortOfMemory bool   `json:"short_of_memory"`
	Idle          int    `json:"idle"`
	Starting      int    `json:"starting"`
	Keys          []struct {
		Wanted int `json:"wanted"`
	} `json:"keys"`
}

const notDecided = "not known yet"

// full reports whether as many containers wait as recent use asks for.
func (p pool) full() bool {
	wanted := 0
	for _, k := range p.Keys {
		wanted += k.Wanted
	}
	return !strings.HasPrefix(p.NotShared, notDecided) && (p.ShortOfMemory || p.Idle >= min(wanted, p.Max))
}

func (x *subject) pool(ctx context.Context) (p pool, err error) {
	return p, x.call(ctx, http.MethodGet, "/sandbox/pool", nil, &p)
}

const (
	settleTimeout = time.Minute            // for teardown after the last answer, and for each container of a refill
	refillPause   = 150 * time.Millisecond // longer than a server waits between two containers that it starts for its pool
	fillTries     = 5                      // uses of a pool before it must be full
)

// settled waits until the server tears nothing down, starts nothing, and its pool is as wanted
// (nil: in any state), and returns since when that is so. A docker CLI of the server ends when its
// container is removed, so it counts these first: asking docker again and again would take
// processor time from the measurement.
func (x *subject) settled(ctx context.Context, wanted func(pool) bool) (since time.Time, err error) {
	timeout := time.NewTimer(settleTimeout)
	defer timeout.Stop()
	last := -1 // containers that wait
	for {
		var p pool
		if x.max > 0 {
			if p, err = x.pool(ctx); err != nil {
				return time.Time{}, because(ctx, err)
			}
		}
		running, err := dockerRuns(x.pid())
		if err != nil {
			return time.Time{}, err
		}
		if p.Idle != last {
			last = p.Idle
			timeout.Reset(settleTimeout)
		}
		switch done := p.Starting == 0 && running == p.Idle+x.busy() && (wanted == nil || wanted(p)); {
		case !done:
			since = time.Time{}
		case since.IsZero():
			since = time.Now()
		}
		if !since.IsZero() && (x.max == 0 || time.Since(since) >= refillPause) {
			left, err := x.bench.docker.Containers(ctx, engine.LabelNode+"="+x.node)
			if err != nil {
				return time.Time{}, because(ctx, err)
			}
			if len(left) == p.Idle+x.busy() {
				return since, nil
			}
			since = time.Time{}
		}
		select {
		case <-ctx.Done():
			return time.Time{}, context.Cause(ctx)
		case <-timeout.C:
			return time.Time{}, fmt.Errorf("core-api is not done after %v: %d containers wait, %d start, %d docker CLIs run", settleTimeout,
				p.Idle, p.Starting, running)
		case <-time.After(10 * time.Millisecond):
		}
	}
}

// busy is how many containers are in use between turns.
func (x *subject) busy() int {
	if x.watched != "" {
		return 1
	}
	return 0
}

// full waits until the server is settled with a full pool.
func (x *subject) full(ctx context.Context) error {
	_, err := x.settled(ctx, pool.full)
	return err
}

// fill waits until n containers wait, and uses new projects for that where each waits for its
// project.
func (x *subject) fill(ctx context.Context, n int) error {
	projects := fresh("fill")
	for try := 0; ; try++ {
		if err := calm(ctx, x); err != nil {
			return err
		}
		p, err := x.pool(ctx)
		switch {
		case err != nil:
			return because(ctx, err)
		case p.Idle >= n:
			return nil
		case try == fillTries:
			return fmt.Errorf("%d containers are to wait, but after %d rounds of execs the pool keeps too few: %+v", n, fillTries, p)
		}
		if err := x.uncounted(func() error { return x.execs(ctx, projects, n, 1) }); err != nil {
			return because(ctx, err)
		}
	}
}

// uncounted keeps execs, and their CPU time, out of the notes.
func (x *subject) uncounted(execs func() error) error {
	measured := x.results
	own, cli, _ := cpuOf(x.pid())
	defer func() {
		x.results = measured
		ownNow, cliNow, _ := cpuOf(x.pid())
		x.own, x.cli = x.own+ownNow-own, x.cli+cliNow-cli
	}()
	return execs()
}

// several does n things, some at once, and returns the first error, after which no more are begun.
func several(ctx context.Context, n, atOnce int, do func(ctx context.Context, i int) error) error {
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(atOnce)
	for i := range n {
		group.Go(func() error {
			err := context.Cause(ctx)
			if err == nil {
				err = do(ctx, i)
			}
			if err != nil {
				err = fmt.Errorf("%d of %d: %w", i+1, n, err)
			}
			return err
		})
	}
	return group.Wait()
}
