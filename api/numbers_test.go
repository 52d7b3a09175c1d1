package api_test

import (
	"strings"
	"testing"

	"secbox/fault"
)

// TestNumbersOutOfRange: the refusal of a number names both of its bounds.
func TestNumbersOutOfRange(t *testing.T) {
	t.Parallel()
	f := start(t)
	for path, bounds := range map[string]string{
		"/v1/sandbox/u/ag/content?path=f&start=2147483648":      "from 1 to 2147483647",
		"/v1/sandbox/u/ag/content?path=f&end=0":                 "from 1 to 2147483647",
		"/v1/registry/skills?limit=501":                         "from 1 to 500",
		"/sandbox/execs?exit_code_ne=2147483648":                "from -2147483648 to 2147483647",
		"/sandbox/execs?limit=501":                              "from 1 to 500",
		"/v1/skills/u/ag/s/content?path=f&start=99999999999999": "from 1 to 2147483647",
	} {
		if r := f.get(path); r.StatusCode != fault.HTTPStatus(fault.InvalidRequest) || !strings.Contains(string(r.body), bounds) {
			t.Errorf("%s: %d %s, want %s", path, r.StatusCode, r.body, bounds)
		}
	}
}
