//go:build linux

package main

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"

	"github.com/coder/websocket"
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
	begin := func(ctx context.Context, x *subject) (err error) {
		last, err = x.startSession(ctx)
		return err
	}
	firstCell := func(ctx context.Context, _ *subject) error {
		return last.run(ctx, map[string]any{"context": "main", "code": "1+1"})
	}
	end := func(ctx context.Context, _ *subject) error { return errors.Join(last.end(ctx), last.ended(ctx)) }
	keys, err := s.openTerminal(ctx)
	if err != nil {
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
			{name: "first cell of a session", unit: ms, turn: timed(firstCell).after(begin).then(end)},
			{name: "keystroke to echo", unit: ms, turn: timed(keys.echo)},
		},
		rows: []row{
			{what: exec + ", p50", other: 1, form: part, bound: 1. / 45},
			{what: exec + ", p50", other: 2, form: part, bound: 1. / 12},
			{what: "`1+1` in a context of Python, p50", ours: 3, other: 3, bound: 6},
			{what: "a session's start, `python3 -V` and end, p50", ours: 4, other: 4, bound: 30},
			{what: "a session's start, `python3 -V` and end, p95", ours: 4, other: 4, stat: p95, bound: 60},
			{what: "the first `1+1` of a session, p50", ours: 5, other: 5, bound: 40},
			{what: "a keystroke to its echo in a terminal, p95", ours: 6, other: 6, stat: p95, bound: 10},
		},
	}); err != nil {
		return err
	}
	if err := keys.close(ctx); err != nil { // an exec less that runs in the session
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

// keyboard is a terminal in which cat runs.
type keyboard struct {
	session
	execID string
	conn   *websocket.Conn
}

// openTerminal starts cat in a terminal of the session.
func (s session) openTerminal(ctx context.Context) (keyboard, error) {
	var r result
	err := s.call(ctx, http.MethodPost, "/sandbox/execs", map[string]any{
		"session_id": s.id, "exec": map[string]any{"script": "echo ready; exec cat", "tty": map[string]any{"cols": 80, "rows": 24}},
	}, &r)
	if err != nil {
		return keyboard{}, err
	}
	conn, _, err := websocket.Dial(ctx, s.url+"/sandbox/execs/"+r.ExecID+"/tty", nil) //nolint:bodyclose // Dial closes it
	if err != nil {
		return keyboard{}, err
	}
	k := keyboard{s, r.ExecID, conn}
	return k, k.shows(ctx, "ready")
}

// shows waits until the terminal shows a text.
func (k keyboard) shows(ctx context.Context, text string) error {
	for shown := ""; !strings.Contains(shown, text); {
		kind, message, err := k.conn.Read(ctx)
		if err != nil {
			return err
		}
		if kind == websocket.MessageBinary {
			shown += string(message)
		}
	}
	return nil
}

// echo presses a key and waits until the terminal shows it.
func (k keyboard) echo(ctx context.Context, _ *subject) error {
	if err := k.conn.Write(ctx, websocket.MessageBinary, []byte("x")); err != nil {
		return err
	}
	return k.shows(ctx, "x")
}

// close ends cat.
func (k keyboard) close(ctx context.Context) error {
	_ = k.conn.CloseNow()
	return errors.Join(k.call(ctx, http.MethodPost, "/sandbox/execs/"+k.execID+"/cancel", nil, nil),
		k.call(ctx, http.MethodGet, "/sandbox/execs/"+k.execID+"/wait?timeout_ms=60000", nil, nil))
}

// sessionBurst compares sessions that start, run a command and end, all at once on a pool that has
// a container for each, with as many docker runs, a few at once: the time to the last answer.
func (b *bench) sessionBurst(ctx context.Context, xs []*subject) error {
	sessions := timed(func(ctx context.Context, x *subject) error {
		return several(ctx, b.burst, b.burst, func(ctx context.Context, _ int) error {
			s, err := x.startSession(ctx)
			if err != nil {
				return err
			}
			return errors.Join(s.run(ctx, map[string]any{"script": "python3 -V"}), s.end(ctx))
		})
	}).after(func(ctx context.Context, x *subject) error { return x.fill(ctx, b.burst) }).then(calm)
	what := fmt.Sprintf("%[1]d sessions at once, %[1]d containers waiting: start, `python3 -V`, end, last answer", b.burst)
	return b.compare(ctx, comparison{
		section: "burst", title: what, subjects: xs, rounds: b.rounds, least: leastRounds,
		sides: []side{ours(ms, sessions), {
			name: fmt.Sprintf("docker run, %d at once", burstRuns), unit: ms, turn: plainRuns(b.burst, burstRuns),
		}},
		rows: []row{{what: what + ", p50", other: 1, form: part, bound: 1. / 10}},
	})
}
