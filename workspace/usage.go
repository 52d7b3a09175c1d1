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
