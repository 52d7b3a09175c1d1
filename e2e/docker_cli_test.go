package e2e

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"secbox/settings"
)

// TestEveryDockerCLI runs an exec with each docker binary of this machine: old ones speak with new
// engines and the other way round, and their words differ.
func TestEveryDockerCLI(t *testing.T) {
	t.Parallel()
	tried := map[string]bool{}
	for _, dir := range append(filepath.SplitList(os.Getenv("PATH")), "/usr/bin", "/usr/local/bin") {
		path, err := filepath.EvalSymlinks(filepath.Join(dir, "docker"))
		if err != nil || tried[path] {
			continue
		}
		tried[path] = true
		t.Run(strings.Trim(strings.ReplaceAll(path, "/", "-"), "-"), func(t *testing.T) {
			t.Parallel()
			s := start(t, func(s *settings.Settings) { s.Sandbox.DockerPath = path })
			s.works("demo")
			s.exec(shell("demo", "kill -9 $$")).wants(t, object{"status": "failed", "exit_code": 137})
			health := s.get("/sandbox/health")
			health.wants(t, object{"docker_cli_path": path})
			s.noContainers()

			away := startWith(t, t.TempDir(), append(os.Environ(), "DOCKER_HOST=unix:///no/such/socket"),
				func(s *settings.Settings) { s.Sandbox.DockerPath = path })
			away.refused(503, "engine_unavailable", shell("demo", "true"))
		})
	}
	if len(tried) == 0 {
		t.Error("no docker CLI; run `make setup`")
	}
}
