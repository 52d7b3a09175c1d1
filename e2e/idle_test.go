package e2e

import (
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"secbox/settings"
)

// TestIdleWorkspaces checks that an idle workspace loses the copies of skills that equal the stored
// version, and nothing else, and that a workspace that an older core-api has packed comes back at
// the start.
func TestIdleWorkspaces(t *testing.T) {
	t.Parallel()
	var packed string
	s := start(t, noPool, func(s *settings.Settings) {
		s.Workspaces.IdleSeconds, s.Sandboxes.IdleSeconds = 1, 1
		packed = filepath.Join(s.Sandbox.WorkspaceRoot, "projects", "ag~bob", ".idle", "pack.tar.zst")
		pack, err := os.ReadFile("../workspace/testdata/packed/pack.tar.zst")
		if err == nil {
			err = os.MkdirAll(filepath.Dir(packed), 0o700)
		}
		if err == nil {
			err = os.WriteFile(packed, pack, 0o600)
		}
		if err != nil {
			t.Fatal(err)
		}
	})
	eventually(t, "bob's workspace is unpacked", func() bool { _, err := os.Lstat(packed); return os.IsNotExist(err) })
	if got := s.content("/v1/sandbox/bob/ag", "notes.txt"); got != "mine\n" {
		t.Errorf("bob's file is %q", got)
	}
	s.upload("ann/ag", "baseline", "x.zip", weatherSkill(t)).done(t)
	const ann = "/v1/sandbox/ann/ag"
	s.send(http.MethodPut, ann+"/edit?path=notes.txt", "mine").done(t)
	s.runs("/v1/skills/ann/ag/weather_skill/execute?command=ls") // a copy of the skill is there now
	eventually(t, "the copy of the skill is removed", func() bool {
		_, err := os.Lstat(filepath.Join(s.project("ag~ann"), "work", "skills", "weather_skill"))
		return os.IsNotExist(err)
	})
	if got := s.stands("ann/ag")["weather_skill"]; got != "UNCHANGED" {
		t.Errorf("the skill is %s", got)
	}
	const skill = "skills/weather_skill/"
	if got := strings.Join(s.files(ann), " "); got != "notes.txt "+skill+"SKILL.md "+skill+"main.py "+skill+"utils/helper.py" {
		t.Errorf("ann has %s", got)
	}
	if got := s.content(ann, "notes.txt"); got != "mine" {
		t.Errorf("the file is %q", got)
	}
	s.runs("/v1/skills/ann/ag/weather_skill/execute?command=ls")
}
