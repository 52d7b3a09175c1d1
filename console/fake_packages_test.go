package console_test

import (
	"context"
	"io"
	"slices"
	"strings"

	"secbox/audit/admin"
	"secbox/fault"
	"secbox/packages/library"
	"secbox/skills"
)

// fakePackages are the packages of every user of the agent ag.
type fakePackages struct {
	agents    []string
	listed    []library.Listed
	baselines []skills.Pointer
	mine      skills.Pointer
	files     map[string]string // of each package
	diff      string
}

func (f *fakePackages) List(_ context.Context, o library.Owner) ([]library.Listed, error) {
	if o.AgentID != "ag" {
		return nil, nil
	}
	return slices.Clone(f.listed), nil
}

func (f *fakePackages) Files(context.Context, library.Owner, string) ([]string, error) {
	var names []string
	for name := range f.files {
		names = append(names, name)
	}
	slices.Sort(names)
	return names, nil
}

func (f *fakePackages) Read(_ context.Context, _ library.Owner, _, path string) ([]byte, error) {
	content, ok := f.files[path]
	if !ok {
		return nil, fault.New(fault.UnknownFile, "there is no file %q", path)
	}
	return []byte(content), nil
}

func (f *fakePackages) ReadLines(context.Context, library.Owner, string, string, library.LineRange) ([]string, error) {
	return nil, fault.New(fault.Internal, "pages read whole files")
}

func (f *fakePackages) Tools(context.Context, library.Owner) ([]*skills.Skill, []skills.Broken, error) {
	return nil, nil, nil
}

func (f *fakePackages) Diff(context.Context, library.Owner, string) (string, string, error) {
	return f.diff, strings.Repeat("1", 64), nil
}

func (f *fakePackages) Download(_ context.Context, _ library.Owner, skillID string, w io.Writer) error {
	_, err := io.WriteString(w, "PK "+skillID)
	return err
}

func (f *fakePackages) Pointers(_ context.Context, o library.Owner, skillID string) (mine, baseline *skills.Pointer, err error) {
	mine = &f.mine
	if skillID == "inherited" {
		mine = &skills.Pointer{PointerState: skills.PointerState{Digest: f.baselines[0].Digest, BaseDigest: f.baselines[0].Digest}}
	}
	return mine, &f.baselines[0], nil
}

func (f *fakePackages) Baselines(_ context.Context, agentID, after string, limit int) ([]skills.Pointer, error) {
	var rows []skills.Pointer
	for _, row := range f.baselines {
		if agentID == "ag" && row.SkillID > after && len(rows) < limit {
			rows = append(rows, row)
		}
	}
	return rows, nil
}

func (f *fakePackages) Baseline(ctx context.Context, agentID, skillID string) (skills.Pointer, []string, error) {
	for _, row := range f.baselines {
		if agentID == "ag" && row.SkillID == skillID {
			names, err := f.Files(ctx, library.Owner{}, skillID)
			return row, names, err
		}
	}
	return skills.Pointer{}, nil, fault.New(fault.UnknownSkill, "the agent %s has no baseline of a skill %q", agentID, skillID)
}

func (f *fakePackages) ReadBaseline(ctx context.Context, _, skillID, path string) ([]byte, error) {
	return f.Read(ctx, library.Owner{}, skillID, path)
}

func (f *fakePackages) Agents(_ context.Context, after string, limit int) ([]string, error) {
	from, _ := slices.BinarySearch(f.agents, after+"\x00")
	return f.agents[from:min(len(f.agents), from+limit)], nil
}

// fillPackages gives the application some packages.
func (f *fakeApp) fillPackages() {
	digest := func(c string) string { return strings.Repeat(c, 64) }
	p := &f.skills.packages
	p.agents = []string{"ag", "other"}
	p.listed = []library.Listed{
		{SkillID: "inherited", Name: "Inherited", Description: "From the agent.", Status: library.Unchanged, Digest: digest("2")},
		{SkillID: "old", Name: "Old", Description: "Of a former baseline.", Status: library.OutOfSync, BaselineChanged: true, Digest: digest("3")},
		{SkillID: "own", Name: "Own", Description: "Changed by the user.", Status: library.Modified, BaselineChanged: true, Digest: digest("1")},
		{SkillID: "new", Name: "New", Description: "The user's own.", Status: library.NewSkill, Warning: "SKILL.md is not UTF-8"},
	}
	slices.SortFunc(p.listed, func(a, b library.Listed) int { return strings.Compare(a.SkillID, b.SkillID) })
	p.baselines = []skills.Pointer{{
		PointerKey: skills.PointerKey{AgentID: "ag", SkillID: "own"}, PointerState: skills.PointerState{Digest: digest("2")},
		CreatedAt: clock, UpdatedAt: clock,
	}}
	p.mine = skills.Pointer{PointerState: skills.PointerState{Digest: digest("1"), BaseDigest: digest("3")}, CreatedAt: clock, UpdatedAt: clock}
	p.files = map[string]string{"SKILL.md": "# Own\n", "main.py": "print('hi')\n", "logo.png": "\x89PNG\x00\xff", "manifest.json": "{}", "empty": ""}
	p.diff = "--- a/main.py\n+++ b/main.py\n@@ -1 +1 @@\n-print('old')\n+print('hi')\nBinary files a/logo.png and b/logo.png differ\n"
}

// changed adds two changes of the baseline own to the audit log.
func (f *fakeApp) changed() *fakeApp {
	f.audit.events = append(f.audit.events,
		admin.Event{
			Seq: 2, At: clock, Actor: admin.Actor{Type: admin.ByToken, ID: "t2", Name: "Grace"}, Kind: admin.BaselinePromoted, Subject: "ag/own",
			Data: `{"digest":"` + strings.Repeat("2", 64) + `","replaced_digest":"` + strings.Repeat("3", 64) + `"}`,
		},
		admin.Event{
			Seq: 1, At: clock, Actor: admin.Actor{Type: admin.ByToken, ID: "t1", Name: "Ada"}, Kind: admin.BaselinePromoted, Subject: "ag/own",
			Data: `{"digest":"` + strings.Repeat("3", 64) + `"}`,
		})
	return f
}

// hostilePackages makes every text of the packages s, but not the ids that addresses of tests have.
func (f *fakeApp) hostilePackages(s string) {
	p := &f.skills.packages
	p.agents = []string{s}
	for i := range p.listed {
		one := &p.listed[i]
		one.Name, one.Description, one.Digest, one.Status, one.Warning = s, s, s, library.Status(s), s
	}
	p.listed = append(p.listed, library.Listed{SkillID: s, Name: s})
	p.baselines[0].SkillID, p.baselines[0].Digest, p.mine.BaseDigest = s, s, s
	p.files = map[string]string{s: s, "main.py": strings.Repeat(s+"\n", 300_000/len(s)+1), "logo.png": "\x00" + s}
	p.diff = strings.Repeat("+"+s+"\n-"+s+"\n", 300_000/len(s)+1)
	f.changed()
	for i := range f.audit.events {
		if e := &f.audit.events[i]; e.Subject == "ag/own" {
			e.Actor.Name, e.Actor.Type, e.Kind = s, admin.ActorType(s), admin.Kind(s)
		}
	}
}
