package enginetest

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"secbox/engine"
	"secbox/fault"
)

// Run runs the contract, and the cases that need containers, on the machine's Docker engine. Cases
// run in parallel, each with its own engine.
func Run(t *testing.T, mk Maker) {
	t.Helper()
	Where{}.Run(t, mk)
}

// Run runs the suite on this engine.
func (w Where) Run(t *testing.T, mk Maker) {
	cases := map[string]func(*testing.T, *Fixture){
		"Jobs":                      jobs,
		"HardeningFromInside":       hardeningFromInside,
		"HardeningAsDocker":         hardeningAsDocker,
		"OutputIsCutAndCounted":     outputIsCutAndCounted,
		"DeadlineKillsTheTree":      deadlineKillsTheTree,
		"OutOfMemory":               outOfMemory,
		"SystemCalls":               systemCalls,
		"ForkBomb":                  forkBomb,
		"ContainerKilledOutside":    containerKilledOutside,
		"CLIKilled":                 cliKilled,
		"MissingImage":              missingImage,
		"MissingMount":              missingMount,
		"AThirdOfACore":             aThirdOfACore,
		"SlotsAreFresh":             slotsAreFresh,
		"ReadOnlyAndMissingMounts":  readOnlyAndMissingMounts,
		"NothingOfTheJobIsInTheCLI": nothingOfTheJobIsInTheCLI,
		"KeptContainer":             keptContainer,
	}
	maps.Copy(cases, contract)
	for name, check := range cases {
		if w.Only != nil && !slices.Contains(w.Only, name) || slices.Contains(w.Except, name) {
			continue
		}
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			check(t, w.New(t, mk))
		})
	}
}

// jobs runs ordinary and hostile scripts.
func jobs(t *testing.T, f *Fixture) {
	for _, c := range []struct {
		name   string
		job    func(*engine.Job)
		script string
		code   int
		stdout string // exact, unless empty
		has    string // contained in stdout
		stderr string // contained
	}{
		{
			name: "dangerous names stay inside", script: `echo "$DOCKER_HOST"; command -v bash`,
			job: func(j *engine.Job) {
				j.Env = map[string]string{"DOCKER_HOST": "tcp://evil:1", "LD_PRELOAD": "/nonexistent.so", "PATH": "/usr/bin:/bin"}
			},
			has: "tcp://evil:1\n",
		},
		{name: "a job's PATH does not choose its command", script: "echo ran", stdout: "ran\n", job: func(j *engine.Job) {
			j.Env = map[string]string{"PATH": "/workspace/work/planted"}
		}},
		{name: "NULs and broken UTF-8", script: `printf 'a\0b\377c'`, stdout: "a\x00b\xffc"},
		{
			name: "what looks like the engine", script: "echo 'docker: Error response from daemon: no such image.' >&2; exit 125", code: 125,
			stderr: "Error response",
		},
		{
			name: "what looks like frames", script: `printf 'x\0\0\0\2{}h\0\0\0\15secbox-init/2x\0\0\0\002{}'; exit 7`, code: 7,
			has: "secbox-init/2",
		},
		{
			name:   "cannot write to init",
			script: `for f in $(seq 0 32); do (printf 'x\0\0\0\2{}' > /proc/1/fd/$f) 2>/dev/null && echo wrote $f; done; ls /proc/1/fd 2>/dev/null; echo tried; exit 3`, code: 3, stdout: "tried\n",
		},
		{name: "cannot read init", script: "for f in environ mem maps auxv; do head -c1 /proc/1/$f 2>/dev/null | grep -q . && echo read " +
			"$f; done; echo tried; exit 4", code: 4, stdout: "tried\n"},
		{
			name: "every signal to init", script: "for i in $(seq 1 64); do kill -$i 1 2>/dev/null; done; sleep 0.2; echo alive",
			has: "alive\n",
		},
		{name: "every queued signal to init", script: queueSignals + "; sleep 0.2; echo alive", has: "alive\n"},
		{
			name: "double fork ends with it", script: "(setsid bash -c 'while :; do sleep 1; done' >/dev/null 2>&1 &) ; echo left",
			stdout: "left\n",
		},
		{name: "closes its outputs and stays", script: "exec >&- 2>&-; sleep 0.3; exit 9", code: 9},
		{name: "a child keeps the pipe", script: "sleep 1000 & echo done", stdout: "done\n"},
		{name: "zombies are reaped", script: "for i in $(seq 50); do (sleep 0.01 &) ; done; sleep 0.5; ps 2>/dev/null; grep -l " +
			"'^State:.Z' /proc/[0-9]*/status 2>/dev/null | wc -l", has: "0\n"},
		{
			name: "its own host name", script: `python3 -c 'import socket; print(socket.gethostbyname(socket.gethostname()))'`,
			stdout: "127.0.0.1\n",
		},
		{name: "no name server of the host", script: "cat /etc/resolv.conf", stdout: "nameserver 192.0.2.1\n"},
		{name: "cwd cannot be made", job: func(j *engine.Job) { j.Cwd = "/workspace/inputs/new" }, code: 126},
	} {
		t.Run(c.name, func(t *testing.T) {
			job := Shell(c.script)
			if c.job != nil {
				c.job(&job)
			}
			ran := f.Run(t.Context(), job)
			if ran.Err != nil {
				t.Fatalf("error: %v", ran.Err)
			}
			if ran.Code != c.code {
				t.Errorf("exit code %d, want %d (%+v)\nstdout: %q\nstderr: %q", ran.Code, c.code, ran.Exit, ran.Stdout, ran.Stderr)
			}
			if c.stdout != "" && ran.Stdout != c.stdout {
				t.Errorf("stdout %q, want %q", ran.Stdout, c.stdout)
			}
			if !strings.Contains(ran.Stdout, c.has) || !strings.Contains(ran.Stderr, c.stderr) {
				t.Errorf("stdout %q should have %q, stderr %q should have %q", ran.Stdout, c.has, ran.Stderr, c.stderr)
			}
			if (c.code == 126 || c.code == 127) && ran.StartError == "" {
				t.Error("a command that never ran must say so")
			}
		})
	}
}

// queueSignals sends each signal by rt_sigqueueinfo with a forged si_code, which the Go runtime's
// own handlers would not survive.
const queueSignals = `python3 -c '
import ctypes, struct, platform
number = {"x86_64": 129, "aarch64": 138}[platform.machine()]
libc = ctypes.CDLL(None)
for signal in range(1, 65):
    info = ctypes.create_string_buffer(128)
    struct.pack_into("iii", info, 0, signal, 0, -1)
    libc.syscall(number, 1, signal, info)
'`

func hardeningFromInside(t *testing.T, f *Fixture) {
	ran := f.Run(t.Context(), Shell(`
		grep -E '^(CapInh|CapPrm|CapEff|CapBnd|CapAmb|NoNewPrivs|Seccomp):' /proc/self/status
		id -u; id -g
		grep -c : /proc/net/dev
		touch /etc/x /usr/x /x 2>&1 | grep -c Read-only
		touch /workspace/inputs/x 2>&1 | grep -c Read-only
		df -m /tmp | awk 'NR==2 {print "tmp", $2}'
		touch /workspace/work/w /workspace/artifacts/a && echo writable
	`))
	if ran.Err != nil {
		t.Fatal(ran.Err)
	}
	for _, want := range []string{
		"CapInh:\t0000000000000000", "CapPrm:\t0000000000000000", "CapEff:\t0000000000000000", "CapBnd:\t0000000000000000",
		"CapAmb:\t0000000000000000", "NoNewPrivs:\t1", "Seccomp:\t2", "1000\n1000\n1\n3\n1\ntmp 32\nwritable\n",
	} {
		if !strings.Contains(ran.Stdout, want) {
			t.Errorf("missing %q in:\n%s%s", want, ran.Stdout, ran.Stderr)
		}
	}
}

// hostConfig is the part of `docker inspect` that says how a container is confined.
type hostConfig struct {
	NetworkMode     string
	CapDrop         []string
	CapAdd          []string
	SecurityOpt     []string
	PidsLimit       int64
	Memory          int64
	MemorySwap      int64
	NanoCpus        int64
	ReadonlyRootfs  bool
	Privileged      bool
	Tmpfs           map[string]string
	LogConfig       struct{ Type string }
	AutoRemove      bool
	Binds           []string
	Runtime         string
	PublishAllPorts bool
}

func hardeningAsDocker(t *testing.T, f *Fixture) {
	slot, err := f.Engine.Acquire(t.Context(), f.Spec())
	if err != nil {
		t.Fatal(err)
	}
	started := NewSignal("ready")
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	done := make(chan error, 1)
	go func() {
		_, err := slot.Run(ctx, Shell("echo ready; sleep 100"), started, &bytes.Buffer{})
		done <- err
	}()
	select {
	case <-started.Seen:
	case err := <-done:
		t.Fatalf("ended early: %v", err)
	}
	var got hostConfig
	if err := json.Unmarshal([]byte(f.Docker("inspect", "--format", "{{json .HostConfig}}", "secbox-"+slot.ExecID())), &got); err != nil {
		t.Fatal(err)
	}
	user := f.Docker("inspect", "--format", "{{.Config.User}} {{.Config.WorkingDir}} {{index .Config.Labels \"secbox.exec\"}}",
		"secbox-"+slot.ExecID())
	cancel()
	if err := <-done; err != nil {
		t.Fatal(err)
	}
	if user != "1000:1000 /workspace/work "+slot.ExecID() {
		t.Errorf("user, workdir, label: %q", user)
	}
	switch {
	case got.NetworkMode != "none", !slices.Equal(got.CapDrop, []string{"ALL"}), len(got.CapAdd) > 0,
		!slices.Contains(got.SecurityOpt, "no-new-privileges"),
		!slices.ContainsFunc(got.SecurityOpt, func(o string) bool {
			return strings.HasPrefix(o,
				`seccomp={"defaultAction":"SCMP_ACT_ERRNO"`)
		}), got.PidsLimit != 64, got.Memory != 128<<20, got.MemorySwap != 128<<20,
		got.NanoCpus != 1e9, !got.ReadonlyRootfs, got.Privileged, got.LogConfig.Type != "none", !got.AutoRemove, len(got.Binds) > 0,
		!strings.Contains(got.Tmpfs["/tmp"], "size=32m"):
		t.Errorf("host configuration: %+v", got)
	}
	if want := f.where.Runtime; want != "" && got.Runtime != want {
		t.Errorf("the container's runtime is %s, want %s", got.Runtime, want)
	}
}

func outputIsCutAndCounted(t *testing.T, f *Fixture) {
	job := Shell("head -c 5000000 /dev/zero | tr '\\0' x; head -c 300000 /dev/zero >&2; exit 3")
	job.MaxStdout, job.MaxStderr = 1000, 70000
	ran := f.Run(t.Context(), job)
	if ran.Err != nil || ran.Code != 3 {
		t.Fatalf("%+v", ran.Exit)
	}
	if len(ran.Stdout) != 1000 || len(ran.Stderr) != 70000 || ran.StdoutBytes != 5000000 || ran.StderrBytes != 300000 {
		t.Errorf("kept %d and %d, counted %d and %d", len(ran.Stdout), len(ran.Stderr), ran.StdoutBytes, ran.StderrBytes)
	}
	job = Shell("yes")
	job.MaxStdout, job.Timeout = 10, 500*time.Millisecond
	if ran := f.Run(t.Context(), job); ran.Err != nil || !ran.TimedOut || len(ran.Stdout) != 10 {
		t.Errorf("a job that prints without end: %+v", ran.Exit)
	}
}

func deadlineKillsTheTree(t *testing.T, f *Fixture) {
	ran := f.runToDeadline("rm -f tick; trap '' TERM INT HUP; (setsid bash -c \"trap '' TERM; while :; do date +%s%N > " +
		"/workspace/work/tick; sleep 0.02; done\" &)\n" +
		"until [ -e tick ]; do sleep 0.01; done; echo started; sleep 100")
	if ran.Err != nil || !ran.TimedOut || ran.Code != 137 || ran.Stdout != "started\n" {
		t.Fatalf("%+v", ran)
	}
	// Run promises that no process is alive when it returns: the file must not change any more.
	first, err := os.ReadFile(filepath.Join(f.Dir, "work/tick"))
	if err != nil {
		t.Fatal(err)
	}
	f.Run(t.Context(), Shell("sleep 0.3")) // time passes, measured by another container
	if second, _ := os.ReadFile(filepath.Join(f.Dir, "work/tick")); !bytes.Equal(first, second) {
		t.Error("a process of the job was alive after Run had returned")
	}
}

// systemCalls: a job has no io_uring, no rare sockets and no access to the limits of sandbox-init;
// ordinary calls work.
func systemCalls(t *testing.T, f *Fixture) {
	ran := f.Run(t.Context(), Shell(`exec python3 -c '
import ctypes, errno, os, platform, resource, socket, struct, subprocess, threading
libc = ctypes.CDLL(None, use_errno=True)
def call(*args):
    return "done" if libc.syscall(*args) >= 0 else errno.errorcode[ctypes.get_errno()]
print(call(425, 0, None), call(426, 0, 0, 0, 0, None), call(427, 0, 0, None, 0))
for family in (socket.AF_VSOCK, socket.AF_ALG):
    try: socket.socket(family, socket.SOCK_STREAM)
    except PermissionError: print("refused")
def socketcall(family): # as a 32-bit program: mov eax, 102; mov ebx, 1; mov ecx, arguments; int 0x80
    libc.mmap.restype = ctypes.c_void_p
    page = libc.mmap(None, ctypes.c_size_t(4096), 7, 0x62, -1, ctypes.c_long(0))
    code = struct.pack("<BBIBIBIBBBB", 0x53, 0xb8, 102, 0xbb, 1, 0xb9, page + 64, 0xcd, 0x80, 0x5b, 0xc3).ljust(64)
    ctypes.memmove(page, code + struct.pack("<III", family, 1, 0), 76)
    return ctypes.CFUNCTYPE(ctypes.c_int)(page)()
child = os.fork()
if child == 0: os._exit(platform.machine() == "x86_64" and socketcall(socket.AF_VSOCK) >= 0)
print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) <= 0)
[end.close() for end in socket.socketpair()]
for family in (socket.AF_UNIX, socket.AF_INET, socket.AF_INET6): socket.socket(family, socket.SOCK_STREAM).close()
try: resource.prlimit(1, resource.RLIMIT_NOFILE, (0, 0))
except PermissionError: print("refused")
print(resource.prlimit(1, resource.RLIMIT_NOFILE) == resource.getrlimit(resource.RLIMIT_NOFILE))
resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
thread = threading.Thread(target=lambda: print("thread")); thread.start(); thread.join()
print(subprocess.run(["bash", "-c", "echo child"], capture_output=True, text=True).stdout, end="")'`))
	if want := "EPERM EPERM EPERM\nrefused\nrefused\nTrue\nrefused\nTrue\nthread\nchild\n"; ran.Err != nil || ran.Code != 0 ||
		ran.Stdout != want {
		t.Errorf("%+v, want %q", ran, want)
	}
}

func outOfMemory(t *testing.T, f *Fixture) {
	ran := f.Run(t.Context(), Shell("exec python3 -c 'x = bytearray(400 << 20)'"))
	if ran.Err != nil || ran.Signal != 9 || ran.OOMKills == 0 || ran.Killed || ran.TimedOut {
		t.Errorf("the main process: %+v", ran)
	}
	ran = f.Run(t.Context(), Shell("python3 -c 'x = bytearray(400 << 20)'; echo survived $?; exit 0"))
	if ran.Err != nil || ran.Code != 0 || ran.OOMKills == 0 || ran.Stdout != "survived 137\n" {
		t.Errorf("a child alone: %+v", ran)
	}
	// init has the job's uid; without descriptors it could not open what it reports from.
	ran = f.Run(t.Context(), Shell(`exec python3 -c '
import resource
try: resource.prlimit(1, resource.RLIMIT_NOFILE, (0, 0))
except PermissionError: pass
x = bytearray(400 << 20)'`))
	if ran.Err != nil || ran.Signal != 9 || ran.OOMKills == 0 {
		t.Errorf("after it lowered its init's limits: %+v", ran)
	}
}

func forkBomb(t *testing.T, f *Fixture) {
	job := Shell(`b() { b | b & }; b; sleep 0.5; exit 1`)
	job.Timeout = 5 * time.Second
	ran := f.Run(t.Context(), job)
	if ran.Err != nil || ran.PIDsMax == 0 {
		t.Errorf("%+v", ran.Exit)
	}
	if ran := f.Run(t.Context(), Shell("echo next")); ran.Stdout != "next\n" {
		t.Errorf("after it: %+v", ran)
	}
}

func containerKilledOutside(t *testing.T, f *Fixture) {
	slot, err := f.Engine.Acquire(t.Context(), f.Spec())
	if err != nil {
		t.Fatal(err)
	}
	started := NewSignal("started")
	go func() {
		<-started.Seen
		_, _ = f.CLI.Output(t.Context(), "kill", "secbox-"+slot.ExecID())
	}()
	_, err = slot.Run(t.Context(), Shell("echo started; sleep 100"), started, &bytes.Buffer{})
	var lost *engine.RunError
	if !errors.As(err, &lost) || !lost.Started || !lost.Dead {
		t.Fatalf("got %v", err)
	}
}

func cliKilled(t *testing.T, f *Fixture) {
	slot, err := f.Engine.Acquire(t.Context(), f.Spec())
	if err != nil {
		t.Fatal(err)
	}
	started := NewSignal("started")
	go func() {
		<-started.Seen
		for _, pid := range CLIProcesses(slot.ExecID()) {
			if p, err := os.FindProcess(pid); err == nil {
				_ = p.Kill()
			}
		}
	}()
	_, err = slot.Run(t.Context(), Shell("echo started; sleep 100"), started, &bytes.Buffer{})
	var lost *engine.RunError
	if !errors.As(err, &lost) || !lost.Started || !lost.Dead {
		t.Fatalf("got %v", err)
	}
}

// CLIProcesses finds the docker CLIs that name the exec's container.
func CLIProcesses(execID string) (pids []int) {
	entries, _ := os.ReadDir("/proc")
	for _, e := range entries {
		pid, err := strconv.Atoi(e.Name())
		if err != nil {
			continue
		}
		line, _ := os.ReadFile("/proc/" + e.Name() + "/cmdline")
		args := strings.Split(string(line), "\x00")
		if len(args) > 1 && filepath.Base(args[0]) == "docker" && args[1] == "run" && slices.Contains(args, "secbox-"+execID) {
			pids = append(pids, pid)
		}
	}
	return pids
}

func missingImage(t *testing.T, f *Fixture) {
	spec := f.Spec()
	spec.ImageID = "sha256:" + strings.Repeat("0", 64)
	slot, err := f.Engine.Acquire(t.Context(), spec)
	if err == nil {
		_, err = slot.Run(t.Context(), Shell("true"), &bytes.Buffer{}, &bytes.Buffer{})
	}
	if !fault.Is(err, fault.ImageMissing) {
		t.Fatalf("got %v", err)
	}
}

func missingMount(t *testing.T, f *Fixture) {
	spec := f.Spec()
	spec.Prepare = func(context.Context, string) (engine.MountSet, error) {
		return MountSet(engine.Mount{Source: filepath.Join(f.Dir, "gone"), Target: "/workspace/work"}), nil
	}
	ran := f.RunSpec(t.Context(), spec, Shell("true"))
	var lost *engine.RunError
	if !errors.As(ran.Err, &lost) || lost.Started {
		t.Fatalf("got %v", ran.Err)
	}
	if _, err := os.Lstat(filepath.Join(f.Dir, "gone")); err == nil {
		t.Error("the engine made a mount source that did not exist")
	}
}

func aThirdOfACore(t *testing.T, f *Fixture) {
	spec := f.Spec()
	spec.Limits.CPUCores = 1.0 / 3
	if ran := f.RunSpec(t.Context(), spec, Shell("echo ran")); ran.Err != nil || ran.Stdout != "ran\n" {
		t.Fatalf("%+v", ran)
	}
}

func slotsAreFresh(t *testing.T, f *Fixture) {
	if ran := f.Run(t.Context(), Shell("echo x > /tmp/left; echo y > /dev/shm/left; hostname")); ran.Err != nil {
		t.Fatal(ran.Err)
	}
	if ran := f.Run(t.Context(), Shell("ls /tmp /dev/shm")); strings.Contains(ran.Stdout, "left") {
		t.Errorf("something of the job before is there: %q", ran.Stdout)
	}
}

func readOnlyAndMissingMounts(t *testing.T, f *Fixture) {
	spec := f.Spec()
	spec.Access = "work read-only"
	spec.Prepare = func(context.Context, string) (engine.MountSet, error) {
		return MountSet(engine.Mount{Source: filepath.Join(f.Dir, "work"), Target: "/workspace/work", ReadOnly: true}), nil
	}
	job := Shell("touch /workspace/work/x; touch /workspace/artifacts/x; ls /workspace/inputs/ | wc -l")
	ran := f.RunSpec(t.Context(), spec, job)
	if ran.Err != nil || strings.Count(ran.Stderr, "Read-only file system") != 2 {
		t.Errorf("%+v", ran)
	}
	spec.Access = "nothing"
	spec.Prepare = func(context.Context, string) (engine.MountSet, error) { return engine.MountSet{}, nil }
	job = Shell("pwd")
	job.Cwd = "/tmp"
	if ran := f.RunSpec(t.Context(), spec, job); ran.Err != nil || ran.Stdout != "/tmp\n" {
		t.Errorf("%+v", ran)
	}
}

func nothingOfTheJobIsInTheCLI(t *testing.T, f *Fixture) {
	slot, err := f.Engine.Acquire(t.Context(), f.Spec())
	if err != nil {
		t.Fatal(err)
	}
	job := Shell("echo started; sleep 100 # in-the-script")
	job.Env = map[string]string{"K": "in-the-environment", "DOCKER_HOST": "tcp://evil:1"}
	job.Stdin = strings.NewReader("in-the-stdin")
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	started, done := NewSignal("started"), make(chan struct{})
	go func() {
		defer close(done)
		_, _ = slot.Run(ctx, job, started, &bytes.Buffer{})
	}()
	<-started.Seen
	pids := CLIProcesses(slot.ExecID())
	if len(pids) == 0 {
		t.Error("found no docker CLI; the test looks in the wrong place")
	}
	for _, pid := range pids {
		for _, file := range []string{"cmdline", "environ"} {
			content, _ := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/" + file)
			if bytes.Contains(content, []byte("in-the-")) || bytes.Contains(content, []byte("evil")) {
				t.Errorf("%s of the CLI shows the job", file)
			}
		}
	}
	inspected := f.Docker("inspect", "secbox-"+slot.ExecID())
	if strings.Contains(inspected, "in-the-") {
		t.Error("docker inspect shows the job")
	}
	cancel()
	<-done
}

// keptContainer: a container that stays has the limits, the directories and the hardening of any
// other, and nothing of it is left.
func keptContainer(t *testing.T, f *Fixture) {
	spec := f.Spec()
	spec.Serve = true
	slot, err := f.Engine.Acquire(t.Context(), spec)
	if err != nil {
		t.Fatal(err)
	}
	r, err := slot.(engine.Keeper).Serve(t.Context(), engine.Reports{})
	if err != nil {
		t.Fatal(err)
	}
	run := func(script string) string {
		t.Helper()
		var stdout, stderr bytes.Buffer
		if exit, err := r.Run(t.Context(), Shell(script), &stdout, &stderr); err != nil || exit.Code != 0 {
			t.Errorf("%+v %v: %s", exit, err, stderr.String())
		}
		return stdout.String()
	}
	run("echo one > /workspace/work/kept; echo two > /tmp/kept; sleep 1000 > /dev/null 2>&1 &")
	if got := run("cat /workspace/work/kept /tmp/kept; pgrep sleep || echo none; grep -c . /proc/net/dev"); got != "one\ntwo\nnone\n3\n" {
		t.Errorf("the second job: %q", got)
	}
	if on, err := os.ReadFile(filepath.Join(f.Dir, "work", "kept")); err != nil || string(on) != "one\n" {
		t.Errorf("on the disk: %q %v", on, err)
	}
	// Init and its workers have pids of their own.
	const readLimit = "cat /sys/fs/cgroup/pids.max /sys/fs/cgroup/pids/pids.max 2> /dev/null || :"
	for limit := ""; limit != strconv.FormatInt(r.Limits().PIDs, 10); limit = strings.TrimSpace(run(readLimit)) {
	}
	if args := strings.Join(slot.Args(), " "); !strings.Contains(args, "--pids-limit "+strconv.FormatInt(r.Limits().PIDs, 10)) ||
		r.Limits().PIDs <= spec.Limits.PIDs {
		t.Errorf("%s", args)
	}
	r.Stop()
	if _, err := r.Run(t.Context(), Shell("true"), &bytes.Buffer{}, &bytes.Buffer{}); err == nil {
		t.Error("a job runs after the end")
	}
}
