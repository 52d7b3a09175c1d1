//go:build !nokubernetes

package server

import (
	"log/slog"

	"secbox/engine/kube"
	"secbox/policy"
	"secbox/settings"
)

// openCluster reads the address and the credentials of the cluster of sandbox.kubernetes.
func openCluster(s settings.Sandbox, log *slog.Logger) (cluster, error) {
	k := s.Kubernetes
	c, err := kube.Open(kube.Config{
		Kubeconfig: k.Kubeconfig, Context: k.Context, Namespace: k.Namespace, VolumeClaim: k.VolumeClaim,
		FilesMaxBytes: s.DiskGrowthMaxBytes + copyMaxBytes, RuntimeClass: k.RuntimeClass,
		NodeSelector: k.NodeSelector, PullSecret: k.ImagePullSecret, PullPolicy: k.ImagePullPolicy, InitImage: policy.DefaultImage, Log: log,
	})
	if err != nil {
		return nil, err
	}
	return c, nil
}
