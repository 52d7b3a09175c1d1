package console_test

import (
	"strings"
	"testing"

	"secbox/access/tokens"
)

// TestExecLeadsToItsSkill: to the page of a skill of the catalog, to the package of a workspace's
// user, and to the execs of the same version.
func TestExecLeadsToItsSkill(t *testing.T) {
	t.Parallel()
	const (
		catalogued = `href="/console/skills/shell.run"`
		pack       = `href="/console/packages/`
		all        = `href="/console/history?skill_id=`
		version    = `href="/console/history?skill_digest=abc&amp;skill_id=`
	)
	for name, test := range map[string]struct {
		skill, digest, project, cwd string
		users                       []string // of the caller's scope; nil: all
		has                         []string // of the four
	}{
		"no skill":                {project: "demo"},
		"a skill of the catalog":  {skill: "shell.run", digest: "abc", project: "demo", has: []string{catalogued, all, version}},
		"in a workspace, too":     {skill: "shell.run", digest: "abc", project: "ag~ann", has: []string{catalogued, all, version}},
		"an id without a version": {skill: "shell.run", project: "demo", has: []string{catalogued, all}},
		"a package":               {skill: "own", digest: "abc", project: "ag~ann", has: []string{pack + `ag/ann/own"`, all, version}},
		"the folder of a package": {skill: "own", project: "ag~ann", cwd: "/workspace/work/skills/own", has: []string{pack + `ag/ann/own"`, all}},
		"a package named like a skill": {
			skill: "shell.run", project: "ag~ann", cwd: "/workspace/work/skills/shell.run",
			has: []string{catalogued, pack + `ag/ann/shell.run"`, all},
		},
		"a package of another user": {skill: "own", digest: "abc", project: "ag~ann", users: []string{"bob"}, has: []string{all, version}},
		"a skill that is gone":      {skill: "gone.skill", digest: "abc", project: "demo", has: []string{all, version}},
		"an odd workspace":          {skill: "own", digest: "abc", project: "../a~<b>", has: []string{all, version}},
		"an odd skill":              {skill: `../"><b>`, digest: "abc", project: "ag~ann", has: []string{pack + `ag/ann/..%2F%22%3E%3Cb%3E"`, all, version}},
	} {
		f := fullApp()
		f.caller = tokens.Token{ID: "w", Name: "W", Role: tokens.Worker, Users: test.users}
		rec := &f.records[58] // execID(2)
		rec.SkillID, rec.SkillDigest, rec.ProjectID, rec.Cwd = test.skill, test.digest, test.project, test.cwd
		page := get(t, f.serve(t)+"/console/execs/"+execID(2))
		for _, link := range []string{catalogued, pack, all, version} {
			want := false
			for _, has := range test.has {
				if strings.HasPrefix(has, link) {
					link, want = has, true
				}
			}
			if strings.Contains(page, link) != want {
				t.Errorf("%s: has %s: %v", name, link, !want)
			}
		}
	}
}
