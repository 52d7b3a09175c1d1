package remote

import (
	"context"
	"io"
	"io/fs"
	"log/slog"
	"net/http"
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

	// Valid reports whether a token may still be used: an error with fault.TokenRevoked or fault.Unauthenticated closes its links; any other
	// is logged, and asked again. Called about every second for each link.
	Valid func(ctx context.Context, tokenID string) error

	// Late is told how a command ended that nobody waits for any more, under the id that its request had. What it returns an error for comes
	// again with the runner's next link.
	Late func(ctx context.Context, execID string, result sandbox.ExecResult) error

	// ReadOnlyRoots are the paths that other sandboxes show beside Root and that are not on users' machines: fault.Unsupported.
	ReadOnlyRoots []string
}

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
	ConnectedSince time.Time
	Latency        time.Duration // of the last ping; 0: none has come back yet
	InFlight       int
}

// Hub is the Sandbox of all users' own machines.
type Hub struct{ cfg Config }

var (
	_ sandbox.Sandbox  = (*Hub)(nil)
	_ sandbox.Streamer = (*Hub)(nil)
	_ sandbox.Locator  = (*Hub)(nil)
)

// NewHub makes a Hub to which no runner is connected yet.
func NewHub(cfg Config) *Hub { return &Hub{cfg: cfg} }

var errLater = fault.New(fault.RunnerOffline, "no runner is connected")

// ServeLink answers GET /ws: it takes the connection over as the caller's runner and returns when the link has ended.
func (h *Hub) ServeLink(w http.ResponseWriter, _ *http.Request, _ Caller) {
	http.Error(w, "not yet", http.StatusServiceUnavailable)
}

// ServeTransfer answers HEAD, PUT and GET of /ws/transfers/{id}.
func (h *Hub) ServeTransfer(w http.ResponseWriter, _ *http.Request, _ string, _ Caller) {
	http.Error(w, "not yet", http.StatusServiceUnavailable)
}

// Runners are those that are connected to this node, by user and name.
func (h *Hub) Runners() []RunnerInfo { return nil }

// Locate picks the runner that User.Runner names, or the only one that the user has connected.
func (h *Hub) Locate(context.Context, sandbox.User) (sandbox.Location, error) {
	return sandbox.Location{}, errLater
}

// Exec runs a command on the user's machine.
func (h *Hub) Exec(context.Context, sandbox.ExecSpec) (*sandbox.ExecResult, error) {
	return nil, errLater
}

// ExecTo is Exec whose output goes to writers.
func (h *Hub) ExecTo(context.Context, sandbox.ExecSpec, io.Writer, io.Writer) (*sandbox.ExecResult, error) {
	return nil, errLater
}

// ReadFile reads a file there.
func (h *Hub) ReadFile(context.Context, string, sandbox.User) ([]byte, error) { return nil, errLater }

// ReadFileTo streams it.
func (h *Hub) ReadFileTo(context.Context, string, io.Writer, sandbox.User) (int64, error) {
	return 0, errLater
}

// WriteFile writes a file there.
func (h *Hub) WriteFile(context.Context, string, []byte, fs.FileMode, sandbox.User) error {
	return errLater
}

// WriteFileFrom streams it.
func (h *Hub) WriteFileFrom(context.Context, string, io.Reader, fs.FileMode, sandbox.User) (int64, error) {
	return 0, errLater
}

// Stat describes a file there.
func (h *Hub) Stat(context.Context, string, sandbox.User) (*sandbox.FileInfo, error) {
	return nil, errLater
}

// ReadDir lists a directory there.
func (h *Hub) ReadDir(context.Context, string, sandbox.User) ([]sandbox.DirEntry, error) {
	return nil, errLater
}

// MkdirAll makes directories there.
func (h *Hub) MkdirAll(context.Context, string, fs.FileMode, sandbox.User) error { return errLater }

// Remove removes a file there.
func (h *Hub) Remove(context.Context, string, sandbox.User) error { return errLater }

// RemoveAll removes a tree there.
func (h *Hub) RemoveAll(context.Context, string, sandbox.User) error { return errLater }

// GetShell is what the runner said that it is.
func (h *Hub) GetShell(context.Context, sandbox.User) (string, error) { return "", errLater }

// Name is sandbox.Remote.
func (h *Hub) Name() string { return sandbox.Remote }

// Close ends the links and waits for it.
func (h *Hub) Close() error { return nil }

// CloseForUser cancels what runs for one user. Their runners stay connected.
func (h *Hub) CloseForUser(sandbox.User) error { return nil }

// IsExporting is false: there is no image here.
func (h *Hub) IsExporting(sandbox.User) bool { return false }

// ExportAndImport is fault.Unsupported.
func (h *Hub) ExportAndImport(context.Context, sandbox.User) error {
	return fault.New(fault.Unsupported, "a user's own machine has no image to be moved to")
}
