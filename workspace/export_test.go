package workspace

import (
	"context"
	"io/fs"
	"time"

	"secbox/workspace/tree"
)

// Growth adds up work/ and the artifacts of an exec.
func (p *Project) Growth(ctx context.Context, execID string) (tree.Usage, error) {
	return p.GrowthOf(ctx, execID, tree.MaxUsageEntries)
}

// GrowthOf is Growth with another budget for entries: 250,000 files would make the test slow.
func (p *Project) GrowthOf(ctx context.Context, execID string, entries int64) (tree.Usage, error) {
	sum, err := p.ArtifactsUsage(ctx, execID)
	if err != nil {
		return tree.Usage{}, err
	}
	work, err := p.workUsage(ctx, entries)
	sum.Bytes, sum.Entries = sum.Bytes+work.Bytes, sum.Entries+work.Entries
	if sum.Cut == tree.CutNone || sum.Cut == tree.CutTime {
		sum.Cut = work.Cut
	}
	return sum, err
}

// KnownIntact returns how many files are known to match their manifest entry.
func (w *Workspace) KnownIntact() int { return len(w.intact.seen) }

// RememberIntact remembers a file with this digest without reading it.
func (w *Workspace) RememberIntact(fi fs.FileInfo, sha256 string) {
	w.intact.remember(intactKey{tree.StatOf(fi).Inode, sha256}, tree.StatOf(fi))
}

// TrustNewStats makes the workspace remember files that have just changed, too.
func (w *Workspace) TrustNewStats() { w.intact.after = -time.Hour }
