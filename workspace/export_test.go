package workspace

import "context"

// GrowthOf is Growth with another budget for entries: 250,000 files take a test longer than they are worth.
func (p *Project) GrowthOf(ctx context.Context, execID string, entries int64) (Usage, error) {
	return p.growth(ctx, execID, entries)
}
