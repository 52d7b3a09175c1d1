package api_test

import (
	"bytes"
	"slices"
	"testing"

	"secbox/access/tokens"
	"secbox/api/wire"
	"secbox/fault"
	"secbox/skills"
)

// TestAuditorsSeePackages: an auditor reads the packages of every user, changes nothing by it, and
// can run and write nothing.
func TestAuditorsSeePackages(t *testing.T) {
	t.Parallel()
	f := start(t)
	data[string](t, f.upload("ann/ag", "baseline", "one.zip", zipOf(t, map[string]string{"one/SKILL.md": "# One\n"})))
	_, auditor := f.token(tokens.Spec{Role: tokens.Auditor})
	_, admin := f.token(tokens.Spec{Role: tokens.Admin})
	_, scoped := f.token(tokens.Spec{Role: tokens.Worker, Users: []string{"ann"}})
	get := func(path, token string) reply { return f.do(request{path: path, token: token}) }
	for _, user := range []string{"ann", "bob"} {
		base := "/v1/skills/" + user + "/ag"
		if list := data[[]map[string]any](t, get(base+"/status", auditor)); len(list) != 1 || list[0]["skill_id"] != "one" || list[0]["status"] != "UNCHANGED" {
			t.Errorf("%s: %v", user, list)
		}
		data[[]map[string]any](t, get(base+"/list", auditor))
		if files := data[[]string](t, get(base+"/one/files", auditor)); !slices.Equal(files, []string{"SKILL.md"}) {
			t.Errorf("%s: %q", user, files)
		}
		if got := data[map[string]any](t, get(base+"/one/content?path=SKILL.md", auditor)); got["content"] != "# One\n" {
			t.Errorf("%s: %v", user, got)
		}
		if lines := data[map[string]any](t, get(base+"/one/content?path=SKILL.md&start=1", auditor)); len(lines["content"].([]any)) != 1 {
			t.Errorf("%s: %v", user, lines)
		}
		data[string](t, get(base+"/one/diff", auditor))
		if r := get(base+"/one/download", auditor); r.StatusCode != 200 || !bytes.HasPrefix(r.body, []byte("PK")) {
			t.Errorf("%s: download %d", user, r.StatusCode)
		}
		if list := decodeAs[wire.SkillList](t, get("/skills?agent_id=ag&user_id="+user, auditor), 200); len(list.Items) == 0 {
			t.Error("no catalog")
		}
	}
	pinned, err := skills.PointersOf(t.Context(), f.db.Skills(), "ag", "bob")
	if err != nil || len(pinned) != 0 {
		t.Errorf("the auditor has pinned bob: %v, %v", pinned, err)
	}
	data[[]map[string]any](t, get("/v1/skills/bob/ag/list", admin))
	if pinned, err = skills.PointersOf(t.Context(), f.db.Skills(), "ag", "bob"); err != nil || len(pinned) != 1 {
		t.Errorf("an admin's request as bob: %v, %v", pinned, err)
	}
	get("/v1/skills/bob/ag/list", scoped).refused(t, fault.Forbidden, "userId")
	for _, change := range []request{
		{method: "DELETE", path: "/v1/skills/ann/ag/one"},
		{method: "POST", path: "/v1/skills/ann/ag/one/sync"},
		{method: "POST", path: "/v1/skills/ann/ag/one/baseline"},
		{method: "PUT", path: "/v1/skills/ann/ag/one/edit?path=a", body: "x"},
		{method: "POST", path: "/v1/skills/ann/ag/one/execute?command=ls", body: "[]"},
	} {
		change.token = auditor
		f.do(change).refused(t, fault.Forbidden)
	}
}
