package policy

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"secbox/fault"
)

// TestParseDenied: the message of Resolve's error names each violation with the value.
func TestParseDenied(t *testing.T) {
	t.Parallel()
	r, err := New(Config{SettingsDigest: "sha256:s"})
	if err != nil {
		t.Fatal(err)
	}
	for n, asked := range []Layer{
		{Limits: Limits{TimeoutMS: new(int64(1 << 40))}},
		{Limits: Limits{TimeoutMS: new(int64(1 << 30)), CPUCores: new(64.5), MemoryMB: new(int64(1 << 20))}, Image: new("other:1"), NetMode: new("host")},
	} {
		layer, of, request := LayerRequest, (*Layer)(nil), asked
		if n == 0 {
			layer, of, request = LayerManifest, &asked, Layer{}
		}
		_, err := r.Resolve(of, request, Host{})
		var e *fault.Error
		if !errors.As(err, &e) || e.Code != fault.PolicyDenied {
			t.Fatal(err)
		}
		got := ParseDenied(e.Message)
		if len(got) != len(e.Fields) {
			t.Fatalf("%q: %+v", e.Message, got)
		}
		if names := DeniedFields(e.Message); len(names) != len(got) || names[0] != got[0].Field {
			t.Errorf("the fields %q", names)
		}
		for i, f := range e.Fields {
			if got[i].Layer != layer || got[i].Field != f.Field || got[i].Reason != f.Reason || strings.Trim(got[i].Asked, `"`) != fmt.Sprint(f.Asked) {
				t.Errorf("%+v instead of %+v", got[i], f)
			}
		}
	}
	for _, text := range []string{"", ". ", "timeout_ms", "the token may not use the project"} {
		if got := ParseDenied(text); got != nil {
			t.Errorf("%q: %+v", text, got)
		}
	}
}
