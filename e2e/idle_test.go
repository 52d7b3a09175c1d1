package e2e

import (
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"secbox/settings"
)

// TestIdleWorkspaces checks that a workspace is packed after a second without use, unpacked on the next use, and not packed while an exec
// runs in it. The exec lasts until another, younger workspace was packed.
func TestIdleWorkspaces(t *testing.T) {
	t.Parallel()
	s := start(t, noPool, func(s *settings.Settings) { s.Workspaces.IdleSeconds, s.Sandboxes.IdleSeconds = 1, 1 })
	s.upload("ann/ag", "baseline", "x.zip", weatherSkill(t)).done(t)
	const ann, bob = "/v1/sandbox/ann/ag", "/v1/sandbox/bob/ag"
	isPacked := func(id string) func() bool {
		return func() bool {
			_, work := os.Lstat(filepath.Join(s.project(id), "work"))
			_, pack := os.Lstat(filepath.Join(s.project(id), ".idle", "pack.tar.zst"))
			return os.IsNotExist(work) && pack == nil
		}
	}
	s.send(http.MethodPut, ann+"/edit?path=notes.txt", "mine").done(t)
	s.runs("/v1/skills/ann/ag/weather_skill/execute?command=ls") // a copy of the skill is there now
	eventually(t, "ann's workspace is packed", isPacked("ag~ann"))
	if got := s.stands("ann/ag")["weather_skill"]; got != "UNCHANGED" {
		t.Errorf("the skill is %s", got)
	}
	if got := s.content(ann, "notes.txt"); got != "mine" {
		t.Errorf("the file is %q", got)
	}
	eventually(t, "it is packed again", isPacked("ag~ann"))

	ended := make(chan answer, 1)
	go func() {
		ended <- s.send(http.MethodPost, ann+"/execute?command=sh", []string{"-c", "until [ -e go ]; do sleep 0.05; done; cat notes.txt"})
	}()
	gate := filepath.Join(s.project("ag~ann"), "work")
	eventually(t, "the exec runs", func() bool { return len(s.get("/sandbox/execs?status=running").list("items")) == 1 })
	s.send(http.MethodPut, bob+"/edit?path=notes.txt", "bob's").done(t)
	eventually(t, "bob's workspace is packed", isPacked("ag~bob"))
	if err := os.WriteFile(filepath.Join(gate, "go"), nil, 0o644); err != nil {
		t.Error(err) // then the exec ends with its time
	}
	if got := <-ended; got.json(t).str("data.stdout") != "mine" {
		t.Errorf("the exec said %d %s", got.Code, got.Body)
	}
	eventually(t, "ann's workspace is packed after the exec", isPacked("ag~ann"))
	const skill = "skills/weather_skill/"
	if got := strings.Join(s.files(ann), " "); got != "go notes.txt "+skill+"SKILL.md "+skill+"main.py "+skill+"utils/helper.py" {
		t.Errorf("ann has %s", got)
	}
	if _, err := os.Stat(filepath.Join(gate, skill)); err == nil {
		t.Error("the copy was packed too")
	}
	if metrics := string(s.send(http.MethodGet, "/metrics", nil).Body); !strings.Contains(metrics, `secbox_workspaces_idle_total{event="restored"} `) {
		t.Error("no metric tells of it")
	}
}
