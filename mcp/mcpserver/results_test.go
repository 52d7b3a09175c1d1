package mcpserver

import (
	"encoding/json"
	"strings"
	"testing"

	"secbox/fault"
)

// TestLongErrorIsShortened: an error has the bound of a result, and keeps what a model needs to go
// on.
func TestLongErrorIsShortened(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	e := fault.New(fault.UpstreamFailed, "it failed: %s", strings.Repeat("m", 1<<20))
	for range 1000 {
		e.Fields = append(e.Fields, fault.Field{Field: "x", Reason: strings.Repeat("r", 1000)})
	}
	e.ExecID = "the-exec"
	result := f.server.failure(t.Context(), e)
	encoded, err := json.Marshal(result)
	if err != nil || len(encoded) > 34<<10 { // with JSON around the texts
		t.Errorf("%d bytes, %v", len(encoded), err)
	}
	if text := textOf(result); !strings.HasPrefix(text, "upstream_failed: it failed") || !strings.Contains(text, "exec the-exec") {
		t.Errorf("%.100s … %s", text, text[max(0, len(text)-100):])
	}
	if kept, ok := result.Meta[metaFields].([]fault.Field); !ok || len(kept) == 0 {
		t.Errorf("fields %d", len(kept))
	}
}
