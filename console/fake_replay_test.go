package console_test

import (
	"context"
	"encoding/json"

	"secbox/audit"
	"secbox/policy"
	"secbox/replay"
	"secbox/runner"
	"secbox/tokens"
)

// fakeReplayer notes what it is asked to replay. The replay is execID(1).
type fakeReplayer struct {
	asked  []replay.Request
	points []replay.Point
	err    error
}

func (f *fakeReplayer) Replay(_ context.Context, q replay.Request) (replay.Result, error) {
	if f.err != nil {
		return replay.Result{}, f.err
	}
	f.asked = append(f.asked, q)
	return replay.Result{Exec: runner.Result{Record: record(1)}}, nil
}

func (f *fakeReplayer) Compare(context.Context, audit.Record, audit.Record, replay.Reserve) []replay.Point {
	return f.points
}

func (f *fakeApp) Neighbour(ctx context.Context, caller tokens.Token, rec audit.Record, after bool) (string, error) {
	rows, _, err := f.List(ctx, caller, audit.Filter{OldestFirst: after}, &audit.Cursor{ExecID: rec.ExecID}, 1)
	if len(rows) == 0 {
		return "", err
	}
	return rows[0].ExecID, err
}

// Refuse adds nothing to the record's error.
func (f *fakeApp) Refuse(_ context.Context, _ runner.Request, why error) error { return why }

// defaultPolicy is the policy of an exec that asked for nothing.
func defaultPolicy() json.RawMessage {
	resolver, err := policy.New(policy.Config{SettingsDigest: "sha256:s"})
	if err != nil {
		panic(err)
	}
	snapshot, err := resolver.Resolve(nil, policy.Layer{}, policy.Host{})
	if err != nil {
		panic(err)
	}
	text, err := json.Marshal(snapshot)
	if err != nil {
		panic(err)
	}
	return text
}
