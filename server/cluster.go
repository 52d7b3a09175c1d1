//go:build !nokubernetes

package server

import (
	"log/slog"
	"strings"

	"secbox/engine/kube"
	"secbox/policy"
	"secbox/settings"
)

// openCluster reads the address and the credentials of the cluster of sandbox.kubernetes.
func openCluster(s settings.Sandbox, log *slog.Logger) (cluster, error) {
	k := s.Kubernetes
	nodes := map[string]string{}
	for _, label := range k.NodeSelector {
		name, value, _ := strings.Cut(label, "=")
		nodes[name] = value
	}
	c, err := kube.Open(kube.Config{
		Kubeconfig: k.Kubeconfig, Context: k.Context, Namespace: k.Namespace, VolumeClaim: k.VolumeClaim,
		FilesMaxBytes: s.DiskGrowthMaxBytes + copyMaxBytes, RuntimeClass: k.RuntimeClass,
		NodeSelector: nodes, PullSecret: k.ImagePullSecret, PullPolicy: k.ImagePullPolicy,
		InitImage: policy.DefaultImage, Log: log,
	})
	if err != nil {
		return nil, err
	}
	return c, nil
}
