package process_test

import (
	"bytes"
	"os"
	"testing"
	"time"

	"secbox/sandbox/process"
)

func TestOutputInputAndCode(t *testing.T) {
	t.Parallel()
	p := process.New()
	defer p.Close()
	var out, errs bytes.Buffer
	r, err := p.Run(t.Context(), process.Spec{
		Argv: []string{"sh", "-c", "cat; echo $K >&2; exit 3"}, Dir: t.TempDir(), Env: append(os.Environ(), "K=v"), Stdin: "hello",
		Timeout: time.Minute, Stdout: &out, Stderr: &errs, MaxStdout: 100, MaxStderr: 100,
	})
	if err != nil || r.ExitCode != 3 || out.String() != "hello" || errs.String() != "v\n" {
		t.Fatalf("%+v %v %q %q", r, err, out.String(), errs.String())
	}
}
