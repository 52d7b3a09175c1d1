//go:build linux

package remote_test

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math/rand/v2"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"secbox/fault"
	"secbox/sandbox"
	"secbox/sandbox/sandboxtest"
)

// proxy forwards connections between a runner and the server, and can cut them.
type proxy struct {
	address string
	target  string
	ln      net.Listener
	work    sync.WaitGroup

	mu    sync.Mutex
	conns map[net.Conn]struct{}
}

func newProxy(t *testing.T, s *server) *proxy {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	p := &proxy{address: "http://" + ln.Addr().String(), target: strings.TrimPrefix(s.url, "http://"), ln: ln, conns: map[net.Conn]struct{}{}}
	p.work.Go(p.accept)
	t.Cleanup(func() {
		ln.Close()
		p.cut()
		p.work.Wait()
	})
	return p
}

func (p *proxy) accept() {
	for {
		from, err := p.ln.Accept()
		if err != nil {
			return
		}
		to, err := net.Dial("tcp", p.target)
		if err != nil {
			from.Close()
			continue
		}
		p.mu.Lock()
		p.conns[from], p.conns[to] = struct{}{}, struct{}{}
		p.mu.Unlock()
		for _, way := range [][2]net.Conn{{from, to}, {to, from}} {
			p.work.Go(func() {
				_, _ = io.Copy(way[0], way[1])
				way[0].Close()
				way[1].Close()
				p.mu.Lock()
				delete(p.conns, way[0])
				p.mu.Unlock()
			})
		}
	}
}

// cut resets all connections.
func (p *proxy) cut() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for c := range p.conns {
		_ = c.(*net.TCPConn).SetLinger(0)
		c.Close()
	}
}

// TestCutsWhileClientsWork cuts the connection at random while four clients work. Each call returns
// its answer or an error that is true, and no command runs twice.
func TestCutsWhileClientsWork(t *testing.T) {
	t.Parallel()
	s := serve(t)
	p := newProxy(t, s)
	dir := t.TempDir()
	run(t, s, p.address, dir)
	const clients = 4
	marker := fmt.Sprintf("97%d.%d", os.Getpid(), rand.IntN(1_000_000))
	done := make(chan struct{})
	var work sync.WaitGroup
	seen := make([]map[string]int, clients)
	for c := range clients {
		seen[c] = map[string]int{}
		work.Go(func() {
			w := &cutClient{t: t, s: s, name: fmt.Sprint("client", c), dir: dir, marker: marker, seen: seen[c]}
			for i := 0; ; i++ {
				select {
				case <-done:
					return
				default:
					w.one(i)
				}
			}
		})
	}
	for range sandboxtest.Soak(4, 300) {
		await(t, "the runner to connect", func() bool { return len(s.Runners()) == 1 })
		time.Sleep(rand.N(150 * time.Millisecond)) // while the clients are busy
		p.cut()
		await(t, "the cut to be noticed", func() bool { all := s.Runners(); return len(all) == 0 || all[0].InFlight > 0 })
	}
	close(done)
	work.Wait()
	total := map[string]int{}
	for _, m := range seen {
		for k, n := range m {
			total[k] += n
		}
	}
	t.Log("outcomes:", total)
	if total["right"] == 0 {
		t.Error("nothing got through")
	}
	await(t, "all processes to be gone", func() bool { return sandboxtest.HostProcesses(marker) == 0 })
}

// TestProcessOverCuts talks with a command while the connection is cut: every line arrives once, in
// both directions, and so does the signal.
func TestProcessOverCuts(t *testing.T) {
	t.Parallel()
	s := serve(t)
	p := newProxy(t, s)
	run(t, s, p.address, t.TempDir())
	process := sandbox.Start(t.Context(), s.Hub, sandbox.ExecSpec{
		Command: `trap 'echo ended; exit 9' TERM; echo ready; while read -r line; do echo "$line"; done`, Shell: true, User: user,
	})
	process.Stderr.Close()
	stdout := bufio.NewReader(process.Stdout)
	expect := func(want string) {
		t.Helper()
		if got, err := stdout.ReadString('\n'); err != nil || got != want+"\n" {
			t.Fatalf("got %.50q, want %.50q: %v", got, want, err)
		}
	}
	expect("ready")
	long := strings.Repeat("x", 100_000)
	for i := range 6 {
		line := fmt.Sprint(i, long)
		go func() { _, _ = io.WriteString(process.Stdin, line+"\n") }()
		if i%2 == 0 {
			p.cut()
		}
		expect(line)
	}
	p.cut()
	if err := process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	expect("ended")
	if r, err := process.Wait(); err != nil || r.ExitCode != 9 {
		t.Errorf("%+v %v", r, err)
	}
}

// cutClient makes calls over a link that breaks.
type cutClient struct {
	t      *testing.T
	s      *server
	name   string
	dir    string
	marker string
	seen   map[string]int
}

func (c *cutClient) one(i int) {
	ctx := c.t.Context()
	name := fmt.Sprintf("%s-%d", c.name, i)
	path := sandbox.Root + "/" + name
	switch i % 4 {
	case 0: // a command with a countable effect, which leaves a process behind
		r, err := c.s.Exec(ctx, sandbox.ExecSpec{
			Shell: true, User: user, ExecID: name,
			Command: "echo x >> " + name + "; sleep " + c.marker + " & sleep 0.0" + fmt.Sprint(i%10) + "; echo done " + name,
		})
		content, readErr := os.ReadFile(filepath.Join(c.dir, name))
		times := strings.Count(string(content), "x")
		switch {
		case readErr != nil && !errors.Is(readErr, fs.ErrNotExist):
			c.t.Error(readErr)
		case times > 1:
			c.t.Errorf("%s ran %d times", name, times)
		case err == nil && (times != 1 || r.Stdout != "done "+name+"\n"):
			c.t.Errorf("%s ran %d times and said %q", name, times, r.Stdout)
		case fault.Is(err, fault.RunnerOffline) && times != 0:
			c.t.Errorf("%s ran, and was said to have not", name)
		}
		c.note(err)
	case 1: // a small file
		want := []byte(name)
		err := c.s.WriteFile(ctx, path, want, 0o644, user)
		c.note(err)
		c.compare(path, want, err)
	case 2: // a large file
		want := content(5 << 20)
		err := c.s.WriteFile(ctx, path, want, 0o644, user)
		c.note(err)
		c.compare(path, want, err)
		_ = os.Remove(filepath.Join(c.dir, name))
	case 3:
		err := c.s.MkdirAll(ctx, path, 0o755, user)
		if info, e := os.Stat(filepath.Join(c.dir, name)); err == nil && (e != nil || !info.IsDir()) {
			c.t.Errorf("%s was made and is not there: %v", name, e)
		}
		c.note(err)
		_, err = c.s.ReadDir(ctx, path, user)
		c.note(err)
	}
	if c.seen["offline"] > 0 && len(c.s.Runners()) == 0 {
		await(c.t, "the runner to come back", func() bool { return len(c.s.Runners()) == 1 })
	}
}

// compare checks a file after a write: it is whole or missing, and it is there if the write
// succeeded.
func (c *cutClient) compare(path string, want []byte, written error) {
	onDisk, err := os.ReadFile(filepath.Join(c.dir, strings.TrimPrefix(path, sandbox.Root)))
	if (written == nil || err == nil) && !bytes.Equal(onDisk, want) {
		c.t.Errorf("%s: %d bytes are there instead of %d (%v)", path, len(onDisk), len(want), err)
	}
	got, err := c.s.ReadFile(c.t.Context(), path, user)
	if err == nil && !bytes.Equal(got, want) {
		c.t.Errorf("%s: %d bytes were read instead of %d", path, len(got), len(want))
	}
	c.note(err)
}

// note counts an outcome. Any error but the expected typed ones fails the test.
func (c *cutClient) note(err error) {
	switch {
	case err == nil:
		c.seen["right"]++
	case errors.Is(err, fs.ErrNotExist): // not written before
		c.seen["not there"]++
	case fault.Is(err, fault.RunnerOffline):
		c.seen["offline"]++
	case fault.Is(err, fault.OutcomeUnknown):
		c.seen["unknown"]++
	default:
		c.t.Errorf("%s: %v", c.name, err)
	}
}
