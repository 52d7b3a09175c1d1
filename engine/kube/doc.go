// Package kube is the driver of a Kubernetes cluster: a container is a pod, and core-api speaks
// with the sandbox-init in it over the pod's attach stream.
//
// # The lease
//
// A pod has a standard input that closes with the first connection that has attached to it
// (stdinOnce). So a pod ends, like a container of Docker, when this process dies, and also when the
// API server or the kubelet drops the stream. A pod without an attached connection ends after two
// minutes: its sandbox-init waits for a first byte (--pod). Pods that are left nonetheless have the
// labels of their node, and the engine's Sweep removes them.
//
// Output from before the attach is lost. So sandbox-init says hello after that byte.
//
// # No network
//
// A cluster gives every pod a network. Whether a NetworkPolicy closes it depends on the cluster's
// plug-in. So the sandbox-init of a pod refuses all sockets but Unix ones, for itself and for every
// process of the job, by a seccomp filter.
//
// # Where to read on
//
// Read pod.go (how a pod looks), cluster.go (the driver), process.go (a pod's life) and images.go.
// The package must not know the pool, execs or the audit row.
package kube
