package api_test

import (
	"context"
	"io"
	"log/slog"
	"net/http"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"

	"secbox/access/tokens"
	"secbox/api/visible"
	"secbox/api/wire"
	"secbox/audit"
	"secbox/policy"
	"secbox/sandbox"
	"secbox/sandbox/files"
	"secbox/sandbox/inside"
	"secbox/sandbox/none"
	"secbox/sandbox/process"
	"secbox/sandbox/record"
	"secbox/sandbox/sandboxtest"
	"secbox/store/sqlite"
	"secbox/workspace"
)

func TestMain(m *testing.M) {
	process.Main()
	inside.Main()
	os.Exit(m.Run())
}

// userSandboxes are real ones, as far as that goes without an engine: users work in none by
// default, and by the name of remote in a directory that stands for their own machine.
type userSandboxes struct {
	*record.Recorder
	router  *sandbox.Router
	log     *refusingLog
	machine string // the directory
	reading func() // is called when a file is about to be read there; may be nil
	writing func() // is called when lines of a file are about to be written there; may be nil
}

func (s *userSandboxes) Chosen(ctx context.Context, userID string) (sandbox.Choice, error) {
	return s.router.Chosen(ctx, userID)
}

func (s *userSandboxes) Choose(ctx context.Context, c sandbox.Choice) (sandbox.Choice, error) {
	return s.router.Choose(ctx, c)
}

func (s *userSandboxes) Backends() []string { return s.router.Backends() }

// asRemote is a sandbox by the name of remote.
type asRemote struct {
	sandbox.Backend
	of *userSandboxes
}

func (r asRemote) ReadFileTo(ctx context.Context, path string, w io.Writer, user sandbox.User) (int64, error) {
	if r.of.reading != nil {
		r.of.reading()
	}
	return r.Backend.ReadFileTo(ctx, path, w, user)
}

func (r asRemote) ReplaceFile(ctx context.Context, path string, from io.Reader, was string, user sandbox.User) (int64, error) {
	if r.of.writing != nil {
		r.of.writing()
	}
	return r.Backend.ReplaceFile(ctx, path, from, was, user)
}

func (asRemote) Name() string { return sandbox.Remote }

func (r asRemote) Locate(_ context.Context, user sandbox.User) (sandbox.Location, error) {
	return sandbox.Location{Backend: sandbox.Remote, User: user}, nil
}

func newUserSandboxes(t *testing.T, root *workspace.Workspace, db *sqlite.DB) *userSandboxes {
	t.Helper()
	s := &userSandboxes{machine: t.TempDir()}
	var err error
	s.router, err = sandbox.NewRouter(sandbox.RouterConfig{
		Backends: []sandbox.Backend{
			none.New(none.Config{Directories: files.Workspaces{Workspace: root}, Environ: os.Environ()}),
			asRemote{none.New(none.Config{Directories: sandboxtest.Directory(s.machine), Environ: os.Environ()}), s},
		},
		Default: sandbox.None, Choices: db.Sandboxes(),
	})
	if err != nil {
		t.Fatal(err)
	}
	resolver, err := policy.New(policy.Config{})
	if err != nil {
		t.Fatal(err)
	}
	log, err := audit.NewLog(audit.Config{Store: db.Audit(), Dir: filepath.Join(t.TempDir(), "spool"), NodeID: "n", Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	s.log = &refusingLog{Log: log}
	s.Recorder = record.New(record.Config{
		Sandbox: s.router, Log: s.log, Policy: resolver, Host: func() policy.Host { return policy.Host{} }, NodeID: "n", Now: time.Now,
		NewID: func() string { return uuid.Must(uuid.NewV7()).String() }, Logger: slog.New(slog.DiscardHandler),
	})
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
	return s
}

// dialledIn implements api.Runners and keeps the requests.
type dialledIn struct {
	mu     sync.Mutex
	served []string
}

func (d *dialledIn) Connected(context.Context) []wire.ConnectedRunner {
	runner := func(user, name string) wire.ConnectedRunner {
		return wire.ConnectedRunner{
			UserID: user, Name: name, Version: "1", Os: "linux", Arch: "amd64", Allow: []string{"exec"},
			ConnectedSince: visible.Timestamp(time.Unix(1, 0).UTC()),
		}
	}
	return []wire.ConnectedRunner{runner("u", "laptop"), runner("v", "desk")}
}

func (d *dialledIn) serve(w http.ResponseWriter, what string, caller tokens.Token) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.served = append(d.served, what+" of "+caller.UserID)
	w.Header().Set("Content-Type", "text/plain")
	w.WriteHeader(http.StatusServiceUnavailable)
	io.WriteString(w, "not here")
}

func (d *dialledIn) ServeLink(w http.ResponseWriter, _ *http.Request, caller tokens.Token) {
	d.serve(w, "link", caller)
}

func (d *dialledIn) ServeTransfer(w http.ResponseWriter, r *http.Request, id string, caller tokens.Token) {
	d.serve(w, r.Method+" "+id, caller)
}
