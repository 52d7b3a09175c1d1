package traces

import (
	"net/http"
	"strings"
	"testing"
)

const sampled = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"

// TestStrictParse: only a traceparent by W3C Trace Context names a span.
func TestStrictParse(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		sampled:                       sampled,
		sampled[:53] + "00":           sampled[:53] + "00",
		sampled[:53] + "03":           sampled, // a flag of level 2
		sampled[:53] + "fe":           sampled[:53] + "00",
		"cc" + sampled[2:]:            sampled,
		"01" + sampled[2:] + "-later": sampled,
		"01" + sampled[2:] + "-":      sampled,

		"":                                    "",
		sampled[:54]:                          "",
		sampled + "-":                         "",
		sampled + " ":                         "",
		" " + sampled:                         "",
		sampled + "," + sampled:               "",
		"ff" + sampled[2:]:                    "",
		"0g" + sampled[2:]:                    "",
		"01" + sampled[2:] + "x":              "",
		strings.ToUpper(sampled):              "",
		sampled[:53] + "0G":                   "",
		sampled[:53] + "0A":                   "",
		strings.Replace(sampled, "-", "_", 1): "",
		"00-" + strings.Repeat("0", 32) + sampled[35:]:               "",
		sampled[:36] + strings.Repeat("0", 16) + "-01":               "",
		"00-4bf92f3577b34da6a3ce929d0e0e473\xff-00f067aa0ba902b7-01": "",
		"01" + sampled[2:] + "-" + strings.Repeat("x", 1000):         "",
	} {
		id, ok := Parse(text)
		if id.String() != want || ok != (want != "") {
			t.Errorf("%q: %q, %v, want %q", text, id, ok, want)
		}
	}
}

// TestHeaderNamesSpan: a hostile header is ignored, and so is a header that is given twice.
func TestHeaderNamesSpan(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		header []string
		want   string
	}{
		{nil, ""},
		{[]string{sampled}, sampled},
		{[]string{sampled, sampled}, ""},
		{[]string{"00-"}, ""},
	} {
		h := http.Header{}
		for _, value := range c.header {
			h.Add("traceparent", value)
			h.Add("tracestate", "vendor="+strings.Repeat("x", 1<<10))
		}
		ctx := FromHeader(t.Context(), h)
		if got := Of(ctx).String(); got != c.want {
			t.Errorf("%q: %q, want %q", c.header, got, c.want)
		}
		if c.want == "" && ctx != t.Context() {
			t.Errorf("%q: another context", c.header)
		}
	}
}

// FuzzParse: an ID that is parsed is written as it was, except for flags and versions to come.
func FuzzParse(f *testing.F) {
	f.Add(sampled)
	f.Add("01" + sampled[2:] + "-later")
	f.Add("ff-" + strings.Repeat("0", 52))
	f.Fuzz(func(t *testing.T, text string) {
		id, ok := Parse(text)
		if !ok {
			if id != (ID{}) {
				t.Fatalf("%q: refused, and %+v", text, id)
			}
			return
		}
		written := id.String()
		if len(written) != wholeLength || written[2:53] != text[2:53] || id != Of(With(t.Context(), id)) {
			t.Fatalf("%q is written as %q", text, written)
		}
		if again, ok := Parse(written); !ok || again != id {
			t.Fatalf("%q is read as %+v", written, again)
		}
	})
}
