//go:build unix

package dockercli_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"secbox/engine/dockercli/dockerclitest"
	"secbox/fault"
)

// TestFollowImagesOfEveryCLI follows the real engine with every docker binary of this machine. The
// image is tagged after docker was started and before it has connected to the engine.
func TestFollowImagesOfEveryCLI(t *testing.T) {
	t.Parallel()
	for name, cli := range everyCLI(t) {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			tag := fmt.Sprintf("secbox-test-events-%d:%s", time.Now().UnixNano(), name)
			t.Cleanup(func() { _, _ = cli.Output(context.Background(), "rmi", tag) })
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			defer cancel()
			seen := errors.New("seen")
			ctx, stop := context.WithCancelCause(ctx)
			late := dockerclitest.Script(t, fmt.Sprintf("%[1]s tag secbox-sandbox:latest %[2]s; exec %[1]s \"$@\" --filter image=%[2]s", cli.Path(), tag))
			if err := late.FollowImages(ctx, func() {}, func() { stop(seen) }); !errors.Is(err, seen) {
				t.Errorf("ended with %v", err)
			}
		})
	}
}

func TestChangesImage(t *testing.T) {
	t.Parallel()
	for event, counts := range map[string]bool{
		"image tag": true, "image untag": true, "image delete": true, "image import": true, "image load": true, "image pull": true, "image create": true,
		"image push": false, "image save": false,
		"volume destroy": true, "volume create": false, "volume mount": false, "volume unmount": false,
		"": false, "image": true, "container start": false,
	} {
		changed, started := 0, 0
		err := dockerclitest.Script(t, "echo '"+event+"'; echo 'network x'").FollowImages(t.Context(), func() { started++ }, func() { changed++ })
		if !fault.Is(err, fault.EngineUnavailable) || started != 1 || (changed == 1) != counts || changed > 1 {
			t.Errorf("%q: changed %d times, started %d, %v", event, changed, started, err)
		}
	}
}

func TestFollowImagesEndsWithEngine(t *testing.T) {
	t.Parallel()
	lost := find(t, "DOCKER_HOST=unix://"+filepath.Join(t.TempDir(), "docker.sock"))
	err := lost.FollowImages(t.Context(), func() {}, func() { t.Error("an event from nowhere") })
	if !fault.Is(err, fault.EngineUnavailable) {
		t.Errorf("got %v", err)
	}
	// Unreadable output ends the stream as well, with docker.
	err = dockerclitest.Script(t, "head -c 100000 /dev/zero; exec sleep 1000").FollowImages(t.Context(), func() {},
		func() { t.Error("an event made of zeros") })
	if !fault.Is(err, fault.EngineUnavailable) {
		t.Errorf("a line without end: %v", err)
	}
}

// TestFollowImagesLeavesNoProcess uses a docker that is a script with a child.
func TestFollowImagesLeavesNoProcess(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithCancel(t.Context())
	fifo := filepath.Join(t.TempDir(), "fifo")
	if err := syscall.Mkfifo(fifo, 0o600); err != nil {
		t.Fatal(err)
	}
	cli := dockerclitest.Script(t, "exec 3>"+fifo+"; echo image tag; sleep 1000; true")
	over := make(chan error, 1)
	go func() { over <- cli.FollowImages(ctx, func() {}, cancel) }()
	closed(t, fifo)
	if err := <-over; !errors.Is(err, context.Canceled) {
		t.Errorf("got %v", err)
	}
}

// closed waits until the FIFO has no more writers.
func closed(t *testing.T, fifo string) {
	t.Helper()
	end := make(chan error, 1)
	go func() {
		_, err := os.ReadFile(fifo)
		end <- err
	}()
	select {
	case err := <-end:
		if err != nil {
			t.Fatal(err)
		}
	case <-time.After(time.Minute):
		t.Fatal("a process is left")
	}
}
