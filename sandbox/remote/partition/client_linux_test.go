package partition

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"secbox/fault"
	"secbox/sandbox"
)

// effects is the file in the runner's workspace to which every command appends its name each time
// it runs.
const effects = "effects"

// client makes calls across the network while it is cut, and checks each answer.
type client struct {
	t      *testing.T
	s      *side
	name   string
	dir    string // the runner's workspace
	marker string // in the arguments of every process that commands start

	mu       sync.Mutex
	doing    string         // now
	seen     map[string]int // outcomes
	commands map[string]error
}

func newClient(t *testing.T, s *side, n int, dir, marker string) *client {
	return &client{t: t, s: s, name: fmt.Sprint("client", n), dir: dir, marker: marker, seen: map[string]int{}, commands: map[string]error{}}
}

// work makes one call after another until done is closed.
func (c *client) work(done <-chan struct{}) {
	for i := 0; ; i++ {
		select {
		case <-done:
			c.now("nothing")
			return
		default:
		}
		name := fmt.Sprintf("%s-%d", c.name, i)
		c.now(name)
		switch i % 5 {
		case 0:
			c.command(c.t.Context(), name, time.Duration(rand.IntN(1500))*time.Millisecond)
		case 1:
			c.small(name)
		case 2:
			c.large(name)
		case 3:
			c.directory(name)
		case 4: // canceled by its caller
			ctx, cancel := context.WithTimeout(c.t.Context(), time.Duration(rand.IntN(500))*time.Millisecond)
			c.command(ctx, name, 300*time.Millisecond)
			cancel()
		}
		for len(c.s.Runners()) == 0 && c.seen["offline"] > 0 {
			select {
			case <-done:
				return
			case <-time.After(10 * time.Millisecond):
			}
		}
	}
}

func (c *client) now(what string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.doing = what
}

// command runs a command that appends to effects, prints enough to fill several messages, and
// starts a process that would stay.
func (c *client) command(ctx context.Context, name string, takes time.Duration) {
	line := fmt.Sprintf("echo %s >> %s; setsid sleep %s & seq 1 20000; sleep %.3f; echo done %s", name, effects, c.marker, takes.Seconds(), name)
	r, err := c.s.Exec(ctx, sandbox.ExecSpec{Shell: true, Command: line, User: user, ExecID: name})
	c.note(ctx, name, err)
	if err == nil && (r.ExitCode != 0 || r.Stdout != printed+"done "+name+"\n" || r.StdoutBytes != int64(len(r.Stdout))) {
		c.t.Errorf("%s ended with %d and gave %d bytes back, %d were written", name, r.ExitCode, len(r.Stdout), r.StdoutBytes)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.commands[name] = err
}

// printed is the output of seq.
var printed = func() string {
	var b strings.Builder
	for i := range 20000 {
		fmt.Fprintln(&b, i+1)
	}
	return b.String()
}()

// small writes, describes and reads a small file.
func (c *client) small(name string) {
	ctx, path := c.t.Context(), sandbox.Root+"/"+name
	want := []byte(strings.Repeat(name, 100))
	written := c.s.WriteFile(ctx, path, want, 0o644, user)
	c.note(ctx, name, written)
	c.landed(name, want, written)
	info, err := c.s.Stat(ctx, path, user)
	c.note(ctx, name, err, written)
	if err == nil && (info.Size != int64(len(want)) || info.Name != name) {
		c.t.Errorf("%s: %+v", name, info)
	}
	got, err := c.s.ReadFile(ctx, path, user)
	c.note(ctx, name, err, written)
	if err == nil && !bytes.Equal(got, want) {
		c.t.Errorf("%s: %d bytes were read instead of %d", name, len(got), len(want))
	}
}

// large streams a file to the runner and back.
func (c *client) large(name string) {
	ctx, path := c.t.Context(), sandbox.Root+"/"+name
	want := make([]byte, 6<<20+rand.IntN(2<<20))
	for i := 0; i < len(want); i += 512 {
		copy(want[i:], fmt.Sprintf("%s at %d;", name, i))
	}
	_, written := c.s.WriteFileFrom(ctx, path, io.MultiReader(bytes.NewReader(want)), 0o644, user) // hides Seek and ReadAt
	c.note(ctx, name, written)
	c.landed(name, want, written)
	digest := sha256.New()
	n, err := c.s.ReadFileTo(ctx, path, digest, user)
	c.note(ctx, name, err, written)
	if sum := sha256.Sum256(want); err == nil && (n != int64(len(want)) || !bytes.Equal(digest.Sum(nil), sum[:])) {
		c.t.Errorf("%s: other content was read, %d bytes instead of %d", name, n, len(want))
	}
	if err := os.Remove(filepath.Join(c.dir, name)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		c.t.Error(err)
	}
}

// directory makes, lists and removes a directory.
func (c *client) directory(name string) {
	ctx, path := c.t.Context(), sandbox.Root+"/"+name
	made := c.s.MkdirAll(ctx, path, 0o755, user)
	c.note(ctx, name, made)
	if _, err := os.Stat(filepath.Join(c.dir, name)); made == nil && err != nil {
		c.t.Errorf("%s was made: %v", name, err)
	}
	entries, err := c.s.ReadDir(ctx, sandbox.Root, user)
	c.note(ctx, name, err)
	if err == nil && made == nil && !slices.ContainsFunc(entries, func(e sandbox.DirEntry) bool { return e.Name == name && e.IsDir }) {
		c.t.Errorf("%s was made and is not listed", name)
	}
	removed := c.s.Remove(ctx, path, user)
	c.note(ctx, name, removed, made)
	if _, err := os.Stat(filepath.Join(c.dir, name)); removed == nil && !errors.Is(err, fs.ErrNotExist) {
		c.t.Errorf("%s was removed: %v", name, err)
	}
}

// landed checks a file after a write: it is whole or missing, and which of the two agrees with the
// answer.
func (c *client) landed(name string, want []byte, written error) {
	got, err := os.ReadFile(filepath.Join(c.dir, name))
	switch {
	case err != nil && (written == nil || !errors.Is(err, fs.ErrNotExist)):
		c.t.Errorf("%s: %v after %v", name, err, written)
	case err == nil && !bytes.Equal(got, want):
		c.t.Errorf("%s: %d other bytes in the file after %v", name, len(got), written)
	case err == nil && written != nil && !fault.Is(written, fault.OutcomeUnknown):
		c.t.Errorf("%s was written, after %v", name, written)
	}
}

// note counts an outcome. Any error but the expected typed ones fails the test; a file may be
// missing if one of before failed.
func (c *client) note(ctx context.Context, name string, err error, before ...error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case err == nil:
		c.seen["right"]++
	case fault.Is(err, fault.OutcomeUnknown):
		c.seen["unknown"]++
	case ctx.Err() != nil && errors.Is(err, ctx.Err()):
		c.seen["given up"]++
	case fault.Is(err, fault.RunnerOffline):
		c.seen["offline"]++
	case errors.Is(err, fs.ErrNotExist) && slices.ContainsFunc(before, func(err error) bool { return err != nil }):
		c.seen["not there"]++
	default:
		c.t.Errorf("%s: %v", name, err)
	}
}

func (c *client) successes() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.seen["right"]
}

// judge compares the commands' answers with their effects. Called when no command runs.
func judge(t *testing.T, dir string, clients []*client) {
	t.Helper()
	content, err := os.ReadFile(filepath.Join(dir, effects))
	if err != nil {
		t.Fatal(err)
	}
	times := map[string]int{}
	for line := range strings.Lines(string(content)) {
		times[strings.TrimSuffix(line, "\n")]++
	}
	total := map[string]int{}
	for _, c := range clients {
		for name, err := range c.commands {
			n := times[name]
			delete(times, name)
			offline := fault.Is(err, fault.RunnerOffline) && !errors.Is(err, context.DeadlineExceeded)
			if n > 1 || err == nil && n != 1 || offline && n != 0 {
				t.Errorf("%s was carried out %d times and answered with: %v", name, n, err)
			}
		}
		for outcome, n := range c.seen {
			total[outcome] += n
		}
	}
	if len(times) > 0 {
		t.Errorf("unknown commands in effects: %v", slices.Collect(maps.Keys(times)))
	}
	t.Log("outcomes:", total)
	if total["right"] == 0 {
		t.Error("nothing got through")
	}
}
