package tools

import (
	"slices"
	"strings"
	"testing"

	"secbox/settings"
)

// TestServersCannotTakeOwnNames: the settings refuse MCP servers whose tools would have the names
// of these.
func TestServersCannotTakeOwnNames(t *testing.T) {
	t.Parallel()
	begin := []string{"skill"} // of the catalog's skills
	for _, tool := range slices.Concat(All, keptTools, feishuTools) {
		first, _, _ := strings.Cut(tool.Name, ".")
		begin = append(begin, first)
	}
	slices.Sort(begin)
	if begin = slices.Compact(begin); !slices.Equal(begin, settings.OwnTools) {
		t.Errorf("the tools begin with %v, settings.OwnTools has %v", begin, settings.OwnTools)
	}
}
