package server

import (
	"strconv"
	"testing"

	"secbox/engine"
	"secbox/settings"
)

// TestSessionsTakeWhatContainersDo: the settings allow as many execs at once in a session as a
// container runs.
func TestSessionsTakeWhatContainersDo(t *testing.T) {
	t.Parallel()
	for n, allowed := range map[int]bool{engine.MaxResidentCommands: true, engine.MaxResidentCommands + 1: false} {
		environ := []string{"CORE_API_SANDBOX_SESSIONS_MAX_EXECS=" + strconv.Itoa(n)}
		if _, err := settings.Load("", environ, settings.Overrides{StateDir: t.TempDir(), WorkspaceRoot: t.TempDir()}); (err == nil) != allowed {
			t.Errorf("%d: %v", n, err)
		}
	}
}
