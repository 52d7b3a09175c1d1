package kube_test

import (
	"errors"
	"io"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"secbox/engine"
	"secbox/engine/enginetest"
	"secbox/engine/kube"
	"secbox/fault"
)

// onCluster is a driver of a cluster whose volume is the node's file system, so that the
// directories of a test are in it.
type onCluster struct{ *kube.Cluster }

func (d onCluster) Start(c engine.Container) (engine.Process, error) {
	return d.Cluster.Start(d.relative(c))
}

func (d onCluster) Args(c engine.Container) []string { return d.Cluster.Args(d.relative(c)) }

func (onCluster) relative(c engine.Container) engine.Container {
	c.Mounts = slices.Clone(c.Mounts)
	for i := range c.Mounts {
		c.Mounts[i].Source = strings.TrimPrefix(filepath.ToSlash(c.Mounts[i].Source), "/")
	}
	c.Spec.ImageID = ""
	return c
}

// TestSuite runs the engine's suite on pods that are containers of Docker.
func TestSuite(t *testing.T) {
	t.Parallel()
	where := enginetest.Where{Except: []string{
		"HardeningAsDocker", "CLIKilled", "NothingOfTheJobIsInTheCLI", "KeptContainer", "SystemCalls", "MissingImage", // see below
	}}
	where.Run(t, func(t *testing.T, cfg engine.Config) engine.Engine {
		cfg.Driver = onCluster{newFakeCluster(t).open()}
		return engine.NewCold(cfg)
	})
}

// TestNoSockets: the jobs of a pod have Unix sockets and no others, by any way to make one.
func TestNoSockets(t *testing.T) {
	t.Parallel()
	f := enginetest.New(t, func(t *testing.T, cfg engine.Config) engine.Engine {
		cfg.Driver = onCluster{newFakeCluster(t).open()}
		return engine.NewCold(cfg)
	})
	ran := f.Run(t.Context(), enginetest.Shell(`exec python3 -c '
import ctypes, errno, os, platform, socket, struct
libc = ctypes.CDLL(None, use_errno=True)
def call(*args):
    return "done" if libc.syscall(*args) >= 0 else errno.errorcode[ctypes.get_errno()]
families = [f for f in range(0, 46) if f != socket.AF_UNIX]
print({call({"x86_64": 41, "aarch64": 198}[platform.machine()], f, t, 0) for f in families for t in (1, 2, 3)})
print(call({"x86_64": 41, "aarch64": 198}[platform.machine()], ctypes.c_ulong(1 << 32 | 2), 1, 0))
print(call(425, 1, None))
if platform.machine() == "x86_64": print(call(0x40000000 + 41, 2, 1, 0))
else: print("ENOSYS")
def old(number, family): # as a 32-bit program: int 0x80
    libc.mmap.restype = ctypes.c_void_p
    page = libc.mmap(None, ctypes.c_size_t(4096), 7, 0x62, -1, ctypes.c_long(0))
    code = struct.pack("<BBIBIBIBBBB", 0x53, 0xb8, number, 0xbb, 1, 0xb9, page + 64, 0xcd, 0x80, 0x5b, 0xc3).ljust(64)
    ctypes.memmove(page, code + struct.pack("<III", family, 1, 0), 76)
    return ctypes.CFUNCTYPE(ctypes.c_int)(page)()
child = os.fork()
if child == 0: os._exit(platform.machine() == "x86_64" and old(102, 2) >= 0)
print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) <= 0)
a, b = socket.socketpair(); a.send(b"unix"); print(b.recv(9).decode())
s = socket.socket(socket.AF_UNIX); s.bind("/tmp/s"); print("bound")'`))
	const want = "{'EAFNOSUPPORT'}\nEAFNOSUPPORT\nENOSYS\nENOSYS\nTrue\nunix\nbound\n"
	if ran.Err != nil || ran.Code != 0 || ran.Stdout != want {
		t.Errorf("%+v, want %q", ran, want)
	}
}

// TestStays: a pod that stays runs many commands, and is gone after its end.
func TestStays(t *testing.T) {
	t.Parallel()
	f := enginetest.New(t, func(t *testing.T, cfg engine.Config) engine.Engine {
		cfg.Driver = onCluster{newFakeCluster(t).open()}
		return engine.NewCold(cfg)
	})
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
	for _, step := range []struct{ script, want string }{
		{"echo one > /workspace/work/kept; echo two > /tmp/kept; sleep 1000 > /dev/null 2>&1 &", ""},
		{"cat /workspace/work/kept /tmp/kept; pgrep sleep || echo none", "one\ntwo\nnone\n"},
	} {
		var stdout strings.Builder
		if exit, err := r.Run(t.Context(), enginetest.Shell(step.script), &stdout, &stdout); err != nil || exit.Code != 0 || stdout.String() != step.want {
			t.Errorf("%+v %v %q", exit, err, stdout.String())
		}
	}
	r.Stop()
}

// TestRefusals: a pod that does not start says why, in the cluster's words, and leaves nothing.
func TestRefusals(t *testing.T) {
	t.Parallel()
	waiting := func(reason, message string) func(*corev1.Pod) {
		return func(p *corev1.Pod) {
			p.Status.Phase = corev1.PodPending
			p.Status.ContainerStatuses[0].State = corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: reason, Message: message}}
		}
	}
	for name, c := range map[string]struct {
		edit func(*corev1.Pod)
		code fault.Code
		says string
	}{
		"no image":       {waiting("ErrImageNeverPull", "not present"), fault.ImageMissing, "not present"},
		"no such volume": {waiting("CreateContainerConfigError", "no subpath"), fault.Internal, "no subpath"},
		"evicted": {func(p *corev1.Pod) {
			p.Status.Phase, p.Status.Reason, p.Status.Message = corev1.PodFailed, "Evicted", "disk pressure"
			p.Status.ContainerStatuses = nil
		}, fault.Internal, "Evicted disk pressure"},
		"another image": {func(p *corev1.Pod) {
			p.Status.ContainerStatuses[0].ImageID = "docker.io/library/x@sha256:" + strings.Repeat("1", 64)
		}, fault.ImageMissing, "has moved"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			cluster := newFakeCluster(t)
			cluster.edit = c.edit
			f := enginetest.New(t, func(t *testing.T, cfg engine.Config) engine.Engine {
				cfg.Driver = sameImage{onCluster{cluster.open()}}
				return engine.NewCold(cfg)
			})
			ran := f.Run(t.Context(), enginetest.Shell("touch /workspace/work/ran"))
			lost, ok := errors.AsType[*engine.RunError](ran.Err)
			if !ok || lost.Started || !fault.Is(ran.Err, c.code) || !strings.Contains(ran.Err.Error(), c.says) {
				t.Errorf("%v, want %s with %q", ran.Err, c.code, c.says)
			}
		})
	}
}

// sameImage keeps the id of the image.
type sameImage struct{ onCluster }

func (d sameImage) Start(c engine.Container) (engine.Process, error) {
	id := c.Spec.ImageID
	c = d.relative(c)
	c.Spec.ImageID = id
	return d.Cluster.Start(c)
}

// TestCopies runs the suite's cases about files on pods that mount nothing of a project.
func TestCopies(t *testing.T) {
	t.Parallel()
	where := enginetest.Where{Only: []string{"WritesIntoMounts", "ReportsExit", "CancelKills", "Deadline", "SlotsRunAtTheSameTime"}}
	where.Run(t, func(t *testing.T, cfg engine.Config) engine.Engine {
		cfg.Driver = onCluster{newFakeCluster(t).open()}
		cfg.Copy = &engine.Copying{MaxBytes: 1 << 20, MaxEntries: 1000}
		return engine.NewCold(cfg)
	})
}

// TestServerGoesAway: an API server that goes away while a job runs ends it, on the record as lost,
// and the pod is removed once it is back.
func TestServerGoesAway(t *testing.T) {
	t.Parallel()
	cluster := newFakeCluster(t)
	f := enginetest.New(t, func(t *testing.T, cfg engine.Config) engine.Engine {
		cfg.Driver = onCluster{cluster.open()}
		return engine.NewCold(cfg)
	})
	slot, err := f.Engine.Acquire(t.Context(), f.Spec())
	if err != nil {
		t.Fatal(err)
	}
	started := enginetest.NewSignal("started")
	go func() {
		<-started.Seen
		cluster.away.Store(true)
		cluster.server.CloseClientConnections()
		cluster.dropStreams()
	}()
	_, err = slot.Run(t.Context(), enginetest.Shell("echo started; sleep 100"), started, io.Discard)
	cluster.away.Store(false)
	lost, ok := errors.AsType[*engine.RunError](err)
	if !ok || !lost.Started || !fault.Is(err, fault.EngineUnavailable) {
		t.Errorf("%v", err)
	}
	for end := time.Now().Add(time.Minute); len(cluster.names()) > 0; {
		if time.Now().After(end) {
			t.Fatalf("left: %v", cluster.names())
		}
	}
}

// TestRemoveEnded: pods of nodes that are gone are removed some minutes after their end, others
// are not.
func TestRemoveEnded(t *testing.T) {
	t.Parallel()
	f := newFakeCluster(t)
	add := func(name, installation string, phase corev1.PodPhase, age time.Duration) {
		p := &fakePod{pod: &corev1.Pod{}, gone: true}
		p.pod.Name, p.pod.Labels = name, map[string]string{engine.LabelInstallation: installation}
		p.pod.Status.Phase, p.pod.CreationTimestamp = phase, metav1.NewTime(time.Now().Add(-age))
		f.pods[name] = p
	}
	add("old", "a", corev1.PodFailed, time.Hour)
	add("new", "a", corev1.PodFailed, time.Minute)
	add("runs", "a", corev1.PodRunning, time.Hour)
	add("foreign", "b", corev1.PodSucceeded, time.Hour)
	if err := f.open().RemoveEnded(t.Context(), engine.LabelInstallation+"=a"); err != nil {
		t.Error(err)
	}
	if left := f.names(); !slices.Equal(left, []string{"foreign", "new", "runs"}) {
		t.Errorf("left: %v", left)
	}
}
