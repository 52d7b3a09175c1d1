//go:build unix

package e2e

import (
	"bytes"
	"fmt"
	"io"
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
	"secbox/settings"
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

// serve starts `core-api serve` on directories that may have been used before, and waits until it
// serves.
func serve(t testing.TB, dir string, environ ...string) *process {
	t.Helper()
	return serveAs(t, binary(t), dir, environ...)
}

// serveAs is serve with a program.
func serveAs(t testing.TB, program, dir string, environ ...string) *process {
	t.Helper()
	p, addr, err := launch(program, slices.Concat(os.Environ(), []string{"CORE_API_POOL_READY=0"}, environ), &words{}, "--addr", "127.0.0.1:0",
		"--state-dir", filepath.Join(dir, "state"), "--workspace-root", filepath.Join(dir, "workspace"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		p.kill()
		if t.Failed() {
			t.Logf("core-api said:\n%s", p.log)
		}
		p.leaveNothing()
	})
	p.testServer = &testServer{t: t, client: contracttest.New(t), url: "http://" + addr, dir: dir, environ: os.Environ(), turn: &turn{}}
	return p
}

// launch runs `core-api serve` and waits until it serves at an address.
func launch(program string, environ []string, log *words, flags ...string) (p *process, addr string, err error) {
	p = &process{log: log, ended: make(chan struct{})}
	p.cmd = exec.Command(program, append([]string{"serve"}, flags...)...)
	p.cmd.Env, p.cmd.Stderr = environ, p.log
	p.cmd.WaitDelay = 5 * time.Second // what a killed program started may hold its standard error, under Wine
	if err := p.cmd.Start(); err != nil {
		return nil, "", err
	}
	go func() {
		_ = p.cmd.Wait()
		close(p.ended)
	}()
	for deadline := time.After(2 * time.Minute); ; {
		if m := serves.FindStringSubmatch(log.String()); m != nil {
			return p, m[1], nil
		}
		select {
		case <-p.ended:
			return nil, "", fmt.Errorf("core-api ended with code %d:\n%s", p.cmd.ProcessState.ExitCode(), log)
		case <-deadline:
			p.kill()
			return nil, "", fmt.Errorf("core-api does not serve:\n%s", log)
		case <-time.After(10 * time.Millisecond):
		}
	}
}

// startProcess is startApplication where servers are separate.
func startProcess(s settings.Settings, environ []string, w io.Writer) (application, error) {
	program, err := tested()
	if err != nil {
		return nil, err
	}
	p, addr, err := launch(program, slices.Concat(environ, s.Environ()), &words{also: w})
	if err != nil {
		return nil, err
	}
	return &separately{p, addr}, nil
}

// separately is an application in a process.
type separately struct {
	*process
	addr string
}

func (s *separately) Addr() string { return s.addr }

func (s *separately) Close() error {
	s.terminate()
	if code := s.exitCode(); code != 0 {
		return fmt.Errorf("core-api ended with code %d", code)
	}
	return nil
}

// kill ends the process as a crash or the kernel's OOM killer does.
func (p *process) kill() {
	_ = p.cmd.Process.Kill()
	<-p.ended
}

// leaveNothing waits until the containers of the killed process are gone, before the test's
// directories go: docker hangs where a mount's source vanishes between a container's creation and
// its start.
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
		// What ended, or hangs, between a container's creation and its start is left to the sweep
		// of the next core-api.
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
	mu   sync.Mutex
	b    bytes.Buffer
	also io.Writer // nil: nobody
}

func (w *words) Write(p []byte) (int, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.also != nil {
		_, _ = w.also.Write(p)
	}
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
