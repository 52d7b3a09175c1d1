package main

import (
	"bytes"
	"strings"
	"testing"

	"github.com/spf13/cobra"

	"secbox/internal/cmdline/cmdlinetest"
)

func TestCommandLines(t *testing.T) {
	t.Parallel()
	getenv := func(string) string { return "" }
	cmdlinetest.Run(t, cmdlinetest.Program{
		Root: func() *cobra.Command { return newRoot(getenv) },
		Run: func(args ...string) (int, string, string) {
			var stdout, stderr bytes.Buffer
			code := run(t.Context(), args, getenv, strings.NewReader(""), &stdout, &stderr)
			return code, stdout.String(), stderr.String()
		},
	})
}
