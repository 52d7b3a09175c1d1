package bench

import (
	"errors"
	"os"
	"testing"
)

func TestHeld(t *testing.T) {
	t.Parallel()
	h, err := held(os.Getpid())
	if err != nil || h.RSS < 1<<20 || h.PSS < 1<<20 || h.PSS > h.RSS {
		t.Errorf("%+v %v", h, err)
	}
	if _, err := held(1 << 30); err == nil {
		t.Error("a process that is not there has memory")
	}
}

func TestShimsAreKnownByTheirContainer(t *testing.T) {
	t.Parallel()
	shim := process{args: []string{"/usr/bin/containerd-shim-runc-v2", "-namespace", "moby", "-id", "c0ffee", "-address", "/run/c.sock"}}
	for _, c := range []struct {
		p          process
		containers []string
		want       bool
	}{
		{shim, []string{"dead", "c0ffee"}, true},
		{shim, []string{"c0ff"}, false},
		{shim, []string{"0ffee"}, false},
		{shim, []string{"c0ffeebabe"}, false},
		{shim, nil, false},
		{process{args: []string{"docker", "wait", "-id", "c0ffee"}}, []string{"c0ffee"}, false},
		{process{args: []string{"containerd-shim-runc-v2", "-id"}}, []string{"c0ffee"}, false},
	} {
		if got := c.p.isShimOf(c.containers); got != c.want {
			t.Errorf("%q of %q: %v", c.p.args, c.containers, got)
		}
	}
}

func TestWhatCannotBeWeighed(t *testing.T) {
	t.Parallel()
	for _, containers := range [][]string{nil, {"c0ffee"}} {
		if i, err := weigh(os.Getpid(), containers); !errors.Is(err, errWeigh) {
			t.Errorf("%q: %+v %v", containers, i, err)
		}
	}
}
