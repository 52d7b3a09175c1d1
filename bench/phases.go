package bench

import (
	"context"
	"time"
)

// Phase is a part of an exec's time to the answer.
type Phase struct {
	Name string  `json:"name"`
	P50  float64 `json:"p50_ms"`
}

// onRecord is an exec as its caller saw it, and as it is on record.
type onRecord struct {
	result
	record result
}

// records asks for the records of all results.
func (x *execs) records(ctx context.Context, results []result) ([]onRecord, error) {
	out := make([]onRecord, 0, len(results))
	for _, r := range results {
		record, err := x.server.record(context.WithoutCancel(ctx), r.ExecID) // the time limit was for the measuring
		if err != nil {
			return nil, err
		}
		out = append(out, onRecord{result: r, record: record})
	}
	return out, nil
}

// phases tells where the time to the answer goes, by the times in the records; server and client read the same clock.
func phases(execs []onRecord) []Phase {
	var before, starting, running, after []time.Duration
	for _, x := range execs {
		before = append(before, x.record.CreatedAt.Sub(x.sent))
		starting = append(starting, x.record.StartedAt.Sub(x.record.CreatedAt))
		running = append(running, x.record.EndedAt.Sub(x.record.StartedAt))
		after = append(after, x.answered.Sub(x.record.EndedAt))
	}
	return []Phase{
		{"request read, policy, directories", summarise(before).P50},
		{"row opened, a container until its sandbox-init answers", summarise(starting).P50},
		{"the job, until its exit is reported", summarise(running).P50},
		{"artifacts collected, output published, row closed, answer", summarise(after).P50},
	}
}
