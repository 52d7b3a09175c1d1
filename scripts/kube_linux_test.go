package scripts

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// kube runs kube.sh with a cache directory of its own, as root if the test is not.
func kube(t *testing.T, cache string, args ...string) (said string, ok bool) {
	t.Helper()
	bin := t.TempDir()
	if err := os.WriteFile(filepath.Join(bin, "id"), []byte("#!/bin/sh\necho 0\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), "./kube.sh", args...)
	cmd.Env = append(os.Environ(), "SECBOX_KUBE_CACHE="+cache, "PATH="+bin+":"+os.Getenv("PATH"))
	out, err := cmd.CombinedOutput()
	return string(out), err == nil
}

// TestKubeEndsOnlyItsOwn: a pid belongs to another process when the process began at another time.
func TestKubeEndsOnlyItsOwn(t *testing.T) {
	t.Parallel()
	cache := t.TempDir()
	pids := filepath.Join(cache, "cluster", "pids")
	if err := os.MkdirAll(pids, 0o755); err != nil {
		t.Fatal(err)
	}
	boot, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if err != nil {
		t.Fatal(err)
	}
	part := func(name string, later int) *exec.Cmd {
		t.Helper()
		cmd := exec.Command("sleep", "600")
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			_ = cmd.Process.Kill()
			_ = cmd.Wait()
		})
		stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", cmd.Process.Pid))
		if err != nil {
			t.Fatal(err)
		}
		var began int
		if _, err := fmt.Sscan(strings.Fields(string(stat))[21], &began); err != nil {
			t.Fatal(err)
		}
		line := fmt.Sprintf("%d %d %s", cmd.Process.Pid, began+later, boot)
		if err := os.WriteFile(filepath.Join(pids, name), []byte(line), 0o644); err != nil {
			t.Fatal(err)
		}
		return cmd
	}
	own, other := part("etcd", 0), part("kubelet", 1)
	said, ok := kube(t, cache, "status")
	if ok || !strings.Contains(said, fmt.Sprintf("etcd: runs, pid %d\n", own.Process.Pid)) || !strings.Contains(said, "kubelet: does not run\n") {
		t.Errorf("ok %v, it said:\n%s", ok, said)
	}
	if said, ok := kube(t, cache, "down"); !ok {
		t.Fatalf("it said:\n%s", said)
	}
	if err := own.Wait(); err == nil {
		t.Error("its own process ended by itself")
	}
	if _, err := os.Stat(fmt.Sprintf("/proc/%d/root", other.Process.Pid)); err != nil {
		t.Errorf("a process of others: %v", err)
	}
	if _, err := os.Stat(filepath.Join(cache, "cluster")); !os.IsNotExist(err) {
		t.Errorf("the directory of the cluster is still there: %v", err)
	}
}

func TestKubeWithoutCluster(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		args []string
		says string
		ok   bool
	}{
		{nil, "usage: scripts/kube.sh up | down | status | image TAG...", false},
		{[]string{"image"}, "usage: scripts/kube.sh image TAG...", false},
		{[]string{"image", "a:1"}, "the cluster does not run; run: scripts/kube.sh up", false},
		{[]string{"status"}, "kube-apiserver: does not run", false},
		{[]string{"down"}, "there is no cluster in ", true},
	} {
		said, ok := kube(t, t.TempDir(), c.args...)
		if ok != c.ok || !strings.Contains(said, c.says) {
			t.Errorf("%v: ok %v, it said:\n%s", c.args, ok, said)
		}
	}
}
