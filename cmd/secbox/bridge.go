package main

import (
	"cmp"
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

// Timeouts and intervals.
const (
	cancelAgain    = 300 * time.Millisecond
	cancelTimes    = 5
	listenMinPause = 100 * time.Millisecond
	listenMaxPause = 5 * time.Second
	restartTime    = 5 * time.Second // for a core-api that answered before
	restartPoll    = 200 * time.Millisecond
)

// bridge passes messages between a client on stdio and a core-api. It keeps the client's session
// alive across a restart of core-api: it repeats the client's initialize, and tells the client that
// the tools may have changed.
type bridge struct {
	server *endpoint
	out    *output
	log    *slog.Logger

	closeTime time.Duration // to end the session

	renewing  sync.Mutex // serializes renew
	inflight  sync.Map   // the keys of the client's calls
	listening sync.Once

	mu         sync.Mutex
	session    session
	initialize []byte // the client's request

	calls sync.WaitGroup // requests of the client
	work  sync.WaitGroup // everything else
}

func newBridge(u *url.URL, token string, out io.Writer, log *slog.Logger) *bridge {
	return &bridge{
		server: newEndpoint(u, token), out: &output{w: out}, log: log, closeTime: 3 * time.Second,
	}
}

// run passes messages until the client closes its end and has its answers, or ctx ends.
func (b *bridge) run(ctx context.Context, in io.Reader) error {
	ctx, cancel := context.WithCancel(ctx)
	defer b.goodbye()
	defer b.work.Wait()
	defer b.calls.Wait()
	defer cancel()

	incoming := make(chan []byte)
	ended := make(chan error, 1)
	go func() { // not awaited: a read of standard input cannot be interrupted
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
				return fault.Wrap(fault.Internal, err, "cannot read standard input: %s", err)
			}
			return nil
		}
	}
}

// pass sends one message of the client. Calls run concurrently, all other messages in order.
func (b *bridge) pass(ctx context.Context, line []byte) {
	if line == nil {
		b.write(errorFor(nil, codeParse, "", fmt.Sprintf("the message has more than %d bytes", maxMessage)))
		return
	}
	m, err := parseMessage(line)
	if err != nil {
		b.write(errorFor(nil, codeParse, "", "not a JSON-RPC message on one line"))
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
		b.inflight.Store(key, nil)
		b.calls.Go(func() {
			defer b.inflight.Delete(key)
			b.call(ctx, m)
		})
	default:
		if _, err := b.ask(ctx, m); err != nil && ctx.Err() == nil {
			b.log.Warn("deliver a message", "method", m.Method, "error", err)
		}
		if id := m.canceled(); id != nil {
			b.cancelAgain(ctx, m, idKey(id))
		}
		if m.Method == "notifications/initialized" {
			b.listening.Do(func() { b.listen(ctx) })
		}
	}
}

// awaitAnswers waits for the calls in flight, which core-api bounds: the client may be a script
// that still reads. A host that does not want the answers ends the process.
func (b *bridge) awaitAnswers(ctx context.Context) {
	answered := make(chan struct{})
	go func() {
		b.calls.Wait()
		close(answered)
	}()
	select {
	case <-answered:
	case <-ctx.Done():
	}
}

// call sends a request and makes sure that the client gets exactly one answer.
func (b *bridge) call(ctx context.Context, m message) {
	answered, err := b.ask(ctx, m)
	if answered || ctx.Err() != nil {
		return
	}
	if err == nil {
		err = errors.New("the connection to core-api broke before the answer; the request may have run: GET /sandbox/execs shows it")
	}
	b.log.Error("no answer to a request", "method", m.Method, "error", err)
	refusal, _ := errors.AsType[refused](err)
	b.write(errorFor(m.ID, codeBroken, refusal.code, err.Error()))
}

// ask sends a message and passes the response on. Messages that never reached core-api are sent
// again: while a core-api that answered before does not, and once in a new session if core-api does
// not know the old one.
func (b *bridge) ask(ctx context.Context, m message) (answered bool, err error) {
	deadline := time.Now().Add(restartTime)
	for renewed := false; ; {
		s := b.current()
		answered, err = b.once(ctx, m, s)
		lost, isLost := errors.AsType[refused](err)
		_, isAway := errors.AsType[unreachable](err)
		switch {
		case s.id == "":
			return answered, err
		case isLost && lost.lostSession() && !renewed:
			renewed = true
			if err := b.renew(ctx, s); err != nil {
				return false, err
			}
		case isAway && time.Now().Before(deadline):
			if !sleep(ctx, restartPoll) {
				return false, ctx.Err()
			}
		default:
			return answered, err
		}
	}
}

// once is ask without retries.
func (b *bridge) once(ctx context.Context, m message, s session) (done bool, err error) {
	if v := m.protocolVersion(); v != "" {
		s.version = v
	}
	resp, err := b.server.send(ctx, http.MethodPost, s, m.raw)
	if message, ok := errors.AsType[answered](err); ok && m.isCall() {
		b.write(message.raw)
		return true, nil
	}
	if err != nil {
		return false, err
	}
	defer resp.Body.Close()
	opens := resp.Header.Get("Mcp-Session-Id")
	b.opened(m, session{id: opens}) // so that it is ended, even without an answer
	last := ""
	each := func(id string, raw []byte) {
		if last = cmp.Or(id, last); len(raw) == 0 { // it only has an id
			return
		}
		if m.isAnsweredBy(raw) {
			done = true
			b.opened(m, session{opens, versionOf(raw)})
		}
		b.write(raw)
	}
	err = b.server.read(resp, each)
	// The connection broke before the answer, or something between cut it off: ask for the rest.
	for deadline := time.Now().Add(restartTime); last != "" && !done && s.id != "" && time.Now().Before(deadline); {
		if !sleep(ctx, restartPoll) {
			return false, ctx.Err()
		}
		began, before := time.Now(), last
		rest, failed := b.server.send(ctx, http.MethodGet, s, nil, "Last-Event-ID", last)
		// core-api does not have it; at a conflict, it has not noticed the break
		if r, ok := errors.AsType[refused](failed); ok && r.status != http.StatusConflict {
			break
		}
		if failed != nil {
			continue
		}
		err = b.server.read(rest, each)
		_ = rest.Body.Close()
		if last != before || time.Since(began) > restartTime {
			deadline = time.Now().Add(restartTime)
		}
	}
	if _, ok := errors.AsType[refused](err); !ok && !errors.Is(err, errTooLong) {
		err = nil // the connection broke; call tells it
	}
	return done, err
}

func (b *bridge) current() session {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.session
}

// opened records the session of the client's initialize.
func (b *bridge) opened(m message, s session) {
	if m.Method != "initialize" || s.id == "" {
		return
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.session = s
}

// versionOf returns the protocol version that the server chose.
func versionOf(raw []byte) string {
	var answer struct {
		Result struct {
			ProtocolVersion string `json:"protocolVersion"`
		} `json:"result"`
	}
	_ = json.Unmarshal(raw, &answer)
	return answer.Result.ProtocolVersion
}

// renew opens a new session in place of a lost one, unless another goroutine has done so.
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
	err = b.server.read(resp, func(_ string, raw []byte) { // not for the client, which has had its answer
		if v := versionOf(raw); v != "" {
			next.version = v
		}
	})
	if err != nil {
		return err
	}
	if next.id == "" || next.version == "" {
		return fmt.Errorf("core-api at %s does not open a new session; restart the client", b.server.address())
	}
	ready, err := b.server.send(ctx, http.MethodPost, next, []byte(`{"jsonrpc":"2.0","method":"notifications/initialized"}`))
	if err != nil {
		return err
	}
	_ = ready.Body.Close()
	b.mu.Lock()
	b.session = next
	b.mu.Unlock()
	b.log.Info("opened a new session, because core-api has lost the old one, probably in a restart")
	b.write([]byte(`{"jsonrpc":"2.0","method":"notifications/tools/list_changed"}`))
	return nil
}

// cancelAgain repeats a cancellation while its call is in flight: sent on another connection, it
// may have overtaken the call.
func (b *bridge) cancelAgain(ctx context.Context, m message, key string) {
	b.work.Go(func() {
		for range cancelTimes {
			if !sleep(ctx, cancelAgain) {
				return
			}
			if _, running := b.inflight.Load(key); !running {
				return
			}
			_, _ = b.ask(ctx, m)
		}
	})
}

// listen keeps the stream of core-api's own messages open.
func (b *bridge) listen(ctx context.Context) {
	b.work.Go(func() {
		pause := listenMinPause
		for {
			s := b.current()
			began := time.Now()
			err := b.hear(ctx, s)
			if ctx.Err() != nil {
				return
			}
			if r, ok := errors.AsType[refused](err); ok && r.lostSession() {
				err = b.renew(ctx, s)
			}
			if pause = min(2*pause, listenMaxPause); err == nil || time.Since(began) > listenMaxPause {
				pause = listenMinPause
			}
			if !sleep(ctx, pause) {
				return
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
	return b.server.read(resp, func(_ string, raw []byte) {
		if len(raw) > 0 {
			b.write(raw)
		}
	})
}

// goodbye ends the session; core-api cancels its running calls.
func (b *bridge) goodbye() {
	if s := b.current(); s.id != "" {
		ctx, cancel := context.WithTimeout(context.Background(), b.closeTime)
		defer cancel()
		if resp, err := b.server.send(ctx, http.MethodDelete, s, nil); err == nil {
			_ = resp.Body.Close()
		}
	}
	b.server.client.CloseIdleConnections()
}

// sleep waits for a while, and reports false if ctx ends first.
func sleep(ctx context.Context, d time.Duration) bool {
	select {
	case <-ctx.Done():
		return false
	case <-time.After(d):
		return true
	}
}

func (b *bridge) write(raw []byte) {
	if err := b.out.write(raw); err != nil {
		b.log.Error("write a message to standard output", "error", err)
	}
}
