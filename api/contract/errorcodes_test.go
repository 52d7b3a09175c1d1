package contract_test

import (
	"flag"
	"os"
	"regexp"
	"strings"
	"testing"

	"secbox/fault"
)

var write = flag.Bool("write", false, "write the error codes into openapi.yaml")

// TestErrorCodes: the enum ErrorCode of openapi.yaml has the codes of package fault, in their
// order. With -write, as go generate runs it, it writes the enum.
func TestErrorCodes(t *testing.T) {
	const file = "../openapi.yaml"
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	enum := regexp.MustCompile(`(\n    ErrorCode:\n(?:      .*\n)*?      enum:\n)(?:        - \w+\n)*`).FindSubmatchIndex(text)
	if enum == nil {
		t.Fatal("openapi.yaml has no schema ErrorCode with an enum at its end")
	}
	var codes strings.Builder
	for _, code := range fault.Codes() {
		codes.WriteString("        - " + string(code) + "\n")
	}
	want := string(text[:enum[3]]) + codes.String() + string(text[enum[1]:])
	if want == string(text) {
		return
	}
	if !*write {
		t.Fatal("the enum ErrorCode of openapi.yaml is older than fault/codes.go: run go generate ./api")
	}
	if err := os.WriteFile(file, []byte(want), 0o644); err != nil {
		t.Fatal(err)
	}
}
