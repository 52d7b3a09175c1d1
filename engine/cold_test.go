package engine_test

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/uuid"

	"secbox/engine"
	"secbox/engine/dockercli/dockerclitest"
	"secbox/engine/enginetest"
	"secbox/fault"
)

func TestColdEngine(t *testing.T) {
	t.Parallel()
	enginetest.Run(t, func(_ *testing.T, cfg engine.Config) engine.Engine { return engine.NewCold(cfg) })
}

// TestResidentOfSilentEngine: neither a command that is not received nor a Stop waits without end.
// It takes 50 seconds, all of them bounds of the engine; tests run in the order of files, and here
// it is among the first.
func TestResidentOfSilentEngine(t *testing.T) {
	t.Parallel()
	cli := dockerclitest.Script(t, "[ \"$1\" != run ] || printf 'h\\0\\0\\0\\016secbox-serve/1'\nexec sleep 1000")
	cold := engine.NewCold(engine.Config{Driver: engine.NewDocker(cli, engine.Options{}), NewID: uuid.NewString, Log: slog.New(slog.DiscardHandler)})
	start := func() *engine.Resident {
		r, err := cold.StartResident(t.Context(), engine.ResidentSpec{ImageID: "sha256:x"})
		if err != nil {
			t.Fatal(err)
		}
		return r
	}
	busy, idle := start(), start()
	signaled := script("true")
	signaled.Signals = make(chan syscall.Signal)
	if _, err := busy.Run(t.Context(), signaled, io.Discard, io.Discard); !fault.Is(err, fault.Unsupported) {
		t.Errorf("signals with an older sandbox-init: %v", err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	over := make(chan error, 1)
	go func() {
		long := script("true")
		long.Env = map[string]string{"A": strings.Repeat("x", 1<<20)}
		_, err := busy.Run(ctx, long, io.Discard, io.Discard)
		over <- err
	}()
	cancel()
	stopped := make(chan struct{})
	go func() {
		defer close(stopped)
		idle.Stop()
	}()
	late := time.After(90 * time.Second)
	for range 2 {
		select {
		case err := <-over:
			var lost *engine.RunError
			if !errors.As(err, &lost) || lost.Dead {
				t.Errorf("%+v", err)
			}
		case <-stopped:
			stopped = nil
		case <-late:
			t.Fatal("a caller still waits for it")
		}
	}
	if err := cold.Close(); err != nil {
		t.Error(err)
	}
}
