package main

import (
	"bytes"
	"io"
	"testing"

	"github.com/spf13/cobra"

	"secbox/internal/cmdline/cmdlinetest"
)

func TestCommandLines(t *testing.T) {
	t.Parallel()
	cmdlinetest.Run(t, cmdlinetest.Program{
		Root: func() *cobra.Command { return (&command{stdout: io.Discard, stderr: io.Discard}).root() },
		Run: func(args ...string) (int, string, string) {
			var stdout, stderr bytes.Buffer
			code := run(t.Context(), args, nil, &stdout, &stderr)
			return code, stdout.String(), stderr.String()
		},
	})
}
