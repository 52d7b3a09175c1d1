package scripts

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"testing"

	"golang.org/x/sys/unix"
)

// TestMain removes the programs that the scripts share.
func TestMain(m *testing.M) {
	code := m.Run()
	if programs != "" {
		os.RemoveAll(programs)
	}
	os.Exit(code)
}

// programs is where build links the programs that scripts build, once, for SECBOX_PROGRAMS.
var programs string

var build = sync.OnceValue(func() (err error) {
	if programs, err = os.MkdirTemp("", "programs-"); err != nil {
		return err
	}
	cmd := exec.Command("go", "build", "-trimpath", "-o", programs+"/", "secbox/cmd/core-api", "secbox/cmd/secbox")
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("%w: %s", err, out)
	}
	return nil
})

// demo runs a demo; programs in the folder replace programs of the same name. It returns the
// output. With visit, the demo has a terminal, and visit is called with the exec's address when it
// waits for Enter.
func demo(t *testing.T, script, standIns string, visit func(link string)) (said string, ok bool) {
	t.Helper()
	tmp := t.TempDir()
	_ = os.Getenv("SECBOX_SOURCE") // so that go test repeats this when any file has changed
	err := build()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(context.WithoutCancel(t.Context()), script)
	// A shell that is set up for another server must not reach into the demo.
	cmd.Env = append(os.Environ(), "TMPDIR="+tmp, "PATH="+standIns+string(filepath.ListSeparator)+os.Getenv("PATH"), "SECBOX_PROGRAMS="+programs,
		"CORE_API_SANDBOX_MAX_QUEUED_EXECS=nonsense", "DATABASE_URL=postgres://127.0.0.1:1/none", "DEMO_EXECS=24")
	var out bytes.Buffer
	if visit == nil {
		cmd.Stdout, cmd.Stderr = &out, &out
		err = cmd.Run()
	} else {
		keyboard, terminal := openTerminal(t)
		cmd.Stdin, cmd.Stdout, cmd.Stderr = terminal, terminal, terminal
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		terminal.Close()
		waits := regexp.MustCompile(`Look at the exec that ran: (\S+)\s+Then press Enter`)
		for part := make([]byte, 4096); ; {
			n, readErr := keyboard.Read(part)
			out.Write(part[:n])
			if link := waits.FindSubmatch(out.Bytes()); link != nil && visit != nil {
				visit(string(link[1]))
				visit = nil
				if _, err := keyboard.WriteString("\n"); err != nil {
					t.Error(err)
				}
			}
			if readErr != nil { // EIO once all processes have closed the terminal
				break
			}
		}
		if visit != nil {
			t.Error("on a terminal, the demo did not wait")
		}
		err = cmd.Wait()
	}
	left, globErr := filepath.Glob(filepath.Join(tmp, "secbox*"))
	if globErr != nil || len(left) > 0 {
		t.Errorf("the demo left %v", left)
	}
	if id := regexp.MustCompile(`exec +([0-9a-f-]{36})`).FindStringSubmatch(out.String()); id != nil {
		containers, err := exec.CommandContext(t.Context(), "docker", "ps", "-aq", "--filter", "label=secbox.exec="+id[1]).Output()
		if err != nil || len(containers) > 0 {
			t.Errorf("the demo left containers %q, %v", containers, err)
		}
	}
	return out.String(), err == nil
}

// openTerminal returns both ends of a new terminal.
func openTerminal(t *testing.T) (keyboard, terminal *os.File) {
	t.Helper()
	keyboard, err := os.OpenFile("/dev/ptmx", os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { keyboard.Close() })
	if err := unix.IoctlSetPointerInt(int(keyboard.Fd()), unix.TIOCSPTLCK, 0); err != nil {
		t.Fatal(err)
	}
	n, err := unix.IoctlGetInt(int(keyboard.Fd()), unix.TIOCGPTN)
	if err != nil {
		t.Fatal(err)
	}
	terminal, err = os.OpenFile("/dev/pts/"+strconv.Itoa(n), os.O_RDWR|unix.O_NOCTTY, 0)
	if err != nil {
		t.Fatal(err)
	}
	return keyboard, terminal
}

func TestDemo(t *testing.T) {
	t.Parallel()
	said, ok := demo(t, "./demo.sh", t.TempDir(), func(link string) {
		resp, err := http.Get(link)
		if err != nil {
			t.Error(err)
			return
		}
		defer resp.Body.Close()
		page, err := io.ReadAll(resp.Body)
		if err != nil || resp.StatusCode != http.StatusOK || !bytes.Contains(page, []byte("2 rows, total 42")) {
			t.Errorf("%s: %d, %v", link, resp.StatusCode, err)
		}
	})
	if !ok {
		t.Fatalf("it said:\n%s", said)
	}
	for _, want := range []string{
		"succeeded, exit code 0", "2 rows, total 42", "summary.json", "403 policy_denied", "SQLite", "/console/execs/", "What to type next", "is true",
	} {
		if !strings.Contains(said, want) {
			t.Errorf("it did not say %q; it said:\n%s", want, said)
		}
	}
}

func TestDemoFails(t *testing.T) {
	t.Parallel()
	standIns := t.TempDir()
	for _, name := range []string{"sha256sum", "shasum"} {
		if err := os.WriteFile(filepath.Join(standIns, name), []byte("#!/bin/sh\necho 0000  -\n"), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	said, ok := demo(t, "./demo.sh", standIns, nil)
	if ok || !strings.Contains(said, "✗ not true: the hash of the downloaded bytes is the recorded one") ||
		!strings.Contains(said, "1 of the things above are not true") {
		t.Errorf("ok %v, it said:\n%s", ok, said)
	}
}

func TestDemoCluster(t *testing.T) {
	t.Parallel()
	said, ok := demo(t, "./demo-cluster.sh", t.TempDir(), nil)
	for _, want := range []string{"canceled through node 1: canceled", "is lost on record", "begun twice: 0", "draining", "is true"} {
		if !ok || !strings.Contains(said, want) {
			t.Fatalf("ok %v, it did not say %q; it said:\n%s", ok, want, said)
		}
	}
}
