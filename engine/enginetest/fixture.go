// Package enginetest tests implementations of engine.Engine: RunContract checks what every one
// promises, Run also what only a container on a real Docker engine can prove. An implementation
// joins with a function that makes one.
package enginetest

import (
	"bytes"
	"context"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"

	"secbox/engine"
	"secbox/engine/dockercli"
	"secbox/policy"
)

// Image is the image that the tests run in: what `make setup` builds.
const Image = "secbox-sandbox:latest"

// Maker makes the engine under test; the suite closes it.
type Maker func(t *testing.T, cfg engine.Config) engine.Engine

// Where is the Docker engine and the runtime of the suite. The zero value: the machine's engine and
// its default runtime.
type Where struct {
	Environ []string // of docker, whose DOCKER_HOST chooses the engine; nil: this process's
	Runtime string   // OCI runtime of the containers, by the engine's name for it
	Only    []string // names of the cases; nil: all
	Except  []string // names of cases to leave out
}

// Fixture is an engine and the directories of a project.
type Fixture struct {
	t      *testing.T
	where  Where
	Engine engine.Engine
	CLI    *dockercli.CLI
	Node   string
	Image  engine.Image
	Dir    string // has inputs/, work/ and artifacts/
	User   string
}

// CLI finds docker or fails with the remedy.
func CLI(t *testing.T) *dockercli.CLI {
	t.Helper()
	return Where{}.cli(t)
}

func (w Where) environ() []string {
	if w.Environ == nil {
		return os.Environ()
	}
	return w.Environ
}

func (w Where) cli(t *testing.T) *dockercli.CLI {
	t.Helper()
	cli, err := dockercli.Find("", w.environ())
	if err != nil {
		t.Fatalf("%v; run `make setup`", err)
	}
	return cli
}

// machines resolves Image on the machine's engine, once for all tests of a program.
var machines = sync.OnceValues(func() (engine.Image, error) {
	cli, err := dockercli.Find("", os.Environ())
	if err != nil {
		return engine.Image{}, err
	}
	return resolve(context.Background(), cli)
})

func resolve(ctx context.Context, cli *dockercli.CLI) (engine.Image, error) {
	return engine.NewImages(cli, Image, "secbox-test-init", time.Now).Resolve(ctx, Image)
}

func (w Where) image(t *testing.T, cli *dockercli.CLI) engine.Image {
	t.Helper()
	image, err := machines()
	if w.Environ != nil {
		image, err = resolve(t.Context(), cli)
	}
	if err != nil {
		t.Fatalf("%v; run `make setup`", err)
	}
	return image
}

// ImageOf returns Image on the machine's engine.
func ImageOf(t *testing.T) engine.Image {
	t.Helper()
	return Where{}.image(t, nil)
}

// Scaled is how often a test with random timing repeats: short in every run, long when
// SECBOX_SOAK=1 (`make soak`).
func Scaled(short, long int) int {
	if os.Getenv("SECBOX_SOAK") == "1" {
		return long
	}
	return short
}

// New makes a fixture on the machine's engine, as Where.New does.
func New(t *testing.T, mk Maker) *Fixture {
	t.Helper()
	return Where{}.New(t, mk)
}

// New makes a fixture whose engine is closed, and whose containers are checked to be gone, at the
// end of the test.
func (w Where) New(t *testing.T, mk Maker) *Fixture {
	t.Helper()
	cli := w.cli(t)
	image := w.image(t, cli)
	f := &Fixture{t: t, where: w, CLI: cli, Node: uuid.NewString(), Image: image, Dir: projectDir(t), User: "1000:1000"}
	if uid := os.Geteuid(); uid != 0 && uid != 1000 {
		t.Fatal("the tests must run as root or uid 1000, like core-api does by default")
	}
	seccomp, err := engine.WriteSeccomp(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	f.Engine = mk(t, engine.Config{
		Driver:   engine.NewDocker(cli, engine.Options{ReadOnlyRootfs: true, Seccomp: seccomp}),
		Identity: engine.Identity{Installation: "test", Node: f.Node},
		NewID:    func() string { return uuid.Must(uuid.NewV7()).String() },
		Log:      slog.New(slog.NewTextHandler(t.Output(), nil)),
	})
	t.Cleanup(func() {
		f.closeTwice()
		left, err := cli.Containers(context.Background(), engine.LabelNode+"="+f.Node)
		if err != nil || len(left) > 0 {
			t.Errorf("containers left behind: %v %v", left, err)
		}
	})
	return f
}

// projectDir makes the directories of a project.
func projectDir(t *testing.T) string {
	t.Helper()
	root := t.TempDir()
	for _, name := range []string{"inputs", "work", "artifacts"} {
		dir := filepath.Join(root, name)
		if err := os.Mkdir(dir, 0o755); err != nil {
			t.Fatal(err)
		}
		if os.Geteuid() == 0 {
			if err := os.Chown(dir, 1000, 1000); err != nil {
				t.Fatal(err)
			}
		}
	}
	return root
}

func (f *Fixture) closeTwice() {
	if err := f.Engine.Close(); err != nil {
		f.t.Error(err)
	}
	if err := f.Engine.Close(); err != nil {
		f.t.Errorf("closing twice: %v", err)
	}
}

func (f *Fixture) mounts() []engine.Mount {
	return []engine.Mount{
		{Source: filepath.Join(f.Dir, "inputs"), Target: "/workspace/inputs", ReadOnly: true},
		{Source: filepath.Join(f.Dir, "work"), Target: "/workspace/work"},
		{Source: filepath.Join(f.Dir, "artifacts"), Target: "/workspace/artifacts"},
	}
}

// Spec is an ordinary container with all three mounts.
func (f *Fixture) Spec() engine.Spec {
	spec := SpecOf(f.Image)
	spec.ProjectID, spec.Runtime, spec.Access = "enginetest", f.where.Runtime, "all"
	spec.Prepare = func(context.Context, string) (engine.MountSet, error) { return MountSet(f.mounts()...), nil }
	return spec
}

// SpecOf is an ordinary container without a project.
func SpecOf(image engine.Image) engine.Spec {
	return engine.Spec{
		ImageRef: image.Ref, ImageID: image.ID, InitVolume: image.InitVolume, Volumes: image.Volumes, User: "1000:1000",
		Limits: Limits(policy.ContainerLimits{MemoryMB: 128, CPUCores: 1, PIDs: 64, TmpMB: 32, ShmMB: 128}),
	}
}

// Limits returns the limits with the policy's default for each that is zero.
func Limits(l policy.ContainerLimits) policy.ContainerLimits {
	limits, defaults := reflect.ValueOf(&l).Elem(), reflect.ValueOf(policy.Defaults().ContainerLimits)
	for i := range limits.NumField() {
		if limits.Field(i).IsZero() {
			limits.Field(i).Set(defaults.Field(i))
		}
	}
	return l
}

// MountSet is these mounts, as Prepare returns them.
func MountSet(mounts ...engine.Mount) engine.MountSet {
	return engine.MountSet{Mounts: mounts, Open: func() (open []*os.File, err error) {
		for _, m := range mounts {
			f, err := os.Open(m.Source)
			if err != nil {
				return nil, err
			}
			open = append(open, f)
		}
		return open, nil
	}}
}

// Shell is a job that runs a script with generous limits.
func Shell(script string) engine.Job {
	return engine.Job{
		Argv: []string{"bash", "-lc", script}, Cwd: "/workspace/work", Timeout: 60 * time.Second,
		MaxStdout: 1 << 20, MaxStderr: 1 << 20,
	}
}

// Ran is how a job ended and what it printed.
type Ran struct {
	engine.Exit
	Stdout, Stderr string
	Err            error
}

// Run acquires a slot and runs one job in it.
func (f *Fixture) Run(ctx context.Context, job engine.Job) Ran {
	f.t.Helper()
	return f.RunSpec(ctx, f.Spec(), job)
}

// runToDeadline runs a script that prints when it has started, with longer and longer timeouts
// until it does so in time: a busy machine may need long to start a shell.
func (f *Fixture) runToDeadline(script string) Ran {
	f.t.Helper()
	for timeout := 400 * time.Millisecond; ; timeout *= 2 {
		job := Shell(script)
		job.Timeout = timeout
		if ran := f.Run(f.t.Context(), job); ran.Err != nil || !ran.TimedOut || ran.Stdout != "" || timeout > time.Minute {
			return ran
		}
	}
}

// RunSpec is Run with another spec.
func (f *Fixture) RunSpec(ctx context.Context, spec engine.Spec, job engine.Job) Ran {
	f.t.Helper()
	slot, err := f.Engine.Acquire(ctx, spec)
	if err != nil {
		f.t.Fatalf("acquire: %v", err)
	}
	var stdout, stderr bytes.Buffer
	exit, err := slot.Run(ctx, job, &stdout, &stderr)
	return Ran{Exit: exit, Stdout: stdout.String(), Stderr: stderr.String(), Err: err}
}

// Docker runs the docker CLI on the fixture's engine.
func (f *Fixture) Docker(args ...string) string {
	f.t.Helper()
	return f.where.docker(f.t, args...)
}

// Docker runs the docker CLI on the machine's engine.
func Docker(t *testing.T, args ...string) string {
	t.Helper()
	return Where{}.docker(t, args...)
}

func (w Where) docker(t *testing.T, args ...string) string {
	t.Helper()
	run := func() ([]byte, error) {
		cmd := exec.Command("docker", args...)
		cmd.Env = w.environ()
		return cmd.CombinedOutput()
	}
	out, err := run()
	// runc gives up soon where the machine is busy
	for tries := 0; err != nil && tries < 20 && strings.Contains(string(out), "unable to freeze"); tries++ {
		out, err = run()
	}
	if err != nil {
		t.Fatalf("docker %s: %v\n%s", strings.Join(args, " "), err, out)
	}
	return strings.TrimSpace(string(out))
}

// Signal is a writer that closes Seen when its text was written.
type Signal struct {
	bytes.Buffer
	Text string
	Seen chan struct{}
	done bool
}

// NewSignal makes a Signal for text.
func NewSignal(text string) *Signal { return &Signal{Text: text, Seen: make(chan struct{})} }

func (s *Signal) Write(p []byte) (int, error) {
	n, err := s.Buffer.Write(p)
	if !s.done && strings.Contains(s.String(), s.Text) {
		s.done = true
		close(s.Seen)
	}
	return n, err
}
