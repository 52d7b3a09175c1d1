//go:build unix

package docs

import (
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"secbox/policy"
)

// TestLimitsOnThePage compares the table of limits in execs.md with the policy: the fields, the
// defaults that are numbers, and the ceilings.
func TestLimitsOnThePage(t *testing.T) {
	t.Parallel()
	_, table, _ := strings.Cut(read(t, "execs.md"), "\n## Limits\n")
	table, _, _ = strings.Cut(table, "\n## ")
	cells := map[string][]string{}
	for _, row := range regexp.MustCompile(`(?m)^\| (.*) \| (.*) \| (.*) \| .* \|$`).FindAllStringSubmatch(table, -1)[1:] {
		for _, name := range matches("`([^`]*)`", row[1]) {
			cells[name] = row[2:]
		}
	}
	for _, d := range policy.Describe() {
		row, ok := cells[d.Name]
		delete(cells, d.Name)
		switch {
		case d.Name == policy.FieldRuntime: // no request asks for it
		case !ok:
			t.Errorf("the table of limits in docs/execs.md has no line for %s", d.Name)
		case d.Ceiling == nil:
		case row[0][0] >= '0' && row[0][0] <= '9' && inUnits(row[0]) != fmt.Sprint(d.Default): // other defaults follow a field
			t.Errorf("docs/execs.md: %s: the default is %v, and the page says %s", d.Name, d.Default, row[0])
		case inUnits(row[1]) != fmt.Sprint(d.Ceiling):
			t.Errorf("docs/execs.md: %s: the ceiling is %v, and the page says %s", d.Name, d.Ceiling, row[1])
		}
	}
	if len(cells) > 0 {
		t.Errorf("docs/execs.md has lines for %q, which the policy does not have", slices.Sorted(maps.Keys(cells)))
	}
}

// inUnits returns the number at the beginning of a cell in milliseconds, bytes or as it is.
func inUnits(cell string) string {
	number, rest, _ := strings.Cut(cell, " ")
	n, err := strconv.ParseInt(strings.ReplaceAll(number, ",", ""), 10, 64)
	if err != nil {
		return cell
	}
	return fmt.Sprint(n * max(1, map[string]int64{"min": 60_000, "MiB": 1 << 20, "GiB": 1 << 30}[rest]))
}
