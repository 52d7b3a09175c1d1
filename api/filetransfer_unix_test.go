//go:build unix

package api_test

import (
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"secbox/api/wire"
	"secbox/fault"
)

func TestTransferOfHostilePaths(t *testing.T) {
	t.Parallel()
	both(t, func(t *testing.T, f *fixture, dir string) {
		data[wire.V1Written](t, f.put("f", "x", nil))
		outside := filepath.Join(t.TempDir(), "secret")
		if err := os.WriteFile(outside, []byte("hunter2"), 0o600); err != nil {
			t.Fatal(err)
		}
		for name, target := range map[string]string{"out": outside, "up": "..", "abs": filepath.Dir(outside), "dev": "/dev/zero", "loop": "loop"} {
			if err := os.Symlink(target, filepath.Join(dir, name)); err != nil {
				t.Fatal(err)
			}
		}
		if err := os.Mkdir(filepath.Join(dir, "dir"), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := syscall.Mkfifo(filepath.Join(dir, "fifo"), 0o666); err != nil {
			t.Fatal(err)
		}
		for _, path := range []string{
			"..", "../x", "a/../../x", "/etc/passwd", "a%5Cb", "a%00b", ".", "dir", "dir/", "out", "up/x", "abs/secret", "dev", "loop", "fifo",
			strings.Repeat("x", 300),
		} {
			for _, r := range []reply{
				f.get(transfer + path), f.put(path, "overwritten", nil),
				f.put(path, "overwritten", map[string]string{"If-None-Match": "*"}),
			} {
				if r.StatusCode < 400 || r.StatusCode >= 500 || strings.Contains(string(r.body), "hunter2") || strings.Contains(string(r.body), dir) {
					t.Errorf("%s %.20s: %d %s", r.Request.Method, path, r.StatusCode, r.body)
				}
			}
		}
		if got, err := os.ReadFile(outside); err != nil || string(got) != "hunter2" {
			t.Errorf("outside: %q, %v", got, err)
		}
		f.get(transfer+"none").refused(t, fault.UnknownFile)
		noRemains(t, dir)
	})
}
