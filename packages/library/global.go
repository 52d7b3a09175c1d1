package library

import (
	"context"
	"slices"
	"strings"

	"secbox/packages/archive"
	"secbox/packages/metadata"
	"secbox/workspace"
	"secbox/workspace/tree"
)

// The installation has its own skill, skill-creator. It is the same for all users of all agents, is
// read like a version that they are pinned to, and cannot be changed. Before each command,
// work/skills/skill-creator becomes a link to it. A file or folder under another spelling of that
// name is one like any other for commands, and this package ignores it.

// GlobalRoot is its directory in the containers of workspaces.
const GlobalRoot = workspace.ToolTarget

// isGlobal reports whether the id names the installation's own skill. Other spellings of the name
// are no skill at all.
func isGlobal(skillID string) bool { return skillID == archive.ReservedID }

// openGlobal opens the installation's own skill.
func (l *Library) openGlobal() (*tree.Tree, error) {
	tool := l.Versions.Tool()
	if tool == nil {
		return nil, unknownSkill(archive.ReservedID)
	}
	return tool.Tree()
}

// GlobalDigest returns the digest of the installation's own skill, which is constant while the
// server runs. fault.UnknownSkill when there is none.
func (l *Library) GlobalDigest() (string, error) {
	if tool := l.Versions.Tool(); tool != nil {
		return tool.Digest(), nil
	}
	return "", unknownSkill(archive.ReservedID)
}

// listGlobal returns its entry in lists.
func (l *Library) listGlobal(ctx context.Context) (one Listed, ok bool) {
	tool := l.Versions.Tool()
	if tool == nil {
		return Listed{}, false
	}
	one = Listed{
		SkillID: archive.ReservedID, Name: archive.ReservedID, Description: metadata.NoDescription, Status: Unchanged,
		Digest: tool.Digest(),
	}
	t, err := tool.Tree()
	if err != nil {
		l.Log.ErrorContext(ctx, "the installation's own skill cannot be read", "skill", one.SkillID, "error", err)
		return one, true
	}
	defer t.Close()
	one.describe(l, t)
	return one, true
}

// withGlobal inserts it into a list sorted by id.
func (l *Library) withGlobal(ctx context.Context, list []Listed) []Listed {
	one, ok := l.listGlobal(ctx)
	if !ok {
		return list
	}
	at, _ := slices.BinarySearchFunc(list, one, func(a, b Listed) int { return strings.Compare(a.SkillID, b.SkillID) })
	return slices.Insert(list, at, one)
}

// shadowsGlobal reports whether a path below work/ is, or is in, a file or folder with the name of
// the installation's skill.
func shadowsGlobal(file string) bool {
	rest, ok := strings.CutPrefix(file, skillsDir+"/")
	name, _, _ := strings.Cut(rest, "/")
	return ok && archive.IsReserved(name)
}
