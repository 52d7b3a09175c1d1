package docker

import (
	"strings"
	"testing"

	"secbox/workspace"
)

func TestGrowthAgainstItsBounds(t *testing.T) {
	t.Parallel()
	limit := DiskLimits{GrowthMaxBytes: 100, GrowthMaxEntries: 10}
	for name, c := range map[string]struct {
		first, now usage
		says       string // empty: the command lives on
	}{
		"at the bounds":                {usage{bytes: 7, entries: 7}, usage{bytes: 107, entries: 17}, ""},
		"bytes":                        {usage{bytes: 7}, usage{bytes: 108}, "disk_growth_max_bytes"},
		"entries":                      {usage{entries: 7}, usage{entries: 18}, "disk_growth_max_entries"},
		"less than before":             {usage{bytes: 1000, entries: 1000}, usage{}, ""},
		"too many to walk":             {usage{}, usage{home: workspace.CutEntries}, "more entries than can be watched"},
		"too many from the beginning":  {usage{home: workspace.CutEntries}, usage{home: workspace.CutEntries}, ""},
		"too deep":                     {usage{home: workspace.CutDepth}, usage{work: workspace.CutDepth, home: workspace.CutDepth}, "deeper than can be watched"},
		"too deep from the beginning":  {usage{work: workspace.CutDepth}, usage{work: workspace.CutDepth}, ""},
		"exchanged while it was read":  {usage{}, usage{work: workspace.CutUnreadable}, ""},
		"unreadable, but grown anyway": {usage{}, usage{bytes: 101, work: workspace.CutUnreadable}, "disk_growth_max_bytes"},
	} {
		if why := c.now.against(c.first, limit); (why != "") != (c.says != "") || !strings.Contains(why, c.says) {
			t.Errorf("%s: got %q, want %q", name, why, c.says)
		}
	}
}
