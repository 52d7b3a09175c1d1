//go:build linux

package main

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
)

const sessionAtOnce = 8

// session is a session of a subject.
type session struct {
	*subject
	id string
}

// startSession starts one, and runs a job in it.
func (x *subject) startSession(ctx context.Context) (session, error) {
	var s struct {
		ID string `json:"session_id"`
	}
	err := x.call(ctx, http.MethodPost, "/sandbox/sessions", map[string]any{"project_id": commonProject}, &s)
	return session{x, s.ID}, err
}

func (s session) end(ctx context.Context) error {
	return s.call(ctx, http.MethodDelete, "/sandbox/sessions/"+s.id, nil, nil)
}

// ended waits until the session's record is closed, and with it its container gone.
func (s session) ended(ctx context.Context) error {
	return s.call(ctx, http.MethodGet, "/sandbox/execs/"+s.id+"/wait?timeout_ms=60000", nil, nil)
}

// container is the id of the session's container, which may have waited under another name.
func (s session) container(ctx context.Context) (string, error) {
	var r struct {
		Stdout string `json:"stdout"`
	}
	err := s.call(ctx, http.MethodPost, "/sandbox/execs", map[string]any{
		"session_id": s.id,
		"exec":       map[string]any{"script": "grep -om1 'containers/[0-9a-f]*' /proc/self/mountinfo"},
	}, &r)
	id, found := strings.CutPrefix(strings.TrimSpace(r.Stdout), "containers/")
	if err == nil && !found {
		err = errors.New("a session does not tell its container's id")
	}
	return id, err
}

// run runs a command in the session, which must succeed.
func (s session) run(ctx context.Context, exec map[string]any) error {
	var r result
	err := s.call(ctx, http.MethodPost, "/sandbox/execs", map[string]any{"session_id": s.id, "exec": exec}, &r)
	if err == nil && r.Status != "succeeded" {
		err = fmt.Errorf("an exec in a session: %s", r.Status)
	}
	return err
}

// sessions measures execs in a session beside docker run, and docker exec in the session's own
// container.
func (b *bench) sessions(ctx context.Context, xs []*subject) (err error) {
	if b.against != "" {
		return nil
	}
	x := xs[0]
	s, err := x.startSession(ctx)
	if err != nil {
		return err
	}
	defer func() { _ = s.end(context.WithoutCancel(ctx)) }()
	container, err := s.container(ctx)
	if err != nil {
		return err
	}
	command := append([]string{nothing.command}, nothing.args...)
	isTrue := func(ctx context.Context, _ *subject) error {
		return s.run(ctx, map[string]any{"kind": nothing.kind, "command": nothing.command, "args": nothing.args})
	}
	plainTrue := func(ctx context.Context, _ *subject) error {
		return finish(ctx, b.dockerCommand(append([]string{"exec", container}, command...)...))
	}
	cell := func(ctx context.Context, _ *subject) error {
		return s.run(ctx, map[string]any{"context": "main", "code": "1+1"})
	}
	var last session
	whole := func(ctx context.Context, x *subject) error {
		one, err := x.startSession(ctx)
		if last = one; err != nil {
			return err
		}
		if err := one.run(ctx, map[string]any{"script": "python3 -V"}); err != nil {
			return err
		}
		return one.end(ctx)
	}
	ended := func(ctx context.Context, _ *subject) error { return last.ended(ctx) }
	if err := cell(ctx, x); err != nil { // starts its interpreter
		return err
	}
	exec := "exec in a session: " + nothing.name + ", whole HTTP round trip"
	if err := b.compare(ctx, comparison{
		section: "sessions", title: exec, subjects: xs, rounds: b.pairs, least: leastPairs,
		sides: []side{
			ours(ms, timed(isTrue)), dockerRun(nothing),
			{name: "docker exec", unit: ms, turn: timed(plainTrue)},
			{name: "1+1 in a context", unit: ms, turn: timed(cell)},
			{name: "start, python3 -V, end", unit: ms, turn: timed(whole).then(ended)},
		},
		rows: []row{
			{what: exec + ", p50", other: 1, form: part, bound: 1. / 45},
			{what: exec + ", p50", other: 2, form: part, bound: 1. / 12},
			{what: "`1+1` in a context of Python, p50", ours: 3, other: 3, bound: 6},
			{what: "a session's start, `python3 -V` and end, p50", ours: 4, other: 4, bound: 30},
			{what: "a session's start, `python3 -V` and end, p95", ours: 4, other: 4, stat: p95, bound: 60},
		},
	}); err != nil {
		return err
	}
	rates := func(do func(context.Context, *subject) error) turn {
		n := 16 * b.roundExecs
		return timed(func(ctx context.Context, _ *subject) error {
			return several(ctx, n, sessionAtOnce, func(ctx context.Context, _ int) error { return do(ctx, nil) })
		}).per(int64(n))
	}
	title := fmt.Sprintf("execs in a session, %d at once", sessionAtOnce)
	return b.compare(ctx, comparison{
		section: "sessions", title: title, subjects: xs, rounds: b.rounds, least: leastRounds,
		sides: []side{ours(perSecond, rates(isTrue)), {name: "docker exec", unit: perSecond, turn: rates(plainTrue)}},
		rows: []row{
			{what: title, other: 1, stat: paired, form: times, bound: 15, least: true},
			{what: title, bound: 300, least: true},
		},
	})
}
