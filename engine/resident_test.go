package engine_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"secbox/engine"
	"secbox/engine/enginetest"
	"secbox/fault"
	"secbox/policy"
)

// resident starts a container that serves many commands, and stops it at the end.
func resident(t *testing.T) (*engine.Resident, *engine.Cold, *enginetest.Fixture) {
	t.Helper()
	var cold *engine.Cold
	f := enginetest.New(t, func(_ *testing.T, cfg engine.Config) engine.Engine {
		cold = engine.NewCold(cfg)
		return cold
	})
	r, err := cold.StartResident(t.Context(), engine.ResidentSpec{
		ProjectID: "resident", ImageRef: f.Image.Ref, ImageID: f.Image.ID, InitVolume: f.Image.InitVolume, User: f.User,
		Limits:   enginetest.Limits(policy.ContainerLimits{MemoryMB: 256, CPUCores: 2, PIDs: 128, TmpMB: 32, ShmMB: 64}),
		Mounts:   []engine.Mount{{Source: filepath.Join(f.Dir, "work"), Target: "/workspace"}},
		PathTail: "/workspace/bin",
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(r.Stop)
	return r, cold, f
}

func script(s string) engine.Job {
	return engine.Job{Argv: []string{"bash", "-c", s}, Cwd: "/workspace", Timeout: time.Minute, MaxStdout: 1 << 20, MaxStderr: 1 << 20}
}

func output(t *testing.T, r *engine.Resident, job engine.Job) (engine.Exit, string, string) {
	t.Helper()
	var stdout, stderr bytes.Buffer
	exit, err := r.Run(t.Context(), job, &stdout, &stderr)
	if err != nil {
		t.Fatalf("%v", err)
	}
	return exit, stdout.String(), stderr.String()
}

func TestResident(t *testing.T) {
	t.Parallel()
	r, cold, f := resident(t)

	t.Run("one after another", func(t *testing.T) {
		long := script("cat")
		stdin := strings.Repeat("0123456789\x00\xff", 100_000)
		long.Stdin, long.MaxStdout = strings.NewReader(stdin), 2<<20
		if exit, out, _ := output(t, r, long); exit.Code != 0 || out != stdin {
			t.Errorf("%+v, %d bytes", exit, len(out))
		}
		if exit, out, errs := output(t, r, script("echo out; echo err >&2; exit 3")); exit.Code != 3 || out != "out\n" || errs != "err\n" {
			t.Errorf("%+v %q %q", exit, out, errs)
		}
		none := script("")
		none.Argv = []string{"no-such-program"}
		if exit, _, _ := output(t, r, none); exit.Code != 127 || exit.StartError == "" {
			t.Errorf("%+v", exit)
		}
		nowhere := script("")
		nowhere.Cwd = "/workspace/none"
		if exit, _, _ := output(t, r, nowhere); !exit.NoDir {
			t.Errorf("%+v", exit)
		}
		slow := script("setsid -f sleep 1000; sleep 1000")
		slow.Timeout = 200 * time.Millisecond
		if exit, _, _ := output(t, r, slow); !exit.TimedOut {
			t.Errorf("%+v", exit)
		}
		if _, out, _ := output(t, r, script("echo $PATH")); !strings.HasSuffix(out, ":/workspace/bin\n") {
			t.Errorf("PATH is %q", out)
		}
	})
	t.Run("it is no leftover", func(t *testing.T) {
		if n, err := cold.Sweep(t.Context()); n != 0 || err != nil {
			t.Errorf("%d were removed, %v", n, err)
		}
		if exit, _, _ := output(t, r, script("true")); exit.Code != 0 {
			t.Errorf("%+v", exit)
		}
	})
	t.Run("64 at once, and no more", func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		var all sync.WaitGroup
		up := make(chan struct{}, engine.MaxResidentCommands)
		for i := range engine.MaxResidentCommands {
			all.Go(func() {
				seen := enginetest.NewSignal("up")
				go func() {
					<-seen.Seen
					up <- struct{}{}
				}()
				if exit, err := r.Run(ctx, script(fmt.Sprintf("echo up; read x; echo %d", i)+"; sleep 1000"), seen, io.Discard); err != nil || !exit.Killed {
					t.Errorf("%+v %v", exit, err)
				}
			})
		}
		for range engine.MaxResidentCommands {
			<-up
		}
		if _, err := r.Run(t.Context(), script("true"), io.Discard, io.Discard); !fault.Is(err, fault.SandboxBusy) {
			t.Errorf("one too many: %v", err)
		}
		cancel()
		all.Wait()
	})
	t.Run("a slow reader slows only itself", func(t *testing.T) {
		hold := &held{begun: make(chan struct{}), release: make(chan struct{})}
		over := make(chan engine.Exit, 1)
		go func() {
			job := script("head -c 1000000 /dev/zero")
			exit, err := r.Run(t.Context(), job, hold, io.Discard)
			if err != nil {
				t.Error(err)
			}
			over <- exit
		}()
		<-hold.begun
		if exit, out, _ := output(t, r, script("head -c 1000000 /dev/zero")); exit.Code != 0 || len(out) != 1_000_000 {
			t.Errorf("%+v, %d bytes", exit, len(out))
		}
		select {
		case exit := <-over:
			t.Errorf("it ended before its output was read: %+v", exit)
		default:
		}
		close(hold.release)
		if exit := <-over; exit.Code != 0 || hold.n != 1_000_000 {
			t.Errorf("%+v, %d bytes", exit, hold.n)
		}
	})
	t.Run("a worker is killed by a command", func(t *testing.T) {
		// The parent of a command is its worker. All processes must die with it.
		exit, _, _ := output(t, r, script("setsid -f sleep 31337; kill -9 $PPID; sleep 1000"))
		if !exit.Outside || exit.Signal != 9 || exit.Killed || exit.TimedOut {
			t.Errorf("%+v", exit)
		}
		if _, out,
			_ := output(t, r,
			script("pgrep -f 'sleep 3133[7]' || cat /proc/[0-9]*/cmdline | tr '\\0' ' ' | grep 'sleep 3133[7]'; echo next")); out != "next\n" {
			t.Errorf("left: %q", out)
		}
	})
	t.Run("a worker is stopped by a command", func(t *testing.T) {
		job := script("kill -STOP $PPID; echo stopped; sleep 1000")
		job.Timeout = 100 * time.Millisecond
		if exit, _, _ := output(t, r, job); !exit.TimedOut {
			t.Errorf("%+v", exit)
		}
	})
	t.Run("a fork bomb beside another", func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		up := enginetest.NewSignal("up")
		over := make(chan error, 1)
		go func() {
			exit, err := r.Run(ctx, script("echo up; while [ ! -e go ]; do read -t 0.05 x <> <(:); done; echo fine"), up, io.Discard)
			if err == nil && (exit.Code != 0 || !strings.Contains(up.String(), "fine")) {
				err = fmt.Errorf("%+v %q", exit, up.String())
			}
			over <- err
		}()
		<-up.Seen
		bomb := script("b() { b | b & }; b; sleep 1000")
		bomb.Timeout = 2 * time.Second
		if exit, _, _ := output(t, r, bomb); !exit.TimedOut && exit.Code == 0 {
			t.Errorf("%+v", exit)
		}
		if exit, _, errs := output(t, r, script("touch go")); exit.Code != 0 {
			t.Fatalf("%+v %s", exit, errs)
		}
		if err := <-over; err != nil {
			t.Error(err)
		}
	})
	t.Run("out of memory", func(t *testing.T) {
		exit, _, _ := output(t, r, script("exec python3 -c 'x=bytearray(1<<30)'"))
		if exit.Signal != 9 || exit.OOMKills == 0 {
			t.Errorf("%+v", exit)
		}
	})
	t.Run("killed from outside", func(t *testing.T) {
		up := enginetest.NewSignal("up")
		over := make(chan error, 1)
		go func() {
			_, err := r.Run(t.Context(), script("echo up; sleep 1000"), up, io.Discard)
			over <- err
		}()
		<-up.Seen
		f.Docker("kill", r.Name())
		var lost *engine.RunError
		if err := <-over; !errors.As(err, &lost) || !lost.Started || !lost.Dead {
			t.Errorf("%+v", err)
		}
		<-r.Done()
		if _, err := r.Run(t.Context(), script("true"), io.Discard, io.Discard); err == nil {
			t.Error("a dead container serves")
		}
	})
}

// TestPausedResident: a container that does not answer is removed, and the error says so.
func TestPausedResident(t *testing.T) {
	t.Parallel()
	r, _, f := resident(t)
	up := enginetest.NewSignal("up")
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	over := make(chan error, 1)
	go func() {
		_, err := r.Run(ctx, script("echo up; sleep 1000"), up, io.Discard)
		over <- err
	}()
	<-up.Seen
	f.Docker("pause", r.Name())
	cancel()
	var lost *engine.RunError
	if err := <-over; !errors.As(err, &lost) || !lost.Dead || !strings.Contains(lost.Error(), "did not answer in time") {
		t.Errorf("%+v", err)
	}
}

// held is a writer that blocks.
type held struct {
	begun, release chan struct{}
	once           sync.Once
	n              int
}

func (h *held) Write(p []byte) (int, error) {
	h.once.Do(func() { close(h.begun) })
	<-h.release
	h.n += len(p)
	return len(p), nil
}

// TestPorts: connections to servers of commands, and to nothing else.
func TestPorts(t *testing.T) {
	t.Parallel()
	r, _, _ := resident(t)
	served := make(chan error, 1)
	up := enginetest.NewSignal("up")
	ctx, end := context.WithCancel(t.Context())
	server := script(`exec python3 -u -c '
import socket, threading
def serve(port):
    s = socket.socket()
    s.bind(("127.0.0.1", port))
    s.listen(128)
    def answer(c):
        while True:
            b = c.recv(65536)
            if not b: break
            c.sendall(b)
        c.close()
    def accept():
        while True: threading.Thread(target=answer, args=(s.accept()[0],), daemon=True).start()
    threading.Thread(target=accept).start()
serve(8000)
serve(8001)
print("up")
'`)
	go func() {
		_, err := r.Run(ctx, server, up, io.Discard)
		served <- err
	}()
	opened := make(chan engine.Ports, 1)
	portsCtx, endPorts := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- r.ServePorts(portsCtx, func(p engine.Ports) { opened <- p }) }()
	ports := <-opened
	select {
	case <-up.Seen:
	case err := <-served:
		t.Fatalf("the server has ended: %v", err)
	}
	var all sync.WaitGroup
	for i := range 64 {
		all.Go(func() {
			conn, err := ports.Dial(t.Context(), uint16(8000+i%2))
			if err != nil {
				t.Error(err)
				return
			}
			defer conn.Close()
			content := bytes.Repeat([]byte{byte(i)}, 300_000)
			go func() {
				_, _ = conn.Write(content)
			}()
			if got := make([]byte, len(content)); true {
				if _, err := io.ReadFull(conn, got); err != nil || !bytes.Equal(got, content) {
					t.Errorf("%d: %v", i, err)
				}
			}
		})
	}
	all.Wait()
	if _, err := ports.Dial(t.Context(), 9000); !fault.Is(err, fault.UpstreamFailed) {
		t.Error(err)
	}
	if exit, _, _ := output(t, r, script("kill -9 -1; true")); exit.Code != 0 && exit.Signal == 0 {
		t.Errorf("%+v", exit)
	}
	if _, err := ports.Dial(t.Context(), 8000); !fault.Is(err, fault.UpstreamFailed) { // no process is needed to say so
		t.Error(err)
	}
	endPorts()
	if err := <-ended; err != nil {
		t.Error(err)
	}
	if _, err := ports.Dial(t.Context(), 8000); err == nil {
		t.Error("a connection was made after the end")
	}
	end()
	<-served
}
