package dockercli_test

import (
	"slices"
	"strings"
	"testing"

	"secbox/engine/dockercli"
	"secbox/engine/dockercli/dockerclitest"
)

// TestDockerEnvironment runs a docker command in an environment with variables that must not be
// passed on.
func TestDockerEnvironment(t *testing.T) {
	t.Parallel()
	cli, err := dockercli.Find(dockerclitest.Program(t, "exec /usr/bin/env"),
		[]string{"HOME=/h", "GOGC=1", "GOMAXPROCS=64", "GODEBUG=x", "DOCKER_CLI_HINTS=true"})
	if err != nil {
		t.Fatal(err)
	}
	out, err := cli.Output(t.Context(), "version")
	if err != nil {
		t.Fatal(err)
	}
	got := slices.DeleteFunc(strings.Fields(string(out)), func(kv string) bool {
		name, _, _ := strings.Cut(kv, "=")
		return name == "PWD" || name == "_" || name == "SHLVL" // of the shell
	})
	slices.Sort(got)
	if want := []string{"DOCKER_CLI_HINTS=false", "DOCKER_SCAN_SUGGEST=false", "GOGC=400", "GOMAXPROCS=1", "HOME=/h"}; !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
}
