package library

import (
	"cmp"
	"context"
	"io"
	"slices"

	"secbox/fault"
	"secbox/packages/archive"
	"secbox/packages/content"
	"secbox/skills"
	"secbox/workspace"
	"secbox/workspace/tree"
)

// View shows the skills of a user to readers who are not the user: what the user's own next request
// would find. It changes nothing. In particular, it does not pin the user to the agent's baselines,
// so that a look does not decide which version a user gets. Its methods are methods of Library. It
// is safe for concurrent use.
type View struct{ l *Library }

// View returns a view of the library's skills.
func (l *Library) View() View {
	cfg := l.Config
	cfg.Registry = unpinned{cfg.Registry}
	return View{&Library{Config: cfg, files: l.files, about: l.about, tools: l.tools, names: l.names, viewing: true}}
}

// List is Library.List.
func (v View) List(ctx context.Context, o Owner) ([]Listed, error) { return v.l.List(ctx, o) }

// Files is Library.Files.
func (v View) Files(ctx context.Context, o Owner, skillID string) ([]string, error) {
	return v.l.Files(ctx, o, skillID)
}

// Read is Library.Read.
func (v View) Read(ctx context.Context, o Owner, skillID, path string) ([]byte, error) {
	return v.l.Read(ctx, o, skillID, path)
}

// ReadLines is Library.ReadLines.
func (v View) ReadLines(ctx context.Context, o Owner, skillID, path string, r LineRange) ([]string, error) {
	return v.l.ReadLines(ctx, o, skillID, path, r)
}

// Tools is Library.Tools.
func (v View) Tools(ctx context.Context, o Owner) ([]*skills.Skill, []skills.Broken, error) {
	return v.l.Tools(ctx, o)
}

// Diff is Library.Diff.
func (v View) Diff(ctx context.Context, o Owner, skillID string) (text, digest string, err error) {
	return v.l.Diff(ctx, o, skillID)
}

// Download is Library.Download.
func (v View) Download(ctx context.Context, o Owner, skillID string, w io.Writer) error {
	return v.l.Download(ctx, o, skillID, w)
}

// Pointers returns a user's pointer to a skill, and the agent's baseline of it; nil where there is
// none. The pointer of a user without one yet is the baseline's, with zero times.
func (v View) Pointers(ctx context.Context, o Owner, skillID string) (mine, baseline *skills.Pointer, err error) {
	if err := checkIDsForReading(o, skillID); err != nil {
		return nil, nil, err
	}
	for _, one := range []struct {
		key  skills.PointerKey
		into **skills.Pointer
	}{{o.key(skillID), &mine}, {o.baseline(skillID), &baseline}} {
		row, ok, err := v.l.Registry.Get(ctx, one.key)
		if err != nil {
			return nil, nil, err
		}
		if ok {
			*one.into = &row
		}
	}
	return mine, baseline, nil
}

// Baselines returns at most limit baselines of an agent, by skill, after one of them.
func (v View) Baselines(ctx context.Context, agentID, after string, limit int) ([]skills.Pointer, error) {
	return v.l.Registry.List(ctx, agentID, "", after, limit)
}

// Baseline returns an agent's baseline of a skill and its files, as Files does; fault.UnknownSkill.
func (v View) Baseline(ctx context.Context, agentID, skillID string) (row skills.Pointer, list []string, err error) {
	err = v.inBaseline(ctx, agentID, skillID, func(at skills.Pointer, t *tree.Tree) (err error) {
		row = at
		list, err = files(ctx, t, content.Bounds)
		return failed(err, "the skill "+skillID)
	})
	return row, list, err
}

// ReadBaseline returns a file of an agent's baseline of a skill, as Read does.
func (v View) ReadBaseline(ctx context.Context, agentID, skillID, path string) (read []byte, err error) {
	path, err = cleanPath(path, "the skill")
	if err != nil {
		return nil, err
	}
	err = v.inBaseline(ctx, agentID, skillID, func(_ skills.Pointer, t *tree.Tree) (err error) {
		read, _, err = readFile(t, path)
		return err
	})
	return read, err
}

// inBaseline calls f with a baseline and its files.
func (v View) inBaseline(ctx context.Context, agentID, skillID string, f func(skills.Pointer, *tree.Tree) error) error {
	if err := workspace.CheckPart("agent_id", agentID); err != nil {
		return err
	}
	if err := archive.CheckID(skillID); err != nil {
		return unknownSkill(skillID)
	}
	o := Owner{AgentID: agentID}
	row, ok, err := v.l.Registry.Get(ctx, o.baseline(skillID))
	if err != nil {
		return err
	}
	if !ok || row.Digest == "" {
		return fault.New(fault.UnknownSkill, "the agent %s has no baseline of a skill %q; list its baselines to see which exist", agentID,
			skillID)
	}
	t, err := v.l.version(o, skillID, row.Digest)
	if err != nil {
		return err
	}
	defer t.Close()
	return f(row, t)
}

// Agents returns at most limit agents that have skills, by id, after one of them.
func (v View) Agents(ctx context.Context, after string, limit int) ([]string, error) {
	return v.l.Registry.Agents(ctx, after, limit)
}

// unpinned shows a registry as it would be after a Pin of every user, and writes nothing.
type unpinned struct{ skills.Registry }

// Pin implements skills.Registry.
func (unpinned) Pin(context.Context, string, string) (skills.Pinned, error) {
	return skills.Pinned{}, nil
}

// Get implements skills.Registry.
func (r unpinned) Get(ctx context.Context, key skills.PointerKey) (skills.Pointer, bool, error) {
	row, ok, err := r.Registry.Get(ctx, key)
	if ok || err != nil || key.UserID == "" {
		return row, ok, err
	}
	baseline, ok, err := r.Registry.Get(ctx, skills.PointerKey{AgentID: key.AgentID, SkillID: key.SkillID})
	return pinnedTo(baseline, key.UserID), ok, err
}

// List implements skills.Registry.
func (r unpinned) List(ctx context.Context, agentID, userID, after string, limit int) ([]skills.Pointer, error) {
	rows, err := r.Registry.List(ctx, agentID, userID, after, limit)
	if err != nil || userID == "" {
		return rows, err
	}
	baselines, err := r.Registry.List(ctx, agentID, "", after, limit)
	if err != nil {
		return nil, err
	}
	bySkill := func(a, b skills.Pointer) int { return cmp.Compare(a.SkillID, b.SkillID) }
	for _, baseline := range baselines {
		if at, ok := slices.BinarySearchFunc(rows, baseline, bySkill); !ok {
			rows = slices.Insert(rows, at, pinnedTo(baseline, userID))
		}
	}
	return rows[:min(len(rows), limit)], nil
}

// pinnedTo is the pointer of a user who is pinned to a baseline.
func pinnedTo(baseline skills.Pointer, userID string) skills.Pointer {
	key := baseline.PointerKey
	key.UserID = userID
	return skills.Pointer{PointerKey: key, PointerState: skills.PointerState{Digest: baseline.Digest, BaseDigest: baseline.Digest}}
}

// Set implements skills.Registry.
func (unpinned) Set(context.Context, skills.PointerKey, *skills.PointerState, skills.PointerState) (skills.Pointer, error) {
	return skills.Pointer{}, errView()
}

// Remove implements skills.Registry.
func (unpinned) Remove(context.Context, skills.PointerKey, skills.PointerState) error {
	return errView()
}

func errView() error { return fault.New(fault.Internal, "a view of skills changes nothing") }
