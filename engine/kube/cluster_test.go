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
		FilesMaxBytes: 1 << 30, InitImage: enginetest.Image, Log: slog.New(slog.NewTextHandler(t.Output(), nil)),
	})
	if err != nil {
		t.Fatal(err)
	}
	return cluster
}

// TestContract: the engine's contract, with directories of a volume.
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

// TestContractOfCopies: the same with copies, whose inputs a job can change: nothing of them comes
// back.
func TestContractOfCopies(t *testing.T) {
	cluster := open(t)
	where := enginetest.Where{Only: []string{
		"ReportsExit", "StdinOfAnySize", "CutsAndCountsOutput", "CallsOnStartFirst", "Deadline", "CancelKills", "CancelBeforeTheStart",
		"FailedPrepare", "ExecIDs", "DiscardDropsMounts", "SlotsRunAtTheSameTime", "RunReturnsAfterLastByte", "DeadlineKillsTheTree",
	}}
	where.Run(t, func(_ *testing.T, cfg engine.Config) engine.Engine {
		cfg.Driver, cfg.Copy = onCluster{cluster}, &engine.Copying{MaxBytes: 16 << 20, MaxEntries: 1000}
		return engine.NewCold(cfg)
	})
}

// TestHostileJobs: the suite's jobs that attack what is around them, and its limits.
func TestHostileJobs(t *testing.T) {
	cluster := open(t)
	where := enginetest.Where{Only: []string{
		"Jobs", "OutputIsCutAndCounted", "DeadlineKillsTheTree", "OutOfMemory", "AThirdOfACore", "SlotsAreFresh", "ReadOnlyAndMissingMounts",
	}}
	where.Run(t, func(_ *testing.T, cfg engine.Config) engine.Engine {
		cfg.Driver = onCluster{cluster}
		return engine.NewCold(cfg)
	})
}
