package bench

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"secbox/dockercli"
)

// coreAPI builds the program under test once.
var coreAPI = sync.OnceValues(func() (string, error) {
	dir, err := os.MkdirTemp("", "secbox-bench-test-")
	if err != nil {
		return "", err
	}
	binary = filepath.Join(dir, "core-api")
	if out, err := exec.Command("go", "build", "-o", binary, "secbox/cmd/core-api").CombinedOutput(); err != nil {
		return "", fmt.Errorf("%w: %s", err, out)
	}
	return binary, nil
})

var binary string

func TestMain(m *testing.M) {
	code := m.Run()
	if binary != "" {
		os.RemoveAll(filepath.Dir(binary))
	}
	os.Exit(code)
}

// small measures everything, a little.
func small(t *testing.T) Options {
	t.Helper()
	program, err := coreAPI()
	if err != nil {
		t.Fatal(err)
	}
	cli, err := dockercli.Find("", os.Environ())
	if err != nil {
		t.Fatalf("%v; run `make setup`", err)
	}
	o := Defaults()
	o.Server, o.Environ, o.Docker, o.Command, o.Dir, o.Log = []string{program, "serve"}, os.Environ(), cli, "core-api bench", shared(t), t.Output()
	o.Pairs, o.Rounds, o.RoundExecs, o.Concurrency, o.OutputBytes, o.OutputRounds, o.Rows, o.Tasks = 2, 2, 3, 2, 8<<20, 1, 2000, 5
	return o
}

// shared is a folder of the test's own that PostgreSQL's user may pass, and whose name leaves room for a socket's.
func shared(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "sb-")
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { nothingLeft(t, dir) })
	return dir
}

// nothingLeft checks that a run took everything with it: files, containers and, on Linux, processes.
func nothingLeft(t *testing.T, dir string) {
	t.Helper()
	if left, err := os.ReadDir(dir); err != nil || len(left) > 0 {
		t.Errorf("files left behind: %v %v", left, err)
	}
	os.RemoveAll(dir)
	out, err := exec.Command("docker", "ps", "-a", "--no-trunc", "--format", "{{.Names}} {{.Mounts}}").Output()
	if err != nil || strings.Contains(string(out), dir+"/") {
		t.Errorf("containers left behind: %v\n%s", err, out)
	}
	processes, _ := filepath.Glob("/proc/[0-9]*/cmdline") // only a bad pattern is an error
	for _, p := range processes {
		if line, err := os.ReadFile(p); err == nil && strings.Contains(string(line), dir+"/") {
			t.Errorf("a process left behind: %s %q", p, line)
		}
	}
}

func TestWholeRun(t *testing.T) {
	t.Parallel()
	o := small(t)
	o.Environ = append(o.Environ, "CORE_API_ADDR=256.0.0.1:1", "DATABASE_URL=postgres://nobody@127.0.0.1:1/x") // not ours
	r, err := Run(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	switch {
	case r.Answer == nil || r.Answer.CoreAPI.N != 2 || r.Answer.DockerRun.N != 2 || r.Answer.CoreAPI.Min <= 0 || r.Answer.DockerRun.Min <= 0:
		t.Errorf("answer: %+v", r.Answer)
	case r.Throughput == nil || len(r.Throughput.CoreAPI) != 2 || r.Throughput.Ratio <= 0:
		t.Errorf("throughput: %+v", r.Throughput)
	case r.Output == nil || r.Output.CoreAPI.N != 1 || r.Output.Bytes != 8<<20:
		t.Errorf("output: %+v", r.Output)
	case runtime.GOOS == "linux" && r.Output.Peak < 1<<20:
		t.Errorf("a core-api of %d bytes", r.Output.Peak)
	case len(r.Lists) != 2 || r.Lists[0].Database != "sqlite" || r.Lists[1].Database != "postgres":
		t.Errorf("lists: %+v", r.Lists)
	}
	for _, l := range r.Lists {
		if !l.Good || l.Plan == "" || l.Store.N != 5 || l.HTTP.N != 5 || (l.Database == "postgres") != (l.Pages > 0) {
			t.Errorf("lists: %+v", l)
		}
	}
	for _, p := range r.Answer.Phases {
		if p.P50 < 0 {
			t.Errorf("a phase that ends before it begins: %+v", r.Answer.Phases)
		}
	}
	if len(r.Targets) < 5 || r.Machine.EngineVersion == "" || r.Machine.CgroupVersion == "" || r.Machine.Cores < 1 {
		t.Errorf("%+v", r)
	}
}

// TestInterrupted ends a run in the middle of each of its sections: what it started must be gone all the same.
func TestInterrupted(t *testing.T) {
	t.Parallel()
	interrupt := func(t *testing.T, section string, when func(o Options, log string) bool) {
		o := small(t)
		o.Only = []string{section}
		o.Pairs, o.Rounds, o.OutputRounds, o.Rows = 1000, 1000, 1000, 200_000
		log := &lines{}
		o.Log = log
		ctx, stop := context.WithCancel(t.Context())
		defer stop()
		go func() {
			for ctx.Err() == nil && !when(o, log.String()) {
				time.Sleep(5 * time.Millisecond)
			}
			stop()
		}()
		if _, err := Run(ctx, o); !errors.Is(err, context.Canceled) {
			t.Errorf("got %v", err)
		}
	}
	for _, section := range []string{Answer, Throughput, Output} {
		t.Run(section, func(t *testing.T) {
			t.Parallel()
			interrupt(t, section, func(o Options, _ string) bool {
				// The first is the warm-up's; the directory is made a moment before its container.
				made, _ := filepath.Glob(o.Dir + "/secbox-bench-*/plain/*")
				return len(made) > 1
			})
		})
	}
	t.Run(Lists, func(t *testing.T) {
		t.Parallel()
		interrupt(t, Lists, func(_ Options, log string) bool { return strings.Contains(log, "filling sqlite") })
	})
}

// lines keeps what is written.
type lines struct {
	mu sync.Mutex
	b  strings.Builder
}

func (l *lines) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func (l *lines) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}

func TestServerThatDoesNotServe(t *testing.T) {
	t.Parallel()
	o := small(t)
	o.Only = []string{Answer}
	o.Server = append(o.Server, "--no-such-flag")
	if _, err := Run(t.Context(), o); err == nil || !strings.Contains(err.Error(), "no-such-flag") {
		t.Errorf("got %v", err)
	}
}
