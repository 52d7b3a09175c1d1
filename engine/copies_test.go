package engine_test

import (
	"bytes"
	"context"
	"errors"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"

	"secbox/engine"
	"secbox/engine/dockercli"
	"secbox/engine/dockercli/dockerclitest"
	"secbox/engine/enginetest"
	"secbox/fault"
)

// copying is a driver whose containers have an empty /workspace of their own, as a pod has.
type copying struct {
	*engine.Docker
	cli *dockercli.CLI
}

func (d copying) Args(c engine.Container) []string {
	args := d.Docker.Args(c)
	return slices.Insert(args, slices.Index(args, "--entrypoint"), "--tmpfs", "/workspace:rw,exec,uid=1000,gid=1000,size=64m")
}

func (d copying) Start(c engine.Container) (engine.Process, error) {
	p, err := d.cli.Start(d.Args(c)...)
	if err != nil {
		return nil, err
	}
	return p, nil
}

// withCopies lets the engine of a configuration copy.
func withCopies(t *testing.T, cfg engine.Config) engine.Config {
	t.Helper()
	cfg.Driver = copying{cfg.Driver.(*engine.Docker), enginetest.CLI(t)}
	cfg.Copy = &engine.Copying{MaxBytes: 10 << 20, MaxEntries: 1000}
	return cfg
}

// mountsOnly are the cases of the suite about mounts, and about containers that stay.
var mountsOnly = []string{"HardeningFromInside", "HardeningAsDocker", "ReadOnlyAndMissingMounts", "KeptContainer"}

// TestCopiedFiles runs the suite in containers without mounts.
func TestCopiedFiles(t *testing.T) {
	t.Parallel()
	where := enginetest.Where{Except: slices.Concat(mountsOnly, sameForWaiting)}
	where.Run(t, func(t *testing.T, cfg engine.Config) engine.Engine { return engine.NewCold(withCopies(t, cfg)) })
}

// TestCopiedFilesPool runs the suite in such containers that wait for any project.
func TestCopiedFilesPool(t *testing.T) {
	t.Parallel()
	where := enginetest.Where{Except: slices.Concat(mountsOnly, sameForWaiting)}
	where.Run(t, func(t *testing.T, cfg engine.Config) engine.Engine { return primed{newCopyingPool(t, cfg), t} })
}

func newCopyingPool(t *testing.T, cfg engine.Config) *engine.Pool {
	t.Helper()
	image := enginetest.ImageOf(t)
	p := newPool(t, withCopies(t, cfg), func(p *engine.PoolConfig) {
		p.Ready = 1
		p.Default = func(context.Context) (engine.Spec, error) { return enginetest.SpecOf(image), nil }
	})
	if s := p.Stats(); !s.Shared || s.NotShared != "" {
		t.Errorf("%+v", s)
	}
	return p
}

// copied is a project whose execs have copies of its directories.
type copied struct {
	*enginetest.Fixture
	t *testing.T
}

func newCopied(t *testing.T) copied {
	t.Helper()
	f := enginetest.New(t, func(t *testing.T, cfg engine.Config) engine.Engine { return engine.NewCold(withCopies(t, cfg)) })
	return copied{f, t}
}

func (c copied) put(path, content string) {
	c.t.Helper()
	must(c.t, os.WriteFile(filepath.Join(c.Dir, path), []byte(content), 0o644))
}

// has checks the content of a file of the project; "" means that there is none.
func (c copied) has(path, content string) {
	c.t.Helper()
	got, err := os.ReadFile(filepath.Join(c.Dir, path))
	if content == "" && !os.IsNotExist(err) || string(got) != content {
		c.t.Errorf("%s: %q %v, want %q", path, got, err, content)
	}
}

// TestCopiedExecs: whatever ends a job, what it has changed is in the project when Run returns.
func TestCopiedExecs(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		script string
		change func(*engine.Job)
		cancel bool
		want   engine.Exit
		lost   fault.Code
		note   string
		work   string // content of work/file then
	}{
		"exit":            {script: "cat /workspace/inputs/in; echo new >file; exit 3", want: engine.Exit{Code: 3}, work: "new\n"},
		"nothing changed": {script: "cat /workspace/inputs/in", work: "old"},
		"removed":         {script: "rm file"},
		"deadline": {
			script: "echo new >file; echo started; sleep 100", change: func(j *engine.Job) { j.Timeout = 2 * time.Second },
			want: engine.Exit{Code: 137, Signal: 9, TimedOut: true}, work: "new\n",
		},
		"canceled": {
			script: "echo new >file; echo started; sleep 100", cancel: true, want: engine.Exit{Code: 137, Signal: 9, Killed: true}, work: "new\n",
		},
		"a process stays":  {script: "(trap '' HUP; while :; do echo x; done >>/workspace/work/late) & echo new >file", work: "new\n"},
		"no program":       {change: func(j *engine.Job) { j.Argv = []string{"no-such-command"} }, want: engine.Exit{Code: 127}, work: "old"},
		"too many bytes":   {script: "head -c 20000000 /dev/urandom >big", lost: fault.TreeTooLarge, work: "old"},
		"too many files":   {script: "for i in $(seq 2000); do : >$i; done", lost: fault.TreeTooLarge, work: "old"},
		"a sparse file":    {script: "truncate -s 100G /workspace/artifacts/sparse; echo new >file", work: "new\n"},
		"a FIFO":           {script: "mkfifo fifo", note: "1 files of the job", work: "old"},
		"work is a link":   {script: "cd /; rm -r /workspace/work; ln -s /etc /workspace/work", lost: fault.Internal, work: "old"},
		"the disk is full": {script: "cat /dev/zero >full; rm full; echo new >file", work: "new\n"},
		"read-only directory": {
			script: "! echo x >/workspace/inputs/in && chmod -R u+w /workspace/inputs && echo x >/workspace/inputs/in", work: "old",
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := newCopied(t)
			f.put("inputs/in", "input\n")
			f.put("work/file", "old")
			must(t, os.Chown(filepath.Join(f.Dir, "work/file"), 1000, 1000))
			job := enginetest.Shell(c.script)
			if c.change != nil {
				c.change(&job)
			}
			slot, err := f.Engine.Acquire(t.Context(), f.Spec())
			must(t, err)
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			out := enginetest.NewSignal("started")
			if c.cancel {
				go func() {
					<-out.Seen
					cancel()
				}()
			}
			exit, err := slot.Run(ctx, job, out, io.Discard)
			if err != nil || exit.Code != c.want.Code || exit.Signal != c.want.Signal || exit.TimedOut != c.want.TimedOut ||
				exit.Killed != c.want.Killed || !strings.Contains(exit.Note, c.note) || (c.note == "") != (exit.Note == "") {
				t.Errorf("%+v %v, want %+v", exit, err, c.want)
			}
			if fault.CodeOf(exit.Lost) != c.lost {
				t.Errorf("lost: %v, want %q", exit.Lost, c.lost)
			}
			f.has("work/file", c.work)
			f.has("inputs/in", "input\n")
			if !slot.Attached() || len(slot.Mounts()) != 3 || strings.Contains(strings.Join(slot.Args(), " "), f.Dir) {
				t.Errorf("attached %v, %v, %q", slot.Attached(), slot.Mounts(), slot.Args())
			}
		})
	}
}

// TestTooLargeProject: a project beyond the bounds is not copied, the exec does not run, and the
// error names the remedy.
func TestTooLargeProject(t *testing.T) {
	t.Parallel()
	for name, mk := range map[string]func(*testing.T) *enginetest.Fixture{
		"cold": func(t *testing.T) *enginetest.Fixture { return newCopied(t).Fixture },
		"warm": func(t *testing.T) *enginetest.Fixture {
			return enginetest.New(t, func(t *testing.T, cfg engine.Config) engine.Engine { return primed{newCopyingPool(t, cfg), t} })
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := mk(t)
			copied{f, t}.put("work/big", strings.Repeat("x", 11<<20))
			ran := f.Run(t.Context(), enginetest.Shell("echo ran"))
			var not *engine.RunError
			if !errors.As(ran.Err, &not) || not.Started || !not.Dead || !fault.Is(ran.Err, fault.TreeTooLarge) ||
				!strings.Contains(ran.Err.Error(), "volume_claim") {
				t.Errorf("%+v", ran)
			}
		})
	}
}

// TestProjectIsReplacedWhileCopied: what comes back goes into the directories that were sent, also
// when others have their names.
func TestProjectIsReplacedWhileCopied(t *testing.T) {
	t.Parallel()
	f := newCopied(t)
	f.put("work/file", "old")
	slot, err := f.Engine.Acquire(t.Context(), f.Spec())
	must(t, err)
	began, release := enginetest.NewSignal("began"), make(chan struct{})
	job := enginetest.Shell("echo began; read x; echo new >new")
	r, w := io.Pipe()
	job.Stdin = r
	go func() {
		<-began.Seen
		must(t, os.Rename(filepath.Join(f.Dir, "work"), filepath.Join(f.Dir, "moved")))
		must(t, os.Symlink("/tmp", filepath.Join(f.Dir, "work")))
		close(release)
		_, _ = w.Write([]byte("go\n"))
		w.Close()
	}()
	exit, err := slot.Run(t.Context(), job, began, io.Discard)
	if err != nil || exit.Code != 0 || exit.Lost != nil {
		t.Fatalf("%+v %v", exit, err)
	}
	<-release
	f.has("moved/new", "new\n")
	if _, err := os.Lstat("/tmp/new"); err == nil {
		t.Error("a file was written through a link")
	}
}

// TestKilledWhileFilesAreSent: an exec that is killed while its container does not take its files
// has not started.
func TestKilledWhileFilesAreSent(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	must(t, os.WriteFile(filepath.Join(dir, "big"), bytes.Repeat([]byte("x"), 10<<20), 0o600))
	cli := dockerclitest.Script(t, "[ \"$1\" = run ] || exit 0\nprintf 'h\\0\\0\\0\\023secbox-init/2+files'\nexec sleep 1000")
	cold := engine.NewCold(engine.Config{
		Driver: engine.NewDocker(cli, engine.Options{}), NewID: uuid.NewString, Log: slog.New(slog.DiscardHandler),
		Copy: &engine.Copying{MaxBytes: 1 << 30, MaxEntries: 10},
	})
	ctx, cancel := context.WithCancelCause(t.Context())
	staging := func() (*os.Root, error) { // is opened after the files, and before they are sent
		cancel(errors.New("canceled by a test"))
		return os.OpenRoot(t.TempDir())
	}
	slot, err := cold.Acquire(t.Context(), engine.Spec{Prepare: func(context.Context, string) (engine.MountSet, error) {
		set := enginetest.MountSet(engine.Mount{Source: dir, Target: "/workspace/work"})
		set.Staging = staging
		return set, nil
	}})
	must(t, err)
	_, err = slot.Run(ctx, enginetest.Shell("true"), io.Discard, io.Discard)
	var not *engine.RunError
	if !errors.As(err, &not) || not.Started || !not.Dead || !strings.Contains(err.Error(), "killed before it started") {
		t.Error(err)
	}
	must(t, cold.Close())
}

// TestKilledWhileChangesCome: when an exec is killed in the middle of the transfer, its exit is
// known, and the reason why something is missing.
func TestKilledWhileChangesCome(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	const frames = `f\0\0\0\0` + `f\0\0\0\006E\0\0\0\002{` + `o\0\0\0\001x`
	script := "[ \"$1\" = run ] || exit 0\nprintf 'h\\0\\0\\0\\023secbox-init/2+files" + frames + "'\n" +
		"until [ -e " + dir + "/canceled ]; do :; done\nprintf 'x\\0\\0\\0\\012{\"code\":0}'\nexec cat >/dev/null"
	cold := engine.NewCold(engine.Config{
		Driver: engine.NewDocker(dockerclitest.Script(t, script), engine.Options{}), NewID: uuid.NewString,
		Log: slog.New(slog.DiscardHandler), Copy: &engine.Copying{MaxBytes: 1 << 30, MaxEntries: 10},
	})
	slot, err := cold.Acquire(t.Context(), engine.Spec{Prepare: func(context.Context, string) (engine.MountSet, error) {
		return engine.MountSet{}, nil
	}})
	must(t, err)
	ctx, cancel := context.WithCancelCause(t.Context())
	job, seen := enginetest.Shell("true"), enginetest.NewSignal("x") // comes after the first chunks
	go func() {
		<-seen.Seen
		cancel(errors.New("it filled the disk"))
		must(t, os.WriteFile(filepath.Join(dir, "canceled"), nil, 0o600))
	}()
	exit, err := slot.Run(ctx, job, seen, io.Discard)
	if err != nil || exit.Lost == nil || !strings.Contains(exit.Lost.Error(), "filled the disk") {
		t.Errorf("%+v %v", exit, err)
	}
	must(t, cold.Close())
}

// TestOlderInitTakesNoFiles: the error of an image whose init is too old says so.
func TestOlderInitTakesNoFiles(t *testing.T) {
	t.Parallel()
	cli := dockerclitest.Script(t, "[ \"$1\" != run ] || printf 'h\\0\\0\\0\\015secbox-init/2'\n[ \"$1\" != run ] || exec cat")
	cold := engine.NewCold(engine.Config{
		Driver: engine.NewDocker(cli, engine.Options{}), NewID: uuid.NewString, Log: slog.New(slog.DiscardHandler),
		Copy: &engine.Copying{MaxBytes: 1, MaxEntries: 1},
	})
	slot, err := cold.Acquire(t.Context(), engine.Spec{Prepare: func(context.Context, string) (engine.MountSet, error) {
		return engine.MountSet{}, nil
	}})
	must(t, err)
	_, err = slot.Run(t.Context(), enginetest.Shell("true"), io.Discard, io.Discard)
	if err == nil || !strings.Contains(err.Error(), "rebuild the image") {
		t.Error(err)
	}
	must(t, cold.Close())
}

// TestHostileChanges: an init that does not keep to the protocol loses its container, or what it
// sends; Run returns.
func TestHostileChanges(t *testing.T) {
	t.Parallel()
	const hello, begin, exit = `h\0\0\0\023secbox-init/2+files`, `f\0\0\0\0`, `x\0\0\0\012{"code":0}`
	for name, c := range map[string]struct {
		frames string
		lost   fault.Code
		broken bool // Run has an error
	}{
		"whole":         {begin + `f\0\0\0\007E\0\0\0\002{}` + exit, "", false},
		"none":          {exit, fault.Internal, false},
		"empty":         {begin + exit, fault.Internal, false},
		"garbage":       {begin + `f\0\0\0\004haha` + exit, fault.Internal, false},
		"more":          {begin + `f\0\0\0\007E\0\0\0\002{}` + `f\0\0\0\004more` + exit, "", false},
		"no beginning":  {`f\0\0\0\004haha` + exit, "", true},
		"two":           {begin + begin + exit, "", true},
		"no exit":       {begin + `f\0\0\0\007E\0\0\0\002{}`, "", true},
		"before hello":  {"", "", true},
		"too long":      {begin + `f\0\1\0\1`, "", true},
		"other output":  {begin + `o\0\0\0\001x` + `f\0\0\0\007E\0\0\0\002{}` + exit, "", false},
		"start refused": {`x\0\0\0\045{"code":126,"start_error":"no files"}`, "", false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			frames := hello + c.frames
			if c.frames == "" {
				frames = begin + hello
			}
			script := "[ \"$1\" = run ] || exit 0\nprintf '" + frames + "'\n"
			if !c.broken {
				script += "exec cat >/dev/null"
			}
			cold := engine.NewCold(engine.Config{
				Driver: engine.NewDocker(dockerclitest.Script(t, script), engine.Options{}), NewID: uuid.NewString,
				Log: slog.New(slog.DiscardHandler), Copy: &engine.Copying{MaxBytes: 1 << 20, MaxEntries: 10},
			})
			slot, err := cold.Acquire(t.Context(), engine.Spec{Prepare: func(context.Context, string) (engine.MountSet, error) {
				return engine.MountSet{}, nil
			}})
			must(t, err)
			exit, err := slot.Run(t.Context(), enginetest.Shell("true"), io.Discard, io.Discard)
			if (err != nil) != c.broken || fault.CodeOf(exit.Lost) != c.lost {
				t.Errorf("%+v %v", exit, err)
			}
			must(t, cold.Close())
		})
	}
}

// TestNoCopiesForContainersThatStay: they are refused with the remedy.
func TestNoCopiesForContainersThatStay(t *testing.T) {
	t.Parallel()
	f := newCopied(t)
	spec := f.Spec()
	spec.Serve = true
	if slot, err := f.Engine.Acquire(t.Context(), spec); !fault.Is(err, fault.Unsupported) {
		t.Error(slot, err)
	}
	if _, err := f.Engine.(*engine.Cold).StartResident(t.Context(), engine.ResidentSpec{ImageID: f.Image.ID}); !fault.Is(err, fault.Unsupported) {
		t.Error(err)
	}
}

// TestCopiesOfAPool: an exec whose project is refused leaves the container to the next one, which
// sees nothing of it.
func TestCopiesOfAPool(t *testing.T) {
	t.Parallel()
	f := enginetest.New(t, func(t *testing.T, cfg engine.Config) engine.Engine { return newCopyingPool(t, cfg) })
	pool := f.Engine.(*engine.Pool)
	eventually(t, "a waiting container", func() bool { return pool.Stats().Waiting == 1 })
	broken := f.Spec()
	broken.Prepare = func(context.Context, string) (engine.MountSet, error) {
		return engine.MountSet{}, fault.New(fault.ProjectDamaged, "its work is gone")
	}
	if err := enginetest.Refusal(t.Context(), pool, broken); !fault.Is(err, fault.ProjectDamaged) {
		t.Error(err)
	}
	copied{f, t}.put("work/file", "content")
	slot, err := pool.Acquire(t.Context(), f.Spec())
	must(t, err)
	var out bytes.Buffer
	exit, err := slot.Run(t.Context(), enginetest.Shell("cat file; echo new >new"), &out, io.Discard)
	if err != nil || exit.Code != 0 || out.String() != "content" || !slot.Warm() || pool.Stats().Hits != 1 {
		t.Errorf("%+v %v %q, warm %v, %+v", exit, err, &out, slot.Warm(), pool.Stats())
	}
	copied{f, t}.has("work/new", "new\n")
}
