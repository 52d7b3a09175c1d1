package fault_test

import (
	"fmt"
	"strings"
	"testing"

	"secbox/fault"
)

// TestFieldsAreBounded: of 9,900 wrong fields an error names 100.
func TestFieldsAreBounded(t *testing.T) {
	t.Parallel()
	var inner, outer fault.Fields
	if inner.Err() != nil {
		t.Error("no field is an error")
	}
	for i := range 9900 {
		inner.Add(fmt.Sprintf("inputs[%d].path", i), "%s", strings.Repeat("ü", 4000))
	}
	outer.Add("exec", "is wrong")
	outer.Merge(inner.Err())
	outer.Merge(nil)
	e := fault.From(outer.Err())
	if len(e.Fields) != 100 || !strings.HasSuffix(e.Message, "exec: is wrong (and 9900 more)") {
		t.Errorf("%d fields: %s", len(e.Fields), e.Message)
	}
	for _, f := range e.Fields {
		if len(f.Reason) > 610 {
			t.Fatalf("a reason of %d bytes", len(f.Reason))
		}
	}
	inner.Add("f", "%s", unformattable{t})
}

// unformattable fails the test that makes a sentence of it.
type unformattable struct{ t *testing.T }

func (u unformattable) String() string {
	u.t.Error("a field that is only counted was made a sentence")
	return ""
}
