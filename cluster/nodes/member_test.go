package nodes_test

import (
	"context"
	"log/slog"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"secbox/cluster/nodes"
	"secbox/fault"
)

// table is a Store in memory.
type table struct {
	mu       sync.Mutex
	down     bool
	epochs   map[string]int64
	until    map[string]time.Time // of the leases
	draining map[string]bool
	retired  []string
}

func newTable() *table {
	return &table{epochs: map[string]int64{}, until: map[string]time.Time{}, draining: map[string]bool{}}
}

func (s *table) lock() (unlock func(), err error) {
	s.mu.Lock()
	if s.down {
		err = fault.New(fault.DatabaseUnavailable, "it is down")
	}
	return s.mu.Unlock, err
}

func (s *table) Join(_ context.Context, n nodes.Node, lease time.Duration) (int64, error) {
	unlock, err := s.lock()
	defer unlock()
	if err == nil {
		s.epochs[n.NodeID]++
		s.until[n.NodeID], s.draining[n.NodeID] = time.Now().Add(lease), n.Draining
	}
	return s.epochs[n.NodeID], err
}

func (s *table) Renew(_ context.Context, id string, epoch int64, lease time.Duration) (held, draining bool, err error) {
	unlock, err := s.lock()
	defer unlock()
	if err != nil || s.epochs[id] != epoch {
		return false, false, err
	}
	s.until[id] = time.Now().Add(lease)
	return true, s.draining[id], nil
}

func (s *table) Leave(_ context.Context, id string, epoch int64) error {
	unlock, err := s.lock()
	defer unlock()
	if err == nil && s.epochs[id] == epoch {
		delete(s.until, id)
	}
	return err
}

func (s *table) Retire(_ context.Context, self string, _ time.Duration) (*nodes.Retired, error) {
	unlock, err := s.lock()
	defer unlock()
	if err != nil {
		return nil, err
	}
	for id, until := range s.until {
		if id != self && !until.After(time.Now()) {
			s.epochs[id]++
			delete(s.until, id)
			s.retired = append(s.retired, id)
			return &nodes.Retired{NodeID: id}, nil
		}
	}
	return nil, nil
}

func (s *table) Drain(context.Context, string, bool) error { return nil }
func (s *table) Forget(context.Context, string) error      { return nil }

func (s *table) Get(context.Context, string) (nodes.Node, error) { return nodes.Node{}, nil }

func (s *table) List(context.Context, time.Duration) ([]nodes.Node, error) { return nil, nil }

func (s *table) set(change func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	change()
}

func member(s nodes.Store, id string, fence func(context.Context) func()) *nodes.Member {
	return nodes.NewMember(nodes.Config{
		Store: s, Node: nodes.Node{NodeID: id}, Lease: 15 * time.Second, Fence: fence, Retired: func() {},
		Logger: slog.New(slog.DiscardHandler),
	})
}

func run(t *testing.T, m *nodes.Member) (stop func()) {
	t.Helper()
	if err := m.Join(t.Context()); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	var running sync.WaitGroup
	running.Go(func() { m.Run(ctx) })
	return func() {
		cancel()
		running.Wait()
	}
}

// TestDrain: a node learns that it is drained, and that it is no longer; it stays drained when it
// loses its lease, and not when it starts again.
func TestDrain(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newTable()
		s.draining["a"] = true
		var steps []bool
		m := nodes.NewMember(nodes.Config{
			Store: s, Node: nodes.Node{NodeID: "a"}, Fence: func(context.Context) func() { return func() {} }, Logger: slog.New(slog.DiscardHandler),
			Drain: func(draining bool) { steps = append(steps, draining) },
		})
		defer run(t, m)()
		learns := func(want ...bool) {
			t.Helper()
			time.Sleep(10 * time.Second)
			s.set(func() {
				if !slices.Equal(steps, want) || m.Draining() != s.draining["a"] {
					t.Errorf("it has learned %v, want %v; draining: %v", steps, want, m.Draining())
				}
			})
		}
		learns()
		s.set(func() { s.draining["a"] = true })
		learns(true)
		s.set(func() { s.epochs["a"]++ })
		learns(true)
		s.set(func() { s.draining["a"] = false })
		learns(true, false)
	})
}

func unexpected(t *testing.T) func(context.Context) func() {
	return func(context.Context) func() {
		t.Error("a node was fenced that has its lease")
		return func() {}
	}
}

// TestDeadNodeIsRetired: another node retires the lease of a node that ended without Leave, once,
// and does not retire a node that left.
func TestDeadNodeIsRetired(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newTable()
		defer run(t, member(s, "a", unexpected(t)))()
		dead, left := member(s, "dead", unexpected(t)), member(s, "left", unexpected(t))
		defer run(t, left)()
		run(t, dead)()
		time.Sleep(time.Minute)
		if err := left.Leave(t.Context()); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Minute)
		s.set(func() {
			if !slices.Equal(s.retired, []string{"dead"}) || len(s.until) != 1 {
				t.Errorf("retired: %v; leases: %v", s.retired, s.until)
			}
		})
	})
}

// TestOutageRetiresNobody: after an outage of the database, when all leases have ended, all nodes
// renew theirs first.
func TestOutageRetiresNobody(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newTable()
		for _, id := range []string{"a", "b", "c"} {
			defer run(t, member(s, id, unexpected(t)))()
			time.Sleep(700 * time.Millisecond)
		}
		for outage := range 40 {
			time.Sleep(time.Minute)
			s.set(func() { s.down = true })
			time.Sleep(time.Duration(outage) * time.Second)
			s.set(func() { s.down = false })
		}
		s.set(func() {
			if len(s.retired) > 0 {
				t.Errorf("retired: %v", s.retired)
			}
		})
	})
}

// TestRetiredNodeIsFenced: a node that learns that its lease was retired ends what it runs before
// it has a new one, even if the database fails meanwhile.
func TestRetiredNodeIsFenced(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newTable()
		var steps []string
		m := member(s, "a", func(context.Context) func() {
			s.set(func() {
				steps = append(steps, "fenced")
				s.down = true
			})
			return func() { s.set(func() { steps = append(steps, "resumed") }) }
		})
		defer run(t, m)()
		s.set(func() { s.epochs["a"]++; delete(s.until, "a") }) // as another node does
		time.Sleep(10 * time.Second)
		s.set(func() {
			if !slices.Equal(steps, []string{"fenced"}) {
				t.Errorf("without a database: %v", steps)
			}
			s.down = false
		})
		time.Sleep(10 * time.Second)
		s.set(func() {
			if !slices.Equal(steps, []string{"fenced", "resumed"}) || m.Epoch() != 3 || len(s.until) != 1 {
				t.Errorf("at last: %v, epoch %d, leases %v", steps, m.Epoch(), s.until)
			}
		})
	})
}
