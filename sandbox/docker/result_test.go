//go:build linux

package docker

import (
	"strings"
	"testing"

	"secbox/engine"
	"secbox/policy"
	"secbox/sandbox"
)

// TestBusError: /dev/shm is named only if it can be full.
func TestBusError(t *testing.T) {
	t.Parallel()
	for shm, named := range map[int64]bool{16: true, 255: true, 256: false, 1 << 16: false} {
		c := &userContainer{wanted: Container{Limits: policy.ContainerLimits{MemoryMB: 256, ShmMB: shm, TmpMB: 32}}}
		r := c.result(t.Context(), sandbox.ExecSpec{}, engine.Exit{Code: 135, Signal: 7})
		if strings.Contains(r.Detail, "/dev/shm") != named || !strings.Contains(r.Detail, "/tmp") ||
			!strings.Contains(r.Detail, "32 MB (policy tmp_mb), or a file") {
			t.Errorf("shm_mb %d: %q", shm, r.Detail)
		}
	}
}
