// Package relay makes the machines of users that are connected to any node of the installation one
// sandbox on each of them.
//
// The node that a runner connects to first owns its machine: the requests under way, and what the
// runner has to do when it comes back (package remote). When another node gets a request for the
// machine, it calls the owner. When the runner dials another node, for instance through a load
// balancer, that node passes the link and the transfers on to the owner, until the owner ends or
// lets go of the machine. So no two live nodes ever own one machine, and what package remote
// promises holds with several nodes, too.
//
// A node asks the others which machines they own; no database stores it. An answer is at most a
// second old, unless a node is too busy to answer. A node that ends takes its machines with it.
// Rows, policies and permissions stay with the node that got the request. The package must not know
// them.
package relay

import (
	"bytes"
	"cmp"
	"context"
	"encoding/gob"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"maps"
	"net/http"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"secbox/cluster/peer"
	"secbox/fault"
	"secbox/sandbox"
	"secbox/sandbox/remote"
)

// Peers are the other nodes; see peer.Peers.
type Peers interface {
	// URL returns where Transport reaches another node; Sender the node that asks this one.
	// fault.NodeUnreachable.
	URL(ctx context.Context, nodeID, uri string) (string, error)
	Sender(r *http.Request) (nodeID string, err error)

	// Others returns the nodes that can be asked. Tagged returns the node with a tag, or none.
	Others(ctx context.Context) ([]string, error)
	Tagged(ctx context.Context, tag string) (nodeID string, err error)

	// While returns a context that also ends when a node is retired.
	While(ctx context.Context, nodeID string) (context.Context, context.CancelFunc)

	Transport() http.RoundTripper
}

// Config configures Machines.
type Config struct {
	remote.Config
	NodeID string // of this node
	Peers  Peers  // nil: there is one node

	// OnRecord returns an error unless the row of a command is open on the node that asks this one
	// to run it. Required with Peers.
	OnRecord func(ctx context.Context, execID, nodeID string, user sandbox.User) error
}

// Machines are the machines of all users. It is a sandbox.Backend, safe for concurrent use.
type Machines struct {
	hub      *remote.Hub
	self     string
	peers    Peers
	onRecord func(ctx context.Context, execID, nodeID string, user sandbox.User) error
	log      *slog.Logger
	now      func() time.Time
	stall    time.Duration // see remote.Config

	outbound sandbox.Calls
	gate     sync.Mutex // of inbound
	closed   bool
	inbound  sync.WaitGroup
	ctx      context.Context // of the inbound calls
	stop     context.CancelFunc

	mu     sync.Mutex                     // also while the nodes are asked: one round serves all who wait
	asked  time.Time                      // when the last round began
	others []remote.RunnerInfo            // what is known of all of them
	lists  map[string][]remote.RunnerInfo // by node
	mute   map[string]time.Time           // when a node has not answered
}

var _ sandbox.Backend = (*Machines)(nil)

// New makes Machines without machines.
func New(cfg Config) *Machines {
	m := &Machines{
		self: cfg.NodeID, peers: cfg.Peers, onRecord: cfg.OnRecord, log: cmp.Or(cfg.Log, slog.New(slog.DiscardHandler)),
		stall: cmp.Or(cfg.Stall, remote.DefaultStall), mute: map[string]time.Time{}, lists: map[string][]remote.RunnerInfo{},
	}
	if m.now = cfg.Now; m.now == nil {
		m.now = time.Now
	}
	m.ctx, m.stop = context.WithCancel(context.Background())
	if m.peers != nil {
		cfg.Elsewhere, cfg.TransferTag = m.elsewhere, peer.Tag(cfg.NodeID)
	}
	m.hub = remote.NewHub(cfg.Config)
	return m
}

const (
	freshFor   = time.Second            // how long an answer about other nodes' machines is believed
	missFor    = 100 * time.Millisecond // the same, if a machine is not in it
	askTimeout = time.Second
	firstWait  = 10 * time.Second // askTimeout of the first question, which begins with a TLS handshake
	muteFor    = 3 * time.Second  // a node that has not answered is not asked again
	maxList    = 64 << 20         // bytes of an answer
)

// known returns the machines of other nodes as they were at most maxAge ago. If a node is too busy
// to answer, known returns the last known machines of the node. It forgets them when the node's
// lease has ended, or when nothing listens at the node's address.
func (m *Machines) known(ctx context.Context, maxAge time.Duration) []remote.RunnerInfo {
	if m.peers == nil {
		return nil
	}
	now := m.now() // before the wait for another round, which also answers this
	m.mu.Lock()
	defer m.mu.Unlock()
	if now.Sub(m.asked) < maxAge {
		return m.others
	}
	m.asked = m.now()
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), firstWait) // others wait for it, too
	defer cancel()
	nodes, err := m.peers.Others(ctx)
	if err != nil {
		m.log.Warn("the other nodes' runners are known as they were before", "error", err)
		return m.others
	}
	gone := func(id string) bool { return !slices.Contains(nodes, id) }
	maps.DeleteFunc(m.lists, func(id string, _ []remote.RunnerInfo) bool { return gone(id) })
	maps.DeleteFunc(m.mute, func(id string, at time.Time) bool { return gone(id) || m.asked.Sub(at) >= muteFor })
	nodes = slices.DeleteFunc(nodes, func(id string) bool { return !m.mute[id].IsZero() })
	lists, errs := make([][]remote.RunnerInfo, len(nodes)), make([]error, len(nodes))
	var asking sync.WaitGroup
	for i, id := range nodes {
		timeout := firstWait
		if _, asked := m.lists[id]; asked {
			timeout = askTimeout
		}
		asking.Go(func() {
			ctx, cancel := context.WithTimeout(ctx, timeout)
			defer cancel()
			lists[i], errs[i] = m.list(ctx, id)
		})
	}
	asking.Wait()
	for i, id := range nodes {
		switch {
		case errs[i] == nil:
			m.lists[id] = lists[i]
			continue
		case errors.Is(errs[i], syscall.ECONNREFUSED):
			delete(m.lists, id)
		case m.lists[id] == nil:
			m.lists[id] = nil // it was asked
		}
		m.log.Warn("a node does not say which runners it has", "node", id, "error", errs[i])
		m.mute[id] = m.now()
	}
	m.others = nil
	for _, list := range m.lists {
		m.others = append(m.others, list...)
	}
	return m.others
}

// list asks a node for its machines.
func (m *Machines) list(ctx context.Context, nodeID string) ([]remote.RunnerInfo, error) {
	url, err := m.peers.URL(ctx, nodeID, listPath)
	if err != nil {
		return nil, err
	}
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, url, http.NoBody)
	if err != nil {
		return nil, err
	}
	answer, err := m.peers.Transport().RoundTrip(r)
	if err != nil {
		return nil, err
	}
	defer answer.Body.Close() //nolint:errcheck // it was read
	if answer.StatusCode != http.StatusOK {
		reason, _ := io.ReadAll(io.LimitReader(answer.Body, 500))
		return nil, fmt.Errorf("%s: %s", answer.Status, strings.TrimSpace(string(reason)))
	}
	var infos []remote.RunnerInfo
	if err := gob.NewDecoder(io.LimitReader(answer.Body, maxList)).Decode(&infos); err != nil {
		return nil, err
	}
	for i := range infos {
		infos[i].NodeID = nodeID
	}
	return infos, nil
}

// Runners returns the machines that are connected, to any node, by user and name.
func (m *Machines) Runners(ctx context.Context) []remote.RunnerInfo {
	all := m.hub.Runners()
	for i := range all {
		all[i].NodeID = m.self
	}
	for _, other := range m.known(ctx, freshFor) {
		if !other.ConnectedSince.IsZero() {
			all = append(all, other)
		}
	}
	slices.SortFunc(all, func(a, b remote.RunnerInfo) int { // a node that was frozen or killed may have had a machine before
		return cmp.Or(strings.Compare(a.UserID, b.UserID), strings.Compare(a.Name, b.Name), b.ConnectedSince.Compare(a.ConnectedSince))
	})
	return slices.CompactFunc(all, func(a, b remote.RunnerInfo) bool { return a.UserID == b.UserID && a.Name == b.Name })
}

// Here returns how many machines are connected to this node.
func (m *Machines) Here() int { return len(m.hub.Runners()) }

// find returns the machine that a call is for, if it is one of another node, and the user with its
// name. Otherwise the call is for the hub, which may find none.
func (m *Machines) find(ctx context.Context, user sandbox.User) (*remote.RunnerInfo, sandbox.User, error) {
	if err := m.outbound.Check(ctx); err != nil || m.peers == nil {
		return nil, user, err
	}
	for _, maxAge := range []time.Duration{freshFor, missFor} {
		here := m.hub.Names(user.ID)
		if slices.Contains(here, user.Runner) {
			return nil, user, nil
		}
		names := map[string]*remote.RunnerInfo{}
		if user.Runner == "" {
			for _, name := range here {
				names[name] = nil
			}
		}
		for _, other := range m.known(ctx, maxAge) {
			if other.UserID != user.ID || other.ConnectedSince.IsZero() || user.Runner != "" && other.Name != user.Runner {
				continue
			}
			if was, ok := names[other.Name]; ok && (was == nil || was.ConnectedSince.After(other.ConnectedSince)) {
				continue // a node that was frozen has not noticed yet that the runner has left it
			}
			names[other.Name] = &other
		}
		if len(names) > 1 {
			var all []string
			for name := range names {
				all = append(all, name)
			}
			return nil, user, remote.Ambiguous(all)
		}
		for name, machine := range names {
			user.Runner = name
			return machine, user, nil
		}
	}
	return nil, user, nil
}

// Locate implements sandbox.Locator.
func (m *Machines) Locate(ctx context.Context, user sandbox.User) (sandbox.Location, error) {
	other, user, err := m.find(ctx, user)
	if err != nil {
		return sandbox.Location{}, err
	}
	if other == nil {
		return m.hub.Locate(ctx, user)
	}
	return sandbox.Location{Backend: sandbox.Remote, User: user}, nil
}

// GetShell implements sandbox.Sandbox.
func (m *Machines) GetShell(ctx context.Context, user sandbox.User) (string, error) {
	other, user, err := m.find(ctx, user)
	if err != nil {
		return "", err
	}
	if other == nil {
		return m.hub.GetShell(ctx, user)
	}
	return other.Shell, nil
}

// Name implements sandbox.Sandbox.
func (m *Machines) Name() string { return m.hub.Name() }

// do makes a call where the user's machine is: here if this node owns it, else there, which calls
// the owner.
func do[T any](ctx context.Context, m *Machines, user sandbox.User, here func(sandbox.User) (T, error), there call, content io.Reader,
	get func(*answer) T,
) (T, error) {
	var none T
	other, user, err := m.find(ctx, user)
	if err != nil {
		return none, err
	}
	if other == nil {
		return here(user)
	}
	there.User = user
	got, err := m.call(ctx, other.NodeID, there, streams{content: content})
	if err != nil {
		return none, err
	}
	return get(got), nil
}

// change is do for methods that return only an error.
func (m *Machines) change(ctx context.Context, user sandbox.User, here func(sandbox.User) error, there call) error {
	_, err := do(ctx, m, user, func(u sandbox.User) (struct{}, error) { return struct{}{}, here(u) }, there, nil,
		func(*answer) struct{} { return struct{}{} })
	return err
}

func length(a *answer) int64 { return a.N }

// Exec implements sandbox.Sandbox.
func (m *Machines) Exec(ctx context.Context, spec sandbox.ExecSpec) (*sandbox.ExecResult, error) {
	other, user, err := m.find(ctx, spec.User)
	if err != nil {
		return nil, err
	}
	spec.User = user
	if other == nil {
		return m.hub.Exec(ctx, spec)
	}
	return sandbox.Collect(ctx, on{m, other.NodeID}, spec)
}

// ExecTo implements sandbox.Streamer.
func (m *Machines) ExecTo(ctx context.Context, spec sandbox.ExecSpec, stdout, stderr io.Writer) (*sandbox.ExecResult, error) {
	other, user, err := m.find(ctx, spec.User)
	if err != nil {
		return nil, err
	}
	spec.User = user
	if other == nil {
		return m.hub.ExecTo(ctx, spec, stdout, stderr)
	}
	return on{m, other.NodeID}.ExecTo(ctx, spec, stdout, stderr)
}

// on is one other node.
type on struct {
	*Machines
	nodeID string
}

// ExecTo runs a command there.
func (o on) ExecTo(ctx context.Context, spec sandbox.ExecSpec, stdout, stderr io.Writer) (*sandbox.ExecResult, error) {
	if err := spec.Check(); err != nil {
		return nil, err
	}
	s := streams{stdout: stdout, stderr: stderr, content: spec.StdinFrom, signals: spec.Signals, interactive: true}
	c := call{Op: opExec, User: spec.User, Input: spec.StdinFrom != nil, Signals: spec.Signals != nil}
	spec.StdinFrom, spec.Signals = nil, nil
	c.Spec = &spec
	got, err := o.call(ctx, o.nodeID, c, s)
	if err != nil {
		return nil, err
	}
	return got.Result, nil
}

// ReadFile implements sandbox.Sandbox.
func (m *Machines) ReadFile(ctx context.Context, path string, user sandbox.User) ([]byte, error) {
	other, user, err := m.find(ctx, user)
	if err != nil {
		return nil, err
	}
	if other == nil {
		return m.hub.ReadFile(ctx, path, user)
	}
	data := bytes.NewBuffer([]byte{})
	if _, err := m.call(ctx, other.NodeID, call{Op: opRead, User: user, Path: path}, streams{stdout: data}); err != nil {
		return nil, err
	}
	return data.Bytes(), nil
}

// ReadFileTo implements sandbox.Streamer.
func (m *Machines) ReadFileTo(ctx context.Context, path string, w io.Writer, user sandbox.User) (int64, error) {
	other, user, err := m.find(ctx, user)
	if err != nil {
		return 0, err
	}
	if other == nil {
		return m.hub.ReadFileTo(ctx, path, w, user)
	}
	got, err := m.call(ctx, other.NodeID, call{Op: opRead, User: user, Path: path}, streams{stdout: w})
	if err != nil {
		return 0, err
	}
	return got.N, nil
}

// WriteFile implements sandbox.Sandbox.
func (m *Machines) WriteFile(ctx context.Context, path string, data []byte, perm fs.FileMode, user sandbox.User) error {
	_, err := do(ctx, m, user, func(u sandbox.User) (int64, error) { return 0, m.hub.WriteFile(ctx, path, data, perm, u) },
		call{Op: opWrite, Path: path, Perm: perm}, bytes.NewReader(data), length)
	return err
}

// WriteFileFrom implements sandbox.Streamer.
func (m *Machines) WriteFileFrom(ctx context.Context, path string, r io.Reader, perm fs.FileMode, user sandbox.User) (int64, error) {
	return do(ctx, m, user, func(u sandbox.User) (int64, error) { return m.hub.WriteFileFrom(ctx, path, r, perm, u) },
		call{Op: opWrite, Path: path, Perm: perm}, r, length)
}

// ReplaceFile implements sandbox.Replacer.
func (m *Machines) ReplaceFile(ctx context.Context, path string, r io.Reader, was string, user sandbox.User) (int64, error) {
	return do(ctx, m, user, func(u sandbox.User) (int64, error) { return m.hub.ReplaceFile(ctx, path, r, was, u) },
		call{Op: opReplace, Path: path, Was: was}, r, length)
}

// Stat implements sandbox.Sandbox.
func (m *Machines) Stat(ctx context.Context, path string, user sandbox.User) (*sandbox.FileInfo, error) {
	return do(ctx, m, user, func(u sandbox.User) (*sandbox.FileInfo, error) { return m.hub.Stat(ctx, path, u) },
		call{Op: opStat, Path: path}, nil, func(a *answer) *sandbox.FileInfo { return a.Info })
}

// ReadDir implements sandbox.Sandbox.
func (m *Machines) ReadDir(ctx context.Context, path string, user sandbox.User) ([]sandbox.DirEntry, error) {
	return do(ctx, m, user, func(u sandbox.User) ([]sandbox.DirEntry, error) { return m.hub.ReadDir(ctx, path, u) },
		call{Op: opReadDir, Path: path}, nil, func(a *answer) []sandbox.DirEntry { return a.Entries })
}

// MkdirAll implements sandbox.Sandbox.
func (m *Machines) MkdirAll(ctx context.Context, path string, perm fs.FileMode, user sandbox.User) error {
	return m.change(ctx, user, func(u sandbox.User) error { return m.hub.MkdirAll(ctx, path, perm, u) },
		call{Op: opMkdirAll, Path: path, Perm: perm})
}

// Remove implements sandbox.Sandbox.
func (m *Machines) Remove(ctx context.Context, path string, user sandbox.User) error {
	return m.change(ctx, user, func(u sandbox.User) error { return m.hub.Remove(ctx, path, u) }, call{Op: opRemove, Path: path})
}

// RemoveAll implements sandbox.Sandbox.
func (m *Machines) RemoveAll(ctx context.Context, path string, user sandbox.User) error {
	return m.change(ctx, user, func(u sandbox.User) error { return m.hub.RemoveAll(ctx, path, u) }, call{Op: opRemoveAll, Path: path})
}

// CloseForUser cancels the user's requests, on whichever nodes the user's machines are, and waits
// for them.
func (m *Machines) CloseForUser(user sandbox.User) error {
	errs := []error{m.hub.CloseForUser(user)}
	asked := map[string]bool{}
	for _, other := range m.known(m.ctx, missFor) {
		if other.UserID != user.ID || user.Runner != "" && other.Name != user.Runner || asked[other.NodeID] {
			continue
		}
		asked[other.NodeID] = true
		_, err := m.call(m.ctx, other.NodeID, call{Op: opClose, User: user}, streams{})
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}

// closeGrace is how long calls of other nodes may take to send their results.
const closeGrace = 2 * time.Second

// Close ends all calls and the links of this node.
func (m *Machines) Close() error {
	m.gate.Lock()
	m.closed = true
	m.gate.Unlock()
	m.outbound.Close()
	err := m.hub.Close()
	defer time.AfterFunc(closeGrace, m.stop).Stop()
	m.inbound.Wait()
	m.stop()
	return err
}

// notThere is the error of a call that did not reach the node that has the machine.
func notThere(nodeID string, err error) error {
	e := fault.Wrap(fault.RunnerOffline, err, "node %s, which the user's machine is connected to, cannot be reached; nothing was done",
		nodeID)
	e.RetryAfter = 5 * time.Second
	return e
}
