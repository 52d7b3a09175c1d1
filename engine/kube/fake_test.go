package kube_test

import (
	"bytes"
	"context"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/coder/websocket"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"secbox/engine/kube"
)

// fakeCluster is an API server and a kubelet whose pods are containers of this machine's Docker
// engine, with what the pods' specs say. The root of its only volume is the root of this machine.
type fakeCluster struct {
	t      *testing.T
	server *httptest.Server

	away atomic.Bool // it answers no request

	mu   sync.Mutex
	pods map[string]*fakePod
	edit func(*corev1.Pod) // changes what a watch shows of a pod; may be nil
}

type fakePod struct {
	pod    *corev1.Pod
	cmd    *exec.Cmd
	stdin  io.WriteCloser
	stdout io.ReadCloser
	stderr bytes.Buffer
	ended  chan struct{}
	conn   *websocket.Conn // of the stream; nil before the attach
	code   int
	gone   bool // it has no container
}

const fakeNamespace = "jobs"

func newFakeCluster(t *testing.T) *fakeCluster {
	t.Helper()
	f := &fakeCluster{t: t, pods: map[string]*fakePod{}}
	base := "/api/v1/namespaces/" + fakeNamespace + "/pods"
	mux := http.NewServeMux()
	mux.HandleFunc("POST "+base, f.create)
	mux.HandleFunc("GET "+base, f.list)
	mux.HandleFunc("GET "+base+"/{name}", f.get)
	mux.HandleFunc("DELETE "+base+"/{name}", f.remove)
	mux.HandleFunc("GET "+base+"/{name}/attach", f.attach)
	mux.HandleFunc("GET /version", func(w http.ResponseWriter, _ *http.Request) {
		answer(w, 200, map[string]string{"gitVersion": "v1.34.4"})
	})
	f.server = httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if f.away.Load() {
			panic(http.ErrAbortHandler)
		}
		if r.Header.Get("Authorization") != "Bearer secret" {
			status(w, http.StatusUnauthorized, metav1.StatusReasonUnauthorized, "Unauthorized")
			return
		}
		mux.ServeHTTP(w, r)
	}))
	t.Cleanup(f.server.Close)
	return f
}

// open returns the driver, by a kubeconfig like any other.
func (f *fakeCluster) open() *kube.Cluster {
	f.t.Helper()
	config := filepath.Join(f.t.TempDir(), "kubeconfig")
	ca := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: f.server.Certificate().Raw})
	kubeconfig, err := json.Marshal(map[string]any{
		"apiVersion": "v1", "kind": "Config", "current-context": "x",
		"clusters": []any{map[string]any{"name": "c", "cluster": map[string]any{"server": f.server.URL, "certificate-authority-data": ca}}},
		"users":    []any{map[string]any{"name": "u", "user": map[string]any{"token": "secret"}}},
		"contexts": []any{map[string]any{"name": "x", "context": map[string]any{"cluster": "c", "user": "u"}}},
	})
	if err != nil {
		f.t.Fatal(err)
	}
	if err := os.WriteFile(config, kubeconfig, 0o600); err != nil {
		f.t.Fatal(err)
	}
	cluster, err := kube.Open(kube.Config{Kubeconfig: config, Namespace: fakeNamespace, VolumeClaim: "root", PullPolicy: "Never"})
	if err != nil {
		f.t.Fatal(err)
	}
	return cluster
}

func answer(w http.ResponseWriter, code int, v any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(code)
	_ = json.NewEncoder(w).Encode(v)
}

func status(w http.ResponseWriter, code int, reason metav1.StatusReason, message string) {
	answer(w, code, metav1.Status{
		TypeMeta: metav1.TypeMeta{Kind: "Status", APIVersion: "v1"}, Status: "Failure", Code: int32(code), Reason: reason, Message: message,
	})
}

func (f *fakeCluster) create(w http.ResponseWriter, r *http.Request) {
	pod := &corev1.Pod{}
	if err := json.NewDecoder(r.Body).Decode(pod); err != nil {
		status(w, 400, metav1.StatusReasonBadRequest, err.Error())
		return
	}
	pod.TypeMeta = metav1.TypeMeta{Kind: "Pod", APIVersion: "v1"}
	pod.Namespace, pod.ResourceVersion, pod.Status.Phase = fakeNamespace, "1", corev1.PodPending
	if err := f.run(pod); err != nil {
		status(w, 500, metav1.StatusReasonInternalError, err.Error())
		return
	}
	answer(w, 201, pod)
}

// run starts the container of a pod. Like a runtime, it keeps the standard input open.
func (f *fakeCluster) run(pod *corev1.Pod) error {
	p := &fakePod{pod: pod, ended: make(chan struct{})}
	p.cmd = exec.Command("docker", dockerArgs(pod)...)
	p.cmd.Stderr = &p.stderr
	var err error
	if p.stdin, err = p.cmd.StdinPipe(); err != nil {
		return err
	}
	if p.stdout, err = p.cmd.StdoutPipe(); err != nil {
		return err
	}
	if err := p.cmd.Start(); err != nil {
		return err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.pods[pod.Name] = p
	return nil
}

// dockerArgs is what a runtime would do with a pod's spec.
func dockerArgs(pod *corev1.Pod) []string {
	main, spec := pod.Spec.Containers[0], pod.Spec
	args := []string{
		"run", "-i", "--rm", "--sig-proxy=false", "--name", pod.Name, "--hostname", spec.Hostname, "--log-driver=none", "--stop-signal=SIGKILL",
		"--network=none", "--dns", spec.DNSConfig.Nameservers[0], "--add-host", spec.HostAliases[0].Hostnames[0] + ":" + spec.HostAliases[0].IP,
		"--user", fmt.Sprintf("%d:%d", *spec.SecurityContext.RunAsUser, *spec.SecurityContext.RunAsGroup),
		"--memory", fmt.Sprint(main.Resources.Limits.Memory().Value()), "--memory-swap", fmt.Sprint(main.Resources.Limits.Memory().Value()),
		"--cpus", fmt.Sprint(main.Resources.Limits.Cpu().AsApproximateFloat64()), "--pids-limit", "64", "--workdir", main.WorkingDir,
	}
	for _, c := range main.SecurityContext.Capabilities.Drop {
		args = append(args, "--cap-drop", string(c))
	}
	if !*main.SecurityContext.AllowPrivilegeEscalation {
		args = append(args, "--security-opt=no-new-privileges")
	}
	if *main.SecurityContext.ReadOnlyRootFilesystem {
		args = append(args, "--read-only")
	}
	for _, m := range main.VolumeMounts {
		for _, v := range spec.Volumes {
			switch {
			case v.Name != m.Name:
			case v.EmptyDir != nil && m.MountPath == "/dev/shm":
				args = append(args, "--shm-size", fmt.Sprint(v.EmptyDir.SizeLimit.Value()))
			case v.EmptyDir != nil && m.SubPath != "":
				args = append(args, "--tmpfs", m.MountPath+":rw,exec,nosuid,nodev,uid=1000,gid=1000") // all users may write to a pod's
			case v.EmptyDir != nil:
				args = append(args, "--tmpfs", fmt.Sprintf("%s:rw,exec,nosuid,nodev,mode=1777,size=%d", m.MountPath, v.EmptyDir.SizeLimit.Value()))
			default:
				mount := "type=bind,source=/" + m.SubPath + ",target=" + m.MountPath
				if m.ReadOnly {
					mount += ",readonly"
				}
				args = append(args, "--mount", mount)
			}
		}
	}
	args = append(args, "--entrypoint", main.Command[0], main.Image)
	return append(args, main.Command[1:]...)
}

// seen is a pod with what its kubelet reports.
func (f *fakeCluster) seen(p *fakePod) *corev1.Pod {
	pod := p.pod.DeepCopy()
	state := corev1.ContainerState{Running: &corev1.ContainerStateRunning{}}
	pod.Status.Phase = corev1.PodRunning
	select {
	case <-p.ended:
		pod.Status.Phase = corev1.PodFailed
		state = corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{ExitCode: int32(p.code), Reason: "Error"}}
	default:
	}
	pod.Status.ContainerStatuses = []corev1.ContainerStatus{{Name: pod.Spec.Containers[0].Name, Image: pod.Spec.Containers[0].Image, State: state}}
	if f.edit != nil {
		f.edit(pod)
	}
	return pod
}

func (f *fakeCluster) find(w http.ResponseWriter, name string) *fakePod {
	f.mu.Lock()
	defer f.mu.Unlock()
	p := f.pods[name]
	if p == nil {
		status(w, 404, metav1.StatusReasonNotFound, `pods "`+name+`" not found`)
	}
	return p
}

func (f *fakeCluster) get(w http.ResponseWriter, r *http.Request) {
	if p := f.find(w, r.PathValue("name")); p != nil {
		answer(w, 200, f.seen(p))
	}
}

// list answers lists by label, and watches of one pod, which show it once.
func (f *fakeCluster) list(w http.ResponseWriter, r *http.Request) {
	if r.FormValue("watch") != "" {
		name := strings.TrimPrefix(r.FormValue("fieldSelector"), "metadata.name=")
		p := f.find(w, name)
		if p == nil {
			return
		}
		answer(w, 200, map[string]any{"type": "MODIFIED", "object": f.seen(p)})
		w.(http.Flusher).Flush()
		<-r.Context().Done()
		return
	}
	list := corev1.PodList{TypeMeta: metav1.TypeMeta{Kind: "PodList", APIVersion: "v1"}}
	label, value, _ := strings.Cut(r.FormValue("labelSelector"), "=")
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, p := range f.pods {
		if p.pod.Labels[label] == value {
			list.Items = append(list.Items, *p.pod)
		}
	}
	answer(w, 200, list)
}

// remove removes a pod when its container has ended, and before kills it.
func (f *fakeCluster) remove(w http.ResponseWriter, r *http.Request) {
	p := f.find(w, r.PathValue("name"))
	if p == nil {
		return
	}
	if !p.gone {
		_ = exec.Command("docker", "rm", "-f", p.pod.Name).Run()
		f.mu.Lock()
		attached := p.conn != nil
		f.mu.Unlock()
		if attached {
			<-p.ended
		} else {
			_ = p.stdin.Close()
			_ = p.cmd.Wait()
		}
	}
	f.mu.Lock()
	delete(f.pods, p.pod.Name)
	f.mu.Unlock()
	answer(w, 200, p.pod)
}

// dropStreams breaks all attach streams.
func (f *fakeCluster) dropStreams() {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, p := range f.pods {
		if p.conn != nil {
			_ = p.conn.CloseNow()
		}
	}
}

// names are the names of the pods.
func (f *fakeCluster) names() []string {
	f.mu.Lock()
	defer f.mu.Unlock()
	return slices.Sorted(maps.Keys(f.pods))
}

// The channels of an attach stream; the last closes others.
const (
	channelStdin, channelStdout, channelStderr, channelError = 0, 1, 2, 3
	channelClose                                             = 255
)

// attach passes on the streams of a container, as version 5 of the protocol does.
func (f *fakeCluster) attach(w http.ResponseWriter, r *http.Request) {
	p := f.find(w, r.PathValue("name"))
	if p == nil {
		return
	}
	conn, err := websocket.Accept(w, r, &websocket.AcceptOptions{Subprotocols: []string{"v5.channel.k8s.io"}})
	if err != nil {
		f.t.Error(err)
		return
	}
	conn.SetReadLimit(1 << 20)
	f.mu.Lock()
	p.conn = conn
	f.mu.Unlock()
	defer conn.CloseNow()
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	go func() {
		defer p.stdin.Close()
		for {
			_, message, err := conn.Read(ctx)
			if err != nil || len(message) == 0 || message[0] == channelClose {
				if err != nil {
					return
				}
				_ = p.stdin.Close()
				continue
			}
			_, _ = p.stdin.Write(message[1:])
		}
	}()
	buf := make([]byte, 32<<10)
	for {
		n, err := p.stdout.Read(buf[1:])
		if n > 0 {
			buf[0] = channelStdout
			_ = conn.Write(ctx, websocket.MessageBinary, buf[:n+1])
		}
		if err != nil {
			break
		}
	}
	end := metav1.Status{Status: metav1.StatusSuccess}
	if exit := (*exec.ExitError)(nil); errors.As(p.cmd.Wait(), &exit) {
		p.code = exit.ExitCode()
		end = metav1.Status{Status: metav1.StatusFailure, Message: "command terminated", Reason: "NonZeroExitCode"}
	}
	close(p.ended)
	said, _ := json.Marshal(end)
	_ = conn.Write(ctx, websocket.MessageBinary, append([]byte{channelStderr}, p.stderr.Bytes()...))
	_ = conn.Write(ctx, websocket.MessageBinary, append([]byte{channelError}, said...))
	_ = conn.Close(websocket.StatusNormalClosure, "")
}
