package partition

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"
)

// The two ends of the network.
const (
	hereAddress  = "10.197.0.1"
	thereAddress = "10.197.0.2"
	hereName     = "here"
	thereName    = "there"
)

// namespace is the network namespace of one locked thread, of the processes started on it and of
// the sockets made on it. It has no name and disappears with them, however the test ends.
type namespace struct {
	work chan func()
	gone sync.WaitGroup
}

func newNamespace(t *testing.T) *namespace {
	t.Helper()
	p := &namespace{work: make(chan func())}
	failed := make(chan error)
	p.gone.Go(func() {
		runtime.LockOSThread() // never unlocked: the thread ends with this goroutine
		err := unix.Unshare(unix.CLONE_NEWNET)
		failed <- err
		if err != nil {
			return
		}
		for f := range p.work {
			f()
		}
	})
	if err := <-failed; err != nil {
		t.Fatalf("unshare network namespace: %v; run this test as root", err)
	}
	t.Cleanup(func() {
		close(p.work)
		p.gone.Wait()
	})
	p.ip(t, "link", "set", "lo", "up")
	return p
}

// do runs f in the namespace.
func (p *namespace) do(f func() error) error {
	done := make(chan error, 1)
	p.work <- func() { done <- f() }
	return <-done
}

// ip runs the ip command in the namespace.
func (p *namespace) ip(t *testing.T, args ...string) {
	t.Helper()
	if err := p.do(func() error { return ip(nil, args...) }); err != nil {
		t.Fatal(err)
	}
}

func ip(file *os.File, args ...string) error {
	cmd := exec.Command("ip", args...)
	if file != nil {
		cmd.ExtraFiles = []*os.File{file}
	}
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("ip %s: %w: %s", strings.Join(args, " "), err, out)
	}
	return nil
}

// start starts a process in the namespace; it dies with the namespace's thread.
func (p *namespace) start(cmd *exec.Cmd) error {
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	return p.do(cmd.Start)
}

// network is two namespaces joined by a veth pair.
type network struct{ here, there *namespace }

func newNetwork(t *testing.T) *network {
	t.Helper()
	n := &network{here: newNamespace(t), there: newNamespace(t)}
	var other *os.File
	if err := n.there.do(func() (err error) {
		other, err = os.Open(filepath.Join("/proc/self/task", fmt.Sprint(unix.Gettid()), "ns/net"))
		return err
	}); err != nil {
		t.Fatal(err)
	}
	defer other.Close()
	if err := n.here.do(func() error {
		return ip(other, "link", "add", hereName, "type", "veth", "peer", "name", thereName, "netns", "/proc/self/fd/3")
	}); err != nil {
		t.Fatal(err)
	}
	n.here.ip(t, "addr", "add", hereAddress+"/30", "dev", hereName)
	n.there.ip(t, "addr", "add", thereAddress+"/30", "dev", thereName)
	n.there.ip(t, "link", "set", thereName, "up")
	n.restore(t)
	return n
}

// cut takes the network down: packets are lost silently.
func (n *network) cut(t *testing.T) { t.Helper(); n.here.ip(t, "link", "set", hereName, "down") }

// restore brings the network up again.
func (n *network) restore(t *testing.T) { t.Helper(); n.here.ip(t, "link", "set", hereName, "up") }
