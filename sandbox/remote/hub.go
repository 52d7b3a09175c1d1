package remote

import (
	"cmp"
	"context"
	"crypto/rand"
	"encoding/hex"
	"log/slog"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"secbox/fault"
	"secbox/sandbox"
)

// Config is what a Hub needs. Zero durations are their defaults.
type Config struct {
	Log     *slog.Logger
	Now     func() time.Time
	Version string // of core-api, as runners show it

	Heartbeat time.Duration // between two pings; default 10 s. A link on which nothing was heard for three of them is given up
	Grace     time.Duration // how long what is in flight waits for a runner that is gone; default 60 s
	Stall     time.Duration // how long a transfer waits for a byte from the runner; default 30 s
	Patience  time.Duration // how long a request about files may take, and a command over its timeout; default 5 min

	// Valid reports whether a token may still be used: an error with fault.TokenRevoked, fault.Unauthenticated or fault.UnknownToken closes
	// its links; any other is logged, and it is asked again. Called every second for each link, or every heartbeat if that is shorter.
	Valid func(ctx context.Context, tokenID string) error

	// Late is told how a command ended that nobody waits for any more, under the id that its request had, with the user and their runner. What
	// it returns an error for comes again with the runner's next link, unless the error is fault.UnknownExec. Output that had arrived before
	// is not in the result.
	Late func(ctx context.Context, user sandbox.User, execID string, result sandbox.ExecResult) error

	// ReadOnlyRoots are the paths that other sandboxes show beside Root and that are not on users' machines: fault.Unsupported.
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
	c.Stall = cmp.Or(c.Stall, 30*time.Second)
	c.Patience = cmp.Or(c.Patience, 5*time.Minute)
	if c.Valid == nil {
		c.Valid = func(context.Context, string) error { return nil }
	}
	if c.Late == nil {
		c.Late = func(context.Context, sandbox.User, string, sandbox.ExecResult) error { return nil }
	}
	return c
}

// cancelGrace is how long a caller whose context has ended waits for the runner's word on what was done.
const cancelGrace = 10 * time.Second

// maxRunners is how many runners one user may have connected.
const maxRunners = 64

// Caller is whose token a request of a runner came with. It was checked by whoever calls ServeLink and ServeTransfer.
type Caller struct {
	TokenID string
	UserID  string
}

// RunnerInfo is a runner that is connected.
type RunnerInfo struct {
	UserID         string
	Name           string
	Version        string
	OS, Arch       string
	Shell          string
	Allow          []string
	ConnectedSince time.Time     // this link
	Latency        time.Duration // of the last ping; 0: none has come back yet
	InFlight       int
}

// Hub is the Sandbox of all users' own machines. It is safe for concurrent use.
type Hub struct {
	cfg  Config
	boot string // begins the ids that are made here, so that none is used again after a restart
	work sync.WaitGroup
	life context.Context // until Close: what waits for strangers ends with it
	end  context.CancelFunc

	mu        sync.Mutex // guards the rest, and all of machines, links and requests that does not say otherwise
	closed    bool
	last      uint64 // request
	machines  map[key]*machine
	transfers map[string]*transfer
}

// key is who a runner is.
type key struct{ user, name string }

var (
	_ sandbox.Sandbox  = (*Hub)(nil)
	_ sandbox.Streamer = (*Hub)(nil)
	_ sandbox.Locator  = (*Hub)(nil)
)

// NewHub makes a Hub to which no runner is connected yet.
func NewHub(cfg Config) *Hub {
	h := &Hub{cfg: cfg.withDefaults(), boot: random(8), machines: map[key]*machine{}, transfers: map[string]*transfer{}}
	h.life, h.end = context.WithCancel(context.Background())
	return h
}

// random makes n bytes as hexadecimal digits.
func random(n int) string {
	b := make([]byte, n)
	rand.Read(b) // never fails
	return hex.EncodeToString(b)
}

// nextID makes a request's id. Called with mu held.
func (h *Hub) nextID() string {
	h.last++
	return h.boot + "-" + strconv.FormatUint(h.last, 10)
}

// Runners are those that are connected to this node, by user and name.
func (h *Hub) Runners() []RunnerInfo {
	h.mu.Lock()
	defer h.mu.Unlock()
	all := []RunnerInfo{}
	for k, m := range h.machines {
		if m.link == nil {
			continue
		}
		all = append(all, RunnerInfo{
			UserID: k.user, Name: k.name, Version: m.hello.Version, OS: m.hello.OS, Arch: m.hello.Arch, Shell: m.hello.Shell,
			Allow: slices.Clone(m.hello.Allow), ConnectedSince: m.link.since, Latency: m.link.latency, InFlight: len(m.pending),
		})
	}
	slices.SortFunc(all, func(a, b RunnerInfo) int {
		return cmp.Or(strings.Compare(a.UserID, b.UserID), strings.Compare(a.Name, b.Name))
	})
	return all
}

// pick finds the machine that a call is for: connected now. Called with mu held.
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
		return nil, fault.New(fault.RunnerOffline, "no machine of yours is connected; start secbox runner on the one to work on")
	case 1:
		return found, nil
	}
	slices.Sort(names)
	return nil, fault.BadField("runner", "several machines are connected: %s; choose one of them as the sandbox's runner",
		strings.Join(names, ", "))
}

// Locate picks the runner that User.Runner names, or the only one that the user has connected.
func (h *Hub) Locate(ctx context.Context, user sandbox.User) (sandbox.Location, error) {
	if err := ctx.Err(); err != nil {
		return sandbox.Location{}, err
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	m, err := h.pick(user)
	if err != nil {
		return sandbox.Location{}, err
	}
	user.Runner = m.key.name
	return sandbox.Location{Backend: sandbox.Remote, User: user}, nil
}

// GetShell is what the runner said that it is.
func (h *Hub) GetShell(ctx context.Context, user sandbox.User) (string, error) {
	if err := ctx.Err(); err != nil {
		return "", err
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	m, err := h.pick(user)
	if err != nil {
		return "", err
	}
	return m.hello.Shell, nil
}

// Name is sandbox.Remote.
func (h *Hub) Name() string { return sandbox.Remote }

func errShuttingDown() error {
	return fault.New(fault.ShuttingDown, "the server is shutting down; try again")
}
