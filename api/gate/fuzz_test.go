package gate

import (
	"strings"
	"testing"
)

// FuzzHost checks that every Host that is accepted is one of the server's names.
func FuzzHost(f *testing.F) {
	for _, seed := range []string{"localhost", "[::1]:80", "a:b:c", "[", "localhost:", "LOCALHOST:8003", "[::1]x", "x@localhost"} {
		f.Add(seed)
	}
	guard, err := newHosts("127.0.0.1:8003", nil)
	if err != nil {
		f.Fatal(err)
	}
	f.Fuzz(func(t *testing.T, s string) {
		if !guard.knows(s) {
			return
		}
		rest := strings.ToLower(s)
		for _, name := range []string{"localhost", "127.0.0.1", "[::1]"} {
			if port, ok := strings.CutPrefix(rest, name); ok && strings.Trim(strings.TrimPrefix(port, ":"), "0123456789") == "" {
				return
			}
		}
		t.Fatalf("%q was taken for this server", s)
	})
}
