package library

import (
	"context"
	"strings"

	"secbox/skills/archive"
	"secbox/skills/content"
	"secbox/tree"
)

// A command may leave a skill in a folder of its own name within its folder, as unzip does in the wrong place. As with uploads, the list
// makes A/A/ to A/, before it looks at the skill. It does so only while no exec runs in the workspace: a script that is half done, which
// has just made A/A/ and is about to put a file beside it, must find its paths as it left them. Execs of other nodes are not seen, and one
// may begin in this very moment; as directories are moved, and not copied, those lose nothing, and what is found to be in use otherwise,
// or is more than an outer folder that holds only the inner one, stays as it is until the next look.

// isNested reports whether all files of a copy lie in a folder of its own name.
func isNested(c content.Content, skillID string) bool {
	for _, f := range c.Files {
		if !strings.HasPrefix(f.Path, skillID+"/") {
			return false
		}
	}
	return len(c.Files) > 0
}

// unnest takes away all levels of A/A/ that it can.
func (l *Library) unnest(ctx context.Context, o Owner, skillID string, in *tree.Tree) (done bool) {
	p, err := l.Workspace.Existing(o.ProjectID())
	if err != nil || p.ExecRuns() {
		return false
	}
	release, err := l.change(ctx, o, skillID)
	if err != nil {
		return false
	}
	defer release()
	for range tree.ListingBounds.Depth {
		flat, err := in.Unnest(skillID)
		if err != nil {
			l.Log.WarnContext(ctx, "a skill in a folder of its own name stays there", "agent", o.AgentID, "user", o.UserID, "skill", skillID, "error", err)
		}
		if !flat || err != nil {
			break
		}
		done = true
	}
	return done
}

// finishUnnest ends what an earlier process has begun, and tells of the names in a directory of copies whether there was something to do.
func (l *Library) finishUnnest(ctx context.Context, o Owner, dir *tree.Tree, names map[string]bool) (done bool) {
	for name := range names {
		if !tree.IsUnnested(name) {
			continue
		}
		skillID, _, _ := strings.Cut(name, tree.UnnestedMark)
		if archive.CheckID(skillID) != nil {
			continue
		}
		release, err := l.change(ctx, o, skillID)
		if err != nil {
			return done
		}
		if err := dir.FinishUnnest(name); err != nil {
			l.Log.WarnContext(ctx, "a skill lies beside its place", "agent", o.AgentID, "user", o.UserID, "name", name, "error", err)
		}
		done = true
		release()
	}
	return done
}
