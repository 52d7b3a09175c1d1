package view

import (
	"testing"

	"secbox/cluster/samples"
)

// TestEveryNumberHasAChart: each number of a node is on the page Operations.
func TestEveryNumberHasAChart(t *testing.T) {
	t.Parallel()
	shown := map[samples.Name]bool{}
	for _, group := range measures {
		for _, m := range group {
			shown[m.name], shown[m.of] = true, true
		}
	}
	for _, name := range samples.Names() {
		if !shown[name] {
			t.Errorf("%s has no chart", name)
		}
	}
}
