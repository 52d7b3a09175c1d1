package row

import (
	"testing"

	"secbox/audit"
	"secbox/audit/translog/proof"
)

// TestColumnsThatChangeAreKnownToProofs: a later event may change exactly the columns that Start and Close set, and the status.
func TestColumnsThatChangeAreKnownToProofs(t *testing.T) {
	t.Parallel()
	for _, c := range columns(&audit.Record{}) {
		if changes := c.use&(onStart|onClose) != 0; changes != proof.MayChange[c.name] {
			t.Errorf("%s: Start or Close sets it: %v; proof.MayChange: %v", c.name, changes, proof.MayChange[c.name])
		}
	}
}
