package bench

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"time"

	"secbox/engine"
)

// settlePatience is how long a server may take to tear down and refill after the last answer.
const settlePatience = time.Minute

// pool is what GET /sandbox/pool tells.
type pool struct {
	Max       int `json:"max"` // containers, by number and memory; 0 without a pool
	MaxPerKey int `json:"max_per_key"`
	Idle      int `json:"idle"`
	Starting  int `json:"starting"`
	Hits      int `json:"hits"`
	Misses    int `json:"misses"`
	Keys      []struct {
		ProjectID string `json:"project_id"`
		Idle      int    `json:"idle"`
	} `json:"keys"`
}

// of is how many slots of a project wait.
func (p pool) of(project string) (idle int) {
	for _, k := range p.Keys {
		if k.ProjectID == project {
			idle += k.Idle
		}
	}
	return idle
}

func (s *server) pool(ctx context.Context) (p pool, err error) {
	err = s.call(ctx, http.MethodGet, "/sandbox/pool", nil, &p)
	return p, err
}

// settled waits until the server tears nothing down, starts nothing, and has enough slots idle; it returns since when that is so. A docker
// CLI of the server ends when its container is removed, so it first waits until there are as many of these as idle slots: asking docker
// over and over would take from the machine what is being measured.
func (x *execs) settled(ctx context.Context, enough func(pool) bool) (since time.Time, err error) {
	patience := time.After(settlePatience)
	for {
		p, running, err := x.look(ctx)
		if err != nil {
			return time.Time{}, because(ctx, err)
		}
		containers := -1 // not asked for
		switch done := p.Starting == 0 && running == p.Idle && enough(p); {
		case !done:
			since = time.Time{}
		case since.IsZero():
			since = time.Now()
		}
		if !since.IsZero() && (!x.pooled || time.Since(since) >= pause) {
			left, err := x.Docker.Containers(ctx, engine.LabelNode+"="+x.server.node)
			if err != nil {
				return time.Time{}, because(ctx, err)
			}
			if containers = len(left); containers == p.Idle {
				return since, nil
			}
			since = time.Time{}
		}
		select {
		case <-ctx.Done():
			return time.Time{}, context.Cause(ctx)
		case <-patience:
			return time.Time{}, fmt.Errorf("core-api is not done after %v: %d slots idle, %d starting, %d docker CLIs, %d containers (-1: not asked for)",
				settlePatience, p.Idle, p.Starting, running, containers)
		case <-time.After(10 * time.Millisecond):
		}
	}
}

// pause is longer than a server waits between two containers that it starts for its pool.
const pause = 150 * time.Millisecond

// look asks for the pool, and counts the docker CLIs of the server's containers.
func (x *execs) look(ctx context.Context) (p pool, running int, err error) {
	if x.pooled { // else the question would only take from the machine, too
		if p, err = x.server.pool(ctx); err != nil {
			return p, 0, err
		}
	}
	running, err = dockerRuns(x.server.pid())
	if errors.Is(err, errors.ErrUnsupported) {
		running, err = p.Idle, nil
	}
	return p, running, err
}

// because is what ended a call: ctx, whatever the call says, or the call's own error.
func because(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	return err
}

func anyIdle(pool) bool { return true }

// alone waits until no container of the server is left but idle slots.
func (x *execs) alone(ctx context.Context) (since time.Time, err error) {
	return x.settled(ctx, anyIdle)
}

// fillTries is how often a pool may be used before it must hold what it is asked for.
const fillTries = 5

// fill uses a project, n execs at once, until n slots of it are idle, and nothing is being started or torn down. A server without a pool
// has nothing to fill.
func (x *execs) fill(ctx context.Context, project string, n int) error {
	for try := 0; ; try++ {
		if _, err := x.alone(ctx); err != nil {
			return err
		}
		p, err := x.server.pool(ctx)
		switch {
		case err != nil:
			return because(ctx, err)
		case p.Max == 0 || p.of(project) >= n:
			return nil
		case try == fillTries:
			return fmt.Errorf("the pool keeps %d slots instead of %d of a project that %d execs at once used %d times", p.of(project), n, n, fillTries)
		}
		if err := several(ctx, n, n, func(ctx context.Context, _ int) error {
			_, err := x.server.exec(ctx, project, nothing)
			return err
		}); err != nil {
			return err
		}
	}
}
