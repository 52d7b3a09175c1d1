package dockercli_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"secbox/engine/dockercli"
	"secbox/fault"
)

// everyCLI finds the docker binaries of this machine: old ones are used with new engines and vice
// versa, and their messages differ.
func everyCLI(t *testing.T) map[string]*dockercli.CLI {
	t.Helper()
	all := map[string]*dockercli.CLI{}
	for _, dir := range append(filepath.SplitList(os.Getenv("PATH")), "/usr/bin", "/usr/local/bin") {
		path, err := filepath.EvalSymlinks(filepath.Join(dir, "docker"))
		if err != nil {
			continue
		}
		cli, err := dockercli.Find(path, os.Environ())
		if err != nil {
			t.Fatal(err)
		}
		all[strings.Trim(strings.ReplaceAll(path, "/", "-"), "-")] = cli
	}
	if len(all) == 0 {
		t.Fatal("no docker CLI; run `make setup`")
	}
	return all
}

// TestUnknownRuntime asks the real engine with every CLI: each adds other text to its message.
func TestUnknownRuntime(t *testing.T) {
	t.Parallel()
	for name, cli := range everyCLI(t) {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			kind, code := kindOf(t, cli, "run", "--rm", "--pull=never", "--network=none", "--runtime", "nosuch", "secbox-sandbox:latest", "true")
			if kind != dockercli.NoRuntime || code != fault.InvalidSettings {
				t.Errorf("read as kind %d, code %s", kind, code)
			}
		})
	}
}
