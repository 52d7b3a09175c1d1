package api_test

import (
	"slices"
	"strings"
	"testing"

	"secbox/access/tokens"
	"secbox/api/wire"
	"secbox/fault"
)

// statusOf returns the status of a skill of a user of agent ag.
func (f *fixture) statusOf(user, skillID, secret string) map[string]any {
	f.t.Helper()
	for _, one := range data[[]map[string]any](f.t, f.do(request{path: "/v1/skills/" + user + "/ag/status", token: secret})) {
		if one["skill_id"] == skillID {
			return one
		}
	}
	f.t.Fatalf("%s has no %s", user, skillID)
	return nil
}

func TestPromote(t *testing.T) {
	t.Parallel()
	f := start(t)
	_, admin := f.token(tokens.Spec{Role: tokens.AgentAdmin, Agents: []string{"ag"}})
	_, worker := f.token(tokens.Spec{Role: tokens.Worker})
	promote := func(user, query, secret string) reply {
		return f.do(request{method: "POST", path: "/v1/skills/" + user + "/ag/weather_skill/baseline" + query, token: secret})
	}
	edit := func(user, text string) {
		data[string](t, f.do(request{method: "PUT", path: "/v1/skills/" + user + "/ag/weather_skill/edit?path=main.py", body: text, token: worker}))
	}
	wants := func(user, status string, changed bool) {
		t.Helper()
		if got := f.statusOf(user, "weather_skill", worker); got["status"] != status || got["baseline_changed"] != changed {
			t.Errorf("%s: %v, want %s %v", user, got, status, changed)
		}
	}

	promote("ann", "", admin).refused(t, fault.UnknownSkill)
	data[string](t, f.upload("ann/ag", "", "x.zip", weather(t), as(worker)))
	wants("ann", "NEW", false)
	promote("ann", "", worker).refused(t, fault.Forbidden)
	promote("ann", "?force=yes", admin).refused(t, fault.InvalidRequest, "force")
	if got := data[string](t, promote("ann", "", admin)); got != "Skill 'weather_skill' is now 'baseline/ag/weather_skill'" {
		t.Error(got)
	}
	wants("ann", "UNCHANGED", false)
	wants("bob", "UNCHANGED", false)
	wants("cleo", "UNCHANGED", false)
	promote("ann", "", admin).refused(t, fault.SkillConflict)

	edit("ann", "ann\n")
	edit("bob", "bob\n")
	wants("ann", "MODIFIED", false)
	data[string](t, promote("ann", "", admin))
	wants("bob", "MODIFIED", true)
	wants("cleo", "OUT_OF_SYNC", true)
	promote("bob", "", admin).refused(t, fault.SkillMoved)
	wants("bob", "MODIFIED", true)
	data[string](t, promote("bob", "?force=true", admin))
	wants("bob", "UNCHANGED", false)

	r := request{method: "DELETE", path: "/v1/skills/ann/ag/weather_skill?scope=baseline", token: admin}
	if got := data[string](t, f.do(r)); got != "Skill 'weather_skill' deleted from 'baseline/ag/weather_skill'" {
		t.Error(got)
	}
	f.do(r).refused(t, fault.UnknownSkill)

	wants("cleo", "NEW", false)
	reviewed := f.do(request{path: "/v1/skills/bob/ag/weather_skill/diff", token: admin}).Header.Get("ETag")
	if digest := f.statusOf("bob", "weather_skill", worker)["digest"]; reviewed != `"`+digest.(string)+`"` {
		t.Errorf("the diff's ETag is %s, the digest %s", reviewed, digest)
	}
	ifMatch := func(etag string) reply {
		return f.do(request{method: "POST", path: "/v1/skills/bob/ag/weather_skill/baseline", token: admin, header: map[string]string{"If-Match": etag}})
	}
	edit("bob", "after the review\n")
	ifMatch(reviewed).refused(t, fault.PreconditionFailed)
	ifMatch("W/"+reviewed).refused(t, fault.InvalidRequest, "If-Match")
	ifMatch("98ea").refused(t, fault.InvalidRequest, "If-Match")
	edit("bob", "bob\n")
	data[string](t, ifMatch(`"another", `+reviewed))
	wants("bob", "UNCHANGED", false)
	edit("bob", "more\n")
	data[string](t, ifMatch("*"))
}

func TestSyncAndDiff(t *testing.T) {
	t.Parallel()
	f := start(t)
	const ann, bob = "/v1/skills/ann/ag/weather_skill", "/v1/skills/bob/ag/weather_skill"
	put := func(base, path, text string) {
		data[string](t, f.do(request{method: "PUT", path: base + "/edit?path=" + path, body: text}))
	}
	sync := func(base, query string) reply { return f.do(request{method: "POST", path: base + "/sync" + query}) }
	text := func(base, path string) string {
		return data[map[string]string](t, f.get(base+"/content?path="+path))["content"]
	}
	sync(ann, "").refused(t, fault.UnknownSkill)
	f.get(ann+"/diff").refused(t, fault.UnknownSkill)
	data[string](t, f.upload("ann/ag", "baseline", "x.zip", weather(t, "data.txt", "1\n2\n3\n")))
	if got := data[string](t, f.get(bob+"/diff")); got != "" {
		t.Errorf("the diff of nothing is %q", got)
	}
	put(ann, "data.txt", "1\nann\n3\n")
	put(bob, "data.txt", "1\nbob\n3\n")
	put(ann, "utils/helper.py", "X = 2\n")
	put(bob, "own.txt", "bob\n")
	if got := data[string](t, f.get(ann+"/diff")); !strings.Contains(got, "@@ -1,3 +1,3 @@\n 1\n-2\n+ann\n 3\n") || !strings.Contains(got, "-X = 1\n+X = 2\n") {
		t.Errorf("the diff is %q", got)
	}
	data[string](t, f.do(request{method: "POST", path: ann + "/baseline"}))
	done := data[wire.V1Synced](t, sync(bob, ""))
	if !slices.Equal(done.Updated, []string{"utils/helper.py"}) || !slices.Equal(done.Conflicts, []string{"data.txt"}) || len(done.Removed) != 0 ||
		done.Baseline == "" {
		t.Errorf("synced %+v", done)
	}
	if text(bob, "data.txt") != "1\nbob\n3\n" || text(bob, "utils/helper.py") != "X = 2\n" || text(bob, "own.txt") != "bob\n" {
		t.Error("the sync has merged something else")
	}
	sync(bob, "?force=1").refused(t, fault.InvalidRequest, "force")
	data[wire.V1Synced](t, sync(bob, "?force=true"))
	if got := f.statusOf("bob", "weather_skill", ""); got["status"] != "UNCHANGED" || text(bob, "data.txt") != "1\nann\n3\n" {
		t.Errorf("after a sync by force: %v", got)
	}
	data[string](t, f.upload("bob/ag", "", "x.zip", zipOf(t, map[string]string{"own/SKILL.md": "# Own"})))
	f.do(request{method: "POST", path: "/v1/skills/bob/ag/own/sync"}).refused(t, fault.SkillConflict)
}
