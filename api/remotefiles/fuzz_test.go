package remotefiles

import (
	"errors"
	"io/fs"
	"strings"
	"testing"

	"secbox/fault"
	"secbox/sandbox"
)

// FuzzSandboxPath checks that every path is either refused with a message or below the workspace.
func FuzzSandboxPath(f *testing.F) {
	for _, path := range []string{
		"notes.txt", "a/b.txt", "./a", "a//b", "", ".", "..", "a/..", "/etc/passwd", "a\\b", "a\x00", "a/", "...", "a/../b",
		strings.Repeat("x", 300),
	} {
		f.Add(path)
	}
	f.Fuzz(func(t *testing.T, name string) {
		full, err := sandboxPath(name)
		if err != nil {
			if e := fault.From(err); e.Code != fault.PathRefused || len(e.Fields) != 1 || e.Fields[0].Field != "path" || full != "" {
				t.Fatalf("%q: %q, %v", name, full, err)
			}
			return
		}
		below, err := sandbox.Clean("open", full, sandbox.Root)
		if err != nil && (!errors.Is(err, fs.ErrInvalid) || len(full) <= sandbox.MaxPathBytes && !longName(full)) {
			t.Fatalf("%q became %q: %v", name, full, err)
		}
		if err == nil && (below == "." || strings.HasPrefix(below, "../")) {
			t.Fatalf("%q leads to %q", name, below)
		}
	})
}

func longName(path string) bool {
	for part := range strings.SplitSeq(path, "/") {
		if len(part) > sandbox.MaxNameBytes {
			return true
		}
	}
	return false
}
