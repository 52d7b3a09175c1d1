package runner

import (
	"strings"
	"testing"

	"secbox/workspace"
)

func TestGrowthAgainstItsBounds(t *testing.T) {
	t.Parallel()
	limit := DiskLimits{GrowthMaxBytes: 100, GrowthMaxEntries: 10}
	for name, c := range map[string]struct {
		first, now growth
		says       string // empty: the job lives on
	}{
		"nothing":                      {growth{}, growth{}, ""},
		"at the bounds":                {growth{bytes: 7, entries: 7}, growth{bytes: 107, entries: 17}, ""},
		"bytes":                        {growth{bytes: 7}, growth{bytes: 108}, "disk_growth_max_bytes"},
		"entries":                      {growth{entries: 7}, growth{entries: 18}, "disk_growth_max_entries"},
		"less than before":             {growth{bytes: 1000, entries: 1000}, growth{}, ""},
		"too many to walk":             {growth{}, growth{cut: workspace.CutEntries}, "more entries than can be watched"},
		"too many from the beginning":  {growth{cut: workspace.CutEntries}, growth{cut: workspace.CutEntries}, ""},
		"too deep":                     {growth{}, growth{cut: workspace.CutDepth}, "deeper than can be watched"},
		"too deep from the beginning":  {growth{cut: workspace.CutDepth}, growth{cut: workspace.CutDepth}, ""},
		"too deep, then too many":      {growth{cut: workspace.CutDepth}, growth{cut: workspace.CutEntries}, "more entries"},
		"exchanged while it was read":  {growth{}, growth{cut: workspace.CutUnreadable}, ""},
		"unreadable, but grown anyway": {growth{}, growth{bytes: 101, cut: workspace.CutUnreadable}, "disk_growth_max_bytes"},
		"the look was given up":        {growth{}, growth{cut: workspace.CutTime}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			err := c.now.against(c.first, limit)
			if (err != nil) != (c.says != "") || err != nil && !strings.Contains(err.Error(), c.says) {
				t.Errorf("got %v, want %q", err, c.says)
			}
			if err := c.now.against(c.first, DiskLimits{}); c.now.cut == workspace.CutNone && err != nil {
				t.Errorf("without bounds: %v", err)
			}
		})
	}
}
