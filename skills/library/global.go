package library

import (
	"context"
	"slices"
	"strings"

	"secbox/skills/archive"
	"secbox/skills/metadata"
	"secbox/tree"
	"secbox/workspace"
)

// The installation has one skill of its own, skill-creator: the same for all users of all agents, read like a version that they are
// pinned to, and nobody's to change. A user or a command may put something at work/skills/skill-creator, or under another spelling of
// that name. It is a file like any other there to commands, and nothing here looks at it.

// GlobalRoot is where the containers of workspaces find it.
const GlobalRoot = workspace.ToolTarget

// isGlobal says whether the installation's own skill is meant. Other spellings of its name mean no skill at all.
func isGlobal(skillID string) bool { return skillID == archive.ReservedID }

// openGlobal opens the installation's own skill.
func (l *Library) openGlobal() (*tree.Tree, error) {
	tool := l.Versions.Tool()
	if tool == nil {
		return nil, unknownSkill(archive.ReservedID)
	}
	return tool.Tree()
}

// GlobalDigest names the content of the installation's own skill, which nothing changes while the server runs. fault.UnknownSkill when there
// is none.
func (l *Library) GlobalDigest() (string, error) {
	if tool := l.Versions.Tool(); tool != nil {
		return tool.Digest(), nil
	}
	return "", unknownSkill(archive.ReservedID)
}

// listGlobal is what the list says of it.
func (l *Library) listGlobal(ctx context.Context) (one Listed, ok bool) {
	tool := l.Versions.Tool()
	if tool == nil {
		return Listed{}, false
	}
	one = Listed{SkillID: archive.ReservedID, Name: archive.ReservedID, Description: metadata.NoDescription, Status: Unchanged, Digest: tool.Digest()}
	t, err := tool.Tree()
	if err != nil {
		l.Log.ErrorContext(ctx, "the installation's own skill cannot be read", "skill", one.SkillID, "error", err)
		return one, true
	}
	defer t.Close()
	one.describe(l, t)
	return one, true
}

// withGlobal puts it into a list that is in the order of ids.
func (l *Library) withGlobal(ctx context.Context, list []Listed) []Listed {
	one, ok := l.listGlobal(ctx)
	if !ok {
		return list
	}
	at, _ := slices.BinarySearchFunc(list, one, func(a, b Listed) int { return strings.Compare(a.SkillID, b.SkillID) })
	return slices.Insert(list, at, one)
}

// isPlanted says of a path below work/ whether it is, or lies in, what somebody has put there under the name of the installation's skill.
func isPlanted(file string) bool {
	rest, ok := strings.CutPrefix(file, skillsDir+"/")
	name, _, _ := strings.Cut(rest, "/")
	return ok && archive.IsReserved(name)
}
