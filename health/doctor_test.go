package health

import (
	"context"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"secbox/engine"
	"secbox/engine/initproto"
	"secbox/policy"
)

// without drops the flags of an argv, each with its value when that is a separate argument.
func without(flags ...string) func([]string) []string {
	return func(args []string) []string {
		var kept []string
		for i := 0; i < len(args); i++ {
			switch {
			case !slices.Contains(flags, args[i]):
				kept = append(kept, args[i])
			case i+1 < len(args) && !strings.HasPrefix(args[i+1], "-") && !strings.Contains(args[i], "="):
				i++
			}
		}
		return kept
	}
}

// with adds flags behind "run".
func with(flags ...string) func([]string) []string {
	return func(args []string) []string { return slices.Concat(args[:1], flags, args[1:]) }
}

func both(f, g func([]string) []string) func([]string) []string {
	return func(args []string) []string { return g(f(args)) }
}

// replacing changes every argument.
func replacing(old, new string) func([]string) []string {
	return func(args []string) []string {
		var changed []string
		for _, a := range args {
			changed = append(changed, strings.ReplaceAll(a, old, new))
		}
		return changed
	}
}

func find(t *testing.T, d Diagnosis, name string) Probe {
	t.Helper()
	for _, p := range d.Probes {
		if p.Name == name {
			return p
		}
	}
	t.Fatalf("there is no probe %q in %+v", name, d.Probes)
	return Probe{}
}

func TestDoctorOnHealthyEngine(t *testing.T) {
	t.Parallel()
	cfg, ws := realConfig(t)
	d := NewDoctor(DoctorConfig{Checker: patient(cfg), Engine: realEngine(t, cfg, nil, nil), Workspace: ws, Now: time.Now})
	diagnosis := d.Run(t.Context())
	var b strings.Builder
	if err := diagnosis.WriteText(&b); err != nil {
		t.Fatal(err)
	}
	t.Log("\n" + b.String())
	if !diagnosis.OK() {
		t.Error("the engine is not healthy, or a probe is wrong")
	}
	if len(diagnosis.Probes) != len(allNames()) {
		t.Errorf("%d probes, want %d", len(diagnosis.Probes), len(allNames()))
	}
	left, err := os.ReadDir(filepath.Join(ws.Root(), "projects"))
	if err != nil || len(left) != 0 {
		t.Errorf("the doctor left %v (%v)", left, err)
	}
}

func allNames() []string {
	var names []string
	for _, e := range experiments(environment{user: "1000:1000", targets: []string{"1.1.1.1:80"}, readOnlyRootfs: true}) {
		for _, c := range e.checks {
			names = append(names, c.name)
		}
	}
	return names
}

// TestEveryProbeCanFail takes one limit away and expects exactly its probe to notice: a probe that
// cannot fail proves nothing.
func TestEveryProbeCanFail(t *testing.T) {
	t.Parallel()
	cases := []struct {
		probe   string
		what    string // what was taken away
		edit    func([]string) []string
		editJob func(*initproto.Job)
		clock   time.Duration
		seen    string
	}{
		{probe: "exec", what: "the image", edit: replacing("sha256:", "sha256:0"), seen: "not measured"},
		{probe: "runtime", what: "its runtime", edit: with("--runtime=io.containerd.runc.v2"), seen: "runs under \"io.containerd.runc.v2\""},
		{probe: "runtime", what: "a name that leads to it", edit: replacing("secbox-0", "secbox-x0"), seen: "not measured"},
		{probe: "memory", what: "--memory", edit: without("--memory", "--memory-swap"), seen: "took 256 MiB"},
		{probe: "swap", what: "--memory-swap", edit: both(without("--memory-swap"), with("--memory-swap=-1")), seen: "memory"},
		{probe: "swap", what: "--memory", edit: without("--memory", "--memory-swap"), seen: "memory"},
		{probe: "pids", what: "--pids-limit", edit: without("--pids-limit"), seen: "128 processes started and nothing"},
		{probe: "cpu", what: "--cpus", edit: without("--cpus"), seen: "throttled"},
		{probe: "tmp", what: "the size of /tmp", edit: replacing(",size=16m", ""), seen: "32 MiB were written"},
		{probe: "tmp", what: "/tmp", edit: without("--tmpfs"), seen: "not measured"},
		{probe: "shm", what: "the size of /dev/shm", edit: replacing("24m", "64m"), seen: "48 MiB were written"},
		{probe: "deadline", what: "the deadline", editJob: func(j *initproto.Job) { j.TimeoutMS = 0 }, seen: "by itself after"},
		{probe: "output", what: "the output's limit", editJob: func(j *initproto.Job) { j.MaxStdout = 1 << 30 }, seen: "1048576 bytes arrived"},
		{probe: "network", what: "its isolation", edit: replacing("--network=none", "--network=host")},
		{probe: "allowlist", what: "its proxy", editJob: func(j *initproto.Job) { j.Network = false }, seen: "no proxy"},
		{probe: "rootfs", what: "--read-only", edit: without("--read-only"), seen: "a file could be written into /var/tmp"},
		{probe: "user", what: "--user", edit: replacing("1000:1000", "1001:1000"), seen: "1001"},
		{probe: "user", what: "the only group", edit: with("--group-add=27"), seen: "27"},
		{probe: "capabilities", what: "--cap-drop", edit: without("--cap-drop=ALL"), seen: "CapBnd"},
		{probe: "capabilities", what: "one capability's drop", edit: with("--cap-add=NET_RAW"), seen: "CapBnd"},
		{probe: "no_new_privs", what: "no-new-privileges", edit: without("--security-opt=no-new-privileges"), seen: "NoNewPrivs is 0"},
		{probe: "seccomp", what: "seccomp", edit: seccompOf("unconfined"), seen: "Seccomp is 0"},
		{probe: "seccomp", what: "the refusal of io_uring", edit: seccompOf(uringProfile(t)), seen: "io_uring_setup fails with EFAULT"},
		{probe: "init", what: "init's protection", edit: both(replacing("1000:1000", "0:0"), with("--cap-add=SYS_PTRACE")), seen: "can open /proc/1/"},
		{probe: "inputs", what: "the read-only flag", edit: replacing(",readonly", ""), seen: "writable"},
		{probe: "inputs", what: "the inputs mount", edit: replacing("/inputs,target=", "/work,target="), seen: "does not arrive"},
		{probe: "artifacts", what: "the artifacts mount", edit: replacing("target=/workspace/artifacts", "target=/workspace/elsewhere"), seen: "artifacts"},
		{probe: "clock", what: "an hour", clock: time.Hour, seen: " behind"},
		{probe: "clock", what: "minus an hour", clock: -time.Hour, seen: " ahead"},
	}
	tried := map[string]bool{}
	for _, tc := range cases {
		tried[tc.probe] = true
		t.Run(tc.probe+" without "+tc.what, func(t *testing.T) {
			t.Parallel()
			cfg, ws := realConfig(t)
			d := NewDoctor(DoctorConfig{
				Checker: patient(cfg), Engine: realEngine(t, cfg, tc.edit, tc.editJob), Workspace: ws,
				Now: func() time.Time { return time.Now().Add(tc.clock) },
			})
			image, err := d.prerequisites(t.Context())
			if err != nil {
				t.Fatalf("%v; run `make setup`", err)
			}
			p := d.probe(t, tc.probe, image)
			if p.OK || !strings.Contains(p.Seen, tc.seen) || tc.seen == "" && strings.Contains(p.Seen, "not measured") || p.Remedy == "" {
				t.Errorf("without %s: %+v", tc.what, p)
			}
			if err := d.CleanUp(); err != nil {
				t.Error(err)
			}
		})
	}
	for _, name := range allNames() {
		if !tried[name] {
			t.Errorf("nothing shows that the probe %s can fail", name)
		}
	}
}

// probe runs the one experiment that answers the question.
func (d *Doctor) probe(t *testing.T, name string, image engine.Image) Probe {
	t.Helper()
	for _, e := range experiments(d.environment(t.Context())) {
		if !slices.ContainsFunc(e.checks, func(c check) bool { return c.name == name }) {
			continue
		}
		return find(t, Diagnosis{Probes: e.judge(d.run(t.Context(), e, image))}, name)
	}
	t.Fatalf("no experiment answers %q", name)
	return Probe{}
}

// TestEveryLimitIsProbed looks for each limit of the policy in what the probes expect.
func TestEveryLimitIsProbed(t *testing.T) {
	t.Parallel()
	expected := ""
	for _, e := range experiments(standard()) {
		for _, c := range e.checks {
			expected += c.expected + "\n"
		}
	}
	unprobed := []string{
		policy.FieldKillGraceMS,                                                                                   // ends no job
		policy.FieldMaxStderrBytes,                                                                                // cut by the same code as standard output
		policy.FieldMaxArtifacts,                                                                                  // kept by core-api, not by the engine
		policy.FieldNetMaxBytes, policy.FieldNetConnections, policy.FieldNetMaxConnections, policy.FieldNetIdleMS, // by package network
	}
	for _, d := range policy.Describe() {
		if d.Ceiling != nil && strings.Contains(expected, d.Name+"=") == slices.Contains(unprobed, d.Name) {
			t.Errorf("%s: add a probe to health/limits.go that exceeds it and expects \"%s=\", or the reason to unprobed", d.Name, d.Name)
		}
	}
}

func TestGateways(t *testing.T) {
	t.Parallel()
	got := gatewaysIn("172.17.0.0/16 \n10.9.0.0/24 10.9.0.254\n\nfd00::/80 fd00::1\nnonsense\n172.18.0.0/16 <nil>\n")
	if want := []string{"172.17.0.1:80", "10.9.0.254:80", "[fd00::1]:80", "172.18.0.1:80"}; !slices.Equal(got, want) {
		t.Errorf("%v, want %v", got, want)
	}
}

func TestDoctorWithoutAnEngine(t *testing.T) {
	t.Parallel()
	cfg, ws := realConfig(t)
	cfg.CLI = deadCLI(t)
	cfg.Images = engine.NewImages(cfg.CLI, testImage(), "secbox-sandbox-init", time.Now)
	d := NewDoctor(DoctorConfig{Checker: patient(cfg), Engine: realEngineOf(t, cfg), Workspace: ws, Now: time.Now})
	allUnmeasured(t, d.Run(t.Context()), "the Docker engine does not answer")
}

// seccompOf runs containers under another profile.
func seccompOf(profile string) func([]string) []string {
	const option = "--security-opt=seccomp="
	return func(args []string) []string {
		args = slices.Clone(args)
		for i, arg := range args {
			if strings.HasPrefix(arg, option) {
				args[i] = option + profile
			}
		}
		return args
	}
}

// uringProfile is a filter that lets io_uring through.
func uringProfile(t *testing.T) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "profile.json")
	if err := os.WriteFile(path, []byte(`{"defaultAction":"SCMP_ACT_ALLOW","syscalls":[{"names":["acct"],"action":"SCMP_ACT_ERRNO"}]}`), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

func realEngineOf(t *testing.T, cfg Config) engine.Engine {
	t.Helper()
	seccomp, err := engine.WriteSeccomp(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	cold := engine.NewCold(engine.Config{Driver: engine.NewDocker(cfg.CLI, engine.Options{Seccomp: seccomp}), NewID: newID, Log: quiet()})
	t.Cleanup(func() { _ = cold.Close() })
	return cold
}

func TestDoctorWithoutADockerCLI(t *testing.T) {
	t.Parallel()
	cfg, ws := realConfig(t)
	cfg.CLI, cfg.Images = nil, nil
	d := NewDoctor(DoctorConfig{Checker: patient(cfg), Workspace: ws, Now: time.Now})
	allUnmeasured(t, d.Run(t.Context()), "the docker CLI was not found")
}

func TestDoctorWithoutTheImage(t *testing.T) {
	t.Parallel()
	cfg, ws := realConfig(t)
	cfg.Image = "secbox-no-such-image:latest"
	d := NewDoctor(DoctorConfig{Checker: patient(cfg), Engine: realEngine(t, cfg, nil, nil), Workspace: ws, Now: time.Now})
	allUnmeasured(t, d.Run(t.Context()), "secbox-no-such-image")
}

func TestDoctorWithoutAWorkspace(t *testing.T) {
	t.Parallel()
	cfg, _ := realConfig(t)
	cfg.Workspace = Failing{os.ErrPermission}
	d := NewDoctor(DoctorConfig{Checker: patient(cfg), Engine: realEngine(t, cfg, nil, nil), Now: time.Now})
	allUnmeasured(t, d.Run(t.Context()), "workspace")
}

func TestInterruptedDoctor(t *testing.T) {
	t.Parallel()
	cfg, ws := realConfig(t)
	ctx, cancel := context.WithCancel(t.Context())
	d := NewDoctor(DoctorConfig{Checker: patient(cfg), Engine: interrupting{realEngine(t, cfg, nil, nil), cancel}, Workspace: ws, Now: time.Now})
	allUnmeasured(t, d.Run(ctx), "")
	if left, err := os.ReadDir(filepath.Join(ws.Root(), "projects")); err != nil || len(left) != 0 {
		t.Errorf("the doctor left %v (%v)", left, err)
	}
}

// interrupting ends the doctor's context while its first job is being started.
type interrupting struct {
	engine.Engine
	cancel func()
}

func (i interrupting) Acquire(ctx context.Context, spec engine.Spec) (engine.Slot, error) {
	defer i.cancel()
	return i.Engine.Acquire(ctx, spec)
}

// allUnmeasured expects that every probe is there, that none is ok, and that the diagnosis says
// why.
func allUnmeasured(t *testing.T, d Diagnosis, why string) {
	t.Helper()
	if d.OK() {
		t.Error("the diagnosis is OK")
	}
	for _, name := range allNames() {
		if p := find(t, d, name); p.OK || p.Seen != notTried && (name != "exec" || !strings.Contains(p.Seen, "not measured")) || p.Remedy == "" {
			t.Errorf("%+v", p)
		}
	}
	var b strings.Builder
	if err := d.WriteText(&b); err != nil {
		t.Fatal(err)
	}
	t.Log("\n" + b.String())
	if !strings.Contains(b.String(), why) || d.NotTried == "" || strings.Count(b.String(), d.NotTried) != 1 {
		t.Errorf("the text does not say %q, or not once why nothing was tried: %q", why, d.NotTried)
	}
}
