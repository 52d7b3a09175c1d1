package workspace

import (
	"context"
	"os"

	"secbox/workspace/tree"
)

// WorkUsage measures work/ while a job may be changing it; see tree.Measure.
func (p *Project) WorkUsage(ctx context.Context) (tree.Usage, error) {
	return p.workUsage(ctx, tree.MaxUsageEntries)
}

func (p *Project) workUsage(ctx context.Context, entries int64) (tree.Usage, error) {
	root, err := p.open()
	if err != nil {
		return tree.Usage{}, err
	}
	defer root.Close()
	return tree.Measure(ctx, root, workDir, entries), nil
}

// FilesUsage measures work/ and the inputs in the same way; after about so many entries it is cut.
func (p *Project) FilesUsage(ctx context.Context, entries int64) (tree.Usage, error) {
	all, err := p.workUsage(ctx, entries)
	if err != nil || all.Cut != tree.CutNone {
		return all, err
	}
	root, err := p.open()
	if err != nil {
		return all, err
	}
	defer root.Close()
	inputs := tree.Measure(ctx, root, inputsDir, entries-all.Entries)
	return tree.Usage{Bytes: all.Bytes + inputs.Bytes, Entries: all.Entries + inputs.Entries, Cut: inputs.Cut}, nil
}

// ArtifactsUsage measures artifacts/<exec_id>/, which may be missing, in the same way.
func (p *Project) ArtifactsUsage(ctx context.Context, execID string) (tree.Usage, error) {
	if err := checkExecID(execID); err != nil {
		return tree.Usage{}, err
	}
	root, err := p.open()
	if err != nil {
		return tree.Usage{}, err
	}
	defer root.Close()
	artifacts, _, err := tree.OpenDir(root, artifactsDir)
	if err != nil {
		return tree.Usage{}, nil //nolint:nilerr // a directory that is not there holds nothing
	}
	defer artifacts.Close()
	return tree.Measure(ctx, artifacts, execID, tree.MaxUsageEntries), nil
}

// HomeUsage measures the home in the same way.
func (p *Project) HomeUsage(ctx context.Context) (usage tree.Usage, err error) {
	err = p.inHomes(func(homes *os.Root) error {
		usage = tree.Measure(ctx, homes, homeDir, tree.MaxUsageEntries)
		return nil
	})
	return usage, err
}
