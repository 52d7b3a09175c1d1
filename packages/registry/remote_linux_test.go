package registry_test

import (
	"context"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"testing"
	"time"

	"secbox/fault"
	"secbox/packages/catalog"
	"secbox/packages/registry"
	"secbox/sandbox"
	"secbox/sandbox/remote"
	"secbox/sandbox/remote/machine"
	"secbox/sandbox/remote/wire"
)

// onMachines makes a hub to which the machines of users connect; each serves the user's directory.
func onMachines(t *testing.T, dirs map[string]string) *remote.Hub {
	t.Helper()
	hub := remote.NewHub(remote.Config{
		Log: slog.New(slog.DiscardHandler), Now: time.Now, Version: "test", Valid: func(context.Context, string) error { return nil },
		Late: func(context.Context, sandbox.User, string, sandbox.ExecResult) error { return nil },
	})
	web := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		caller := remote.Caller{TokenID: "t", UserID: strings.TrimPrefix(r.Header.Get("Authorization"), "Bearer ")}
		if id, ok := strings.CutPrefix(r.URL.Path, wire.TransferPath); ok {
			hub.ServeTransfer(w, r, id, caller)
		} else {
			hub.ServeLink(w, r, caller)
		}
	}))
	t.Cleanup(web.Close)
	for user, dir := range dirs {
		if err := os.MkdirAll(dir, 0o755); err != nil {
			t.Fatal(err)
		}
		m, err := machine.New(machine.Config{
			Server: web.URL, Token: user, Workspace: dir, Name: "laptop", Allow: []string{machine.AllowWrite}, Version: "test",
			Log: slog.New(slog.DiscardHandler),
		})
		if err != nil {
			t.Fatal(err)
		}
		ctx, stop := context.WithCancel(context.Background())
		ended := make(chan error, 1)
		go func() { ended <- m.Run(ctx) }()
		t.Cleanup(func() { stop(); <-ended })
	}
	ticker, late := time.NewTicker(time.Millisecond), time.After(time.Minute)
	defer ticker.Stop()
	for len(hub.Runners()) < len(dirs) {
		select {
		case <-ticker.C:
		case <-late:
			t.Fatal("the runners do not connect")
		}
	}
	return hub
}

// chosen is a hub for a catalog.
type chosen struct{ *remote.Hub }

func (chosen) Chosen(context.Context, string) (sandbox.Choice, error) {
	return sandbox.Choice{Backend: sandbox.Remote}, nil
}

// TestOverMachines (004 l11) has the users' files on their own machines.
func TestOverMachines(t *testing.T) {
	t.Parallel()
	users := t.TempDir()
	f := startOver(t, users, onMachines(t, map[string]string{"ann": users + "/a~ann", "bob": users + "/a~bob"}))
	large := strings.Repeat("0123456789abcdef", 300<<10) // more than one message of the link
	f.plant(ann, "skills/s/SKILL.md", "---\nname: S\ndescription: On a machine.\n---\n")
	f.plant(ann, "skills/s/data.bin", large)
	f.plant(ann, "lib/x", "x")
	if err := os.Symlink("../../lib", f.at(ann, "skills/s/lib")); err != nil {
		t.Fatal(err)
	}
	f.plant(ann, "agents/helper.md", "---\nname: Helper\nrole: helps\n---\n")
	if e := f.publish(skill(ann, "s")); e.Files != 3 || e.Description != "On a machine." {
		t.Errorf("%+v", e)
	}
	f.publish(agent(ann, "helper"))
	f.install(skill(bob, "s"))
	f.install(agent(bob, "helper"))
	f.holds(bob, "skills/s/data.bin", large)
	f.holds(bob, "skills/s/lib/x", "x")
	c, err := catalog.New(catalog.Config{Sandboxes: chosen{f.s.Backend.(*remote.Hub)}}).Of(t.Context(), sandbox.User{AgentID: "a", ID: "bob"})
	if err != nil || len(c.Entries) != 2 || c.Entries[0].Name != "s" || c.Entries[1].Role != "helps" || len(c.Problems) != 0 {
		t.Errorf("%+v %v", c, err)
	}
	if err := f.Uninstall(t.Context(), skill(bob, "s")); err != nil {
		t.Fatal(err)
	}
	f.absent(bob, "skills/s")
	away := registry.Owner{AgentID: "a", UserID: "carl"}
	_, err = f.Install(t.Context(), skill(away, "s"))
	fails(t, "a machine that is away", err, fault.RunnerOffline, "")
	_, err = f.Publish(t.Context(), skill(away, "other"))
	fails(t, "a machine that is away", err, fault.RunnerOffline, "")
}

// lying is a sandbox whose listings name small files, and whose files have no end.
type lying struct{ sandbox.Backend }

func (lying) Stat(context.Context, string, sandbox.User) (*sandbox.FileInfo, error) {
	return &sandbox.FileInfo{Name: "s", Size: 1}, nil
}

func (lying) ReadDir(_ context.Context, path string, _ sandbox.User) ([]sandbox.DirEntry, error) {
	return []sandbox.DirEntry{{Name: "SKILL.md", Size: 1}}, nil
}

func (lying) ReadFileTo(_ context.Context, _ string, w io.Writer, _ sandbox.User) (n int64, err error) {
	chunk := make([]byte, 1<<20)
	for {
		k, err := w.Write(chunk)
		if n += int64(k); err != nil {
			return n, err
		}
	}
}

// TestSizesThatAreLies: a machine that sends more than it has announced is cut off at the bounds.
func TestSizesThatAreLies(t *testing.T) {
	t.Parallel()
	f := start(t)
	f.s.Backend = lying{f.s.Backend}
	_, err := f.Publish(t.Context(), agent(ann, "x"))
	fails(t, "an agent", err, fault.FileTooLarge, "read agent: ")
	_, err = f.Publish(t.Context(), skill(ann, "x"))
	fails(t, "a skill", err, fault.TreeTooLarge, "read skill: ")
}

// crowded is a sandbox with a skill of a million files.
type crowded struct{ lying }

func (crowded) ReadDir(context.Context, string, sandbox.User) ([]sandbox.DirEntry, error) {
	return make([]sandbox.DirEntry, 1_000_000), nil
}

func (crowded) ReadFileTo(context.Context, string, io.Writer, sandbox.User) (int64, error) {
	return 0, fault.New(fault.Internal, "a file was read")
}

// TestAMillionEntries: a directory with too many names is refused before a file is read.
func TestAMillionEntries(t *testing.T) {
	t.Parallel()
	f := start(t)
	f.s.Backend = crowded{lying{f.s.Backend}}
	_, err := f.Publish(t.Context(), skill(ann, "x"))
	fails(t, "a skill", err, fault.TreeTooLarge, "read skill: ")
}
