package scripts

import (
	"os/exec"
	"strings"
	"testing"
)

// TestFailuresOfCI: the end of CI's output names each failed test with its own lines, whatever else
// was printed.
func TestFailuresOfCI(t *testing.T) {
	t.Parallel()
	failures := func(output string) string {
		cmd := exec.CommandContext(t.Context(), "awk", "-f", "../.ci/failures.awk")
		cmd.Stdin = strings.NewReader(output)
		out, err := cmd.CombinedOutput()
		if err != nil {
			t.Fatalf("%v: %s", err, out)
		}
		return string(out)
	}
	noise := strings.Repeat("        time=2026-11-22T22:23:32.992Z level=INFO msg=request path=/readyz status=200\n", 300)
	got := failures("ok  \tsecbox/policy\t1.0s\n--- FAIL: TestFaults (3.1s)\n    --- FAIL: TestFaults/full (3.0s)\n" + noise +
		"        faults_test.go:88: got 500, want 507\n            the second line\n" + noise +
		"        time=2026-11-22T22:23:32.992Z level=WARN msg=late\n" +
		"FAIL\nclosing: containers are left\n" + noise +
		"FAIL\tsecbox/e2e\t47.9s\nFAIL\npanic: index out of range\n\ngoroutine 7 [running]:\nFAIL\tsecbox/api\t1.2s\n" +
		"# secbox/store\nstore/rows.go:12:3: undefined: x\nmake: *** [Makefile:93: test-packages] Error 1\n")
	want := `    --- FAIL: TestFaults/full (3.0s)
        faults_test.go:88: got 500, want 507
            the second line
        time=2026-11-22T22:23:32.992Z level=WARN msg=late
closing: containers are left
FAIL    secbox/e2e    47.9s
panic: index out of range

goroutine 7 [running]:
FAIL    secbox/api    1.2s
store/rows.go:12:3: undefined: x
make: *** [Makefile:93: test-packages] Error 1
`
	if got != want {
		t.Errorf("got:\n%s", got)
	}
	many := failures(strings.Repeat("--- FAIL: TestOneOfMany (1.0s)\n"+strings.Repeat("    many_test.go:9: "+strings.Repeat("x", 700)+"\n", 40), 30))
	if lines := strings.Count(many, "\n"); lines > 51 || len(many) > 11_000 || strings.Count(many, "TestOneOfMany") < 25 {
		t.Errorf("%d lines, %d bytes:\n%s", lines, len(many), many)
	}
}
