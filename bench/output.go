package bench

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// Flood compares a job that prints far more than its limit with docker run >/dev/null.
type Flood struct {
	Bytes     int64   `json:"bytes"`
	Limit     int64   `json:"limit_bytes"` // what core-api kept
	CoreAPI   Summary `json:"core_api"`    // to the answer
	DockerRun Summary `json:"docker_run"`  // to its end
	Speed     float64 `json:"speed"`       // docker run's median time over core-api's: 0.5 is half as fast
	// Memory of the core-api process in bytes: the most that one job made it grow, and the highest it ever was. 0 where it cannot be
	// measured.
	Growth int64 `json:"memory_growth_bytes"`
	Peak   int64 `json:"memory_peak_bytes"`
}

type flooded struct {
	result
	before, after memory
}

func (x *execs) output(ctx context.Context) (*Flood, error) {
	x.say("output: %d rounds of a job that prints %d MiB, and docker run >/dev/null of the same", x.OutputRounds, x.OutputBytes>>20)
	flood := shell(fmt.Sprintf("head -c %d /dev/zero", x.OutputBytes))
	measurable := true
	ours, theirs, err := alternate(ctx, x.OutputRounds, 1,
		func(ctx context.Context) (f flooded, err error) {
			if err := resetPeak(x.server.pid()); errors.Is(err, errors.ErrUnsupported) {
				measurable = false
			} else if err != nil {
				return f, err
			}
			if f.before, err = memoryOf(x.server.pid()); measurable && err != nil {
				return f, err
			}
			if f.result, err = x.server.exec(ctx, commonProject, flood); err != nil {
				return f, err
			}
			if f.StdoutBytes != x.OutputBytes {
				return f, fmt.Errorf("exec %s printed %d bytes by its record, %d in truth", f.ExecID, f.StdoutBytes, x.OutputBytes)
			}
			if _, err = x.alone(ctx); err != nil {
				return f, err
			}
			if f.after, err = memoryOf(x.server.pid()); !measurable {
				err = nil
			}
			return f, err
		},
		func(ctx context.Context) (ran, error) { return x.plainTurn(ctx, flood) })
	if err != nil {
		return nil, err
	}
	out := &Flood{Bytes: x.OutputBytes, Limit: defaultStdoutLimit}
	var a, b []time.Duration
	for i := range ours {
		a, b = append(a, ours[i].took()), append(b, theirs[i].took)
		out.Growth = max(out.Growth, ours[i].after.peak-ours[i].before.now)
		out.Peak = max(out.Peak, ours[i].after.peak)
	}
	out.CoreAPI, out.DockerRun = summarise(a), summarise(b)
	out.Speed = out.DockerRun.P50 / out.CoreAPI.P50
	return out, nil
}

// defaultStdoutLimit is max_stdout_bytes when nobody sets it, and the server was told nothing.
const defaultStdoutLimit = 1 << 20
