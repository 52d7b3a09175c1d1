package sandbox

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"regexp"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"secbox/fault"
)

// RouterName is the Name of a Router. Audit rows never hold it: Locate tells which backend a
// command runs in.
const RouterName = "router"

// Choice is the backend that a user has chosen.
type Choice struct {
	UserID    string
	Backend   string // one of the names
	Runner    string // for a backend on users' machines: which of the user's; empty: the only connected one
	UpdatedAt time.Time
}

// Choices stores the users' choices; store/sqlite and store/postgres implement it and pass
// store/storetest. Safe for concurrent use. When the database does not answer, the error is
// fault.DatabaseUnavailable.
type Choices interface {
	// Choice returns a user's choice; false when there is none.
	Choice(ctx context.Context, userID string) (Choice, bool, error)

	// Choose stores a choice in place of any other: fault.TooManyChanges when the actor of ctx
	// makes too many.
	Choose(ctx context.Context, c Choice) error
}

// RouterConfig configures a Router.
type RouterConfig struct {
	Backends []Backend // the enabled backends, in the order in which messages name them
	Default  string    // the name of one of them: for users without a choice
	Choices  Choices
	Now      func() time.Time // nil: time.Now
}

// Router is a Backend that passes each call to the backend that its user has chosen. It asks
// Choices at every call, so that a choice takes effect at once on every node; the query costs less
// than any of the calls. A choice of a backend that is not, or no longer, switched on is
// fault.Unsupported: the user must choose another backend, since commands must not silently run
// elsewhere.
type Router struct {
	cfg    RouterConfig
	closed atomic.Bool
}

// NewRouter makes a Router, which owns the backends: Close closes them.
func NewRouter(cfg RouterConfig) (*Router, error) {
	if cfg.Now == nil {
		cfg.Now = time.Now
	}
	r := &Router{cfg: cfg}
	if r.backend(cfg.Default) == nil {
		return nil, fault.New(fault.InvalidSettings, "the sandbox backend %q is not switched on; those that are: %s", cfg.Default,
			r.names())
	}
	return r, nil
}

// Backends returns the names of the backends that are switched on.
func (r *Router) Backends() []string {
	names := make([]string, len(r.cfg.Backends))
	for i, b := range r.cfg.Backends {
		names[i] = b.Name()
	}
	return names
}

func (r *Router) names() string { return strings.Join(r.Backends(), ", ") }

func (r *Router) backend(name string) Backend {
	i := slices.IndexFunc(r.cfg.Backends, func(b Backend) bool { return b.Name() == name })
	if i < 0 {
		return nil
	}
	return r.cfg.Backends[i]
}

// Chosen returns a user's choice, or the default with a zero UpdatedAt.
func (r *Router) Chosen(ctx context.Context, userID string) (Choice, error) {
	c, ok, err := r.cfg.Choices.Choice(ctx, userID)
	if err != nil || ok {
		return c, err
	}
	return Choice{UserID: userID, Backend: r.cfg.Default}, nil
}

// Choose stores a user's choice, and ends the user's commands in the former backend, or on the
// former machine. The same choice again changes nothing. A backend that is not switched on, or a
// runner for a backend without runners, is fault.InvalidRequest.
func (r *Router) Choose(ctx context.Context, c Choice) (Choice, error) {
	switch {
	case r.closed.Load():
		return Choice{}, shuttingDown()
	case r.backend(c.Backend) == nil:
		return Choice{}, fault.BadField("backend", "%.64q is not enabled on this server; use one of %s", c.Backend, r.names())
	case c.Runner != "" && !TraitsOf(c.Backend).UserMachine:
		return Choice{}, fault.BadField("runner", "the backend %s has no runners; leave it out", c.Backend)
	case c.Runner != "" && !ValidRunnerName(c.Runner):
		return Choice{}, fault.BadField("runner", "must be a letter or digit, then up to %d letters, digits, dots, underscores or dashes",
			MaxRunnerName-1)
	}
	former, err := r.Chosen(ctx, c.UserID)
	if err != nil {
		return Choice{}, err
	}
	if former.Backend == c.Backend && former.Runner == c.Runner && !former.UpdatedAt.IsZero() {
		return former, nil
	}
	c.UpdatedAt = r.cfg.Now().UTC().Truncate(time.Microsecond)
	if err := r.cfg.Choices.Choose(ctx, c); err != nil {
		return Choice{}, err
	}
	if before := r.backend(former.Backend); before != nil && (former.Backend != c.Backend || former.Runner != c.Runner) {
		was := User{ID: c.UserID}
		if former.Backend == c.Backend { // another machine of the user's
			was.Runner = former.Runner
		}
		if err := before.CloseForUser(was); err != nil {
			return Choice{}, fmt.Errorf("end the commands in %s: %w", former.Backend, err)
		}
	}
	return c, nil
}

// MaxRunnerName is the length of the longest name of a runner, in bytes.
const MaxRunnerName = 63

var runnerName = regexp.MustCompile(`^[0-9A-Za-z][0-9A-Za-z._-]{0,62}$`)

// ValidRunnerName reports whether a runner may have this name: a letter or digit, then letters,
// digits, dots, underscores and dashes.
func ValidRunnerName(name string) bool { return runnerName.MatchString(name) }

// named returns the name of a user's backend. The answer of Locate holds for the call that follows,
// even if the user chooses another backend in between, because the audit row names it.
func (r *Router) named(ctx context.Context, user User) (string, User, error) {
	if r.closed.Load() {
		return "", user, shuttingDown()
	}
	name := user.located
	user.located = ""
	if name == "" {
		c, err := r.Chosen(ctx, user.ID)
		if err != nil {
			return "", user, err
		}
		name = c.Backend
		if user.Runner == "" {
			user.Runner = c.Runner
		}
	}
	return name, user, nil
}

// use returns the backend of this name, and the user as it is to see it.
func (r *Router) use(name string, user User) (Backend, User, error) {
	b := r.backend(name)
	if b == nil {
		return nil, user, fault.New(fault.Unsupported,
			"the sandbox of user %s is set to %q, which is not enabled on this server; choose one of %s", user.ID, name, r.names())
	}
	if !TraitsOf(name).UserMachine {
		user.Runner = ""
	}
	return b, user, nil
}

func shuttingDown() error {
	e := fault.New(fault.ShuttingDown, "this node is shutting down; try another one, or again shortly")
	e.RetryAfter = 5 * time.Second
	return e
}

// Locate implements Locator. After an error the Location still names the backend, if it is known.
func (r *Router) Locate(ctx context.Context, user User) (Location, error) {
	name, user, err := r.named(ctx, user)
	if err != nil {
		return Location{User: user}, err
	}
	b, user, err := r.use(name, user)
	if err != nil {
		return Location{Backend: name, User: user}, err
	}
	l, err := b.Locate(ctx, user)
	if err != nil {
		return Location{Backend: name, User: user}, err
	}
	l.User.located = b.Name()
	return l, nil
}

// Find tells where a user's files are. Other than Locate, it does not prepare for a command.
func (r *Router) Find(ctx context.Context, user User) (Location, error) {
	name, user, err := r.named(ctx, user)
	if err != nil {
		return Location{User: user}, err
	}
	b, user, err := r.use(name, user)
	if err != nil {
		return Location{Backend: name, User: user}, err
	}
	l := Location{Backend: name, User: user}
	if TraitsOf(name).UserMachine { // a connected one
		if l, err = b.Locate(ctx, user); err != nil {
			return Location{Backend: name, User: user}, err
		}
	}
	l.User.located = name
	return l, nil
}

// call passes a call on to the user's backend.
func call[T any](ctx context.Context, r *Router, user User, f func(Backend, User) (T, error)) (result T, err error) {
	name, user, err := r.named(ctx, user)
	if err != nil {
		return result, err
	}
	b, user, err := r.use(name, user)
	if err != nil {
		return result, err
	}
	return f(b, user)
}

// change is call for methods that return only an error.
func (r *Router) change(ctx context.Context, user User, f func(Backend, User) error) error {
	_, err := call(ctx, r, user, func(b Backend, user User) (struct{}, error) { return struct{}{}, f(b, user) })
	return err
}

// Exec implements Sandbox.
func (r *Router) Exec(ctx context.Context, spec ExecSpec) (*ExecResult, error) {
	return call(ctx, r, spec.User, func(b Backend, user User) (*ExecResult, error) {
		spec.User = user
		return b.Exec(ctx, spec)
	})
}

// ExecTo implements Streamer.
func (r *Router) ExecTo(ctx context.Context, spec ExecSpec, stdout, stderr io.Writer) (*ExecResult, error) {
	return call(ctx, r, spec.User, func(b Backend, user User) (*ExecResult, error) {
		spec.User = user
		return b.ExecTo(ctx, spec, stdout, stderr)
	})
}

// ReadFile implements Sandbox.
func (r *Router) ReadFile(ctx context.Context, path string, user User) ([]byte, error) {
	return call(ctx, r, user, func(b Backend, user User) ([]byte, error) { return b.ReadFile(ctx, path, user) })
}

// ReadFileTo implements Streamer.
func (r *Router) ReadFileTo(ctx context.Context, path string, w io.Writer, user User) (int64, error) {
	return call(ctx, r, user, func(b Backend, user User) (int64, error) { return b.ReadFileTo(ctx, path, w, user) })
}

// WriteFile implements Sandbox.
func (r *Router) WriteFile(ctx context.Context, path string, data []byte, perm fs.FileMode, user User) error {
	return r.change(ctx, user, func(b Backend, user User) error { return b.WriteFile(ctx, path, data, perm, user) })
}

// WriteFileFrom implements Streamer.
func (r *Router) WriteFileFrom(ctx context.Context, path string, from io.Reader, perm fs.FileMode, user User) (int64, error) {
	return call(ctx, r, user, func(b Backend, user User) (int64, error) { return b.WriteFileFrom(ctx, path, from, perm, user) })
}

// ReplaceFile implements Replacer.
func (r *Router) ReplaceFile(ctx context.Context, path string, from io.Reader, was string, user User) (int64, error) {
	return call(ctx, r, user, func(b Backend, user User) (int64, error) { return b.ReplaceFile(ctx, path, from, was, user) })
}

// Stat implements Sandbox.
func (r *Router) Stat(ctx context.Context, path string, user User) (*FileInfo, error) {
	return call(ctx, r, user, func(b Backend, user User) (*FileInfo, error) { return b.Stat(ctx, path, user) })
}

// ReadDir implements Sandbox.
func (r *Router) ReadDir(ctx context.Context, path string, user User) ([]DirEntry, error) {
	return call(ctx, r, user, func(b Backend, user User) ([]DirEntry, error) { return b.ReadDir(ctx, path, user) })
}

// MkdirAll implements Sandbox.
func (r *Router) MkdirAll(ctx context.Context, path string, perm fs.FileMode, user User) error {
	return r.change(ctx, user, func(b Backend, user User) error { return b.MkdirAll(ctx, path, perm, user) })
}

// Remove implements Sandbox.
func (r *Router) Remove(ctx context.Context, path string, user User) error {
	return r.change(ctx, user, func(b Backend, user User) error { return b.Remove(ctx, path, user) })
}

// RemoveAll implements Sandbox.
func (r *Router) RemoveAll(ctx context.Context, path string, user User) error {
	return r.change(ctx, user, func(b Backend, user User) error { return b.RemoveAll(ctx, path, user) })
}

// GetShell implements Sandbox.
func (r *Router) GetShell(ctx context.Context, user User) (string, error) {
	return call(ctx, r, user, func(b Backend, user User) (string, error) { return b.GetShell(ctx, user) })
}

// Name implements Sandbox.
func (r *Router) Name() string { return RouterName }

// CloseForUser implements Sandbox: for all backends, since a former choice may still have
// resources.
func (r *Router) CloseForUser(user User) error {
	if r.closed.Load() {
		return shuttingDown()
	}
	user.located = ""
	var errs []error
	for _, b := range r.cfg.Backends {
		errs = append(errs, b.CloseForUser(user))
	}
	return errors.Join(errs...)
}

// Close implements Sandbox.
func (r *Router) Close() error {
	r.closed.Store(true)
	var errs []error
	for _, b := range r.cfg.Backends {
		errs = append(errs, b.Close())
	}
	return errors.Join(errs...)
}
