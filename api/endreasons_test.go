package api

import (
	"slices"
	"testing"

	"github.com/getkin/kin-openapi/openapi3"

	"secbox/audit"
	"secbox/runner"
)

// TestEndReasons: openapi.yaml lists the reasons for the end of a session that answers have.
func TestEndReasons(t *testing.T) {
	t.Parallel()
	doc, err := openapi3.NewLoader().LoadFromData(Contract())
	if err != nil {
		t.Fatal(err)
	}
	var listed []string
	for _, value := range doc.Components.Schemas["Session"].Value.Properties["end_reason"].Value.Enum {
		listed = append(listed, value.(string))
	}
	given := []string{""}
	for _, reason := range doc.Components.Schemas["ErrorReason"].Value.Enum {
		given = append(given, runner.EndReason(audit.Record{ErrorReason: audit.Reason(reason.(string))}))
	}
	slices.Sort(given)
	given = slices.Compact(given)
	slices.Sort(listed)
	if !slices.Equal(listed, given) {
		t.Errorf("openapi.yaml has %q, answers %q", listed, given)
	}
}
