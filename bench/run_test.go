package bench

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
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
	o.Pace, o.ClosedAt, o.ClosedExecs, o.ClosedRounds, o.Burst, o.BurstRounds, o.Slots, o.Skills = 300*time.Millisecond, []int{2}, 3, 2, 6, 2, 5, 20
	o.PackageFiles, o.PackageSkills = 12, 5
	o.SandboxFiles, o.SandboxExecs, o.SandboxRounds, o.LargeBytes = 20, 8, 2, 5<<20
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
	judge, asked := asGoJudge(t, http.StatusOK, accepted)
	o.GoJudge = judge
	o.Environ = append(o.Environ, "CORE_API_ADDR=256.0.0.1:1", "DATABASE_URL=postgres://nobody@127.0.0.1:1/x") // not ours
	r, err := Run(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	switch {
	case r.Cold == nil || r.Cold.CoreAPI.N != 2 || r.Cold.DockerRun.N != 2 || r.Cold.CoreAPI.Min <= 0 || r.Cold.DockerRun.Min <= 0:
		t.Errorf("cold: %+v", r.Cold)
	case r.ColdThroughput == nil || len(r.ColdThroughput.CoreAPI) != 2 || r.ColdThroughput.Ratio <= 0 || r.ColdThroughput.Hits > 0:
		t.Errorf("cold throughput: %+v", r.ColdThroughput)
	case r.Output == nil || r.Output.CoreAPI.N != 1 || r.Output.Bytes != 8<<20:
		t.Errorf("output: %+v", r.Output)
	case runtime.GOOS == "linux" && r.Output.Peak < 1<<20:
		t.Errorf("a core-api of %d bytes", r.Output.Peak)
	case len(r.Warm) != 2 || len(r.Uneven) != 2:
		t.Fatalf("warm: %+v, uneven: %+v", r.Warm, r.Uneven)
	case len(r.Closed) < 1 || (len(r.Closed) == 1) != (r.NoCrun != ""):
		t.Errorf("closed: %+v, %s", r.Closed, r.NoCrun)
	case r.Burst == nil || r.Burst.CoreAPI.N != 2 || r.Burst.Idle != 4 || r.Burst.Hits+r.Burst.Misses != 2*6 || r.Burst.Hits < 2*4:
		t.Errorf("burst: %+v", r.Burst)
	case len(r.Lists) != 2 || r.Lists[0].Database != "sqlite" || r.Lists[1].Database != "postgres":
		t.Errorf("lists: %+v", r.Lists)
	}
	for i, p := range r.Warm {
		// The first of a project finds nothing waiting; on a busy machine, nor does the second.
		if p.Misses < 1 || p.Hits+p.Misses != 2 || p.Turns != 6 || p.GoJudge == nil || p.GoJudge.N != 2 || p.GoJudge.Min <= 0 {
			t.Errorf("warm: %+v", p)
		}
		if s := r.Uneven[i]; s.CoreAPI.N != 2 || s.DockerRun.N != 2 || s.Hits+s.Misses != 2 || s.Blocks != 2 || s.Ratio <= 0 {
			t.Errorf("uneven: %+v", s)
		}
	}
	for _, c := range r.Closed {
		if c.Concurrency != 2 || c.RoundExecs != 3 || len(c.CoreAPI) != 2 || c.PairedRatio <= 0 || c.Hits+c.Misses != 6 || c.Hits < 2 {
			t.Errorf("closed: %+v", c)
		}
	}
	if len(r.Closed) == 2 && r.Closed[1].Runtime != crun {
		t.Errorf("closed with crun: %+v", r.Closed[1])
	}
	if runtime.GOOS == "linux" {
		checkMemory(t, r.Memory)
	}
	for _, l := range r.Lists {
		if !l.Good || l.Plan == "" || l.Store.N != 5 || l.HTTP.N != 5 || (l.Database == "postgres") != (l.Pages > 0) {
			t.Errorf("lists: %+v", l)
		}
	}
	for _, p := range r.Cold.Phases {
		if p.P50 < 0 {
			t.Errorf("a phase that ends before it begins: %+v", r.Cold.Phases)
		}
	}
	if n := len(asked); n != 4 {
		t.Errorf("go-judge was asked %d times", n)
	}
	switch i, c := r.Skills, r.Catalog; {
	// The first is a miss; on a busy machine the six may all be.
	case i == nil || i.Exec.N != 2 || i.Invoke.N != 2 || i.MCP.N != 2 || i.Exec.Min <= 0 || i.Misses < 1 || i.Misses > 6:
		t.Errorf("skills: %+v", i)
	case c == nil || c.Skills != 20 || c.Load.N == 0 || c.List.N == 0 || c.Bytes < 20*500:
		t.Errorf("catalog: %+v", c)
	}
	switch p := r.Packages; {
	case p == nil || p.Upload.N != 1 || p.Unzip.N != 1 || p.UnzipSync.N != 1 || p.UploadRatio <= 0 || p.SyncedRatio <= 0 || p.Files != 12:
		t.Errorf("packages: %+v", p)
	case p.Materialise.N != 1 || p.Copy.N != 1 || p.MaterialiseRatio <= 0 || p.ListPinned.N != 2 || p.ListCopies.N != 2 || p.ReadCopy.N != 10:
		t.Errorf("packages: %+v", p)
	case p.FirstSkills != 2 || p.FirstSmall.N != 2 || p.FirstLarge.N != 2 || p.LargeBytes < 500_000 || (p.FirstOpens == 0) != (runtime.GOOS == "linux"):
		t.Errorf("first accesses: %+v", p)
	}
	checkSandboxes(t, r.Sandboxes)
	if len(r.Targets) < 39 || r.Machine.EngineVersion == "" || r.Machine.CgroupVersion == "" || r.Machine.Cores < 1 {
		t.Errorf("%+v", r)
	}
}

func checkSandboxes(t *testing.T, s *Sandboxed) {
	t.Helper()
	if s == nil || s.Docker == nil || s.Runner == nil {
		t.Fatalf("sandboxes: %+v", s)
	}
	switch d := s.Docker; {
	case d.Exec.N != 2 || d.PlainExec.N != 2 || d.Exec.Min <= 0 || len(d.Rates) != 2 || len(d.PlainRates) != 2 || d.PairedRatio <= 0:
		t.Errorf("docker sandbox: %+v", d)
	case d.Operations < fileOperations || d.Processes != 0:
		t.Errorf("%d operations on files have started %d processes", d.Operations, d.Processes)
	}
	switch r := s.Runner; {
	case r.Exec.N != 2 || r.Start.N != 2 || r.Start.Min <= 0 || r.Files != 20 || len(r.FileRates) != 2 || r.FileRates[0] <= 0:
		t.Errorf("runner: %+v", r)
	case r.Large.Bytes != 5<<20 || len(r.Large.Read) != 2 || len(r.Large.Get) != 2 || r.Large.ReadRatio <= 0 || r.Large.WriteRatio <= 0:
		t.Errorf("large files: %+v", r.Large)
	case r.Large.HubPeak < 1<<20 || r.Large.RunnerPeak < 1<<20:
		t.Errorf("processes of %d and %d bytes", r.Large.HubPeak, r.Large.RunnerPeak)
	}
}

// checkMemory: programs that run hold more than nothing, and less than what they would if each were alone on the machine.
func checkMemory(t *testing.T, m *Idling) {
	t.Helper()
	if m == nil || m.Slots < 5 {
		t.Fatalf("memory: %+v", m)
	}
	for name, h := range map[string]Held{"CLI": m.CLI, "shim": m.Shim, "init": m.Init, "core-api": m.CoreAPI} {
		if h.PSS < 100_000 || h.RSS < h.PSS || h.RSS > 200_000_000 {
			t.Errorf("memory of %s: %+v", name, h)
		}
	}
	if sum := m.CLI.PSS + m.Shim.PSS + m.Init.PSS + m.Others.PSS; m.Slot.PSS != sum || m.CoreAPIPeak < m.CoreAPI.RSS {
		t.Errorf("memory: %+v", m)
	}
}

// TestInterrupted ends a run in the middle of each of its sections: what it started must be gone all the same.
func TestInterrupted(t *testing.T) {
	t.Parallel()
	interrupt := func(t *testing.T, section string, when func(o Options, log string) bool) {
		o := small(t)
		o.Only = []string{section}
		o.Pairs, o.Rounds, o.OutputRounds, o.ClosedExecs, o.ClosedRounds, o.BurstRounds, o.SandboxRounds, o.Rows = 1000, 1000, 1000, 1000, 1000, 1000, 5, 200_000
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
	// By the directories that each has made a moment before its container. The first of each side is the warm-up's.
	const plain, ours = "/secbox-bench-*/*/plain/*", "/secbox-bench-*/*/server/workspace/projects/*"
	for section, made := range map[string]string{
		Cold: plain, ColdThroughput: plain, Output: plain, Warm: plain, Uneven: ours, Closed: plain, Burst: plain, Memory: ours, Skills: ours,
	} {
		t.Run(section, func(t *testing.T) {
			t.Parallel()
			interrupt(t, section, func(o Options, _ string) bool {
				list, _ := filepath.Glob(o.Dir + made)
				return len(list) > 1
			})
		})
	}
	t.Run(Sandboxes, func(t *testing.T) {
		t.Parallel()
		interrupt(t, Sandboxes, func(_ Options, log string) bool { return strings.Contains(log, "rounds of a file of") })
	})
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

func TestRuntimeThatRunsNothing(t *testing.T) {
	t.Parallel()
	o := small(t)
	dir := filepath.Join(o.Dir, "runtimes")
	if err := os.Mkdir(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	info := dockercli.Info{Runtimes: map[string]json.RawMessage{"no-such-runtime": nil, "runc": nil}}
	if err := withExecs(t.Context(), o, dir, []string{poolMax + "=0"}, func(x *execs) {
		if why := x.without(t.Context(), "no-such-runtime", info); !strings.HasPrefix(why, "not measured with no-such-runtime: docker run: ") {
			t.Errorf("a runtime that is only named: %q", why)
		}
		if why := x.without(t.Context(), "runc", info); why != "" {
			t.Errorf("runc: %q", why)
		}
	}); err != nil {
		t.Error(err)
	}
	if err := os.RemoveAll(dir); err != nil {
		t.Error(err)
	}
}

func TestServerThatDoesNotServe(t *testing.T) {
	t.Parallel()
	o := small(t)
	o.Only = []string{Cold}
	o.Server = append(o.Server, "--no-such-flag")
	if _, err := Run(t.Context(), o); err == nil || !strings.Contains(err.Error(), "no-such-flag") {
		t.Errorf("got %v", err)
	}
}
