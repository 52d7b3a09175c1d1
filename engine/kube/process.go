package kube

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/tools/remotecommand"

	"secbox/engine"
	"secbox/fault"
)

// process is a pod from before it exists until it is gone.
type process struct {
	cluster *Cluster
	of      engine.Container
	stdin   *io.PipeWriter
	stdout  *io.PipeReader
	cancel  context.CancelFunc // gives up the streams
	ctx     context.Context    // ends then

	done chan struct{} // closed after err and gone were set
	err  error
	gone bool // the pod has certainly ended

	mu    sync.Mutex
	state string // why the pod has not started yet, in the cluster's words
}

// Start implements engine.Driver. The pod is made, awaited and attached to in the background.
func (c *Cluster) Start(of engine.Container) (engine.Process, error) {
	inRead, inWrite := io.Pipe()
	outRead, outWrite := io.Pipe()
	p := &process{cluster: c, of: of, stdin: inWrite, stdout: outRead, done: make(chan struct{})}
	p.ctx, p.cancel = context.WithCancel(context.Background())
	go p.live(inRead, outWrite)
	return p, nil
}

func (p *process) Stdin() io.WriteCloser { return p.stdin }
func (p *process) Stdout() io.Reader     { return p.stdout }
func (p *process) Done() <-chan struct{} { return p.done }
func (p *process) Kill()                 { p.cancel() }

func (p *process) Wait() error {
	<-p.done
	return p.err
}

func (p *process) ExitCode() int {
	<-p.done
	if !p.gone {
		return -1
	}
	return 0
}

// live makes the pod, attaches to it, and removes it when its stream has ended.
func (p *process) live(stdin *io.PipeReader, stdout *io.PipeWriter) {
	defer close(p.done)
	defer p.cancel()
	err := p.create()
	if err == nil {
		err = p.attach(stdin, stdout)
	}
	_ = stdin.Close()
	_ = stdout.Close()
	if err != nil {
		p.err = p.explain(err)
	}
	if errors.Is(err, errNotMade) {
		p.gone = true
		return
	}
	p.gone = p.cluster.remove(p.ctx, p.of.Name()) == nil
}

// errNotMade is wrapped by the error of a pod that the cluster has certainly not made.
var errNotMade = errors.New("not made")

// create makes the pod and returns when its container runs.
func (p *process) create() error {
	c, ctx := p.cluster, p.ctx
	limited, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	made, err := c.pods.Create(limited, c.pod(p.of), metav1.CreateOptions{})
	if status := apierrors.APIStatus(nil); errors.As(err, &status) && status.Status().Code < 500 {
		return fmt.Errorf("%w: %w", errNotMade, err)
	}
	if err != nil {
		return err
	}
	c.limits.Store(p.of.Name(), p.of.Limits())
	started, err := c.await(ctx, made, p.note)
	if err != nil {
		return err
	}
	if has := imageOf(started); p.of.Spec.ImageID != "" && has != "" && has != p.of.Spec.ImageID {
		return fault.New(fault.ImageMissing, "image %q of the cluster has moved to %s", p.of.Spec.ImageRef, has)
	}
	return nil
}

// await waits until a pod's container has started. note gets the reasons for waiting. The error of
// a pod that will not start has the cluster's reason.
func (c *Cluster) await(ctx context.Context, pod *corev1.Pod, note func(string)) (*corev1.Pod, error) {
	selector := fields.OneTermEqualSelector("metadata.name", pod.Name).String()
	for {
		w, err := c.pods.Watch(ctx, metav1.ListOptions{FieldSelector: selector, ResourceVersion: pod.ResourceVersion})
		if err != nil {
			return nil, err
		}
		seen, err := follow(w, note)
		w.Stop()
		if seen != nil || err != nil {
			return seen, err
		}
		if ctx.Err() != nil { // the server ends a watch now and then
			return nil, context.Cause(ctx)
		}
		if pod, err = c.pods.Get(ctx, pod.Name, metav1.GetOptions{}); err != nil {
			return nil, err
		}
		if started, err := judge(pod, note); started || err != nil {
			return pod, err
		}
	}
}

// follow reads events about one pod. It returns nothing at the end of the watch.
func follow(w watch.Interface, note func(string)) (*corev1.Pod, error) {
	for event := range w.ResultChan() {
		pod, ok := event.Object.(*corev1.Pod)
		switch {
		case event.Type == watch.Deleted:
			return nil, errRemoved
		case !ok:
			return nil, nil // an error, such as an old version: begin again
		}
		if started, err := judge(pod, note); started || err != nil {
			return pod, err
		}
	}
	return nil, nil
}

// errRemoved is the error of a pod that was removed before it had started.
var errRemoved = errors.New("it was removed before it had started")

// judge reports whether a pod's container has started, or why it never will.
func judge(pod *corev1.Pod, note func(string)) (started bool, err error) {
	for _, s := range append(pod.Status.InitContainerStatuses, pod.Status.ContainerStatuses...) {
		if w := s.State.Waiting; w != nil {
			switch w.Reason {
			case "ErrImageNeverPull", "ErrImagePull", "ImagePullBackOff", "InvalidImageName":
				return false, missing(s.Image, w.Message)
			case "CreateContainerConfigError", "CreateContainerError", "RunContainerError":
				return false, fault.New(fault.Internal, "the container of the pod could not be started: %s", bounded(w.Message))
			}
			note(w.Reason)
		}
		if t := s.State.Terminated; t != nil && (s.Name == containerName || t.ExitCode != 0) {
			return s.Name == containerName && t.Reason == "Completed", ended(s.Name, t)
		}
		if s.Name == containerName && s.State.Running != nil {
			return true, nil
		}
	}
	switch pod.Status.Phase {
	case corev1.PodFailed, corev1.PodSucceeded:
		return false, fault.New(fault.Internal, "the pod ended before it had started: %s %s", pod.Status.Reason,
			bounded(pod.Status.Message))
	}
	for _, c := range pod.Status.Conditions {
		if c.Type == corev1.PodScheduled && c.Status == corev1.ConditionFalse {
			note("no node takes it: " + bounded(c.Message))
		}
	}
	return false, nil
}

func missing(ref, message string) error {
	return fault.New(fault.ImageMissing, "image %q cannot be had by the cluster's nodes: %s; load it onto the nodes, or into a registry that "+
		"they reach (sandbox.kubernetes.image_pull_secret, image_pull_policy)", ref, bounded(message))
}

// ended is the error of a container that has ended without a stream. Its message may be the job's,
// except where it was never started.
func ended(name string, t *corev1.ContainerStateTerminated) error {
	switch {
	case t.ExitCode == 0:
		return nil
	case t.Reason == "StartError":
		return fault.Wrap(fault.Internal, errors.New(bounded(t.Message)), "the container of the pod could not be started; is there a sandbox-init "+
			"in the image, and can the RuntimeClass start containers at all? `core-api doctor` tells")
	default:
		return fault.New(fault.Internal, "container %s of the pod ended with exit code %d (%s)", name, t.ExitCode, t.Reason)
	}
}

// note keeps why the pod has not started.
func (p *process) note(state string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.state = state
}

// attach passes the streams on until the container has ended, or the connection has.
func (p *process) attach(stdin io.Reader, stdout io.Writer) error {
	executor, err := remotecommand.NewWebSocketExecutor(p.cluster.rest, "GET", p.cluster.attachURL(p.of.Name()).String())
	if err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(p.ctx)
	defer cancel()
	late := time.AfterFunc(attachPatience, cancel)
	defer late.Stop()
	// sandbox-init says hello after the first byte: see initproto.PodFlag.
	stderr := &tail{}
	err = executor.StreamWithContext(ctx, remotecommand.StreamOptions{
		Stdin: io.MultiReader(strings.NewReader("\n"), stdin), Stdout: heard{stdout, late}, Stderr: stderr,
	})
	switch {
	case ctx.Err() != nil && p.ctx.Err() == nil:
		return fault.Wrap(fault.EngineUnavailable, err, "the cluster did not open the streams of a pod within %s; try again", attachPatience)
	case err == nil && stderr.Len() > 0:
		return fmt.Errorf("it said: %s", stderr)
	}
	return err
}

// attachPatience is how long the first byte from a pod that runs may take. It takes milliseconds;
// containerd's server for streams sometimes waits half a minute in vain.
const attachPatience = 10 * time.Second

// heard stops a timer when the first bytes come.
type heard struct {
	io.Writer
	late *time.Timer
}

func (h heard) Write(b []byte) (int, error) {
	h.late.Stop()
	return h.Writer.Write(b)
}

// tail keeps the beginning of what is written to it.
type tail struct{ bytes.Buffer }

func (t *tail) Write(b []byte) (int, error) {
	const most = 2 << 10
	_, _ = t.Buffer.Write(b[:min(len(b), most-t.Len())])
	return len(b), nil
}

// explain asks the cluster how a pod ended, and says that instead of the stream's error.
func (p *process) explain(err error) error {
	if errors.As(err, new(*fault.Error)) {
		return err
	}
	if errors.Is(err, errNotMade) {
		return faultOf(err)
	}
	p.mu.Lock()
	state := p.state
	p.mu.Unlock()
	ctx, cancel := context.WithTimeout(context.WithoutCancel(p.ctx), endTimeout)
	defer cancel()
	pod, failed := p.cluster.pods.Get(ctx, p.of.Name(), metav1.GetOptions{})
	switch {
	case errors.Is(err, errRemoved) && state != "":
		return fault.Wrap(fault.EngineUnavailable, err, "the pod did not start in time: %s", state)
	case apierrors.IsNotFound(failed):
		return fault.Wrap(fault.Internal, err, "the pod was removed from outside, or its node was")
	case failed != nil:
		return fault.Wrap(fault.EngineUnavailable, errors.Join(err, failed), "the cluster's API server went away")
	case pod.Status.Reason != "":
		return fault.Wrap(fault.Internal, err, "the cluster ended the pod: %s %s", pod.Status.Reason, bounded(pod.Status.Message))
	}
	for _, s := range pod.Status.ContainerStatuses {
		if t := s.State.Terminated; t != nil {
			return fault.Wrap(fault.Internal, err, "the container of the pod ended: exit code %d, %s", t.ExitCode, t.Reason)
		}
	}
	if pod.Status.Phase == corev1.PodPending && state != "" {
		return fault.Wrap(fault.EngineUnavailable, err, "the pod did not start in time: %s", state)
	}
	return fault.Wrap(fault.Internal, err, "the connection to the pod was lost")
}

// remove removes a pod whose stream has ended.
func (c *Cluster) remove(ctx context.Context, name string) error {
	ctx, cancel := context.WithTimeout(ctx, removeTimeout)
	defer cancel()
	return c.Remove(ctx, name)
}

// imageOf is the id of the image that a pod's container runs, sha256:…; empty if it is not known.
func imageOf(pod *corev1.Pod) string {
	for _, s := range pod.Status.ContainerStatuses {
		if s.Name == containerName {
			if at := strings.LastIndex(s.ImageID, "sha256:"); at >= 0 {
				return s.ImageID[at:]
			}
		}
	}
	return ""
}

// bounded is a message of the cluster that may become part of an error.
func bounded(message string) string {
	const most = 300
	if len(message) > most {
		message = message[:most] + "…"
	}
	return message
}
