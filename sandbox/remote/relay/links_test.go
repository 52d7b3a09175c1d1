//go:build linux

package relay_test

import (
	"bufio"
	"context"
	"encoding/gob"
	"errors"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/coder/websocket"

	"secbox/fault"
	"secbox/sandbox"
	"secbox/sandbox/remote"
	"secbox/sandbox/remote/relay"
)

// neighbor is the node "b" as the node "a" reaches it in memory, so that a test can have a fake
// clock.
type neighbor struct {
	relay.Peers
	serve http.Handler  // of what a asks for, but for the list of machines
	pace  time.Duration // for each KiB to b
}

func (n *neighbor) URL(_ context.Context, nodeID, uri string) (string, error) {
	return "http://" + nodeID + uri, nil
}

func (n *neighbor) Sender(*http.Request) (string, error) { return "a", nil }

func (n *neighbor) Others(context.Context) ([]string, error) {
	return []string{"b"}, nil
}

func (n *neighbor) While(ctx context.Context, _ string) (context.Context, context.CancelFunc) {
	return context.WithCancel(ctx)
}

func (n *neighbor) Transport() http.RoundTripper { return n }

// RoundTrip answers with a list of one machine of the user, or begins a call.
func (n *neighbor) RoundTrip(r *http.Request) (*http.Response, error) {
	if r.Header.Get("Upgrade") == "" {
		list := httptest.NewRecorder()
		err := gob.NewEncoder(list).Encode([]remote.RunnerInfo{{UserID: user.ID, Name: "laptop", ConnectedSince: time.Now()}})
		return list.Result(), err
	}
	here, there := net.Pipe()
	w := &pipeWriter{header: http.Header{}, conn: there, taken: make(chan struct{})}
	go n.serve.ServeHTTP(w, r)
	<-w.taken
	return &http.Response{StatusCode: http.StatusSwitchingProtocols, Header: w.header, Body: slowConn{here, n.pace}}, nil
}

// pipeWriter is the answer that becomes a WebSocket.
type pipeWriter struct {
	header http.Header
	conn   net.Conn
	taken  chan struct{}
}

func (w *pipeWriter) Header() http.Header { return w.header }

func (w *pipeWriter) Write([]byte) (int, error) { return 0, errors.ErrUnsupported }

func (w *pipeWriter) WriteHeader(int) {}

func (w *pipeWriter) Hijack() (net.Conn, *bufio.ReadWriter, error) {
	close(w.taken)
	return w.conn, bufio.NewReadWriter(bufio.NewReader(w.conn), bufio.NewWriter(w.conn)), nil
}

type slowConn struct {
	net.Conn
	pace time.Duration
}

func (c slowConn) Write(p []byte) (int, error) {
	time.Sleep(time.Duration(len(p)) * c.pace / 1024)
	return c.Conn.Write(p)
}

// machines makes the machines of a node.
func (n *neighbor) machines(t *testing.T, id string) *relay.Machines {
	m := relay.New(relay.Config{NodeID: id, Peers: n, OnRecord: func(context.Context, string, string, sandbox.User) error { return nil }})
	t.Cleanup(func() { _ = m.Close() })
	return m
}

// TestCancelWhileContentWaits: a call is given up some time after its cancel, also if the other
// node takes no message, and so not the cancel.
func TestCancelWhileContentWaits(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		n := &neighbor{serve: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			conn, err := websocket.Accept(w, r, nil)
			if err != nil {
				t.Error(err)
				return
			}
			if _, _, err := conn.Read(t.Context()); err != nil {
				t.Error(err)
			}
			cancel()
		})}
		a := n.machines(t, "a")
		if _, err := a.WriteFileFrom(ctx, "/workspace/f", zeros{}, 0o644, user); !fault.Is(err, fault.OutcomeUnknown) || !errors.Is(err, context.Canceled) {
			t.Error(err)
		}
	})
}

// TestLargeCallOnASlowNetwork: a node waits for a call as long as the node that sends it.
func TestLargeCallOnASlowNetwork(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		n := &neighbor{pace: time.Millisecond}
		b := n.machines(t, "b")
		n.serve = b
		_, err := n.machines(t, "a").Exec(t.Context(), sandbox.ExecSpec{Command: "cat", Stdin: strings.Repeat("x", 6<<20), User: user})
		if !fault.Is(err, fault.RunnerOffline) || !strings.Contains(err.Error(), "laptop") { // the answer of b, which has no machine
			t.Error(err)
		}
	})
}

// slowDatabase answers the first question when so many calls have asked, after a second.
type slowDatabase struct {
	neighbor
	calls int32
	asked atomic.Int32 // looks at the clock: one of each call, and one of each round
	all   chan struct{}
	reads atomic.Int32
}

func (d *slowDatabase) Now() time.Time {
	now := time.Unix(1000, 0).Add(time.Duration(d.reads.Load()) * time.Second)
	if d.asked.Add(1) == d.calls+1 {
		close(d.all)
	}
	return now
}

func (d *slowDatabase) Others(ctx context.Context) ([]string, error) {
	select {
	case <-d.all:
	case <-ctx.Done():
	}
	d.reads.Add(1)
	return nil, nil
}

// TestOneRoundAnswersAll: calls that wait while the nodes are asked take the answer, and do not ask
// one after the other.
func TestOneRoundAnswersAll(t *testing.T) {
	t.Parallel()
	d := &slowDatabase{calls: 100, all: make(chan struct{})}
	a := relay.New(relay.Config{
		NodeID: "a", Peers: d, OnRecord: func(context.Context, string, string, sandbox.User) error { return nil },
		Config: remote.Config{Now: d.Now},
	})
	var all sync.WaitGroup
	for range d.calls {
		all.Go(func() { a.Runners(t.Context()) })
	}
	all.Wait()
	if reads := d.reads.Load(); reads != 1 {
		t.Errorf("%d rounds", reads)
	}
	if err := a.Close(); err != nil {
		t.Error(err)
	}
}
