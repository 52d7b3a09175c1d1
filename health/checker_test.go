package health

import (
	"context"
	"encoding/json"
	"errors"
	"maps"
	"math"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.yaml.in/yaml/v3"

	"secbox/audit"
	"secbox/engine"
	"secbox/engine/dockercli"
	"secbox/engine/dockercli/dockerclitest"
	"secbox/fault"
	"secbox/policy"
	"secbox/workspace/diskspace"
)

func problemAt(r Report, check string) (Problem, bool) {
	for _, p := range r.Problems {
		if p.Check == check {
			return p, true
		}
	}
	return Problem{}, false
}

func TestHealthyNode(t *testing.T) {
	t.Parallel()
	cfg, _ := realConfig(t)
	c := patient(cfg)
	if c.Host() != (policy.Host{}) {
		t.Error("a host is known before the first check")
	}
	c.Warm(t.Context())
	if h := c.Host(); h.CPUs < 1 || h.MemoryMB < 64 {
		t.Errorf("host: %+v", h)
	}
	r := c.Report(t.Context())
	if _, bad := problemAt(r, "image"); bad {
		t.Fatalf("%+v: run `make setup`", r.Problems)
	}
	if r.Status == Unavailable || !r.WorkspaceWritable || !r.ImagePresent || r.DockerVersion == "" || r.DockerContext == "" ||
		r.EngineRuntime == "" || r.CgroupVersion == "" || r.DockerCLIPath == "" {
		t.Errorf("%+v", r)
	}
	if err := c.Ready(t.Context()); err != nil {
		t.Error(err)
	}
}

// TestReportMatchesContract compares the names on the wire with openapi.yaml, in both directions.
func TestReportMatchesContract(t *testing.T) {
	t.Parallel()
	content, err := os.ReadFile("../api/openapi.yaml")
	if err != nil {
		t.Fatal(err)
	}
	type schema struct {
		Required   []string
		Properties map[string]struct{ Enum []string }
	}
	var contract struct {
		Components struct{ Schemas map[string]schema }
	}
	if err := yaml.Unmarshal(content, &contract); err != nil {
		t.Fatal(err)
	}
	for name, value := range map[string]any{
		"HealthReport": Report{}, "HealthProblem": Problem{}, "HealthSkills": Skills{}, "HealthAuditLog": AuditLog{},
		"HealthRetention": Retention{BeganAt: new(time.Time), NextAt: new(time.Time)}, "HealthAuditWitness": AuditWitness{},
	} {
		wire, err := json.Marshal(value)
		if err != nil {
			t.Fatal(err)
		}
		var ours map[string]any
		if err := json.Unmarshal(wire, &ours); err != nil {
			t.Fatal(err)
		}
		theirs := contract.Components.Schemas[name]
		if a, b := slices.Sorted(maps.Keys(ours)), slices.Sorted(maps.Keys(theirs.Properties)); !slices.Equal(a, b) {
			t.Errorf("%s: we say %v, the contract %v", name, a, b)
		}
	}
	want := []string{string(OK), string(Degraded), string(Unavailable)}
	if got := contract.Components.Schemas["HealthReport"].Properties["status"].Enum; !slices.Equal(got, want) {
		t.Errorf("statuses: we say %v, the contract %v", want, got)
	}
}

func TestLostAuditLogIsAProblem(t *testing.T) {
	t.Parallel()
	late := []AuditWitness{{Name: "w", Entries: 3, Problem: "the witness w does not answer", ProblemFor: time.Minute}}
	for name, tc := range map[string]struct {
		log  AuditLog
		want []string
	}{
		"as it should be": {AuditLog{Witnesses: []AuditWitness{{Name: "w", Entries: 3}}}, nil},
		"halted": {
			AuditLog{Halted: "rolled back", HaltedRemedy: "restore", AnchorProblem: "rolled back", Witnesses: late},
			[]string{"audit_log: rolled back: restore"},
		},
		"no anchor": {AuditLog{AnchorProblem: "full; make room"}, []string{"audit_anchor: full; make room: "}},
		"a witness away": {
			AuditLog{Entries: 9, Witnesses: late},
			[]string{"audit_witness: the witness w does not answer; the log has 9 entries, and it has cosigned 3: "},
		},
		"a witness away for a second": {AuditLog{Witnesses: []AuditWitness{{Problem: "x", ProblemFor: time.Second}}}, nil},
	} {
		problems := auditWatchProblems(tc.log)
		if len(problems) != len(tc.want) {
			t.Errorf("%s: %+v", name, problems)
			continue
		}
		for i, p := range problems {
			if got := p.Check + ": " + p.Reason + ": " + p.Remedy; !strings.HasPrefix(got, tc.want[i]) || p.Remedy == "" || p.code != "" {
				t.Errorf("%s: %s", name, got)
			}
		}
	}
}

// fakeDisk is a workspace as one likes it.
type fakeDisk struct {
	bytes, inodes uint64
	freeErr       error
	writeErr      error
	hang          chan struct{}
}

func (d fakeDisk) Free() (diskspace.Space, error) {
	return diskspace.Space{Bytes: d.bytes, Inodes: d.inodes}, d.freeErr
}

func (d fakeDisk) Writable() error {
	if d.hang != nil {
		<-d.hang
	}
	return d.writeErr
}

var roomy = fakeDisk{bytes: 1 << 40, inodes: math.MaxUint64}

type fakeImages struct{ err error }

func (f fakeImages) Resolve(context.Context, string) (engine.Image, error) {
	return engine.Image{}, f.err
}

// onlyImages is an engine that holds these images.
type onlyImages []string

func (o onlyImages) Resolve(_ context.Context, ref string) (engine.Image, error) {
	if slices.Contains(o, ref) {
		return engine.Image{}, nil
	}
	return engine.Image{}, &fault.Error{
		Code: fault.ImageMissing, Message: "none",
		Fields: []fault.Field{{Field: "image", Reason: "the engine does not hold " + ref}},
	}
}

// TestProblems breaks one thing at a time; everything else, the engine too, is real or well.
func TestProblems(t *testing.T) {
	t.Parallel()
	cases := []struct {
		name   string
		breaks func(t *testing.T, c *Config)
		check  string
		status Status
		ready  fault.Code
		says   string // in the reason or the remedy
	}{
		{"nothing", func(*testing.T, *Config) {}, "", OK, "", ""},
		{"the engine is down", func(t *testing.T, c *Config) { c.CLI = deadCLI(t) }, "engine", Unavailable, fault.EngineUnavailable, "systemctl start docker"},
		{
			"the engine is down on Windows", func(t *testing.T, c *Config) { c.CLI, c.RuntimeMode = deadCLI(t), "windows" }, "engine", Unavailable,
			fault.EngineUnavailable, "start Docker Desktop",
		},
		{
			"the engine is down in a container", func(t *testing.T, c *Config) { c.CLI, c.RuntimeMode = deadCLI(t), "container" }, "engine", Unavailable,
			fault.EngineUnavailable, "socket is mounted",
		},
		{
			"docker speaks nonsense", func(t *testing.T, c *Config) { c.CLI = dockerclitest.Script(t, "echo hello") }, "engine", Unavailable,
			fault.EngineUnavailable, "cannot report",
		},
		{
			"docker answers null", func(t *testing.T, c *Config) { c.CLI = dockerclitest.Script(t, "echo null") }, "engine", Unavailable,
			fault.EngineUnavailable, "does not answer",
		},
		{"an old CLI exits 0 without an engine", func(t *testing.T, c *Config) {
			c.CLI = dockerclitest.Script(t, `echo '{"ServerErrors":["Cannot connect to the Docker daemon"]}'`)
		}, "engine", Unavailable, fault.EngineUnavailable, "does not answer"},
		{"an engine too old for a volume", func(t *testing.T, c *Config) {
			c.CLI = dockerclitest.Script(t, "echo 'client version 1.45 is too new. Maximum supported API version is 1.41' >&2; exit 1")
		}, "engine", Unavailable, fault.EngineUnavailable, "in a volume, which needs Docker 26"},
		{"no docker CLI", func(_ *testing.T, c *Config) { c.CLI, c.Images = nil, nil }, "engine", Unavailable, fault.EngineUnavailable, "sandbox.docker_path"},
		{"Windows containers", func(t *testing.T, c *Config) {
			c.CLI = dockerclitest.Script(t, `echo '{"ServerVersion":"28.0.0","OSType":"windows","NCPU":4}'`)
		}, "engine", Unavailable, fault.EngineUnavailable, "Linux containers"},
		{
			"no image", func(_ *testing.T, c *Config) { c.Images = fakeImages{fault.New(fault.ImageMissing, "none")} }, "image", Unavailable,
			fault.ImageMissing, "make setup",
		},
		{"the image of the settings is missing", func(_ *testing.T, c *Config) {
			c.Images, c.Image, c.Allowed = onlyImages{policy.DefaultImage}, "nope:1", func() []string { return []string{policy.DefaultImage} }
		}, "image", Unavailable, fault.ImageMissing, "does not hold nope:1; execs that name no image run in nope:1, by sandbox.policy.image"},
		{"an allowed image is missing", func(_ *testing.T, c *Config) {
			c.Images, c.Allowed = onlyImages{c.Image, "there:1"}, func() []string { return []string{"there:1", "nope:1"} }
		}, "images", Degraded, "", "the image nope:1 is allowed"},
		{"the state dir is not made yet", func(_ *testing.T, c *Config) {
			c.StateDir, c.NotCreated, c.Database = c.StateDir+"/not/yet", true, nil
		}, "state_dir", Degraded, "", "core-api serve"},
		{
			"no answer about the image", func(_ *testing.T, c *Config) { c.Images = fakeImages{errBad} }, "image", Unavailable, fault.EngineUnavailable,
			"docker image inspect",
		},
		{"sqlite fails", func(_ *testing.T, c *Config) {
			c.Database = pinger(func(context.Context) error { return errBad })
		}, "database", Unavailable, fault.DatabaseUnavailable, "state dir"},
		{"postgres fails", func(_ *testing.T, c *Config) {
			c.Database, c.DatabaseKind = Failing{errBad}, "postgres"
		}, "database", Unavailable, fault.DatabaseUnavailable, "DATABASE_URL"},
		{"the workspace cannot be written", func(_ *testing.T, c *Config) {
			c.Workspace = fakeDisk{bytes: 1 << 40, inodes: 1 << 40, writeErr: os.ErrPermission}
		}, "workspace", Unavailable, fault.Internal, "cannot be written"},
		{
			"the workspace's disk is full", func(_ *testing.T, c *Config) { c.Workspace = fakeDisk{writeErr: fault.New(fault.DiskFull, "full")} }, "workspace",
			Unavailable, fault.DiskFull, "full disk",
		},
		{
			"too few bytes", func(_ *testing.T, c *Config) { c.Workspace = fakeDisk{bytes: 255 << 20, inodes: 1 << 40} }, "workspace", Unavailable,
			fault.DiskFull, "255.0 MiB",
		},
		{
			"too few inodes", func(_ *testing.T, c *Config) { c.Workspace = fakeDisk{bytes: 1 << 40, inodes: 9_999} }, "workspace", Unavailable, fault.DiskFull,
			"9999 inodes",
		},
		{"few bytes", func(_ *testing.T, c *Config) { c.Workspace = fakeDisk{bytes: 1<<30 - 1, inodes: 1 << 40} }, "workspace", Degraded, "", "has only"},
		{
			"few bytes and no inodes", func(_ *testing.T, c *Config) { c.Workspace = fakeDisk{bytes: 1<<30 - 1, inodes: 1} }, "workspace", Unavailable,
			fault.DiskFull, "1 inodes",
		},
		{"just enough", func(_ *testing.T, c *Config) { c.Workspace = fakeDisk{bytes: 1 << 30, inodes: 40_000} }, "", OK, "", ""},
		{"the state dir is gone", func(_ *testing.T, c *Config) { c.StateDir += "/gone" }, "state_dir", Unavailable, fault.Internal, "--state-dir"},
		{"the state dir is on a network", func(_ *testing.T, c *Config) {
			c.CheckStateDir = func(string) error { return fault.New(fault.InvalidSettings, "is on NFS") }
		}, "state_dir", Degraded, "", "local disk"},
		{"an unknown runtime", func(t *testing.T, c *Config) {
			c.CLI, c.Runtime = runtimesCLI(t, "20.10.24"), "crun"
		}, "runtime", Unavailable, fault.EngineUnavailable, `no runtime "crun"; it has io.containerd.runc.v2, runcadd it to the engine's daemon.json`},
		{"a runtime that the engine has", func(t *testing.T, c *Config) { c.CLI, c.Runtime = runtimesCLI(t, "20.10.24"), "runc" }, "", OK, "", ""},
		{"a shim that an old engine does not list", func(t *testing.T, c *Config) {
			c.CLI, c.Runtime = runtimesCLI(t, "20.10.24"), "io.containerd.runsc.v1"
		}, "runtime", Unavailable, fault.EngineUnavailable, "change sandbox.runtime"},
		{"a shim that a new engine looks up itself", func(t *testing.T, c *Config) {
			c.CLI, c.Runtime = runtimesCLI(t, "28.0.0"), "io.containerd.runsc.v1"
		}, "", OK, "", ""},
		{"an engine that lists no runtimes", func(_ *testing.T, c *Config) { c.Runtime = "crun" }, "", OK, "", ""},
		{"podman without a profile of its own", func(t *testing.T, c *Config) {
			c.CLI, c.Podman, c.OwnSeccomp = podmanCLI(t), true, true
		}, "podman", Unavailable, fault.EngineUnavailable, "set sandbox.seccomp to engine"},
		{"podman", func(t *testing.T, c *Config) { c.CLI, c.Podman = podmanCLI(t), true }, "", OK, "", ""},
		{"podman since the start", func(t *testing.T, c *Config) { c.CLI = podmanCLI(t) }, "podman", Unavailable, fault.EngineUnavailable, "restart core-api"},
		{"podman's own command", func(t *testing.T, c *Config) {
			c.CLI = dockerclitest.Script(t, `echo '{"host":{"arch":"amd64"},"store":{},"registries":{},"version":{"Version":"5.4.2"}}'`)
		}, "engine", Unavailable, fault.EngineUnavailable, "install Docker's command"},
		{"another user", func(_ *testing.T, c *Config) { c.ContainerUser = "1234:1234" }, "container_user", Degraded, "", "1234:1234"},
	}
	for _, tc := range cases {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			cfg, _ := realConfig(t)
			cfg.CLI = dockerclitest.Script(t, `echo '{"ServerVersion":"28.0.0","OSType":"linux","NCPU":4,"SecurityOptions":["name=seccomp,profile=builtin"]}'`)
			cfg.Images, cfg.Workspace = fakeImages{}, roomy
			cfg.FreeMinBytes, cfg.FreeMinInodes = 256<<20, 10_000
			freeState(t, &cfg)
			tc.breaks(t, &cfg)
			c := patient(cfg)
			r := c.Report(t.Context())
			p, found := problemAt(r, tc.check)
			if r.Status != tc.status || found != (tc.check != "") || len(r.Problems) > 1 || found && (p.Reason == "" || p.Remedy == "") {
				t.Errorf("%s %+v", r.Status, r.Problems)
			}
			if !strings.Contains(p.Reason+p.Remedy, tc.says) {
				t.Errorf("%+v does not say %q", p, tc.says)
			}
			if strings.Contains(p.Reason+p.Remedy, errBad.Error()) {
				t.Errorf("%+v shows the cause", p)
			}
			err := c.Ready(t.Context())
			if fault.CodeOf(err) != tc.ready {
				t.Errorf("ready: %v", err)
			}
			if err != nil && fault.From(err).Message != p.Reason+"; "+p.Remedy {
				t.Errorf("ready says %q", fault.From(err).Message)
			}
		})
	}
}

// podmanCLI is a docker binary with podman's service behind it, which denies limits that it
// enforces.
func podmanCLI(t *testing.T) *dockercli.CLI {
	t.Helper()
	return dockerclitest.Script(t,
		`echo '{"ServerVersion":"5.4.2","OSType":"linux","NCPU":4,"MemoryLimit":true,"SwapLimit":false,"CpuCfsQuota":false,"PidsLimit":true,`+
			`"Plugins":{"Log":["k8s-file","none","journald"]},"DefaultRuntime":"runc","SecurityOptions":["name=seccomp,profile=default"]}'`)
}

// runtimesCLI is a docker binary whose engine has runtimes and a version.
func runtimesCLI(t *testing.T, version string) *dockercli.CLI {
	t.Helper()
	return dockerclitest.Script(t, `echo '{"ServerVersion":"`+version+`","OSType":"linux","NCPU":4,"SecurityOptions":["name=seccomp,profile=builtin"],`+
		`"DefaultRuntime":"runc","Runtimes":{"runc":{"path":"runc"},"io.containerd.runc.v2":{"path":"runc"}}}'`)
}

// The report has the runtime that containers really use.
func TestReportShowsRuntime(t *testing.T) {
	t.Parallel()
	for configured, want := range map[string]string{"": "runc", "io.containerd.runc.v2": "io.containerd.runc.v2"} {
		cfg, _ := realConfig(t)
		cfg.CLI, cfg.Runtime = runtimesCLI(t, "20.10.24"), configured
		if got := patient(cfg).Report(t.Context()).EngineRuntime; got != want {
			t.Errorf("%q: %q", configured, got)
		}
	}
}

// TestHangingDocker has a real process that hangs; how long a report takes then is
// TestReportWithHangingChecks's.
func TestHangingDocker(t *testing.T) {
	t.Parallel()
	cfg, _ := realConfig(t)
	cfg.CLI, cfg.Images = dockerclitest.Script(t, "exec sleep 600"), fakeImages{}
	c := patient(cfg)
	c.engine.timeout = 100 * time.Millisecond
	p, _ := problemAt(c.Report(t.Context()), "engine")
	if !strings.Contains(p.Reason, "does not answer") {
		t.Errorf("%+v", p)
	}
}

// freeState asks for no more room than there is on the disk of the tests.
func freeState(t *testing.T, cfg *Config) {
	t.Helper()
	free, err := diskspace.Free(cfg.StateDir)
	if err != nil || free.Bytes < 1<<30 || free.Inodes < 40_000 {
		t.Fatalf("the tests need 1 GiB and 40,000 inodes free in %s: %+v %v", cfg.StateDir, free, err)
	}
}

func TestFatalProblemsComeFirst(t *testing.T) {
	t.Parallel()
	cfg, _ := realConfig(t)
	cfg.CLI, cfg.Images, cfg.Database, cfg.ContainerUser = nil, nil, Failing{errBad}, "5:5"
	r := patient(cfg).Report(t.Context())
	var checks []string
	for _, p := range r.Problems {
		checks = append(checks, p.Check)
	}
	if got := strings.Join(checks, " "); got != "database engine container_user" {
		t.Errorf("%s", got)
	}
}

// TestReportWithHangingChecks runs in a bubble, where time is exact: everything hangs, and the
// report is there in time.
func TestReportWithHangingChecks(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		hang := make(chan struct{})
		cfg := Config{
			Workspace: fakeDisk{hang: hang}, StateDir: dir, DatabaseKind: "postgres", ContainerUser: standardUser, Now: time.Now, Logger: quiet(),
			Database:      pinger(func(context.Context) error { <-hang; return nil }),
			CheckStateDir: func(string) error { <-hang; return nil },
		}
		c := New(cfg)
		c.engine.ask = func(context.Context) (engineInfo, error) { <-hang; return engineInfo{}, nil }
		c.image.ask = func(context.Context) (engine.Image, error) { <-hang; return engine.Image{}, nil }
		for range 3 {
			begun := time.Now()
			var all sync.WaitGroup
			for range 10 {
				all.Go(func() {
					if r := c.Report(t.Context()); r.Status != Unavailable || len(r.Problems) != 4 {
						t.Errorf("%+v", r)
					}
				})
				all.Go(func() {
					if err := c.Ready(t.Context()); !fault.Is(err, fault.DatabaseUnavailable) {
						t.Errorf("%v", err)
					}
				})
			}
			all.Wait()
			if took := time.Since(begun); took > 3*time.Second {
				t.Errorf("took %v", took)
			}
		}
		close(hang)
	})
}

func TestHostSurvivesEngineFailure(t *testing.T) {
	t.Parallel()
	cfg, _ := realConfig(t)
	now := time.Now()
	cfg.Now = func() time.Time { return now }
	c := patient(cfg)
	c.Warm(t.Context())
	before := c.Host()
	c.cfg.CLI = deadCLI(t)
	now = now.Add(time.Minute)
	if r := c.Report(t.Context()); r.Status != Unavailable || r.ImagePresent || r.DockerVersion != "" {
		t.Errorf("%+v", r)
	}
	if c.Host() != before || before.CPUs == 0 {
		t.Errorf("%+v, before %+v", c.Host(), before)
	}
}

func TestEngineWarnings(t *testing.T) {
	t.Parallel()
	const well = `"ServerVersion":"28.0.0","OSType":"linux","MemoryLimit":true,"SwapLimit":true,"CpuCfsQuota":true,"PidsLimit":true,"OperatingSystem":"Debian"`
	const seccomp = `,"SecurityOptions":["name=apparmor","name=seccomp,profile=builtin","name=cgroupns"]`
	const isRootless = `,"SecurityOptions":["name=seccomp,profile=default","name=rootless"]}`
	for user, want := range map[string]string{"0:0": "", "1000:1000": "rootless"} {
		var info engineInfo
		if err := json.Unmarshal([]byte("{"+well+isRootless), &info); err != nil {
			t.Fatal(err)
		}
		if p := info.warnings(user, false); (len(p) > 0) != (want != "") || len(p) == 1 && (p[0].Check != want || p[0].code != "") {
			t.Errorf("rootless, %s: %v", user, p)
		}
	}
	var ofRoot engineInfo
	if err := json.Unmarshal([]byte("{"+well+seccomp+"}"), &ofRoot); err != nil {
		t.Fatal(err)
	}
	if p := ofRoot.warnings("0:0", false); len(p) != 1 || p[0].code != fault.EngineUnavailable {
		t.Errorf("jobs as root: %v", p)
	}
	cases := map[string]string{
		"{" + well + seccomp + "}":                                                            "",
		`{"ServerVersion":"4.0.0","SecurityOptions":["seccomp"]}`:                             "", // says nothing about limits: the doctor measures
		"{" + well + "}":                                                                      "seccomp",
		"{" + well + `,"SecurityOptions":["name=seccompx"]}`:                                  "seccomp",
		"{" + well + `,"SecurityOptions":["name=seccomp,profile=unconfined"]}`:                "seccomp",
		"{" + well + `,"SecurityOptions":["name=seccomp,profile=default","name=rootless"]}`:   "rootless",
		"{" + well + `,"SecurityOptions":["name=seccomp,profile=default","name=userns"]}`:     "userns",
		strings.Replace("{"+well+seccomp+"}", `"MemoryLimit":true`, `"MemoryLimit":false`, 1): "memory_limit",
		strings.Replace("{"+well+seccomp+"}", `"SwapLimit":true`, `"SwapLimit":false`, 1):     "swap_limit",
		strings.Replace("{"+well+seccomp+"}", `"CpuCfsQuota":true`, `"CpuCfsQuota":false`, 1): "cpu_limit",
		strings.Replace("{"+well+seccomp+"}", `"PidsLimit":true`, `"PidsLimit":false`, 1):     "pids_limit",
		strings.Replace("{"+well+seccomp+"}", `"Debian"`, `"Docker Desktop"`, 1):              "docker_desktop",
		strings.Replace("{"+well+"}", `"OSType":"linux"`, `"OSType":"windows"`, 1):            "engine",
	}
	for answer, want := range cases {
		var info engineInfo
		if err := json.Unmarshal([]byte(answer), &info); err != nil {
			t.Fatal(err)
		}
		var got []string
		for _, p := range info.warnings("1000:1000", false) {
			got = append(got, p.Check)
			if p.Reason == "" || p.Remedy == "" {
				t.Errorf("%+v", p)
			}
		}
		if strings.Join(got, " ") != want {
			t.Errorf("%s: %v, want %q", answer, got, want)
		}
	}
	var desktop engineInfo
	if err := json.Unmarshal([]byte(strings.Replace("{"+well+seccomp+"}", `"Debian"`, `"Docker Desktop"`, 1)), &desktop); err != nil {
		t.Fatal(err)
	}
	if p := desktop.warnings("1000:1000", true); len(p) > 0 {
		t.Errorf("Docker Desktop with a volume: %v", p)
	}
}

func TestMetrics(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		name string
		cfg  func(c *Config)
		want map[string]float64
	}{
		{"well", func(c *Config) { c.Workspace = fakeDisk{bytes: 7, inodes: 8} }, map[string]float64{
			"secbox_engine_up": 1, "secbox_image_present": 1, "secbox_database_up": 1, "secbox_workspace_writable": 1,
			"secbox_workspace_free_bytes": 7, "secbox_workspace_free_inodes": 8,
		}},
		{"with the audit log", func(c *Config) {
			c.Workspace = fakeDisk{bytes: 7, inodes: 8}
			c.AuditLog = func(context.Context) (AuditLog, error) {
				return AuditLog{Entries: 9, BehindEvents: 2, BehindMS: 1500, AnchoredEntries: 7, Witnesses: []AuditWitness{{Name: "w", Entries: 8}}}, nil
			}
		}, map[string]float64{
			"secbox_engine_up": 1, "secbox_image_present": 1, "secbox_database_up": 1, "secbox_workspace_writable": 1,
			"secbox_workspace_free_bytes": 7, "secbox_workspace_free_inodes": 8,
			"secbox_audit_log_entries": 9, "secbox_audit_log_behind_events": 2, "secbox_audit_log_behind_seconds": 1.5,
			"secbox_audit_log_halted": 0, "secbox_audit_log_anchored_entries": 7, "secbox_audit_log_witness_entries": 8,
		}},
		{"with results that the database does not have", func(c *Config) {
			c.Workspace = fakeDisk{bytes: 7, inodes: 8}
			c.Spool = func() (audit.Unstored, error) { return audit.Unstored{Results: 3, Refused: 2, Damaged: 1}, nil }
		}, map[string]float64{
			"secbox_engine_up": 1, "secbox_image_present": 1, "secbox_database_up": 1, "secbox_workspace_writable": 1,
			"secbox_workspace_free_bytes": 7, "secbox_workspace_free_inodes": 8,
			"secbox_audit_spool_results": 3, "secbox_audit_spool_refused": 2, "secbox_audit_spool_damaged_files": 1,
		}},
		{"broken", func(c *Config) {
			c.CLI, c.Database, c.Workspace = nil, Failing{errBad}, fakeDisk{bytes: 7, inodes: math.MaxUint64, writeErr: errBad}
		}, map[string]float64{
			"secbox_engine_up": 0, "secbox_image_present": 0, "secbox_database_up": 0, "secbox_workspace_writable": 0,
			"secbox_workspace_free_bytes": 7,
		}},
		{"unknown", func(c *Config) { c.CLI, c.Workspace = nil, Failing{errBad} }, map[string]float64{
			"secbox_engine_up": 0, "secbox_image_present": 0, "secbox_database_up": 1, "secbox_workspace_writable": 0,
		}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			cfg, _ := realConfig(t)
			cfg.CLI = dockerclitest.Script(t, `echo '{"ServerVersion":"28.0.0"}'`)
			cfg.Images = fakeImages{}
			tc.cfg(&cfg)
			registry := prometheus.NewPedanticRegistry()
			if err := registry.Register(patient(cfg)); err != nil {
				t.Fatal(err)
			}
			families, err := registry.Gather()
			if err != nil {
				t.Fatal(err)
			}
			got := map[string]float64{}
			for _, f := range families {
				got[f.GetName()] = f.GetMetric()[0].GetGauge().GetValue()
			}
			if got["secbox_state_dir_free_bytes"] == 0 {
				t.Error("the state dir's room is not known")
			}
			delete(got, "secbox_state_dir_free_bytes")
			if !maps.Equal(got, tc.want) {
				t.Errorf("%v, want %v", got, tc.want)
			}
		})
	}
}

// TestSpoolProblems: health names results that the database does not have, while it lasts.
func TestSpoolProblems(t *testing.T) {
	t.Parallel()
	now := time.Unix(1_800_000_000, 0)
	for name, tc := range map[string]struct {
		survey survey
		want   []string
	}{
		"none":    {survey{}, nil},
		"waiting": {survey{spool: audit.Unstored{Results: 1, Oldest: now.Add(-3 * time.Second)}}, []string{"the results of 1 exec, the first of them 3s old"}},
		"refused": {survey{spool: audit.Unstored{Results: 3, Refused: 2, InMemory: 1, ExecID: "e1", Reason: "no room", Oldest: now.Add(-time.Hour)}}, []string{
			"the results of 3 execs, the first of them 1h0m0s old; until it has them, their rows are as they were before. It did not take 2, among them exec " +
				"e1: no room. 1 of them are in memory only",
		}},
		"damaged": {
			survey{spool: audit.Unstored{Damaged: 1, DamagedFile: "x.json"}},
			[]string{"1 files of the audit spool hold no record that can be read, among them \"x.json\""},
		},
		"unreadable": {survey{spoolErr: errBad}, []string{"cannot be read"}},
	} {
		problems := spoolProblems(tc.survey, func() time.Time { return now })
		if len(problems) != len(tc.want) {
			t.Errorf("%s: %+v", name, problems)
			continue
		}
		for i, p := range problems {
			if !strings.Contains(p.Reason, tc.want[i]) || p.Remedy == "" || p.code != "" {
				t.Errorf("%s: %+v", name, p)
			}
		}
	}
}

func TestReportWithoutProblems(t *testing.T) {
	t.Parallel()
	wire, err := json.Marshal(Report{Problems: New(Config{ContainerUser: standardUser}).problems(survey{
		engine: engineInfo{}, imageErr: nil,
	})[:0]})
	if err != nil || !strings.Contains(string(wire), `"problems":[]`) {
		t.Errorf("%s %v", wire, err)
	}
}

// TestKnown: pages learn the health without waiting, and that it is not known yet.
func TestKnown(t *testing.T) {
	t.Parallel()
	c := New(Config{
		Workspace: Failing{errBad}, Database: pinger(alive), StateDir: t.TempDir(), ContainerUser: standardUser, Now: time.Now, Logger: quiet(),
	})
	if r := c.Known(t.Context()); r.Status != "" || len(r.Problems) > 0 {
		t.Errorf("before the first answers: %+v", r)
	}
	c.Warm(t.Context())
	if r := c.Known(t.Context()); r.Status != Unavailable || len(r.Problems) < 2 || r.Problems[0].Remedy == "" {
		t.Errorf("afterwards: %+v", r)
	}
}

func TestFailing(t *testing.T) {
	t.Parallel()
	f := Failing{errBad}
	_, err := f.Free()
	for _, err := range []error{err, f.Writable(), f.Ping(t.Context())} {
		if !errors.Is(err, errBad) {
			t.Error(err)
		}
	}
}

func TestLateAuditLogIsAProblem(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		survey survey
		want   string
	}{
		"in time": {survey{auditLog: AuditLog{BehindEvents: 5, BehindMS: 29_999}}, ""},
		"late": {
			survey{auditLog: AuditLog{BehindEvents: 5, BehindMS: 90_000}},
			"the transparency log lacks 5 events, the first of them 1m30s old",
		},
		"late for a reason": {
			survey{auditLog: AuditLog{BehindEvents: 5, BehindMS: 90_000, Problem: "no key"}},
			"the transparency log lacks 5 events, the first of them 1m30s old: no key",
		},
		"unreadable":              {survey{auditLogErr: errBad}, "the transparency log cannot be read"},
		"with the whole database": {survey{auditLogErr: errBad, databaseErr: errBad}, ""},
	} {
		problems := auditLogProblems(tc.survey)
		got := ""
		if len(problems) > 0 {
			got = problems[0].Reason
		}
		if got != tc.want || len(problems) > 0 && problems[0].code != "" {
			t.Errorf("%s: %+v", name, problems)
		}
	}
}
