package machine

import (
	"context"
	"log/slog"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"secbox/sandbox/remote/wire"
)

// idleMachine returns a Machine without a link.
func idleMachine(t *testing.T) *Machine {
	t.Helper()
	m, err := New(Config{
		Server: "ws://localhost:1", Token: "x", Workspace: t.TempDir(), Name: "laptop", Version: "1", Allow: []string{AllowExec},
		Log: slog.New(slog.DiscardHandler),
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = m.processes.Close()
		m.root.Close()
	})
	return m
}

// taken returns a request as the journal returns it.
func taken(t *testing.T) *request {
	r := &request{id: "1"}
	r.ctx, r.cancel = context.WithCancelCause(t.Context())
	return r
}

// TestListsInMemoryAreBounded: a core-api that takes no answers cannot make a runner hold as many
// lists as it may send requests.
func TestListsInMemoryAreBounded(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		const asked = 3 * listsAtOnce
		m := idleMachine(t)
		if err := os.WriteFile(filepath.Join(m.path, "file"), nil, 0o600); err != nil {
			t.Fatal(err)
		}
		if !m.reading.TryAcquire(memoryForReading) {
			t.Fatal("the memory is not free")
		}
		var all sync.WaitGroup
		for range asked {
			all.Go(func() {
				list, release, err := m.file(taken(t), wire.TypeReadDir, &wire.Path{Path: "/workspace"})
				if err != nil || len(list.(*listing).entries) != 1 {
					t.Errorf("%+v, %v", list, err)
					return
				}
				release()
			})
		}
		synctest.Wait()
		if waiting, _ := m.lists.Load(); waiting != asked-listsAtOnce {
			t.Errorf("%d of %d have not read their directory yet", waiting, asked)
		}
		m.reading.Release(memoryForReading)
		all.Wait()
	})
}

// TestQueuedCommandOnFullDisk: a command is refused if there is no room for output when it starts,
// not when it was requested.
func TestQueuedCommandOnFullDisk(t *testing.T) {
	t.Parallel()
	m := idleMachine(t)
	var leave []func()
	for range commandsAtOnce {
		out, err := admit(t.Context(), m.commands)
		if err != nil {
			t.Fatal(err)
		}
		leave = append(leave, out)
	}
	answered := make(chan answer, 1)
	go func() {
		a, release := m.exec(taken(t), &wire.Exec{Command: "true"})
		release()
		answered <- a
	}()
	for waiting := 0; waiting == 0; time.Sleep(time.Millisecond) {
		waiting, _ = m.commands.Load()
	}
	m.outputs.free(0, -diskForOutput)
	leave[0]()
	if reply, ok := (<-answered).(singleMessage); !ok || reply.t != wire.TypeError || reply.body.(*wire.Error).Code != wire.CodeBusy {
		t.Errorf("%+v", reply)
	}
}
