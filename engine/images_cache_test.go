//go:build unix

package engine_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"secbox/engine"
	"secbox/engine/dockercli/dockerclitest"
	"secbox/fault"
)

// standIn is a fake docker that answers on demand, and an Images that calls it.
type standIn struct {
	*watched
	dir    string
	events *os.File // the engine's events
}

// An inspection prints the image of when it began. If there is a FIFO <ref>.hold, it waits until
// that was opened and closed.
const standInScript = `cd %s
echo "$1 $2 $5" >> log
case $1 in
events) exec cat events ;;
image)
	read -r found < "$5" || { echo "Error: No such image: $5" >&2; exit 1; }
	[ ! -p "$5.hold" ] || read -r _ < "$5.hold"
	echo "$found" ;;
esac
`

func newStandIn(t *testing.T) *standIn {
	dir := t.TempDir()
	mkfifo(t, filepath.Join(dir, "events"))
	return &standIn{watched: newWatched(t, dockerclitest.Script(t, fmt.Sprintf(standInScript, dir))), dir: dir}
}

// set makes ref stand for an image with sandbox-init in it.
func (s *standIn) set(ref, id string) {
	s.t.Helper()
	text := fmt.Sprintf(`{"ID":%q,"Labels":{%q:"000000000000"}}`, id, engine.LabelInit)
	if err := os.WriteFile(filepath.Join(s.dir, ref+".new"), []byte(text+"\n"), 0o600); err != nil {
		s.t.Fatal(err)
	}
	if err := os.Rename(filepath.Join(s.dir, ref+".new"), filepath.Join(s.dir, ref)); err != nil {
		s.t.Fatal(err)
	}
}

// wants resolves ref.
func (s *standIn) wants(ref, id string) {
	s.t.Helper()
	if got := s.resolve(ref); got.ID != id {
		s.t.Errorf("%s resolves to %q, want %q", ref, got.ID, id)
	}
}

// asked is how often ref was inspected.
func (s *standIn) asked(ref string) int {
	s.t.Helper()
	log, err := os.ReadFile(filepath.Join(s.dir, "log"))
	if err != nil {
		s.t.Fatal(err)
	}
	return strings.Count(string(log), "image inspect "+ref+"\n")
}

// hold makes the next inspections of ref wait.
func (s *standIn) hold(ref string) { mkfifo(s.t, filepath.Join(s.dir, ref+".hold")) }

// held waits until an inspection of ref has its result, and returns a function that releases it.
// Later ones are not held.
func (s *standIn) held(ref string) (release func()) {
	s.t.Helper()
	path := filepath.Join(s.dir, ref+".hold")
	f := s.open(path)
	if err := os.Remove(path); err != nil {
		s.t.Fatal(err)
	}
	return func() { _ = f.Close() }
}

// open opens a FIFO for writing, which waits for its reader.
func (s *standIn) open(path string) *os.File {
	s.t.Helper()
	opened := make(chan *os.File, 1)
	go func() {
		f, _ := os.OpenFile(path, os.O_WRONLY, 0)
		opened <- f
	}()
	return await(s.t, "a reader of "+filepath.Base(path), opened)
}

// The name that is resolved again after every invalidate, so that a test can wait for it.
const barrier = "barrier"

// begin watches; on return events are received and the names were resolved again.
func (s *standIn) begin() {
	s.t.Helper()
	s.set(barrier, "sha256:b")
	s.wants(barrier, "sha256:b")
	s.hold(barrier)
	s.watch()
	s.events = s.open(filepath.Join(s.dir, "events"))
	s.t.Cleanup(func() { _ = s.events.Close() })
	s.held(barrier)()
}

// tell sends an event of the engine; on return the cache is clear.
func (s *standIn) tell(event string) {
	s.t.Helper()
	s.hold(barrier)
	if _, err := s.events.WriteString(event + "\n"); err != nil {
		s.t.Fatal(err)
	}
	s.held(barrier)()
}

func TestCachedImages(t *testing.T) {
	t.Parallel()
	s := newStandIn(t)
	s.set("x", "sha256:1")
	s.begin()
	s.wants("x", "sha256:1")
	s.set("x", "sha256:2")
	var callers sync.WaitGroup
	for range 16 {
		callers.Go(func() {
			for range 100 {
				s.wants("x", "sha256:1")
			}
		})
	}
	callers.Wait()
	s.move(59 * time.Second)
	s.wants("x", "sha256:1")
	if n := s.asked("x"); n != 1 {
		t.Fatalf("asked %d times", n)
	}

	s.hold("x")
	s.move(2 * time.Second)
	s.wants("x", "sha256:1") // does not wait for the refresh
	release := s.held("x")
	s.wants("x", "sha256:1")
	release()
	if got := await(t, "the refreshed answer", s.changes); got[0].ID != "sha256:1" || got[1].ID != "sha256:2" {
		t.Fatalf("told of %+v", got)
	}
	s.wants("x", "sha256:2")
	if n := s.asked("x"); n != 2 {
		t.Fatalf("asked %d times", n)
	}

	s.set("x", "sha256:3")
	s.move(5 * time.Minute) // a stream that died unnoticed
	s.wants("x", "sha256:3")
}

func TestEventClearsCache(t *testing.T) {
	t.Parallel()
	s := newStandIn(t)
	s.set("x", "sha256:1")
	s.begin()
	s.wants("x", "sha256:1")
	s.set("x", "sha256:2")
	s.tell("image tag")
	s.wants("x", "sha256:2")
	if got := await(t, "the change", s.changes); got[0].ID != "sha256:1" || got[1].ID != "sha256:2" {
		t.Fatalf("told of %+v", got)
	}
}

// TestOutdatedAnswerIsNotCached sends an event during a lookup that has its result already.
func TestOutdatedAnswerIsNotCached(t *testing.T) {
	t.Parallel()
	for name, overtake := range map[string]func(*standIn){
		"event":  func(s *standIn) { s.tell("image tag") },
		"forget": func(s *standIn) { s.Forget("x") },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newStandIn(t)
			s.set("x", "sha256:1")
			s.begin()
			s.hold("x")
			early := make(chan struct{})
			go func() {
				defer close(early)
				s.wants("x", "sha256:1")
			}()
			release := s.held("x")
			s.set("x", "sha256:2")
			overtake(s)
			s.wants("x", "sha256:2") // begins a new lookup
			release()
			await(t, "the early answer", early)
			s.wants("x", "sha256:2")
			if n := s.asked("x"); n != 2 {
				t.Errorf("asked %d times", n)
			}
		})
	}
}

func TestSlowLookupDelaysNoOther(t *testing.T) {
	t.Parallel()
	s := newStandIn(t)
	s.set("slow", "sha256:1")
	s.set("x", "sha256:2")
	s.hold("slow")
	var callers sync.WaitGroup
	for range 16 {
		callers.Go(func() { s.wants("slow", "sha256:1") })
	}
	release := s.held("slow")
	s.wants("x", "sha256:2")

	impatient, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := s.Resolve(impatient, "slow"); !fault.Is(err, fault.EngineUnavailable) {
		t.Errorf("a caller who leaves: %v", err)
	}
	release()
	callers.Wait()
	if n := s.asked("slow"); n != 1 {
		t.Errorf("asked %d times", n)
	}
}

// TestLastCallerCancelsLookup notices it by the end of docker, which has the other end of the pipe.
func TestLastCallerCancelsLookup(t *testing.T) {
	t.Parallel()
	s := newStandIn(t)
	s.set("x", "sha256:1")
	s.hold("x")
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	left := make(chan error, 1)
	go func() {
		_, err := s.Resolve(ctx, "x")
		left <- err
	}()
	pipe := s.open(filepath.Join(s.dir, "x.hold"))
	defer func() { _ = pipe.Close() }()
	cancel()
	if err := await(t, "the caller", left); !fault.Is(err, fault.EngineUnavailable) {
		t.Errorf("got %v", err)
	}
	if _, err := pipe.WriteString("\n"); err == nil {
		t.Error("docker still waits")
	}
}

func TestErrorIsNotCached(t *testing.T) {
	t.Parallel()
	s := newStandIn(t)
	s.begin()
	if _, err := s.Resolve(t.Context(), "x"); !fault.Is(err, fault.ImageMissing) {
		t.Fatalf("got %v", err)
	}
	s.set("x", "sha256:1")
	s.wants("x", "sha256:1")
}

// TestShortCacheWithoutEvents ends the stream and begins it again.
func TestShortCacheWithoutEvents(t *testing.T) {
	t.Parallel()
	s := newStandIn(t)
	s.set("x", "sha256:1")
	s.set("y", "sha256:1")
	s.begin()
	s.hold(barrier)
	_ = s.events.Close()
	if d := await(t, "the end of the stream", s.ended); d != time.Second {
		t.Errorf("started again after %v", d)
	}
	s.held(barrier)() // the names are being resolved again
	s.wants("x", "sha256:1")
	s.set("x", "sha256:2")
	s.move(9 * time.Second)
	s.wants("x", "sha256:1")
	s.move(2 * time.Second)
	s.wants("x", "sha256:2")

	s.hold(barrier)
	s.again <- struct{}{}
	s.events = s.open(filepath.Join(s.dir, "events"))
	s.held(barrier)()
	s.wants("y", "sha256:1")
	s.set("y", "sha256:2")
	s.move(59 * time.Second)
	s.wants("y", "sha256:1")

	_ = s.events.Close()
	if d := await(t, "the second end", s.ended); d != time.Second {
		t.Errorf("a stream that lived is started again after %v", d)
	}
	for _, want := range []time.Duration{2 * time.Second, 4 * time.Second, 8 * time.Second} {
		s.again <- struct{}{}
		s.events = s.open(filepath.Join(s.dir, "events"))
		_ = s.events.Close()
		if d := await(t, "another end", s.ended); d != want {
			t.Errorf("started again after %v, want %v", d, want)
		}
	}
}
