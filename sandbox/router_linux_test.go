package sandbox_test

import (
	"context"
	"errors"
	"os"
	"reflect"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"secbox/fault"
	"secbox/sandbox"
	"secbox/sandbox/none"
	"secbox/sandbox/process"
	"secbox/sandbox/sandboxtest"
)

func TestMain(m *testing.M) {
	process.Main()
	os.Exit(m.Run())
}

// memory stores choices as a database would.
type memory struct {
	mu     sync.Mutex
	all    map[string]sandbox.Choice
	stored int // calls of Choose
	down   error
}

func (m *memory) Choice(_ context.Context, userID string) (sandbox.Choice, bool, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	c, ok := m.all[userID]
	return c, ok, m.down
}

func (m *memory) Choose(_ context.Context, c sandbox.Choice) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.all == nil {
		m.all = map[string]sandbox.Choice{}
	}
	m.all[c.UserID] = c
	m.stored++
	return m.down
}

// named is a backend with another name, which records its users.
type named struct {
	sandbox.Backend
	name string

	located atomic.Int32 // calls of Locate

	mu     sync.Mutex
	users  []sandbox.User
	closed []sandbox.User
}

func (n *named) Name() string { return n.name }

func (n *named) Locate(ctx context.Context, user sandbox.User) (sandbox.Location, error) {
	n.located.Add(1)
	l, err := n.Backend.Locate(ctx, user)
	l.Backend, l.User = n.name, user
	return l, err
}

func (n *named) Stat(ctx context.Context, path string, user sandbox.User) (*sandbox.FileInfo, error) {
	n.mu.Lock()
	n.users = append(n.users, user)
	n.mu.Unlock()
	return n.Backend.Stat(ctx, path, user)
}

func (n *named) CloseForUser(user sandbox.User) error {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.closed = append(n.closed, user)
	return n.Backend.CloseForUser(user)
}

func (n *named) seen() []sandbox.User {
	n.mu.Lock()
	defer n.mu.Unlock()
	return slices.Clone(n.users)
}

func backend(t *testing.T, name string) *named {
	return &named{Backend: none.New(none.Config{Directories: sandboxtest.Directory(t.TempDir()), Environ: os.Environ()}), name: name}
}

func router(t *testing.T, choices sandbox.Choices, backends ...sandbox.Backend) *sandbox.Router {
	t.Helper()
	r, err := sandbox.NewRouter(sandbox.RouterConfig{Backends: backends, Default: backends[0].Name(), Choices: choices})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := r.Close(); err != nil {
			t.Error(err)
		}
	})
	return r
}

func TestRouterConformance(t *testing.T) {
	t.Parallel()
	sandboxtest.Run(t, func(t *testing.T) sandboxtest.Fixture {
		p := sandboxtest.Directory(t.TempDir())
		tools := sandbox.ReadOnlyRoot{Path: "/opt/tools", Link: "/workspace/tools", Dir: t.TempDir()}
		chosen := none.New(none.Config{Directories: p, ReadOnly: []sandbox.ReadOnlyRoot{tools}, Environ: slices.Concat(os.Environ(), sandboxtest.Planted)})
		choices := &memory{all: map[string]sandbox.Choice{"user": {UserID: "user", Backend: sandbox.None}}}
		return sandboxtest.Fixture{
			Sandbox: router(t, choices, backend(t, sandbox.Docker), chosen), User: sandbox.User{AgentID: "agent", ID: "user"},
			Dir: string(p), ReadOnly: tools, WorkspaceElsewhere: true, Decorator: true,
		}
	})
}

func TestRouterFollowsChoice(t *testing.T) {
	t.Parallel()
	ctx, here, there, choices := t.Context(), backend(t, sandbox.Docker), backend(t, sandbox.Remote), &memory{}
	r := router(t, choices, here, there)
	u, other := sandbox.User{AgentID: "a", ID: "u"}, sandbox.User{AgentID: "a", ID: "other"}
	check := func(user sandbox.User) {
		t.Helper()
		if _, err := r.Stat(ctx, sandbox.Root, user); err != nil {
			t.Error(err)
		}
	}
	if c, err := r.Chosen(ctx, "u"); err != nil || c != (sandbox.Choice{UserID: "u", Backend: sandbox.Docker}) {
		t.Errorf("by default %+v, %v", c, err)
	}
	check(u)
	c, err := r.Choose(ctx, sandbox.Choice{UserID: "u", Backend: sandbox.Remote, Runner: "laptop"})
	if err != nil || c.UpdatedAt.IsZero() || c.UpdatedAt.Location() != time.UTC {
		t.Fatalf("%+v, %v", c, err)
	}
	if again, err := r.Chosen(ctx, "u"); err != nil || again != c {
		t.Errorf("chosen %+v, %v", again, err)
	}
	check(u)
	check(other)
	if want := []sandbox.User{u, other}; !reflect.DeepEqual(here.seen(), want) {
		t.Errorf("here: %+v", here.seen())
	}
	u.Runner = "laptop"
	if want := []sandbox.User{u}; !reflect.DeepEqual(there.seen(), want) {
		t.Errorf("there: %+v", there.seen())
	}
	if want := []sandbox.User{{ID: "u"}}; !reflect.DeepEqual(here.closed, want) {
		t.Errorf("ended: %+v", here.closed)
	}
	stored := choices.stored
	for range 2 { // the second changes nothing
		c, err = r.Choose(ctx, sandbox.Choice{UserID: "u", Backend: sandbox.Remote, Runner: "desk"})
		if again, _ := r.Chosen(ctx, "u"); c != again || choices.stored != stored+1 {
			t.Errorf("stored %d times; %+v, %+v", choices.stored-stored, c, again)
		}
		if want := []sandbox.User{{ID: "u", Runner: "laptop"}}; err != nil || !reflect.DeepEqual(there.closed, want) {
			t.Errorf("another machine: %v, ended %+v", err, there.closed)
		}
	}
	_, err = r.Choose(ctx, sandbox.Choice{UserID: "u", Backend: sandbox.Docker})
	if want := []sandbox.User{{ID: "u", Runner: "laptop"}, {ID: "u"}}; err != nil || !reflect.DeepEqual(there.closed, want) {
		t.Errorf("back: %v, ended %+v", err, there.closed)
	}
}

// TestLocationHolds: a command runs in the backend that was located for its row, even if the user
// chooses another one in between.
func TestLocationHolds(t *testing.T) {
	t.Parallel()
	ctx, here, there := t.Context(), backend(t, sandbox.Docker), backend(t, sandbox.Remote)
	r := router(t, &memory{}, here, there)
	l, err := r.Locate(ctx, sandbox.User{AgentID: "a", ID: "u"})
	if err != nil || l.Backend != sandbox.Docker {
		t.Fatalf("%+v, %v", l, err)
	}
	if _, err := r.Choose(ctx, sandbox.Choice{UserID: "u", Backend: sandbox.Remote}); err != nil {
		t.Fatal(err)
	}
	if _, err := r.Stat(ctx, sandbox.Root, l.User); err != nil {
		t.Fatal(err)
	}
	if len(here.seen()) != 1 || len(there.seen()) != 0 {
		t.Errorf("here %v, there %v", here.seen(), there.seen())
	}
	if here.seen()[0] != (sandbox.User{AgentID: "a", ID: "u"}) {
		t.Errorf("the backend sees the router's own mark: %+v", here.seen()[0])
	}
}

func TestInvalidChoices(t *testing.T) {
	t.Parallel()
	ctx, choices := t.Context(), &memory{}
	r := router(t, choices, backend(t, sandbox.Docker), backend(t, sandbox.Remote))
	for name, c := range map[string]struct {
		choice sandbox.Choice
		field  string
	}{
		"an unknown backend":    {sandbox.Choice{UserID: "u", Backend: "kubernetes"}, "backend"},
		"no backend":            {sandbox.Choice{UserID: "u"}, "backend"},
		"none, not allowed":     {sandbox.Choice{UserID: "u", Backend: sandbox.None}, "backend"},
		"the router itself":     {sandbox.Choice{UserID: "u", Backend: sandbox.RouterName}, "backend"},
		"a runner of docker":    {sandbox.Choice{UserID: "u", Backend: sandbox.Docker, Runner: "laptop"}, "runner"},
		"a runner with a slash": {sandbox.Choice{UserID: "u", Backend: sandbox.Remote, Runner: "../x"}, "runner"},
		"a runner like a flag":  {sandbox.Choice{UserID: "u", Backend: sandbox.Remote, Runner: "-x"}, "runner"},
		"a runner without end":  {sandbox.Choice{UserID: "u", Backend: sandbox.Remote, Runner: strings.Repeat("x", 64)}, "runner"},
		"a runner, two lines":   {sandbox.Choice{UserID: "u", Backend: sandbox.Remote, Runner: "x\ny"}, "runner"},
	} {
		_, err := r.Choose(ctx, c.choice)
		if e := fault.From(err); e == nil || e.Code != fault.InvalidRequest || len(e.Fields) != 1 || e.Fields[0].Field != c.field {
			t.Errorf("%s: %v", name, err)
		} else if c.field == "backend" && !strings.Contains(e.Message, "docker, remote") {
			t.Errorf("%s: %q does not say which there are", name, e.Message)
		}
	}
	if len(choices.all) != 0 {
		t.Errorf("chosen: %v", choices.all)
	}

	// A choice of a backend that was switched off since: the user must choose again.
	choices.all = map[string]sandbox.Choice{"u": {UserID: "u", Backend: sandbox.None, UpdatedAt: time.Now()}}
	_, err := r.ReadFile(ctx, sandbox.Root+"/x", sandbox.User{AgentID: "a", ID: "u"})
	if !fault.Is(err, fault.Unsupported) || !strings.Contains(err.Error(), "docker, remote") {
		t.Errorf("a choice that is switched off: %v", err)
	}
	if l, err := r.Locate(ctx, sandbox.User{AgentID: "a", ID: "u"}); !fault.Is(err, fault.Unsupported) || l.Backend != sandbox.None {
		t.Errorf("where that is: %+v, %v", l, err)
	}
	if _, err := r.Choose(ctx, sandbox.Choice{UserID: "u", Backend: sandbox.Docker}); err != nil {
		t.Errorf("from a backend that is switched off: %v", err)
	}

	choices.down = fault.New(fault.DatabaseUnavailable, "down")
	if _, err := r.Stat(ctx, sandbox.Root, sandbox.User{AgentID: "a", ID: "u"}); !errors.Is(err, choices.down) {
		t.Errorf("without a database: %v", err)
	}
	if _, err := sandbox.NewRouter(sandbox.RouterConfig{Backends: []sandbox.Backend{backend(t, sandbox.Docker)}, Default: sandbox.None}); !fault.Is(err,
		fault.InvalidSettings) {
		t.Errorf("a default that is switched off: %v", err)
	}
}

// TestRouterFindsWithoutPreparing: Find names the backend for the calls that follow, and asks only
// machines of users.
func TestRouterFindsWithoutPreparing(t *testing.T) {
	t.Parallel()
	here, there := backend(t, sandbox.Docker), backend(t, sandbox.Remote)
	choices := &memory{}
	r := router(t, choices, here, there)
	alice := sandbox.User{AgentID: "agent", ID: "alice"}
	for name, located := range map[*named]int{here: 0, there: 1} {
		if err := choices.Choose(t.Context(), sandbox.Choice{UserID: alice.ID, Backend: name.name}); err != nil {
			t.Fatal(err)
		}
		at, err := r.Find(t.Context(), alice)
		if err != nil || at.Backend != name.name || int(name.located.Load()) != located {
			t.Errorf("%+v %v, located %d times", at, err, name.located.Load())
		}
		choices.down = errors.New("the database is down") // the user that was found is not looked up again
		if _, err := r.Stat(t.Context(), sandbox.Root, at.User); err != nil || len(name.seen()) != 1 {
			t.Errorf("%v", err)
		}
		choices.down = nil
	}
}
