package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/url"
	"sync"
	"time"

	"secbox/fault"
)

// How long things may take.
const (
	lastWords    = 2 * time.Second // for calls in flight when the client's messages end
	sayGoodbye   = 3 * time.Second // for the end of the session
	cancelAgain  = 300 * time.Millisecond
	cancelTimes  = 5
	listenAtOnce = 100 * time.Millisecond
	listenLater  = 5 * time.Second
	restartTakes = 5 * time.Second // for a core-api that was there a moment ago
	restartLook  = 200 * time.Millisecond
)

// bridge passes messages between a client on stdio and a core-api. It keeps the client's session alive when core-api is restarted: it
// introduces the client again by the words that the client has used, and tells it that the tools may have changed.
type bridge struct {
	server *endpoint
	out    *output
	log    *slog.Logger

	renewing sync.Mutex // one at a time

	mu         sync.Mutex
	session    session
	initialize []byte // the client's, as it was sent
	inflight   map[string]struct{}
	listening  bool

	work sync.WaitGroup
}

func newBridge(u *url.URL, token string, out io.Writer, log *slog.Logger) *bridge {
	return &bridge{server: newEndpoint(u, token), out: &output{w: out}, log: log, inflight: map[string]struct{}{}}
}

// run passes messages until the client's end or ctx does.
func (b *bridge) run(ctx context.Context, in io.Reader) error {
	ctx, cancel := context.WithCancel(ctx)
	defer b.goodbye()
	defer b.work.Wait()
	defer cancel()

	incoming := make(chan []byte)
	ended := make(chan error, 1)
	go func() { // not waited for: a read of standard input cannot be interrupted
		from := newLines(in)
		for {
			line, err := from.next()
			if errors.Is(err, errTooLong) {
				line, err = nil, nil
			}
			if err != nil {
				ended <- err
				return
			}
			select {
			case incoming <- line:
			case <-ctx.Done():
				return
			}
		}
	}()
	for {
		select {
		case <-ctx.Done():
			return nil
		case line := <-incoming:
			b.pass(ctx, line)
		case err := <-ended:
			b.awaitAnswers(ctx)
			if !errors.Is(err, io.EOF) {
				return fault.Wrap(fault.Internal, err, "standard input cannot be read: %s", err)
			}
			return nil
		}
	}
}

// pass sends one message of the client on. Calls go side by side, all else in its order.
func (b *bridge) pass(ctx context.Context, line []byte) {
	if line == nil {
		b.write(errorFor(nil, codeParse, fmt.Sprintf("the message has more than %d bytes", maxMessage)))
		return
	}
	m, err := parseMessage(line)
	if err != nil {
		b.write(errorFor(nil, codeParse, "the message is no JSON-RPC message on one line"))
		return
	}
	switch {
	case m.Method == "initialize" && m.isCall():
		b.mu.Lock()
		b.initialize, b.session = line, session{}
		b.mu.Unlock()
		b.call(ctx, m)
	case m.isCall():
		key := idKey(m.ID)
		b.mu.Lock()
		b.inflight[key] = struct{}{}
		b.mu.Unlock()
		b.work.Go(func() {
			defer b.done(key)
			b.call(ctx, m)
		})
	default:
		if _, err := b.ask(ctx, m, nil); err != nil && ctx.Err() == nil {
			b.log.Warn("a message was not delivered", "method", m.Method, "error", err)
		}
		if id := m.canceled(); id != nil {
			b.cancelAgain(ctx, m, idKey(id))
		}
		if m.Method == "notifications/initialized" {
			b.listen(ctx)
		}
	}
}

func (b *bridge) done(key string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	delete(b.inflight, key)
}

func (b *bridge) isInflight(key string) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	_, ok := b.inflight[key]
	return ok
}

// awaitAnswers gives calls in flight a moment when the client has said its last word: it may be a script that reads on.
func (b *bridge) awaitAnswers(ctx context.Context) {
	deadline := time.After(lastWords)
	look := time.NewTicker(10 * time.Millisecond)
	defer look.Stop()
	for {
		b.mu.Lock()
		waiting := len(b.inflight)
		b.mu.Unlock()
		if waiting == 0 {
			return
		}
		select {
		case <-ctx.Done():
			return
		case <-deadline:
			return
		case <-look.C:
		}
	}
}

// call sends a request and sees to it that the client gets exactly one answer.
func (b *bridge) call(ctx context.Context, m message) {
	answered, err := b.ask(ctx, m, func(raw []byte) (bool, error) {
		got, err := parseMessage(raw)
		return err == nil && got.isAnswer() && idKey(got.ID) == idKey(m.ID), nil
	})
	if answered || ctx.Err() != nil {
		return
	}
	if err == nil {
		err = errors.New("the connection to core-api broke before the answer; what was asked for may have run: GET /sandbox/execs shows it")
	}
	b.log.Error("a request has no answer", "method", m.Method, "error", err)
	b.write(errorFor(m.ID, codeBroken, err.Error()))
}

// ask sends a message and passes on what comes back. What never reached core-api is sent again: while a core-api that was there a moment
// ago does not answer, and once in a new session when it does not know the old one.
func (b *bridge) ask(ctx context.Context, m message, isAnswer func(raw []byte) (bool, error)) (answered bool, err error) {
	patience := time.Now().Add(restartTakes)
	for renewed := false; ; {
		b.mu.Lock()
		s := b.session
		b.mu.Unlock()
		answered, err = b.once(ctx, m, s, isAnswer)
		var lost refused
		var away unreachable
		switch {
		case s.id == "":
			return answered, err
		case asError(err, &lost) && lost.lostSession() && !renewed:
			renewed = true
			if err := b.renew(ctx, s); err != nil {
				return false, err
			}
		case asError(err, &away) && time.Now().Before(patience):
			select {
			case <-ctx.Done():
				return false, ctx.Err()
			case <-time.After(restartLook):
			}
		default:
			return answered, err
		}
	}
}

func (b *bridge) once(ctx context.Context, m message, s session, isAnswer func(raw []byte) (bool, error)) (done bool, err error) {
	if v := m.protocolVersion(); v != "" {
		s.version = v
	}
	resp, err := b.server.send(ctx, http.MethodPost, s, m.raw)
	var message answered
	if asError(err, &message) && m.isCall() {
		b.write(message.raw)
		return true, nil
	}
	if err != nil {
		return false, err
	}
	defer resp.Body.Close()
	opens := resp.Header.Get("Mcp-Session-Id")
	b.opened(m, session{id: opens}) // to be ended, even if nothing more should come
	err = b.server.read(resp, func(raw []byte) error {
		if isAnswer != nil {
			if is, _ := isAnswer(raw); is {
				done = true
				b.opened(m, session{opens, versionOf(raw)})
			}
		}
		b.write(raw)
		return nil
	})
	return done, err
}

// opened remembers the session that the client's initialize has opened.
func (b *bridge) opened(m message, s session) {
	if m.Method != "initialize" || s.id == "" {
		return
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.session = s
}

// versionOf is the protocol's version that the server has chosen.
func versionOf(raw []byte) string {
	var answer struct {
		Result struct {
			ProtocolVersion string `json:"protocolVersion"`
		} `json:"result"`
	}
	_ = json.Unmarshal(raw, &answer)
	return answer.Result.ProtocolVersion
}

// renew opens a new session in the place of one that is lost, unless somebody else has done so.
func (b *bridge) renew(ctx context.Context, lost session) error {
	b.renewing.Lock()
	defer b.renewing.Unlock()
	b.mu.Lock()
	now, hello := b.session, b.initialize
	b.mu.Unlock()
	if now != lost {
		return nil
	}
	resp, err := b.server.send(ctx, http.MethodPost, session{}, hello)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	next := session{id: resp.Header.Get("Mcp-Session-Id")}
	err = b.server.read(resp, func(raw []byte) error {
		if v := versionOf(raw); v != "" {
			next.version = v
		}
		return nil // the client has been welcomed already
	})
	if err != nil {
		return err
	}
	if next.id == "" || next.version == "" {
		return fmt.Errorf("core-api at %s does not open a session again; start the client again", b.server.address())
	}
	ready, err := b.server.send(ctx, http.MethodPost, next, []byte(`{"jsonrpc":"2.0","method":"notifications/initialized"}`))
	if err != nil {
		return err
	}
	_ = ready.Body.Close()
	b.mu.Lock()
	b.session = next
	b.mu.Unlock()
	b.log.Info("core-api had lost the session, probably by a restart; a new one is open")
	b.write([]byte(`{"jsonrpc":"2.0","method":"notifications/tools/list_changed"}`))
	return nil
}

// cancelAgain repeats a cancellation while the call it is about is in flight: sent right behind the call, on another connection, it may
// have come before it.
func (b *bridge) cancelAgain(ctx context.Context, m message, key string) {
	b.work.Go(func() {
		for range cancelTimes {
			select {
			case <-ctx.Done():
				return
			case <-time.After(cancelAgain):
			}
			if !b.isInflight(key) {
				return
			}
			_, _ = b.ask(ctx, m, nil)
		}
	})
}

// listen keeps the stream open on which core-api speaks without being asked.
func (b *bridge) listen(ctx context.Context) {
	b.mu.Lock()
	already := b.listening
	b.listening = true
	b.mu.Unlock()
	if already {
		return
	}
	b.work.Go(func() {
		pause := listenAtOnce
		for {
			b.mu.Lock()
			s := b.session
			b.mu.Unlock()
			began := time.Now()
			err := b.hear(ctx, s)
			if ctx.Err() != nil {
				return
			}
			var r refused
			if asError(err, &r) && r.lostSession() {
				err = b.renew(ctx, s)
			}
			if pause = min(2*pause, listenLater); err == nil || time.Since(began) > listenLater {
				pause = listenAtOnce
			}
			select {
			case <-ctx.Done():
				return
			case <-time.After(pause):
			}
		}
	})
}

func (b *bridge) hear(ctx context.Context, s session) error {
	resp, err := b.server.send(ctx, http.MethodGet, s, nil)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	return b.server.read(resp, func(raw []byte) error {
		b.write(raw)
		return nil
	})
}

// goodbye ends the session; what still runs in it is canceled by core-api.
func (b *bridge) goodbye() {
	b.mu.Lock()
	s := b.session
	b.mu.Unlock()
	if s.id != "" {
		ctx, cancel := context.WithTimeout(context.Background(), sayGoodbye)
		defer cancel()
		if resp, err := b.server.send(ctx, http.MethodDelete, s, nil); err == nil {
			_ = resp.Body.Close()
		}
	}
	b.server.client.CloseIdleConnections()
}

func (b *bridge) write(raw []byte) {
	if err := b.out.write(raw); err != nil {
		b.log.Error("a message was not written to standard output", "error", err)
	}
}

func asError[T error](err error, target *T) bool { return errors.As(err, target) }
