package workspace

import (
	"context"
	"errors"
	"io"
	"io/fs"
	"os"
	"time"
)

// Growth adds up work/ and the artifacts of an exec.
func (p *Project) Growth(ctx context.Context, execID string) (Usage, error) {
	return p.GrowthOf(ctx, execID, growthEntries)
}

// GrowthOf is Growth with another budget for entries: 250,000 files take a test longer than they are worth.
func (p *Project) GrowthOf(ctx context.Context, execID string, entries int64) (Usage, error) {
	sum, err := p.ArtifactsUsage(ctx, execID)
	if err != nil {
		return Usage{}, err
	}
	work, err := p.workUsage(ctx, entries)
	sum.Bytes, sum.Entries = sum.Bytes+work.Bytes, sum.Entries+work.Entries
	if sum.Cut == CutNone || sum.Cut == CutTime {
		sum.Cut = work.Cut
	}
	return sum, err
}

// Waiting is how many wait for the project's work/ while it is packed.
func (p *Project) Waiting() int32 { return p.state.guard.waiting.Load() }

// PackTree writes a pack of a tree.
func PackTree(ctx context.Context, t *Tree, to *os.File, wanted func() bool) error {
	_, err := pack(ctx, t, to, nil, wanted)
	return err
}

// Unpack makes a tree of a pack.
func Unpack(from io.Reader, parent *os.Root, name string) error {
	_, err := unpack(from, parent, name)
	return err
}

// IsDamaged reports whether an error is about a pack, and not about the disk.
func IsDamaged(err error) bool { return errors.Is(err, errDamaged) }

// KnownIntact is how many files are remembered to have the content of their manifest entry.
func (w *Workspace) KnownIntact() int { return len(w.intact.seen) }

// RememberIntact remembers a file as having this digest, whatever it holds.
func (w *Workspace) RememberIntact(fi fs.FileInfo, sha256 string) {
	w.intact.remember(intactKey{StampOf(fi).Inode, sha256}, StampOf(fi))
}

// BelieveNewStamps has files remembered however short ago they were changed.
func (w *Workspace) BelieveNewStamps() { w.intact.after = -time.Hour }
