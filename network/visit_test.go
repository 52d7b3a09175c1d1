package network_test

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"net"
	"sync"
	"testing"
	"time"

	"secbox/audit"
	"secbox/fault"
	"secbox/network"
	"secbox/policy"
)

// rowStore keeps the latest of each row.
type rowStore struct {
	mu   sync.Mutex
	rows map[int64]audit.Connection
	fail error
	news chan audit.Connection // gets each row that is saved
}

func (s *rowStore) SaveConnections(_ context.Context, rows []audit.Connection) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.fail != nil {
		return s.fail
	}
	for _, c := range rows {
		s.rows[c.Seq] = c
		select {
		case s.news <- c:
		default:
		}
	}
	return nil
}

func (s *rowStore) Connections(context.Context, string, int64, int) ([]audit.Connection, error) {
	return nil, errors.New("not here")
}

func visits(t *testing.T, cfg network.Config) (*network.Network, *network.Way, *rowStore) {
	t.Helper()
	store := &rowStore{rows: map[int64]audit.Connection{}, news: make(chan audit.Connection, 1000)}
	cfg.Store, cfg.Now, cfg.Logger = store, time.Now, slog.New(slog.DiscardHandler)
	n := network.New(cfg)
	w := n.Open(network.Exec{ID: "s", Token: "t", Limits: policy.NetLimits{NetIdleMS: 60_000, NetMaxConnections: 1}})
	return n, w, store
}

// answering dials a server that sends back what it gets.
func answering(context.Context) (net.Conn, error) {
	here, there := net.Pipe()
	go func() {
		_, _ = io.Copy(there, there)
		_ = there.Close()
	}()
	return here, nil
}

func use(t *testing.T, n *network.Network, v network.Visitor, port uint16) net.Conn {
	t.Helper()
	conn, err := n.Visit(t.Context(), "s", v, port, answering)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := conn.Write([]byte("12345")); err != nil {
		t.Error(err)
	}
	if _, err := io.ReadFull(conn, make([]byte, 3)); err != nil {
		t.Error(err)
	}
	return conn
}

// TestVisitsAreOnRecord: a row for each visitor and port, with the bytes of all its connections,
// and none without a row.
func TestVisitsAreOnRecord(t *testing.T) {
	t.Parallel()
	n, w, store := visits(t, network.Config{Connections: 10, PerToken: 10})
	ann, bob := network.Visitor{Token: "t", Address: "10.0.0.1"}, network.Visitor{Token: "t", Link: "L", Address: "10.0.0.2"}
	first := use(t, n, ann, 8000)
	if c := <-store.news; c.Seq != 1 || c.Protocol != audit.ProtocolPort || c.Host != "t" || c.Port != 8000 || c.Address != "10.0.0.1" ||
		!c.Allowed || !c.EndedAt.IsZero() {
		t.Errorf("%+v", c)
	}
	_ = use(t, n, ann, 8000).Close()
	_ = first.Close()
	_ = first.Close()
	_ = use(t, n, ann, 8001).Close()
	last := use(t, n, bob, 8000)
	if n.Count() != 1 {
		t.Errorf("%d connections are open", n.Count())
	}
	refused := errors.New("refused")
	if _, err := n.Visit(t.Context(), "s", bob, 9000, func(context.Context) (net.Conn, error) { return nil, refused }); !errors.Is(err, refused) {
		t.Error(err)
	}
	traffic := w.Close()
	if traffic.Connections != 4 || traffic.Denied != 0 || traffic.BytesIn != 20 || traffic.BytesOut != 12 {
		t.Errorf("%+v", traffic)
	}
	rows := []audit.Connection{store.rows[1], store.rows[2], store.rows[3], store.rows[4]}
	if digest, marks := audit.RowDigests(rows); digest != traffic.Digest || marks != traffic.Marks {
		t.Errorf("the digest is of other rows")
	}
	if c := rows[0]; c.BytesIn != 10 || c.BytesOut != 6 || c.End != audit.ConnExecEnded {
		t.Errorf("%+v", c)
	}
	if c := rows[2]; c.Rule != "L" || c.Address != "10.0.0.2" {
		t.Errorf("%+v", c)
	}
	_ = last.Close()
	if _, err := n.Visit(t.Context(), "s", ann, 8000, answering); !fault.Is(err, fault.SessionEnded) || n.Count() != 0 {
		t.Errorf("after the end: %v, %d open", err, n.Count())
	}
}

func TestVisitEndsWithoutUse(t *testing.T) {
	t.Parallel()
	n, w, store := visits(t, network.Config{Connections: 10, PerToken: 10, VisitRest: time.Millisecond})
	defer w.Close()
	ann := network.Visitor{Token: "t"}
	_ = use(t, n, ann, 8000).Close()
	<-store.news
	if c := <-store.news; c.Seq != 1 || c.End != audit.ConnClosed || c.BytesIn != 5 {
		t.Errorf("%+v", c)
	}
	_ = use(t, n, ann, 8000).Close()
	if c := <-store.news; c.Seq != 2 {
		t.Errorf("%+v", c)
	}
}

func TestVisitsHaveLimits(t *testing.T) {
	t.Parallel()
	n, w, store := visits(t, network.Config{Connections: 3, PerToken: 2})
	defer w.Close()
	for range 2 {
		defer use(t, n, network.Visitor{Token: "t"}, 8000).Close() //nolint:gocritic // they stay open
	}
	if _, err := n.Visit(t.Context(), "s", network.Visitor{Token: "t"}, 8000, answering); !fault.Is(err, fault.SessionLimit) {
		t.Error(err)
	}
	defer use(t, n, network.Visitor{Token: "u"}, 8000).Close()
	if _, err := n.Visit(t.Context(), "s", network.Visitor{Token: "v"}, 8000, answering); !fault.Is(err, fault.SessionLimit) {
		t.Error(err)
	}
	if _, err := n.Visit(t.Context(), "other", network.Visitor{Token: "v"}, 8000, answering); !fault.Is(err, fault.SessionEnded) {
		t.Error(err)
	}
	store.mu.Lock()
	defer store.mu.Unlock()
	if len(store.rows) != 2 {
		t.Errorf("%d rows", len(store.rows))
	}
}

// TestNoVisitWithoutRow: nothing is dialed while the database does not answer.
func TestNoVisitWithoutRow(t *testing.T) {
	t.Parallel()
	n, w, store := visits(t, network.Config{Connections: 3, PerToken: 2})
	store.mu.Lock()
	store.fail = errors.New("down")
	store.mu.Unlock()
	_, err := n.Visit(t.Context(), "s", network.Visitor{Token: "t"}, 8000, func(context.Context) (net.Conn, error) {
		t.Error("it was dialed")
		return nil, errors.New("dialed")
	})
	if !fault.Is(err, fault.DatabaseUnavailable) || n.Count() != 0 {
		t.Errorf("%v, %d open", err, n.Count())
	}
	store.mu.Lock()
	store.fail = nil
	store.mu.Unlock()
	if traffic := w.Close(); traffic.Connections != 1 || traffic.Denied != 1 || store.rows[1].Allowed {
		t.Errorf("%+v %+v", traffic, store.rows)
	}
}
