package server

import (
	"os"
	"runtime"
	"strings"
	"testing"

	"secbox/engine/dockercli/dockerclitest"
	"secbox/settings"
)

// TestVolumeNeedsDocker26: other engines would mount the whole volume, with all projects, into each
// container.
func TestVolumeNeedsDocker26(t *testing.T) {
	t.Parallel()
	if runtime.GOOS != "linux" {
		return // there is no container mode
	}
	for _, c := range []struct{ docker, says string }{
		{"echo 'client version 1.45 is too new. Maximum supported API version is 1.41' >&2; exit 1", "which needs Docker 26; update Docker"},
		{`[ "$1" = info ] && echo '{"ServerVersion":"5.4.2","Plugins":{"Log":["k8s-file"]}}'`, "the engine is podman"},
	} {
		s := settings.Default()
		s.Sandbox.RuntimeMode, s.Sandbox.WorkspaceRoot, s.Sandbox.WorkspaceVolume = "container", "/ws", "secbox_workspace"
		s.Sandbox.DockerPath = dockerclitest.Program(t, c.docker)
		if _, err := NewDeps(s, os.Environ()); err == nil || !strings.Contains(err.Error(), c.says) || !strings.Contains(err.Error(), "workspace_root_host") {
			t.Errorf("got %v, want %q", err, c.says)
		}
		s.Sandbox.WorkspaceRootHost = "/srv/ws"
		if _, err := NewDeps(s, os.Environ()); err != nil {
			t.Errorf("with a directory of the host: %v", err)
		}
	}
}
