package kube

import (
	"context"
	"errors"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"secbox/engine"
	"secbox/fault"
	"secbox/policy"
)

// imageTTL is how long a resolved image is cached. A pod whose image has another id than its spec
// is not used, so a stale answer never runs another image.
const imageTTL = 10 * time.Minute

// imageTimeout bounds the pod that shows what an image is; the first one may wait for a pull.
const imageTimeout = 2 * time.Minute

// Images resolves references by a short pod each. It is safe for concurrent use.
type Images struct {
	cluster *Cluster
	user    string
	newID   func() string
	now     func() time.Time

	mu    sync.Mutex
	known map[string]*resolved
}

type resolved struct {
	done  chan struct{} // closed when the rest is set
	image engine.Image
	err   error
	until time.Time
}

// NewImages makes a resolver whose pods have the user uid:gid, and labels of their own: they end
// by themselves.
func (c *Cluster) NewImages(user string, newID func() string, now func() time.Time) engine.ImageResolver {
	return &Images{cluster: c, user: user, newID: newID, now: now, known: map[string]*resolved{}}
}

// Resolve returns the image that a name refers to now: fault.ImageMissing or
// fault.EngineUnavailable. Concurrent calls share a pod.
func (i *Images) Resolve(ctx context.Context, ref string) (engine.Image, error) {
	i.mu.Lock()
	r := i.known[ref]
	if r == nil || !r.until.IsZero() && i.now().After(r.until) {
		r = &resolved{done: make(chan struct{})}
		i.known[ref] = r
		go i.ask(r, ref)
	}
	i.mu.Unlock()
	select {
	case <-r.done:
		return r.image, r.err
	case <-ctx.Done():
		return engine.Image{}, noAnswer(context.Cause(ctx))
	}
}

// Forget removes a name from the cache.
func (i *Images) Forget(ref string) {
	i.mu.Lock()
	defer i.mu.Unlock()
	if r := i.known[ref]; r != nil && !r.until.IsZero() {
		delete(i.known, ref)
	}
}

func (i *Images) ask(r *resolved, ref string) {
	ctx, cancel := context.WithTimeout(context.Background(), imageTimeout)
	defer cancel()
	image, err := i.look(ctx, ref)
	i.mu.Lock()
	defer i.mu.Unlock()
	r.image, r.err, r.until = image, err, i.now().Add(imageTTL)
	if err != nil && i.known[ref] == r {
		delete(i.known, ref)
	}
	close(r.done)
}

// look runs sandbox-init of the image, which ends at once.
func (i *Images) look(ctx context.Context, ref string) (engine.Image, error) {
	of := engine.Container{
		ID: "image-" + i.newID(),
		Spec: engine.Spec{
			ImageRef: ref, User: i.user, Limits: policy.ContainerLimits{MemoryMB: 64, CPUCores: 1, TmpMB: 1, ShmMB: 1},
		},
	}
	c := i.cluster
	pod := c.pod(of)
	pod.Spec.Containers[0].Command = []string{engine.InitPath, "--version"}
	made, err := c.pods.Create(ctx, pod, metav1.CreateOptions{})
	if err != nil {
		return engine.Image{}, faultOf(err)
	}
	defer func() { _ = c.remove(context.WithoutCancel(ctx), pod.Name) }()
	state := "it has not begun"
	seen, err := c.await(ctx, made, func(why string) { state = why })
	if seen != nil {
		made = seen
	}
	id := imageOf(made)
	switch {
	case err == nil && id != "":
		return engine.Image{Ref: ref, ID: id}, nil
	case err == nil:
		return engine.Image{}, fault.New(fault.Internal, "the cluster does not say which image %q is", ref)
	case noInit(made):
		return engine.Image{Ref: ref, ID: id, InitVolume: "init"}, nil
	case errors.Is(err, context.DeadlineExceeded):
		return engine.Image{}, fault.Wrap(fault.EngineUnavailable, err, "a pod of image %q did not start in time: %s", ref, state)
	default:
		return engine.Image{}, faultOf(err)
	}
}

// noInit reports whether a pod's container could not be started because its program is missing.
func noInit(pod *corev1.Pod) bool {
	for _, s := range pod.Status.ContainerStatuses {
		if t := s.State.Terminated; t != nil && t.Reason == "StartError" {
			return true
		}
	}
	return false
}
