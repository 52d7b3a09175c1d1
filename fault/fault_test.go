package fault_test

import (
	"errors"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"net/http"
	"strconv"
	"strings"
	"testing"

	"secbox/fault"
)

// TestEveryCodeHasAMeaning reads the codes from the source, so that a code added without a line in the table is noticed.
func TestEveryCodeHasAMeaning(t *testing.T) {
	file, err := parser.ParseFile(token.NewFileSet(), "fault.go", nil, 0)
	if err != nil {
		t.Fatal(err)
	}
	codes := 0
	ast.Inspect(file, func(n ast.Node) bool {
		spec, ok := n.(*ast.ValueSpec)
		if !ok || len(spec.Values) != 1 {
			return true
		}
		lit, ok := spec.Values[0].(*ast.BasicLit)
		if !ok || lit.Kind != token.STRING {
			return true
		}
		value, _ := strconv.Unquote(lit.Value)
		code := fault.Code(value)
		codes++
		if code != fault.Internal && fault.Title(code) == fault.Title(fault.Internal) {
			t.Errorf("%s has no line in the table of codes.go", code)
		}
		if s := fault.HTTPStatus(code); s < 400 || s > 599 || http.StatusText(s) == "" {
			t.Errorf("%s: HTTP status %d is no error status", code, s)
		}
		if fault.ExitCode(code) == 0 {
			t.Errorf("%s: exit code 0 means success", code)
		}
		return true
	})
	if codes < 30 {
		t.Fatalf("found %d codes in fault.go; the test reads the wrong place", codes)
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
