package console_test

import (
	"strings"
	"testing"

	"secbox/access/tokens"
	"secbox/audit"
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

// TestRequestOfSkill: the page, the history and the search show what a skill was asked, bounded and
// visible, and the page says whether that is what the record's digest says.
func TestRequestOfSkill(t *testing.T) {
	t.Parallel()
	folder := "/workspace/inputs/.skill/" + strings.Repeat("a1", 32)
	short := `{"code":"print(\"\u202ehi\u0000\")\nprint(2)","args":["a"],"stdin":"<b>\u001b[31m</b>"}`
	huge := `{"code":"` + strings.Repeat("y", 10<<20) + `"}`
	for name, c := range map[string]struct {
		sent, request string
		want, not     []string
	}{
		"as it was sent": {
			short, short,
			[]string{
				"python.run: print(\"⟨U+202E⟩hi␀\") ↵ print(2)", "print(\"⟨U+202E⟩hi␀\") print(2)", "args [\"a\"]", "stdin <b>␛[31m</b>",
				"the input on record has the same SHA-256", "The command that ran the skill python3 -I " + folder + "/run.py",
			},
			[]string{"Shortened", "The database was changed"},
		},
		"too long": {
			huge, audit.RequestText([]byte(huge), audit.MostRequest),
			[]string{"Shortened: the caller sent 10 MiB", "… [cut: 10485760 bytes]"},
			nil,
		},
		"altered":      {short, strings.Replace(short, "print(2)", "print(3)", 1), []string{"This is not what the caller sent"}, nil},
		"no arguments": {`{}`, `{}`, []string{"python.run: no arguments", "called without arguments"}, nil},
		"not kept": {
			short, "",
			[]string{
				"python.run: python3 -I run.py", "python3 -I " + folder + "/run.py", "does not have what the skill was asked",
				"Its input is what the skill was asked",
			},
			[]string{"The command that ran the skill", "print(2)"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := newFake().fill(1)
			r := &f.records[0]
			r.SkillID, r.Cmd, r.Args, r.Request = "python.run", "python3", []string{"-I", folder + "/run.py"}, c.request
			f.addInput(r, ".skill/.in/X.json", c.sent)
			url := f.serve(t)
			page := get(t, url+"/console/execs/"+execID(1))
			says(t, page, c.want, c.not)
			if len(page) > 200<<10 {
				t.Errorf("a page of %d bytes", len(page))
			}
			list := textOf(get(t, url+"/console/history"))
			if !strings.Contains(list, strings.SplitN(c.want[0], " ↵", 2)[0]) && strings.HasPrefix(c.want[0], "python.run") {
				t.Errorf("the history does not say %q", c.want[0])
			}
			if found := strings.Contains(textOf(get(t, url+"/console/history?text=PRINT(2)")), "1 found"); found != strings.Contains(c.request, "print(2)") {
				t.Errorf("the search has found it: %v", found)
			}
		})
	}
}
