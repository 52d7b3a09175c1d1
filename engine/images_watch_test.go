//go:build unix

package engine_test

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/google/uuid"

	"secbox/engine"
	"secbox/engine/dockercli"
	"secbox/engine/dockercli/dockerclitest"
	"secbox/engine/enginetest"
	"secbox/fault"
)

// watched is an Images with a running Watch, and its events.
type watched struct {
	t *testing.T
	*engine.Images
	moved   atomic.Int64 // nanoseconds by which the clock is ahead of its beginning
	changes chan [2]engine.Image
	ended   chan time.Duration // the stream has ended, and will be started again after so long
	again   chan struct{}      // starts it again
	cancel  context.CancelFunc
	over    chan struct{}
}

func newWatched(t *testing.T, cli *dockercli.CLI) *watched {
	w := &watched{
		t:       t,
		changes: make(chan [2]engine.Image, 64), ended: make(chan time.Duration), again: make(chan struct{}),
	}
	begun := time.Now()
	now := func() time.Time { return begun.Add(time.Duration(w.moved.Load())) }
	w.Images = engine.NewImages(cli, enginetest.Image, "secbox-test-init", now)
	return w
}

// move moves the clock, which stands still otherwise.
func (w *watched) move(d time.Duration) { w.moved.Add(int64(d)) }

func (w *watched) watch() {
	ctx, cancel := context.WithCancel(context.Background())
	w.cancel, w.over = cancel, make(chan struct{})
	go func() {
		defer close(w.over)
		w.Watch(ctx, engine.WatchConfig{
			Log:     slog.New(slog.DiscardHandler),
			Changed: func(before, after engine.Image) { w.changes <- [2]engine.Image{before, after} },
			Retry: func(ctx context.Context, d time.Duration) {
				select {
				case w.ended <- d:
				case <-ctx.Done():
					return
				}
				select {
				case <-w.again:
				case <-ctx.Done():
				}
			},
		})
	}()
	w.t.Cleanup(w.stop)
}

func (w *watched) stop() {
	w.cancel()
	await(w.t, "the end of the watch", w.over)
}

// await waits for a signal.
func await[T any](t *testing.T, what string, c <-chan T) T {
	t.Helper()
	select {
	case v := <-c:
		return v
	case <-time.After(time.Minute):
		t.Fatalf("in vain: %s", what)
		panic("unreachable")
	}
}

func (w *watched) resolve(ref string) engine.Image {
	w.t.Helper()
	image, err := w.Resolve(w.t.Context(), ref)
	if err != nil {
		w.t.Fatal(err)
	}
	return image
}

// TestEventsReportMovedImages moves a name in every way that docker has, while sixteen callers
// resolve it, and the clock stands still.
func TestEventsReportMovedImages(t *testing.T) {
	t.Parallel()
	ref := "secbox-test-images-" + uuid.NewString()[:8] + ":x"
	id := func() string { return enginetest.Docker(t, "image", "inspect", "-f", "{{.Id}}", ref) }
	feed := func(stdin string, args ...string) string {
		cmd := exec.Command("docker", args...)
		cmd.Stdin = strings.NewReader(stdin)
		out, err := cmd.CombinedOutput()
		if err != nil {
			t.Fatalf("docker %v: %v\n%s", args, err, out)
		}
		return string(out)
	}
	enginetest.Docker(t, "tag", enginetest.Image, ref)
	var mine []string
	t.Cleanup(func() {
		_ = exec.Command("docker", append([]string{"rmi", "-f", ref}, mine...)...).Run()
	})
	w := newWatched(t, enginetest.CLI(t))
	first := w.resolve(ref)
	w.watch()

	busy, rest := context.WithCancel(t.Context())
	var callers sync.WaitGroup
	for range 16 {
		callers.Go(func() {
			pace := time.NewTicker(5 * time.Millisecond)
			defer pace.Stop()
			for busy.Err() == nil {
				if image, err := w.Resolve(busy, ref); err == nil && (image.Ref != ref || image.ID == "") {
					t.Errorf("resolved to %+v", image)
				}
				<-pace.C
			}
		})
	}
	defer callers.Wait()
	defer rest()

	last := first
	label := "LABEL " + engine.LabelInit + "=" + strings.Repeat("0", 64) // no volume is needed then
	tar := filepath.Join(t.TempDir(), "x.tar")
	for _, step := range []struct {
		name string
		do   func()
	}{
		{"import", func() {
			feed(string(make([]byte, 1024)), "import", "--message", uuid.NewString(), "--change", label, "-", ref)
		}},
		{"tag", func() {
			enginetest.Docker(t, "save", "-o", tar, ref)
			enginetest.Docker(t, "tag", enginetest.Image, ref)
		}},
		{"load", func() { enginetest.Docker(t, "load", "-q", "-i", tar) }},
		{"build", func() {
			feed("FROM "+enginetest.Image+"\nLABEL test="+uuid.NewString()+"\n", "build", "-q", "--network=none", "-t", ref, "-")
		}},
	} {
		step.do()
		now := id()
		if now != first.ID {
			mine = append(mine, now)
		}
		got := await(t, "a change by "+step.name, w.changes)
		if got[0] != last || got[1].Ref != ref || got[1].ID != now {
			t.Fatalf("%s: told of %+v, want from %+v to %s", step.name, got, last, now)
		}
		if last = w.resolve(ref); last != got[1] {
			t.Fatalf("%s: resolved to %+v, want %+v", step.name, last, got[1])
		}
	}
	enginetest.Docker(t, "rmi", ref)
	if got := await(t, "the removal", w.changes); got != [2]engine.Image{last, {Ref: ref}} {
		t.Fatalf("removed: told of %+v", got)
	}
	if _, err := w.Resolve(t.Context(), ref); !fault.Is(err, fault.ImageMissing) {
		t.Fatalf("removed: %v", err)
	}
}

func mkfifo(t *testing.T, path string) {
	t.Helper()
	if err := syscall.Mkfifo(path, 0o600); err != nil {
		t.Fatal(err)
	}
}

// read reads a FIFO until its writers have closed it.
func read(t *testing.T, fifo string) []byte {
	t.Helper()
	text := make(chan []byte, 1)
	go func() {
		b, _ := os.ReadFile(fifo)
		text <- b
	}()
	return await(t, "a writer of "+filepath.Base(fifo), text)
}

// TestEventStreamRestarts kills the CLI of the events: images that moved meanwhile are found,
// another CLI is started, and none is left at the end.
func TestEventStreamRestarts(t *testing.T) {
	t.Parallel()
	real, err := exec.LookPath("docker")
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	log, fifo := filepath.Join(dir, "log"), filepath.Join(dir, "streams")
	mkfifo(t, fifo)
	cli := dockerclitest.Script(t, fmt.Sprintf("echo $$ >> %s\n[ $1 != events ] || echo $$ > %s\nexec %s \"$@\"", log, fifo, real))
	ref := "secbox-test-images-" + uuid.NewString()[:8] + ":x"
	enginetest.Docker(t, "tag", enginetest.Image, ref)
	t.Cleanup(func() { _ = exec.Command("docker", "rmi", ref).Run() })
	w := newWatched(t, cli)
	first := w.resolve(ref)
	w.watch()
	for range 3 {
		stream, err := strconv.Atoi(strings.TrimSpace(string(read(t, fifo))))
		if err != nil {
			t.Fatal(err)
		}
		enginetest.Docker(t, "rmi", ref)
		if got := await(t, "the removal", w.changes); got != [2]engine.Image{first, {Ref: ref}} {
			t.Fatalf("told of %+v", got)
		}
		if err := syscall.Kill(stream, syscall.SIGKILL); err != nil {
			t.Fatal(err)
		}
		await(t, "the end of the stream", w.ended)
		enginetest.Docker(t, "tag", enginetest.Image, ref)
		if again := w.resolve(ref); again != first {
			t.Fatalf("tagged again without a stream of events: %+v", again)
		}
		w.again <- struct{}{}
	}
	w.stop()
	pids, err := os.ReadFile(log)
	if err != nil {
		t.Fatal(err)
	}
	for _, line := range strings.Fields(string(pids)) {
		pid, err := strconv.Atoi(line)
		if err != nil {
			t.Fatal(err)
		}
		if err := syscall.Kill(pid, 0); err != syscall.ESRCH {
			t.Errorf("docker process %d is left: %v", pid, err)
		}
	}
}
