package hmackey_test

import (
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"testing"

	"secbox/audit/hmackey"
	"secbox/fault"
)

func TestOpen(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), hmackey.KeyFile)
	made, err := hmackey.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	again, err := hmackey.Open(path)
	if err != nil || again.Request("d") != made.Request("d") {
		t.Errorf("%q, %v; want %q", again.Request("d"), err, made.Request("d"))
	}
	if fi, err := os.Stat(path); err != nil || runtime.GOOS != "windows" && fi.Mode().Perm() != 0o600 {
		t.Errorf("%v %v", fi.Mode(), err)
	}
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	for _, damaged := range []string{"", "\n", string(text[:len(text)-3]), string(text) + "00", "x" + string(text[1:])} {
		if err := os.WriteFile(path, []byte(damaged), 0o600); err != nil {
			t.Fatal(err)
		}
		if _, err := hmackey.Open(path); !fault.Is(err, fault.InvalidSettings) || len(damaged) > 9 && strings.Contains(err.Error(), damaged[1:9]) {
			t.Errorf("%q: %v", damaged, err)
		}
	}
	if _, err := hmackey.Open(filepath.Join(t.TempDir(), "none", "key")); !fault.Is(err, fault.InvalidSettings) {
		t.Errorf("no directory: %v", err)
	}
}

// TestNodesOpenOneKey: nodes that start at once with a common file have one key.
func TestNodesOpenOneKey(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), hmackey.KeyFile)
	digests := make([]string, 8)
	var all sync.WaitGroup
	for i := range digests {
		all.Go(func() {
			key, err := hmackey.Open(path)
			if err != nil {
				t.Error(err)
				return
			}
			digests[i] = key.Request("d")
		})
	}
	all.Wait()
	for _, d := range digests {
		if d != digests[0] {
			t.Errorf("keys differ: %q", digests)
		}
	}
}

func TestCompare(t *testing.T) {
	t.Parallel()
	key, other := hmackey.New([]byte("one")), hmackey.New([]byte("another"))
	for name, c := range map[string]struct {
		recorded, digest string
		equal, known     bool
	}{
		"the same":                  {key.Request("d"), "d", true, true},
		"another request":           {key.Request("e"), "d", false, true},
		"of another key":            {other.Request("d"), "d", false, false},
		"of an older version":       {"d", "d", true, true},
		"another of an older":       {"e", "d", false, true},
		"of a request without body": {"", "d", false, true},
	} {
		if equal, known := key.Compare(c.recorded, c.digest); equal != c.equal || known != c.known {
			t.Errorf("%s: %v %v", name, equal, known)
		}
	}
	if hmackey.KeyOf("d") != "" || hmackey.KeyOf(key.Request("d")) == "" || hmackey.KeyOf(key.Request("d")) == hmackey.KeyOf(other.Request("d")) {
		t.Error("the id does not name the key")
	}
}

// TestDigestsDiffer: by every part, and by where one part ends and the next begins.
func TestDigestsDiffer(t *testing.T) {
	t.Parallel()
	key := hmackey.New([]byte("one"))
	seen := map[string]string{}
	for what, d := range map[string]string{
		"value": key.Variable("s", "n", "v"), "another key": hmackey.New([]byte("x")).Variable("s", "n", "v"), "salt": key.Variable("t", "n", "v"),
		"name": key.Variable("s", "m", "v"), "content": key.Variable("s", "n", "w"), "shifted": key.Variable("s", "", "n\x00v"),
		"stdin": key.Stdin("s", []byte("n\x00v")),
		"none":  key.Variable("s", "n", ""), "no input": key.Stdin("s", nil),
	} {
		if other, ok := seen[d]; ok || len(d) != 32 {
			t.Errorf("%s and %s have the digest %q", what, other, d)
		}
		seen[d] = what
	}
}
