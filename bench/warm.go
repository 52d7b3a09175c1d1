package bench

import (
	"context"
	"fmt"
	"time"
)

// Paced is one job at an even pace.
type Paced struct {
	Latency
	Pace  float64 `json:"pace_ms"` // from the start of a turn to the start of the next, which is another side's or the same one's
	Turns int     `json:"turns"`
	Late  int     `json:"late_turns"` // that started later, since the turn before took longer than the pace
}

// warm measures with arrivals at an even pace: the refill behind our exec, and what docker run leaves the engine to do, go on between turns.
func (x *execs) warm(ctx context.Context) (out []Paced, err error) {
	for i, j := range []job{nothing, pythonPrint} {
		p, err := x.pacedPairs(ctx, fmt.Sprintf("warm-%d", i), j)
		if err != nil {
			return out, err
		}
		out = append(out, p)
	}
	return out, nil
}

// others is a turn of the other sides.
type others struct {
	plain   time.Duration
	goJudge time.Duration
}

func (x *execs) pacedPairs(ctx context.Context, project string, j job) (Paced, error) {
	x.say("warm: %d pairs of POST /sandbox/execs and docker run of %s, a turn every %v", x.Pairs, j.name, x.Pace)
	pace := &pacer{every: x.Pace}
	plainTurn := paced(pace, func(ctx context.Context) (ran, error) { return x.plainTurn(ctx, j) })
	judgeTurn := paced(pace, func(ctx context.Context) (time.Duration, error) { return judge(ctx, x.server.client, x.GoJudge, j) })
	cpu := x.serverCPU()
	results, theirs, err := alternate(ctx, x.Pairs, leastPairs,
		paced(pace, func(ctx context.Context) (result, error) { return x.server.exec(ctx, project, j) }),
		func(ctx context.Context) (o others, err error) {
			r, err := plainTurn(ctx)
			if o.plain = r.took; err == nil && x.GoJudge != "" {
				o.goJudge, err = judgeTurn(ctx)
			}
			return o, err
		})
	if err != nil {
		return Paced{}, err
	}
	if _, err := x.alone(context.WithoutCancel(ctx)); err != nil { // the last refill is of this job too
		return Paced{}, err
	}
	cpu = x.serverCPU() - cpu
	var plain, judged []time.Duration
	for _, o := range theirs {
		plain, judged = append(plain, o.plain), append(judged, o.goJudge)
	}
	p := Paced{Pace: milliseconds(x.Pace), Turns: pace.turns, Late: pace.late}
	p.Latency, err = x.latency(ctx, j, cpu, results, plain)
	if x.GoJudge != "" {
		s := summarise(judged)
		p.GoJudge = &s
	}
	return p, err
}
