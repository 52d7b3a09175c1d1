package sandbox

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"strings"
	"sync/atomic"
	"time"

	"secbox/fault"
)

// RouterName is what a Router answers to Name. An audit row never says it: Locate tells which backend a command runs in.
const RouterName = "router"

// Backend is a Sandbox with all that ours can do.
type Backend interface {
	Sandbox
	Streamer
	Replacer
	Locator
}

// RouterConfig is what a Router is made of.
type RouterConfig struct {
	Backends []Backend        // those that are switched on, in the order in which messages name them
	Default  string           // the name of one of them: for users who chose none
	Choices  Choices          // what users chose
	Now      func() time.Time // nil: time.Now
}

// Router is a Backend that is, for each user, the one that they chose. It asks Choices at every call, so that a choice holds at once and on
// every node; that costs less than any of the calls. A choice of a backend that is not switched on, any more perhaps, is
// fault.Unsupported: it is for the user's eyes that their commands run somewhere else, not for us to decide.
type Router struct {
	cfg    RouterConfig
	closed atomic.Bool
}

// NewRouter makes a Router, which owns the backends from then on: Close closes them.
func NewRouter(cfg RouterConfig) (*Router, error) {
	if cfg.Now == nil {
		cfg.Now = time.Now
	}
	r := &Router{cfg: cfg}
	if r.backend(cfg.Default) == nil {
		return nil, fault.New(fault.InvalidSettings, "the sandbox backend %q is not switched on; those that are: %s", cfg.Default, r.names())
	}
	return r, nil
}

// Backends are the names of those that are switched on.
func (r *Router) Backends() []string {
	names := make([]string, len(r.cfg.Backends))
	for i, b := range r.cfg.Backends {
		names[i] = b.Name()
	}
	return names
}

func (r *Router) names() string { return strings.Join(r.Backends(), ", ") }

func (r *Router) backend(name string) Backend {
	for _, b := range r.cfg.Backends {
		if b.Name() == name {
			return b
		}
	}
	return nil
}

// Chosen is what holds for a user now: their choice, or, with a zero UpdatedAt, the default.
func (r *Router) Chosen(ctx context.Context, userID string) (Choice, error) {
	c, ok, err := r.cfg.Choices.Choice(ctx, userID)
	if err != nil || ok {
		return c, err
	}
	return Choice{UserID: userID, Backend: r.cfg.Default}, nil
}

// Choose puts a user into a backend, and ends what runs for them in the one before, or on the machine before. A backend that is not switched on, or a runner where
// there can be none, is fault.InvalidRequest.
func (r *Router) Choose(ctx context.Context, c Choice) (Choice, error) {
	switch {
	case r.closed.Load():
		return Choice{}, isClosed()
	case r.backend(c.Backend) == nil:
		return Choice{}, fault.BadField("backend", "%.64q is not switched on here; use one of %s", c.Backend, r.names())
	case c.Runner != "" && c.Backend != Remote:
		return Choice{}, fault.BadField("runner", "only the backend %s has runners; leave it out", Remote)
	case c.Runner != "" && !ValidRunnerName(c.Runner):
		return Choice{}, fault.BadField("runner", "must be a letter or digit, then up to %d letters, digits, dots, underscores or dashes", MaxRunnerName-1)
	}
	former, err := r.Chosen(ctx, c.UserID)
	if err != nil {
		return Choice{}, err
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
			return Choice{}, fmt.Errorf("ending what runs in %s: %w", former.Backend, err)
		}
	}
	return c, nil
}

// MaxRunnerName is the length of the longest name of a runner, in bytes.
const MaxRunnerName = 63

// ValidRunnerName reports whether a runner may be called so: a letter or digit, then letters, digits, dots, underscores and dashes.
func ValidRunnerName(name string) bool {
	if name == "" || len(name) > MaxRunnerName {
		return false
	}
	for i, c := range []byte(name) {
		alnum := c >= '0' && c <= '9' || c >= 'A' && c <= 'Z' || c >= 'a' && c <= 'z'
		if !alnum && (i == 0 || c != '.' && c != '_' && c != '-') {
			return false
		}
	}
	return true
}

// pick finds whose turn it is.
func (r *Router) pick(ctx context.Context, user User) (Backend, User, error) {
	name, user, err := r.named(ctx, user)
	if err != nil {
		return nil, user, err
	}
	return r.use(name, user)
}

// named is the name of the backend of a user. What Locate has found holds for the call that follows, whatever is chosen in between: the row
// says it.
func (r *Router) named(ctx context.Context, user User) (string, User, error) {
	if r.closed.Load() {
		return "", user, isClosed()
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

// use is the backend of this name, and the user as it is to see them.
func (r *Router) use(name string, user User) (Backend, User, error) {
	b := r.backend(name)
	if b == nil {
		return nil, user, fault.New(fault.Unsupported, "the sandbox of user %s is set to %q, which is not switched on here; choose one of %s", user.ID, name, r.names())
	}
	if name != Remote {
		user.Runner = ""
	}
	return b, user, nil
}

func isClosed() error {
	e := fault.New(fault.ShuttingDown, "this node is shutting down; try another one, or again shortly")
	e.RetryAfter = 5 * time.Second
	return e
}

// Locate implements Locator. With an error it still says which backend it came from, as far as that is known.
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

// Exec implements Sandbox.
func (r *Router) Exec(ctx context.Context, spec ExecSpec) (*ExecResult, error) {
	b, user, err := r.pick(ctx, spec.User)
	if err != nil {
		return nil, err
	}
	spec.User = user
	return b.Exec(ctx, spec)
}

// ExecTo implements Streamer.
func (r *Router) ExecTo(ctx context.Context, spec ExecSpec, stdout, stderr io.Writer) (*ExecResult, error) {
	b, user, err := r.pick(ctx, spec.User)
	if err != nil {
		return nil, err
	}
	spec.User = user
	return b.ExecTo(ctx, spec, stdout, stderr)
}

// ReadFile implements Sandbox.
func (r *Router) ReadFile(ctx context.Context, path string, user User) ([]byte, error) {
	b, user, err := r.pick(ctx, user)
	if err != nil {
		return nil, err
	}
	return b.ReadFile(ctx, path, user)
}

// ReadFileTo implements Streamer.
func (r *Router) ReadFileTo(ctx context.Context, path string, w io.Writer, user User) (int64, error) {
	b, user, err := r.pick(ctx, user)
	if err != nil {
		return 0, err
	}
	return b.ReadFileTo(ctx, path, w, user)
}

// WriteFile implements Sandbox.
func (r *Router) WriteFile(ctx context.Context, path string, data []byte, perm fs.FileMode, user User) error {
	b, user, err := r.pick(ctx, user)
	if err != nil {
		return err
	}
	return b.WriteFile(ctx, path, data, perm, user)
}

// ReplaceFile implements Replacer.
func (r *Router) ReplaceFile(ctx context.Context, path string, data []byte, was string, user User) error {
	b, user, err := r.pick(ctx, user)
	if err != nil {
		return err
	}
	return b.ReplaceFile(ctx, path, data, was, user)
}

// WriteFileFrom implements Streamer.
func (r *Router) WriteFileFrom(ctx context.Context, path string, from io.Reader, perm fs.FileMode, user User) (int64, error) {
	b, user, err := r.pick(ctx, user)
	if err != nil {
		return 0, err
	}
	return b.WriteFileFrom(ctx, path, from, perm, user)
}

// Stat implements Sandbox.
func (r *Router) Stat(ctx context.Context, path string, user User) (*FileInfo, error) {
	b, user, err := r.pick(ctx, user)
	if err != nil {
		return nil, err
	}
	return b.Stat(ctx, path, user)
}

// ReadDir implements Sandbox.
func (r *Router) ReadDir(ctx context.Context, path string, user User) ([]DirEntry, error) {
	b, user, err := r.pick(ctx, user)
	if err != nil {
		return nil, err
	}
	return b.ReadDir(ctx, path, user)
}

// MkdirAll implements Sandbox.
func (r *Router) MkdirAll(ctx context.Context, path string, perm fs.FileMode, user User) error {
	b, user, err := r.pick(ctx, user)
	if err != nil {
		return err
	}
	return b.MkdirAll(ctx, path, perm, user)
}

// Remove implements Sandbox.
func (r *Router) Remove(ctx context.Context, path string, user User) error {
	b, user, err := r.pick(ctx, user)
	if err != nil {
		return err
	}
	return b.Remove(ctx, path, user)
}

// RemoveAll implements Sandbox.
func (r *Router) RemoveAll(ctx context.Context, path string, user User) error {
	b, user, err := r.pick(ctx, user)
	if err != nil {
		return err
	}
	return b.RemoveAll(ctx, path, user)
}

// GetShell implements Sandbox.
func (r *Router) GetShell(ctx context.Context, user User) (string, error) {
	b, user, err := r.pick(ctx, user)
	if err != nil {
		return "", err
	}
	return b.GetShell(ctx, user)
}

// ExportAndImport implements Sandbox.
func (r *Router) ExportAndImport(ctx context.Context, user User) error {
	b, user, err := r.pick(ctx, user)
	if err != nil {
		return err
	}
	return b.ExportAndImport(ctx, user)
}

// IsExporting implements Sandbox: in whichever backend that is.
func (r *Router) IsExporting(user User) bool {
	user.located = ""
	for _, b := range r.cfg.Backends {
		if b.IsExporting(user) {
			return true
		}
	}
	return false
}

// Name implements Sandbox.
func (r *Router) Name() string { return RouterName }

// CloseForUser implements Sandbox: in every backend, since what was chosen before may still hold something.
func (r *Router) CloseForUser(user User) error {
	if r.closed.Load() {
		return isClosed()
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
