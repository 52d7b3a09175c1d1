package library

import (
	"context"
	"strings"

	"secbox/packages/archive"
	"secbox/packages/content"
	"secbox/workspace/tree"
)

// A command may leave a skill in a folder with its own name, A/A/, for example by unzipping it in
// the wrong place. As uploads do, List turns A/A/ into A/ before it reads the skill, but only while
// no exec runs in the workspace: a script that has just made A/A/ and is about to put a file beside
// it must find its paths. Execs of other nodes are not seen, and one may start just then; they lose
// nothing, because directories are renamed, not copied. A folder that is in use, or in which the
// outer folder holds more than the inner one, stays until the next List.

// isNested reports whether all files of a copy are in a folder with the skill's name.
func isNested(c content.Content, skillID string) bool {
	for _, f := range c.Files {
		if !strings.HasPrefix(f.Path, skillID+"/") {
			return false
		}
	}
	return len(c.Files) > 0
}

// unnest flattens all levels of A/A/ that it can.
func (l *Library) unnest(ctx context.Context, o Owner, skillID string, in *tree.Tree) (done bool) {
	p, err := l.Workspace.Existing(o.ProjectID())
	if err != nil || p.ExecRuns() {
		return false
	}
	release, err := l.lock(ctx, o, skillID)
	if err != nil {
		return false
	}
	defer release()
	for range tree.ListingBounds.Depth {
		flat, err := in.Unnest(skillID)
		if err != nil {
			l.Log.WarnContext(ctx, "a skill stays in a folder with its own name", "agent", o.AgentID, "user", o.UserID, "skill", skillID,
				"error", err)
		}
		if !flat || err != nil {
			break
		}
		done = true
	}
	return done
}

// finishUnnest completes interrupted calls of unnest. It reports whether there were any among the
// names in a directory of copies.
func (l *Library) finishUnnest(ctx context.Context, o Owner, dir *tree.Tree, names map[string]bool) (done bool) {
	for name := range names {
		if !tree.IsUnnested(name) {
			continue
		}
		skillID, _, _ := strings.Cut(name, tree.UnnestedMark)
		if archive.CheckID(skillID) != nil {
			continue
		}
		release, err := l.lock(ctx, o, skillID)
		if err != nil {
			return done
		}
		if err := dir.FinishUnnest(name); err != nil {
			l.Log.WarnContext(ctx, "an interrupted move of a skill cannot be completed", "agent", o.AgentID, "user", o.UserID, "name", name,
				"error", err)
		}
		done = true
		release()
	}
	return done
}
