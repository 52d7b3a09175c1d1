package bench

import (
	"slices"
	"strings"
	"testing"
)

// recorded is the docker argv of an exec, as meta.json has it.
func recorded() []string {
	return strings.Fields(`run -i --rm --sig-proxy=false --name secbox-01a1 --label secbox.installation=b12c --label secbox.node=01a1
		--label secbox.exec=01a1 --label secbox.project=bench --network=none --memory 1024m --user 1000:1000 --workdir /workspace/work
		--entrypoint /opt/secbox/sandbox-init --read-only
		--mount type=bind,source=/w/projects/bench/inputs,target=/workspace/inputs,readonly
		--mount type=bind,source=/w/projects/bench/artifacts/01a1,target=/workspace/artifacts sha256:cc79`)
}

func TestPlainArgsKeepEveryFlag(t *testing.T) {
	t.Parallel()
	flags := recorded()
	got, err := plainArgs(flags, "n-1", "n", "/fresh", "bash", "-lc", "true")
	if err != nil {
		t.Fatal(err)
	}
	want := strings.Fields(`run -i --rm --sig-proxy=false --name secbox-n-1 --label secbox.installation=b12c --label secbox.node=n
		--label secbox.exec=n-1 --label secbox.project=bench --network=none --memory 1024m --user 1000:1000 --workdir /workspace/work
		--entrypoint bash --read-only
		--mount type=bind,source=/w/projects/bench/inputs,target=/workspace/inputs,readonly
		--mount type=bind,source=/fresh,target=/workspace/artifacts sha256:cc79 -lc true`)
	if !slices.Equal(got, want) {
		t.Errorf("got  %q\nwant %q", got, want)
	}
	if !slices.Equal(flags, recorded()) {
		t.Error("the recorded flags were changed")
	}
}

// TestPlainArgsRefuseOtherFlags: were something not replaced, both sides would share a name, or core-api's own container be waited for.
func TestPlainArgsRefuseOtherFlags(t *testing.T) {
	t.Parallel()
	for _, missing := range []string{"--name", "--entrypoint", "secbox.node=01a1", "secbox.exec=01a1", "target=/workspace/artifacts"} {
		flags := slices.DeleteFunc(recorded(), func(arg string) bool { return strings.Contains(arg, missing) })
		if got, err := plainArgs(flags, "n-1", "n", "/fresh", "bash"); err == nil {
			t.Errorf("without %s: %q", missing, got)
		}
	}
	twice := append([]string{"run", "--name", "other"}, recorded()[1:]...)
	if got, err := plainArgs(twice, "n-1", "n", "/fresh", "bash"); err == nil {
		t.Errorf("with two names: %q", got)
	}
}

func TestPlainSideHasTheDefaultRuntime(t *testing.T) {
	t.Parallel()
	flags := slices.Insert(recorded(), 2, "--runtime", "crun")
	if rest, runtime := withoutRuntime(flags); runtime != "crun" || !slices.Equal(rest, recorded()) {
		t.Errorf("%q %q", runtime, rest)
	}
	if flags[3] != "crun" {
		t.Error("the recorded flags were changed")
	}
	if rest, runtime := withoutRuntime(recorded()); runtime != "" || !slices.Equal(rest, recorded()) {
		t.Errorf("none asked for: %q %q", runtime, rest)
	}
}

func TestSettingsStayOut(t *testing.T) {
	t.Parallel()
	got := withoutSettings([]string{"PATH=/bin", "CORE_API_ADDR=0.0.0.0:1", "DATABASE_URL=postgres://x", "DOCKER_HOST=unix:///d", "XCORE_API_Y=1"})
	if want := []string{"PATH=/bin", "DOCKER_HOST=unix:///d", "XCORE_API_Y=1"}; !slices.Equal(got, want) {
		t.Errorf("%q", got)
	}
}
