package cable

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

// The two ends of the cable.
const (
	hereAddress  = "10.197.0.1"
	thereAddress = "10.197.0.2"
	hereName     = "here"
	thereName    = "there"
)

// place is a network namespace: that of one thread, of the processes that are started on it and of the sockets that are made on it. It is
// gone when they are, however the test ends, and has no name that could be left behind.
type place struct {
	work chan func()
	gone sync.WaitGroup
}

func newPlace(t *testing.T) *place {
	t.Helper()
	p := &place{work: make(chan func())}
	failed := make(chan error)
	p.gone.Go(func() {
		runtime.LockOSThread() // for ever: the thread ends with this goroutine
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
		t.Fatalf("a network namespace cannot be made: %v; run this test as root", err)
	}
	t.Cleanup(func() {
		close(p.work)
		p.gone.Wait()
	})
	p.ip(t, "link", "set", "lo", "up")
	return p
}

// do runs f in the place.
func (p *place) do(f func() error) error {
	done := make(chan error, 1)
	p.work <- func() { done <- f() }
	return <-done
}

// ip runs the command of that name in the place.
func (p *place) ip(t *testing.T, args ...string) {
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

// start starts a process in the place, which does not outlive the place.
func (p *place) start(cmd *exec.Cmd) error {
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	return p.do(cmd.Start)
}

// network is two places and the cable between them.
type network struct{ here, there *place }

func newNetwork(t *testing.T) *network {
	t.Helper()
	n := &network{here: newPlace(t), there: newPlace(t)}
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
	n.plug(t)
	return n
}

// pull cuts the cable: what is sent is lost, and nobody is told.
func (n *network) pull(t *testing.T) { t.Helper(); n.here.ip(t, "link", "set", hereName, "down") }

// plug restores it.
func (n *network) plug(t *testing.T) { t.Helper(); n.here.ip(t, "link", "set", hereName, "up") }
