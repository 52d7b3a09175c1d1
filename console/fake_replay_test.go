package console_test

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"io"
	"slices"
	"strings"

	"secbox/access/tokens"
	"secbox/audit"
	"secbox/fault"
	"secbox/policy"
	"secbox/replay"
	"secbox/runner"
)

// fakeReplayer notes what it is asked to replay. The replay is execID(1).
type fakeReplayer struct {
	asked  []replay.Request
	points []replay.Point
	inputs map[string]string // kept contents by path, for all execs
	err    error
}

func (f *fakeReplayer) Inputs(_ context.Context, rec audit.Record, from, limit int, _ replay.Reserve) (replay.InputList, error) {
	list := replay.InputList{All: len(rec.Inputs), Truncated: rec.LargeLists["inputs"].Count > len(rec.Inputs)}
	for _, in := range rec.Inputs[min(from, list.All):min(from+limit, list.All)] {
		_, kept := f.inputs[in.Path]
		list.Items = append(list.Items, replay.Input{Input: in, Kept: kept})
	}
	return list, nil
}

func (f *fakeReplayer) OpenInput(_ context.Context, rec audit.Record, path string, _ replay.Reserve) (io.ReadSeekCloser, audit.Input, error) {
	i := slices.IndexFunc(rec.Inputs, func(in audit.Input) bool { return in.Path == path })
	if i < 0 {
		return nil, audit.Input{}, fault.New(fault.UnknownInput, "there is no such input")
	}
	content, ok := f.inputs[path]
	if !ok {
		return nil, audit.Input{}, fault.New(fault.InputNotKept, "the content is not kept")
	}
	return readSeekCloser{strings.NewReader(content)}, rec.Inputs[i], nil
}

// addInput gives an exec an input whose content is kept.
func (f *fakeApp) addInput(rec *audit.Record, path, content string) {
	sum := sha256.Sum256([]byte(content))
	rec.Inputs = append(rec.Inputs, audit.Input{Path: path, Size: int64(len(content)), SHA256: hex.EncodeToString(sum[:])})
	if f.replayer.inputs == nil {
		f.replayer.inputs = map[string]string{}
	}
	f.replayer.inputs[path] = content
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
