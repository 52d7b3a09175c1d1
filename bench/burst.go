package bench

import (
	"context"
	"time"
)

// Bursts compare many execs at once, on a pool that was idle, with as many docker runs at once.
type Bursts struct {
	Execs     int     `json:"execs"`
	Idle      int     `json:"idle"`       // slots of the project before each round
	CoreAPI   Summary `json:"core_api"`   // of the times to the last answer
	DockerRun Summary `json:"docker_run"` // to the end of the last
	Ratio     float64 `json:"ratio_p50"`
	Hits      int     `json:"pool_hits"`
	Misses    int     `json:"pool_misses"`
}

func (x *execs) burst(ctx context.Context) (*Bursts, error) {
	x.say("burst: %d rounds of %d execs at once and %d docker runs at once", x.BurstRounds, x.Burst, x.Burst)
	const project = "burst"
	p, err := x.server.pool(ctx)
	if err != nil {
		return nil, because(ctx, err)
	}
	out := &Bursts{Execs: x.Burst, Idle: p.MaxPerKey}
	ours, theirs, err := alternate(ctx, x.BurstRounds, leastRounds,
		func(ctx context.Context) (time.Duration, error) {
			if err := x.fill(ctx, project, out.Idle); err != nil {
				return 0, err
			}
			before, err := x.server.pool(ctx)
			if err != nil {
				return 0, err
			}
			begun := time.Now()
			err = several(ctx, x.Burst, x.Burst, func(ctx context.Context, _ int) error {
				_, err := x.server.exec(ctx, project, nothing)
				return err
			})
			took := time.Since(begun)
			if err != nil {
				return 0, err
			}
			if _, err := x.alone(ctx); err != nil { // neither teardown nor refill must disturb docker run
				return 0, err
			}
			after, err := x.server.pool(ctx)
			out.Hits, out.Misses = out.Hits+after.Hits-before.Hits, out.Misses+after.Misses-before.Misses
			return took, err
		},
		func(ctx context.Context) (time.Duration, error) {
			var begun time.Time
			err := x.severalPlain(ctx, x.Burst, x.Burst, func() { begun = time.Now() })
			return time.Since(begun), err
		})
	if err != nil {
		return nil, err
	}
	out.CoreAPI, out.DockerRun = summarise(ours), summarise(theirs)
	out.Ratio = out.CoreAPI.P50 / out.DockerRun.P50
	return out, nil
}
