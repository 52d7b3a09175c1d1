package kube

import (
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"net"
	"net/url"
	"sync"
	"time"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes/scheme"
	typed "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/klog/v2"

	"secbox/engine"
	"secbox/fault"
	"secbox/policy"
)

// Config says which cluster, and what its pods have beside what the engine asks for.
type Config struct {
	Kubeconfig string // path; empty: the service account of the pod that this process runs in
	Context    string // of Kubeconfig; empty: its current one
	Namespace  string // of the pods

	VolumeClaim   string            // the claim of the volume that sources of mounts are in; empty: there is none
	FilesMaxBytes int64             // without VolumeClaim: of the files of an exec, in its pod
	RuntimeClass  string            // of pods whose spec names no runtime; empty: the cluster's default
	NodeSelector  map[string]string // labels of the nodes that may run pods
	PullSecret    string            // the name of a secret for the images' registry; empty: none
	PullPolicy    string            // Always, IfNotPresent or Never
	InitImage     string            // an image with sandbox-init, for images without it

	Log *slog.Logger
}

// Cluster is a driver of the engine. It is safe for concurrent use.
type Cluster struct {
	cfg  Config
	rest *rest.Config
	pods typed.PodInterface
	core *rest.RESTClient

	limits sync.Map // policy.ContainerLimits by name, of pods that run
}

// Timeouts of calls to the API server.
const (
	callTimeout = 10 * time.Second
	endTimeout  = 3 * time.Second // for the state of a pod whose stream has ended

	removeTimeout = 30 * time.Second // for the kubelet's confirmation of a pod's end
)

// quiet turns the libraries' own log off: their errors come back.
var quiet = sync.OnceFunc(func() { klog.SetLogger(logr.Discard()) })

// Open reads the cluster's address and credentials. It calls nothing.
func Open(cfg Config) (*Cluster, error) {
	quiet()
	config, err := load(cfg)
	if err != nil {
		return nil, fault.Wrap(fault.InvalidSettings, err, "sandbox.kubernetes: no cluster to use (%v)", err)
	}
	config.UserAgent, config.ContentType = "secbox", "application/json"
	config.QPS, config.Burst = -1, 0 // the engine bounds how many pods are started at once
	client, err := typed.NewForConfig(config)
	if err != nil {
		return nil, fault.Wrap(fault.InvalidSettings, err, "sandbox.kubernetes: the cluster's settings cannot be used (%v)", err)
	}
	return &Cluster{
		cfg: cfg, rest: config, pods: client.Pods(cfg.Namespace), core: client.RESTClient().(*rest.RESTClient),
	}, nil
}

func load(cfg Config) (*rest.Config, error) {
	if cfg.Kubeconfig == "" {
		config, err := rest.InClusterConfig()
		if errors.Is(err, rest.ErrNotInCluster) {
			err = errors.New("core-api does not run in a pod with a service account; set sandbox.kubernetes.kubeconfig to a file")
		}
		return config, err
	}
	return clientcmd.NewNonInteractiveDeferredLoadingClientConfig(
		&clientcmd.ClientConfigLoadingRules{ExplicitPath: cfg.Kubeconfig}, &clientcmd.ConfigOverrides{CurrentContext: cfg.Context},
	).ClientConfig()
}

// Containers implements engine.Driver.
func (c *Cluster) Containers(ctx context.Context, label string) ([]string, error) {
	list, err := c.pods.List(ctx, metav1.ListOptions{LabelSelector: label})
	if err != nil {
		return nil, faultOf(err)
	}
	var names []string
	for _, pod := range list.Items {
		names = append(names, pod.Name)
	}
	return names, nil
}

// endedAge is how long a pod has existed at least that RemoveEnded removes: its own node does it
// within seconds of the pod's end.
const endedAge = 10 * time.Minute

// RemoveEnded implements engine.Driver.
func (c *Cluster) RemoveEnded(ctx context.Context, label string) error {
	list, err := c.pods.List(ctx, metav1.ListOptions{LabelSelector: label})
	if err != nil {
		return faultOf(err)
	}
	var errs []error
	for _, pod := range list.Items {
		ended := pod.Status.Phase == corev1.PodSucceeded || pod.Status.Phase == corev1.PodFailed
		if ended && time.Since(pod.CreationTimestamp.Time) > endedAge {
			errs = append(errs, c.Remove(ctx, pod.Name))
		}
	}
	return errors.Join(errs...)
}

// Remove implements engine.Driver. It returns when the kubelet has confirmed the pod's end.
func (c *Cluster) Remove(ctx context.Context, name string) error {
	for {
		err := c.pods.Delete(ctx, name, metav1.DeleteOptions{})
		switch {
		case apierrors.IsNotFound(err):
			c.limits.Delete(name)
			return nil
		case err != nil:
			return faultOf(err)
		}
		select {
		case <-ctx.Done():
			return fault.Wrap(fault.EngineUnavailable, context.Cause(ctx),
				"the cluster did not confirm the end of a pod in time; is its node up? `kubectl get nodes`")
		case <-time.After(removePoll):
		}
	}
}

// removePoll is how often the removal of a pod is looked at.
const removePoll = 100 * time.Millisecond

// ChangeLimits implements engine.Driver: no limit of a running pod can be changed, but pids are no
// limit of a pod.
func (c *Cluster) ChangeLimits(_ context.Context, name string, to policy.ContainerLimits) error {
	at, ok := c.limits.Load(name)
	from, _ := at.(policy.ContainerLimits)
	from.PIDs = to.PIDs
	if !ok || from != to {
		return errors.ErrUnsupported
	}
	return nil
}

// NoAnswer implements engine.Driver.
func (c *Cluster) NoAnswer(cause error) error { return noAnswer(cause) }

func noAnswer(cause error) error {
	return fault.Wrap(fault.EngineUnavailable, cause, "the cluster did not answer in time; check `kubectl get --raw /readyz` and `kubectl get "+
		"nodes`")
}

// Version asks the API server for its version.
func (c *Cluster) Version(ctx context.Context) (string, error) {
	var v struct{ GitVersion string }
	raw, err := c.core.Get().AbsPath("/version").Timeout(callTimeout).DoRaw(ctx)
	if err != nil {
		return "", faultOf(err)
	}
	if err := json.Unmarshal(raw, &v); err != nil {
		return "", noAnswer(err)
	}
	return v.GitVersion, nil
}

// faultOf turns an error of the API server into a fault for users. The messages of the server name
// pods, quotas and rules, and nothing of a job.
func faultOf(err error) error {
	var status apierrors.APIStatus
	var network net.Error
	var address *url.Error
	switch {
	case err == nil:
		return nil
	case errors.As(err, new(*fault.Error)):
		return err
	case apierrors.IsForbidden(err):
		return fault.Wrap(fault.EngineUnavailable, err, "the cluster refused a pod: %s", messageOf(err))
	case apierrors.IsUnauthorized(err):
		return fault.Wrap(fault.EngineUnavailable, err, "the cluster does not know core-api's credentials; check sandbox.kubernetes.kubeconfig, "+
			"or the service account")
	case apierrors.IsInvalid(err), apierrors.IsBadRequest(err):
		return fault.Wrap(fault.InvalidSettings, err, "the cluster cannot make such a pod: %s", messageOf(err))
	case apierrors.IsNotFound(err):
		return fault.Wrap(fault.InvalidSettings, err, "the cluster does not have what a pod needs: %s", messageOf(err))
	case errors.As(err, &status):
		return fault.Wrap(fault.EngineUnavailable, err, "the cluster did not take a request: %s", messageOf(err))
	case errors.As(err, &network), errors.As(err, &address), errors.Is(err, context.DeadlineExceeded):
		return noAnswer(err)
	default:
		return fault.Wrap(fault.EngineUnavailable, err, "the cluster cannot be reached; check `kubectl get --raw /readyz`")
	}
}

// messageOf is the API server's sentence, bounded.
func messageOf(err error) string {
	const most = 500
	said := err.Error()
	var status apierrors.APIStatus
	if errors.As(err, &status) {
		said = status.Status().Message
	}
	if len(said) > most {
		said = said[:most] + "…"
	}
	return said
}

// attachURL is the address of a pod's streams.
func (c *Cluster) attachURL(name string) *url.URL {
	streams := &corev1.PodAttachOptions{Container: containerName, Stdin: true, Stdout: true, Stderr: true}
	return c.core.Post().Namespace(c.cfg.Namespace).Resource("pods").Name(name).SubResource("attach").
		VersionedParams(streams, scheme.ParameterCodec).URL()
}

var _ engine.Driver = (*Cluster)(nil)
