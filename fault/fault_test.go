package fault_test

import (
	"errors"
	"fmt"
	"net/http"
	"strings"
	"testing"

	"secbox/fault"
)

func TestEveryCodeHasAMeaning(t *testing.T) {
	seen := map[fault.Code]bool{}
	for _, code := range fault.Codes() {
		if seen[code] || fault.Title(code) == "" {
			t.Errorf("%s is there twice, or has no title", code)
		}
		seen[code] = true
		if s := fault.HTTPStatus(code); s < 400 || s > 599 || http.StatusText(s) == "" {
			t.Errorf("%s: HTTP status %d is no error status", code, s)
		}
		if fault.ExitCode(code) == 0 {
			t.Errorf("%s: exit code 0 means success", code)
		}
	}
	if len(seen) < 30 || !seen[fault.Internal] || fault.Title("no such code") != fault.Title(fault.Internal) {
		t.Fatalf("%d codes; the test reads the wrong place", len(seen))
	}
}

func TestForeignErrorIsHidden(t *testing.T) {
	e := fault.From(fmt.Errorf("dial: %w", errors.New("password=hunter2")))
	if e.Code != fault.Internal || strings.Contains(e.Message, "hunter2") {
		t.Fatalf("message shows the cause: %q", e.Message)
	}
	if !strings.Contains(e.Error(), "hunter2") {
		t.Fatal("the log would not see the cause")
	}
}

func TestFromFindsTheErrorInAChain(t *testing.T) {
	inner := fault.BadField("inputs[0].path", "is empty")
	if got := fault.From(fmt.Errorf("while writing: %w", inner)); got != inner {
		t.Fatalf("got %v", got)
	}
	if fault.From(nil) != nil || fault.CodeOf(nil) != "" {
		t.Fatal("nil is no error")
	}
}
