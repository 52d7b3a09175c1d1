//go:build unix

package e2e

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"secbox/api/contracttest"
	"secbox/engine/attach"
	sandboxprocess "secbox/sandbox/process"
)

func TestMain(m *testing.M) {
	sandboxprocess.Main() // the commands of the sandbox none are run by this program, started once more
	code := m.Run()
	for _, c := range []*sharedServer{&common, &commonWarm} {
		if code != 0 {
			c.printLog()
		}
		if err := c.close(); err != nil {
			fmt.Fprintln(os.Stderr, "closing:", err)
			code = max(code, 1)
		}
	}
	if base, err := attach.Open("/run/secbox", "e2e"); err == nil { // removes the mounts of killed core-apis, like the next one's start
		_ = base.Close()
	}
	if dir, err := binaryDir(); err == nil {
		_ = os.RemoveAll(dir)
	}
	os.Exit(code)
}

// process is a core-api in a separate process.
type process struct {
	*testServer
	cmd   *exec.Cmd
	log   *words
	ended chan struct{}
}

// coreAPI is the command that runs core-api in a separate process.
func coreAPI(t testing.TB, environ []string, args ...string) *exec.Cmd {
	cmd := exec.Command(binary(t), args...)
	cmd.Env = environ
	return cmd
}

var serves = regexp.MustCompile(`msg="core-api serves" addr=(\S+)`)

// serve starts `core-api serve` on directories that may have been used before, and waits until it serves.
func serve(t testing.TB, dir string, environ ...string) *process {
	t.Helper()
	return serveAs(t, binary(t), dir, environ...)
}

// serveAs is serve with a program.
func serveAs(t testing.TB, program, dir string, environ ...string) *process {
	t.Helper()
	p := &process{log: &words{}, ended: make(chan struct{})}
	p.cmd = exec.Command(program, "serve", "--addr", "127.0.0.1:0",
		"--state-dir", filepath.Join(dir, "state"), "--workspace-root", filepath.Join(dir, "workspace"))
	p.cmd.Env = slices.Concat(os.Environ(), []string{"CORE_API_POOL_READY=0"}, environ)
	p.cmd.Stderr = p.log
	if err := p.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	go func() {
		_ = p.cmd.Wait()
		close(p.ended)
	}()
	t.Cleanup(func() {
		p.kill()
		if t.Failed() {
			t.Logf("core-api said:\n%s", p.log)
		}
		p.leaveNothing()
	})
	addr := ""
	eventually(t, "core-api serves", func() bool {
		if m := serves.FindStringSubmatch(p.log.String()); m != nil {
			addr = m[1]
		}
		select {
		case <-p.ended:
			t.Fatalf("core-api ended with code %d:\n%s", p.cmd.ProcessState.ExitCode(), p.log)
		default:
		}
		return addr != ""
	})
	p.testServer = &testServer{t: t, client: contracttest.New(t), url: "http://" + addr, dir: dir, environ: os.Environ(), turn: &turn{}}
	return p
}

// kill ends the process as a crash or the kernel's OOM killer does.
func (p *process) kill() {
	_ = p.cmd.Process.Kill()
	<-p.ended
}

// leaveNothing waits until the containers of the killed process are gone, before the test's directories go: docker hangs where a mount's
// source vanishes between a container's creation and its start.
func (p *process) leaveNothing() {
	if p.testServer == nil { // it never served
		return
	}
	var clis []int
	var containers []string
	defer func() {
		if len(clis)+len(containers) > 0 {
			p.t.Logf("left: CLIs %v, containers %v", clis, containers)
		}
	}()
	begun := time.Now()
	eventually(p.t, "the killed core-api's docker CLIs and containers are gone", func() bool {
		clis, containers = processesWith("secbox.node="+p.node()), p.containers()
		// What ended, or hangs, between a container's creation and its start is left to the sweep of the next core-api.
		if len(containers) > 0 && (len(clis) == 0 || time.Since(begun) > 30*time.Second) {
			for _, id := range strings.Fields(p.docker("ps", "-aq", "--filter", "label=secbox.node="+p.node(), "--filter", "status=created")) {
				_ = exec.Command("docker", "rm", "-f", id).Run()
			}
		}
		return len(clis)+len(containers) == 0
	})
	removeMounts(p.t, p.node())
}

// terminate asks the process to end.
func (p *process) terminate() { _ = p.cmd.Process.Signal(syscall.SIGTERM) }

// exitCode waits for the end.
func (p *process) exitCode() int {
	<-p.ended
	return p.cmd.ProcessState.ExitCode()
}

// words are what a process writes, readable meanwhile.
type words struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (w *words) Write(p []byte) (int, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.b.Write(p)
}

func (w *words) String() string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.b.String()
}

// processesWith are the other processes that have text on their command line.
func processesWith(text string) (pids []int) {
	entries, _ := os.ReadDir("/proc")
	for _, entry := range entries {
		var pid int
		if _, err := fmt.Sscanf(entry.Name(), "%d", &pid); err != nil || pid == os.Getpid() {
			continue
		}
		line, _ := os.ReadFile(filepath.Join("/proc", entry.Name(), "cmdline"))
		if strings.Contains(string(line), text) {
			pids = append(pids, pid)
		}
	}
	return pids
}
