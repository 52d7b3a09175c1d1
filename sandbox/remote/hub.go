package remote

import (
	"cmp"
	"context"
	"crypto/rand"
	"encoding/hex"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/coder/websocket"

	"secbox/fault"
	"secbox/sandbox"
	"secbox/sandbox/remote/wire"
)

// DefaultStall is the Stall of a Config without one.
const DefaultStall = 30 * time.Second

// Config configures a Hub. Zero durations mean the defaults.
type Config struct {
	Log     *slog.Logger
	Now     func() time.Time
	Version string // of core-api, for the runners' logs

	Heartbeat      time.Duration // between two pings; default 10 s. After three without a sign of life the link is closed
	Grace          time.Duration // how long requests wait for a runner that is disconnected; default 60 s
	Stall          time.Duration // how long a transfer waits for the next byte; default DefaultStall
	RequestTimeout time.Duration // of a file operation, and of a command beyond its own timeout; default 5 min

	// Valid checks a token: an error with fault.TokenRevoked, fault.Unauthenticated,
	// fault.UnknownToken or fault.Forbidden closes its links; any other is logged, and the token is
	// checked again. Called for each link every second, or every heartbeat if that is shorter.
	Valid func(ctx context.Context, tokenID string) error

	// Late takes the result of a command whose caller no longer waits, under the id of its request,
	// with the user and their runner. After an error the runner sends the result again on its next
	// link, unless the error is fault.UnknownExec. The result does not contain output that arrived
	// before.
	Late func(ctx context.Context, user sandbox.User, execID string, result sandbox.ExecResult) error

	// Elsewhere returns a connection to the node that has the runner of this name as a machine, for
	// a runner that has dialled this node; nil: no other node has it. That node serves the link
	// then, as ServeRelayed. Called for runners that are no machine here.
	Elsewhere func(ctx context.Context, caller Caller, name string) *websocket.Conn

	// TransferTag is what ids of transfers begin with, in hexadecimal, at most 16 digits: other
	// nodes know by it where to pass them on to.
	TransferTag string

	// ReadOnlyRoots are paths that other sandboxes show beside Root. Users' machines do not have
	// them: fault.Unsupported.
	ReadOnlyRoots []string
}

func (c Config) withDefaults() Config {
	if c.Log == nil {
		c.Log = slog.New(slog.DiscardHandler)
	}
	if c.Now == nil {
		c.Now = time.Now
	}
	c.Version = cmp.Or(c.Version, "unknown")
	c.Heartbeat = cmp.Or(c.Heartbeat, 10*time.Second)
	c.Grace = cmp.Or(c.Grace, time.Minute)
	c.Stall = cmp.Or(c.Stall, DefaultStall)
	c.RequestTimeout = cmp.Or(c.RequestTimeout, 5*time.Minute)
	if c.Valid == nil {
		c.Valid = func(context.Context, string) error { return nil }
	}
	if c.Elsewhere == nil {
		c.Elsewhere = func(context.Context, Caller, string) *websocket.Conn { return nil }
	}
	if c.Late == nil {
		c.Late = func(context.Context, sandbox.User, string, sandbox.ExecResult) error { return nil }
	}
	return c
}

// cancelGrace is how long a canceled call waits for the runner to say how far the request came.
const cancelGrace = 10 * time.Second

// maxRunners is how many runners one user may connect.
const maxRunners = 64

// Caller is the owner of the token of a runner's request. The caller of ServeLink and ServeTransfer
// must have checked it.
type Caller struct {
	TokenID string
	UserID  string
}

// RunnerInfo describes a runner.
type RunnerInfo struct {
	UserID         string
	Name           string
	Version        string
	OS, Arch       string
	Shell          string
	Allow          []string
	ConnectedSince time.Time     // this link; zero: disconnected, and awaited
	HeardAt        time.Time     // when it last sent anything
	Latency        time.Duration // of the last ping; 0: none has returned yet
	InFlight       int
	NodeID         string // set by package relay: the node that it is connected to
}

// Hub is the Sandbox of all users' own machines. Safe for concurrent use.
type Hub struct {
	cfg      Config
	idPrefix string // prefix of the ids made here, so that none is used again after a restart
	work     sync.WaitGroup
	ctx      context.Context // ends with Close, and so do waits for runners
	stop     context.CancelFunc

	mu        sync.Mutex // guards the rest, and all fields of machines, links and requests that are not documented otherwise
	closed    bool
	last      uint64 // of requests
	machines  map[key]*machine
	transfers map[string]*transfer
}

// key identifies a runner.
type key struct{ user, name string }

var (
	_ sandbox.Sandbox  = (*Hub)(nil)
	_ sandbox.Streamer = (*Hub)(nil)
	_ sandbox.Locator  = (*Hub)(nil)
)

// NewHub makes a Hub without runners.
func NewHub(cfg Config) *Hub {
	h := &Hub{cfg: cfg.withDefaults(), idPrefix: random(8), machines: map[key]*machine{}, transfers: map[string]*transfer{}}
	h.ctx, h.stop = context.WithCancel(context.Background())
	return h
}

// random returns n random bytes in hexadecimal.
func random(n int) string {
	b := make([]byte, n)
	rand.Read(b) // never fails
	return hex.EncodeToString(b)
}

// Runners returns the runners connected to this node, sorted by user and name.
func (h *Hub) Runners() []RunnerInfo {
	return slices.DeleteFunc(h.Machines(), func(r RunnerInfo) bool { return r.ConnectedSince.IsZero() })
}

// Machines returns Runners, and the disconnected runners that may still return.
func (h *Hub) Machines() []RunnerInfo {
	h.mu.Lock()
	defer h.mu.Unlock()
	all := []RunnerInfo{}
	for k, m := range h.machines {
		info := RunnerInfo{
			UserID: k.user, Name: k.name, Version: m.hello.Version, OS: m.hello.OS, Arch: m.hello.Arch, Shell: m.hello.Shell,
			Allow: slices.Clone(m.hello.Allow), InFlight: len(m.pending),
		}
		if l := m.link; l != nil {
			info.ConnectedSince, info.HeardAt, info.Latency = l.since, l.start.Add(time.Duration(l.heard.Load())), l.latency
		}
		all = append(all, info)
	}
	slices.SortFunc(all, func(a, b RunnerInfo) int {
		return cmp.Or(strings.Compare(a.UserID, b.UserID), strings.Compare(a.Name, b.Name))
	})
	return all
}

// Names returns the names of the user's runners that are connected to this node, sorted.
func (h *Hub) Names(userID string) []string {
	h.mu.Lock()
	defer h.mu.Unlock()
	var names []string
	for k, m := range h.machines {
		if k.user == userID && m.link != nil {
			names = append(names, k.name)
		}
	}
	slices.Sort(names)
	return names
}

// has reports whether this node has a runner as a machine, connected or awaited.
func (h *Hub) has(k key) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.machines[k] != nil
}

// pick returns the connected machine that a call is for. h.mu is held.
func (h *Hub) pick(user sandbox.User) (*machine, error) {
	if h.closed {
		return nil, errShuttingDown()
	}
	if user.Runner != "" {
		if m := h.machines[key{user.ID, user.Runner}]; m != nil && m.link != nil {
			return m, nil
		}
		return nil, fault.New(fault.RunnerOffline, "the runner %q is not connected; start it on that machine: secbox runner --name %s …",
			user.Runner, user.Runner)
	}
	var found *machine
	var names []string
	for k, m := range h.machines {
		if k.user == user.ID && m.link != nil {
			found = m
			names = append(names, k.name)
		}
	}
	switch len(names) {
	case 0:
		return nil, fault.New(fault.RunnerOffline, "no machine of yours is connected; start secbox runner on the machine to work on")
	case 1:
		return found, nil
	}
	return nil, Ambiguous(names)
}

// Ambiguous is the error of a call that is for one of several runners.
func Ambiguous(names []string) error {
	return fault.BadField("runner", "several machines are connected: %s; choose one of them as the sandbox's runner",
		strings.Join(slices.Sorted(slices.Values(names)), ", "))
}

// helloOf returns the hello of the machine that a call is for.
func (h *Hub) helloOf(ctx context.Context, user sandbox.User) (*wire.Hello, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	m, err := h.pick(user)
	if err != nil {
		return nil, err
	}
	return m.hello, nil
}

// Locate picks the runner that User.Runner names, or the user's only connected runner.
func (h *Hub) Locate(ctx context.Context, user sandbox.User) (sandbox.Location, error) {
	hello, err := h.helloOf(ctx, user)
	if err != nil {
		return sandbox.Location{}, err
	}
	user.Runner = hello.Name
	return sandbox.Location{Backend: sandbox.Remote, User: user}, nil
}

// GetShell returns the shell that the runner named in its hello.
func (h *Hub) GetShell(ctx context.Context, user sandbox.User) (string, error) {
	hello, err := h.helloOf(ctx, user)
	if err != nil {
		return "", err
	}
	return hello.Shell, nil
}

// Name returns sandbox.Remote.
func (h *Hub) Name() string { return sandbox.Remote }

func errShuttingDown() error {
	return fault.New(fault.ShuttingDown, "the server is shutting down; try again")
}
