//go:build kubecluster

package kube_test

import (
	"context"
	"log/slog"
	"os"
	"testing"
	"time"

	"github.com/google/uuid"

	"secbox/engine"
	"secbox/engine/enginetest"
	"secbox/engine/kube"
)

func open(t *testing.T) *kube.Cluster {
	t.Helper()
	config := os.Getenv("SECBOX_KUBECONFIG")
	if config == "" {
		t.Fatal("SECBOX_KUBECONFIG is not set; run make test-kube")
	}
	cluster, err := kube.Open(kube.Config{
		Kubeconfig: config, Namespace: "secbox-test", VolumeClaim: "test-root", PullPolicy: "Never",
		InitImage: enginetest.Image, Log: slog.New(slog.NewTextHandler(t.Output(), nil)),
	})
	if err != nil {
		t.Fatal(err)
	}
	return cluster
}

func TestContract(t *testing.T) {
	cluster := open(t)
	enginetest.RunContract(t, func(t *testing.T) engine.Engine {
		node := uuid.NewString()
		cold := engine.NewCold(engine.Config{
			Driver: onCluster{cluster}, Identity: engine.Identity{Installation: "test", Node: node}, NewID: uuid.NewString,
			Log: slog.New(slog.NewTextHandler(t.Output(), nil)),
		})
		t.Cleanup(func() {
			ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
			defer cancel()
			if left, err := cluster.Containers(ctx, engine.LabelNode+"="+node); err != nil || len(left) > 0 {
				t.Errorf("pods left behind: %v %v", left, err)
			}
		})
		return cold
	})
}
