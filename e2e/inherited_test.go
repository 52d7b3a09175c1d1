package e2e

import (
	"net/http"
	"slices"
	"strings"
	"testing"

	"secbox/settings"
)

// TestInheritedSkillsInCommands: the first command of a workspace finds the skills that were never
// touched there, and skill-creator, in execs and in sandboxes.
func TestInheritedSkillsInCommands(t *testing.T) {
	t.Parallel()
	s := start(t, noPool, func(s *settings.Settings) { s.Sandboxes.None = true })
	s.upload("ann/ag", "baseline", "x.zip", weatherSkill(t)).done(t)
	const line = "cat skills/weather_skill/utils/helper.py; head -n 2 skills/skill-creator/SKILL.md"
	const file = "skills/weather_skill/utils/helper.py"
	want := ""
	for _, user := range []string{"exec", "docker", "none"} {
		where := "/v1/sandbox/" + user + "/ag"
		if want == "" {
			want = s.content(where, file) + "---\nname: skill-creator\n"
		}
		if got := s.content(where, file); !strings.HasPrefix(want, got) {
			t.Errorf("%s reads %q before the first command", user, got)
		}
		before := s.files(where)
		if !slices.Contains(before, file) {
			t.Errorf("%s has %v before the first command", user, before)
		}
		var got object
		if user == "exec" {
			got = s.exec(shell("ag~exec", line))
		} else {
			s.send(http.MethodPut, "/v1/sandbox/"+user+"/backend", object{"backend": user}).done(t)
			got = s.runs(where+"/execute?command=bash", "-c", line)
		}
		got.wants(t, object{"stdout": want, "exit_code": 0})
		if after := s.files(where); !slices.Equal(before, after) {
			t.Errorf("%s had %v and has %v", user, before, after)
		}
	}
}
