//go:build unix

package library_test

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"secbox/fault"
	"secbox/packages/library"
	"secbox/packages/repair"
	"secbox/skills"
)

// repair repairs, checks that a dry run before had said the same and changed nothing, and that a
// second run finds nothing.
func (f *fixture) repair(want ...string) repair.Report {
	f.t.Helper()
	before, disk := f.rows(), f.disk()
	dry, err := f.Repair(f.t.Context(), repair.Options{DryRun: true, AllLost: true, Now: time.Now()})
	must(f.t, err)
	if !slices.Equal(f.rows(), before) || !slices.Equal(f.disk(), disk) {
		f.t.Error("the dry run has changed something")
	}
	report, err := f.Repair(f.t.Context(), repair.Options{AllLost: true, Now: time.Now()})
	must(f.t, err)
	if said, done := said(dry), said(report); !slices.Equal(said, done) || !slices.Equal(done, want) {
		f.t.Errorf("\nsaid %q\ndid  %q\nwant %q\n%+v", said, done, want, report.Lines)
	}
	again, err := f.Repair(f.t.Context(), repair.Options{AllLost: true, Now: time.Now()})
	must(f.t, err)
	if again.Changes() > 0 {
		f.t.Errorf("the second run did %+v", again.Lines)
	}
	f.allThere()
	return report
}

// said returns the lines of a report, shortened and sorted.
func said(r repair.Report) []string {
	list := []string{}
	for _, line := range r.Lines {
		list = append(list, strings.TrimRight(string(line.Kind)+" "+line.SkillID+" "+line.UserID, " "))
	}
	slices.Sort(list)
	return list
}

// disk are all names below agents/.
func (f *fixture) disk() []string {
	f.t.Helper()
	var names []string
	must(f.t, filepath.Walk(filepath.Join(f.root, "agents"), func(path string, _ os.FileInfo, err error) error {
		names = append(names, path)
		return err
	}))
	return names
}

// stored returns when a version was stored.
func (f *fixture) stored(id, digest string, at time.Time) {
	f.t.Helper()
	must(f.t, os.Chtimes(f.versionDir(id, digest), at, at))
}

func TestRepair(t *testing.T) {
	t.Parallel()
	hour := func(n int) time.Time { return time.Now().Add(time.Duration(n-100) * time.Hour) }
	remove := func(f *fixture, digest string) { must(f.t, os.RemoveAll(f.versionDir("demo", digest))) }
	for name, run := range map[string]func(*fixture){
		"all is well": func(f *fixture) {
			f.upload(alice, library.Baseline, "demo", numbered(1))
			f.edit(alice, "demo", "x", "x")
			f.list(bob)
			r := f.repair()
			if r.Agents != 1 || r.Versions != 1 || r.Pointers != 3 || r.Bytes == 0 || r.Unused != 0 {
				f.t.Errorf("%+v", r)
			}
		},
		"nothing at all": func(f *fixture) {
			must(f.t, os.Mkdir(filepath.Join(f.root, "agents"), 0o755))
			f.repair()
		},
		"the table is empty": func(f *fixture) {
			one, two := f.upload(alice, library.Baseline, "demo", numbered(1)), f.upload(alice, library.Baseline, "demo", numbered(2))
			f.upload(alice, library.Baseline, "技能", numbered(3))
			f.edit(alice, "demo", "x", "x")
			f.stored("demo", one.Digest, hour(2)) // restored from a backup in another order
			f.stored("demo", two.Digest, hour(1))
			f.forget()
			r := f.repair("adopted demo", "adopted 技能", "pointed demo alice")
			if r.Unused != 1 {
				f.t.Errorf("%d unused", r.Unused)
			}
			if got := f.everything(bob, "demo"); got["d0/0.txt"] != "1" || f.status(bob, "demo") != library.Unchanged || len(f.list(bob)) != 2 {
				f.t.Errorf("bob has %q", got)
			}
			// The base of alice's copy is unknown, so sync reports conflicts.
			if got := f.everything(alice, "demo"); got["x"] != "x" || got["d0/0.txt"] != "2" || !f.listed(alice, "demo").BaselineChanged {
				f.t.Errorf("alice has %q, %+v", got, f.listed(alice, "demo"))
			}
			_, err := f.Promote(f.t.Context(), alice, "demo", false)
			wantFault(f.t, err, "skill_moved", "")
		},
		"the table is empty and the copy is the baseline": func(f *fixture) {
			f.upload(alice, library.Baseline, "demo", numbered(1))
			must(f.t, f.Materialise(f.t.Context(), alice, "demo"))
			f.forget()
			f.repair("adopted demo", "pointed demo alice")
			if one := f.listed(alice, "demo"); one.Status != library.Unchanged || one.BaselineChanged {
				f.t.Errorf("%+v", one)
			}
		},
		"the table is older than the disk": func(f *fixture) {
			old := f.upload(alice, library.Baseline, "demo", numbered(1))
			f.list(bob)
			rows := f.rows()
			f.upload(alice, library.Baseline, "demo", numbered(2))
			f.upload(alice, library.Baseline, "later", numbered(3))
			f.forget()
			for _, row := range rows {
				_, err := f.registry.Set(f.t.Context(), row.PointerKey, nil, row.PointerState)
				must(f.t, err)
			}
			if r := f.repair("adopted later"); r.Unused != 1 {
				f.t.Errorf("%d unused", r.Unused)
			}
			if f.listed(bob, "demo").Digest != old.Digest || f.status(bob, "later") != library.Unchanged {
				f.t.Errorf("%+v", f.list(bob))
			}
		},
		"the baseline is gone and one before it is there": func(f *fixture) {
			f.upload(bob, library.Overlay, "demo", numbered(8)) // private, and the newest
			f.upload(alice, library.Baseline, "demo", numbered(1))
			f.list(alice) // pinned: it was a baseline
			f.upload(library.Owner{AgentID: "agent001", UserID: "carol"}, library.Overlay, "demo", numbered(9))
			now := f.upload(alice, library.Baseline, "demo", numbered(2))
			remove(f, now.Digest)
			f.repair("pointed demo")
			if f.content(library.Owner{AgentID: "agent001", UserID: "new"}, "demo", "d0/0.txt") != "1" {
				f.t.Error("another version is the baseline")
			}
			if f.content(bob, "demo", "d0/0.txt") != "8" {
				f.t.Error("bob has lost his own")
			}
		},
		"the baseline is gone and only users' own versions are there": func(f *fixture) {
			now := f.upload(alice, library.Baseline, "demo", numbered(1))
			f.upload(bob, library.Overlay, "demo", numbered(8))
			f.list(alice)
			remove(f, now.Digest)
			f.repair("pointed demo bob", "unpointed demo", "unpointed demo alice")
			if len(f.list(alice)) != 0 || f.content(bob, "demo", "d0/0.txt") != "8" || f.status(bob, "demo") != library.NewSkill {
				f.t.Errorf("alice has %+v, bob %+v", f.list(alice), f.list(bob))
			}
		},
		"a version is damaged": func(f *fixture) {
			up := f.upload(alice, library.Baseline, "demo", numbered(1))
			f.upload(bob, library.Overlay, "demo", numbered(2))
			f.list(alice)
			must(f.t, os.WriteFile(filepath.Join(f.versionDir("demo", up.Digest), "d0", "0.txt"), []byte("X"), 0o600))
			f.repair("pointed demo bob", "quarantined demo", "unpointed demo", "unpointed demo alice")
			found, err := filepath.Glob(filepath.Join(f.root, "agents", "agent001", ".quarantine", "*", "skills", "demo", up.Digest, "SKILL.md"))
			if must(f.t, err); len(found) != 1 {
				f.t.Errorf("in quarantine is %v", found)
			}
		},
		"a user's version is gone": func(f *fixture) {
			f.upload(alice, library.Baseline, "demo", numbered(1))
			up := f.upload(bob, library.Overlay, "demo", numbered(2))
			remove(f, up.Digest)
			f.repair("pointed demo bob")
			if f.content(bob, "demo", "d0/0.txt") != "1" || f.status(bob, "demo") != library.Unchanged {
				f.t.Errorf("bob has %+v", f.list(bob))
			}
		},
		"a user's version is gone and the copy is there": func(f *fixture) {
			f.upload(alice, library.Baseline, "demo", numbered(1))
			up := f.upload(bob, library.Overlay, "demo", numbered(2))
			f.edit(bob, "demo", "x", "x")
			remove(f, up.Digest)
			f.repair("pointed demo bob")
			if got := f.everything(bob, "demo"); got["x"] != "x" || got["d0/0.txt"] != "2" || f.status(bob, "demo") != library.Modified {
				f.t.Errorf("bob has %q, %+v", got, f.list(bob))
			}
		},
		"a copy's base is gone": func(f *fixture) {
			old := f.upload(alice, library.Baseline, "demo", numbered(1))
			f.edit(bob, "demo", "x", "x")
			f.upload(alice, library.Baseline, "demo", numbered(2))
			remove(f, old.Digest)
			f.repair("pointed demo bob")
			if got := f.everything(bob, "demo"); got["x"] != "x" || got["d0/0.txt"] != "1" {
				f.t.Errorf("bob has %q", got)
			}
			synced, err := f.Sync(f.t.Context(), bob, "demo", false)
			if must(f.t, err); len(synced.Conflicts) != 21 {
				f.t.Errorf("%+v", synced)
			}
		},
		"a deleted skill's base is gone": func(f *fixture) {
			up := f.upload(alice, library.Baseline, "demo", numbered(1))
			key := skills.PointerKey{AgentID: "agent001", UserID: "bob", SkillID: "demo"}
			_, err := f.registry.Set(f.t.Context(), key, nil, skills.PointerState{BaseDigest: strings.Repeat("a", 64)})
			must(f.t, err)
			f.repair("pointed demo bob")
			if f.status(bob, "demo") != "" || f.listed(alice, "demo").Digest != up.Digest {
				f.t.Error("it came back")
			}
		},
		"an agent has no directory": func(f *fixture) {
			f.upload(alice, library.Baseline, "demo", numbered(1))
			f.upload(bob, library.Overlay, "own", numbered(2))
			f.edit(bob, "own", "x", "x")
			f.list(alice)
			must(f.t, os.RemoveAll(filepath.Join(f.root, "agents", "agent001")))
			_, err := f.Repair(f.t.Context(), repair.Options{Now: time.Now()})
			wantFault(f.t, err, fault.InvalidSettings, "mounted")
			f.repair("pointed own bob", "unpointed demo", "unpointed demo alice", "unpointed demo bob")
			if f.content(bob, "own", "x") != "x" || f.status(bob, "own") != library.NewSkill || len(f.list(alice)) != 0 {
				f.t.Errorf("bob has %+v", f.list(bob))
			}
		},
		"ids that cannot be": func(f *fixture) {
			up := f.upload(alice, library.Baseline, "demo", numbered(1))
			for _, key := range []skills.PointerKey{
				{AgentID: "agent001", SkillID: "../demo"}, {AgentID: "agent001", SkillID: "demo", UserID: "a~b"}, {AgentID: "../..", SkillID: "demo"},
			} {
				_, err := f.registry.Set(f.t.Context(), key, nil, skills.PointerState{Digest: up.Digest})
				must(f.t, err)
			}
			skillsDir := filepath.Join(f.root, "agents", "agent001", "skills")
			must(f.t, os.WriteFile(filepath.Join(skillsDir, "a file"), nil, 0o600))
			must(f.t, os.Symlink(f.outside, filepath.Join(skillsDir, "demo", strings.Repeat("a", 64))))
			must(f.t, os.Mkdir(filepath.Join(skillsDir, "demo", "tmp"), 0o700))
			must(f.t, os.Mkdir(filepath.Join(f.root, "agents", "no agent!"), 0o700))
			f.repair("noticed", "quarantined a file", "quarantined demo", "quarantined demo", "unpointed ../demo", "unpointed demo", "unpointed demo a~b")
			if !f.exists(filepath.Join(f.outside, "secret")) || f.status(alice, "demo") != library.Unchanged {
				f.t.Error("something else was touched")
			}
		},
		"collection was killed with a version out of reach": func(f *fixture) {
			up := f.upload(alice, library.Baseline, "demo", numbered(1))
			f.upload(alice, library.Baseline, "demo", numbered(2))
			f.collect(2*time.Hour, library.Collected{Retired: 1})
			f.name(bob, "demo", up.Digest)
			f.repair("restored demo")
		},
		"leftovers": func(f *fixture) {
			f.upload(alice, library.Baseline, "demo", numbered(1))
			old := time.Now().Add(-2 * time.Hour)
			for name, at := range map[string]time.Time{"old": old, "young": time.Now()} {
				dir := filepath.Join(f.root, "agents", "agent001", ".staging", name)
				must(f.t, os.MkdirAll(filepath.Join(dir, "tree"), 0o755))
				must(f.t, os.Chtimes(dir, at, at))
			}
			f.repair("swept")
		},
		"a link in the place of the agent": func(f *fixture) {
			f.upload(alice, library.Baseline, "demo", numbered(1))
			agent := filepath.Join(f.root, "agents", "agent001")
			must(f.t, os.Rename(agent, agent+".old"))
			must(f.t, os.Symlink(f.outside, agent))
			report, err := f.Repair(f.t.Context(), repair.Options{AllLost: true, Now: time.Now()})
			if must(f.t, err); !slices.Equal(said(report), []string{"adopted demo", "failed"}) || len(f.rows()) != 1 {
				f.t.Errorf("%+v, %+v", report.Lines, f.rows())
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			run(setUp(t))
		})
	}
}

// TestRepairOnPostgres: the other database's lists of agents and rows lead to the same.
func TestRepairOnPostgres(t *testing.T) {
	t.Parallel()
	f := setUpOn(t, cluster.Migrated(t))
	f.upload(alice, library.Baseline, "demo", numbered(1))
	gone := f.upload(bob, library.Overlay, "demo", numbered(2))
	f.upload(alice, library.Baseline, "other", numbered(3))
	must(t, os.RemoveAll(f.versionDir("demo", gone.Digest)))
	must(t, f.registry.Remove(t.Context(), skills.PointerKey{AgentID: "agent001", SkillID: "other"}, f.rows()[1].PointerState))
	f.repair("adopted other", "pointed demo bob")
	if len(f.everything(bob, "demo")) != 21 || len(f.everything(bob, "other")) != 21 {
		t.Errorf("bob has %+v", f.list(bob))
	}
}

// TestRepairOfManySkills reads everything through the library after the table was lost.
func TestRepairOfManySkills(t *testing.T) {
	t.Parallel()
	f := setUp(t)
	ids := []string{"a", "b", "c", "天气", "with space"}
	for n, id := range ids {
		for version := range 3 {
			f.upload(alice, library.Baseline, id, numbered(10*n+version))
		}
	}
	f.forget()
	seen := 0
	report, err := f.Repair(t.Context(), repair.Options{Now: time.Now(), Progress: func(versions, of int, bytes int64) {
		seen = max(seen, versions)
		if of != 15 || bytes == 0 {
			t.Errorf("%d of %d, %d bytes", versions, of, bytes)
		}
	}})
	must(t, err)
	if report.Versions != 15 || seen != 15 || report.Count(repair.Adopted) != len(ids) || report.Unused != 10 {
		t.Errorf("%+v", report)
	}
	for _, o := range []library.Owner{alice, bob} {
		if list := f.list(o); len(list) != len(ids) {
			t.Errorf("%s has %+v", o.UserID, list)
		}
		for _, id := range ids {
			if got := f.everything(o, id); len(got) != 21 {
				t.Errorf("%s of %s has %d files", id, o.UserID, len(got))
			}
		}
	}
}
