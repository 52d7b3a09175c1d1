//go:build unix

package treetest

import (
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

// AsUser runs the package's other tests, but for those that skip matches, once more as uid 1000,
// since root is let through where a mode of 0000 stops others. The test named passing must be among
// them. Without root, the tests have run as an ordinary user already.
func AsUser(t *testing.T, skip, passing string) {
	t.Helper()
	if os.Geteuid() != 0 {
		return
	}
	base, err := os.MkdirTemp("", "as-user")
	Must(t, err)
	t.Cleanup(func() { Must(t, os.RemoveAll(base)) })
	Must(t, os.Chmod(base, 0o755))
	temp := filepath.Join(base, "tmp")
	Must(t, os.Mkdir(temp, 0o755))
	Must(t, os.Chown(temp, 1000, 1000))
	// The go tool's own copy is in a directory that only root can enter.
	self, err := os.Open(os.Args[0])
	Must(t, err)
	defer self.Close()
	binary, err := os.OpenFile(filepath.Join(base, "test"), os.O_CREATE|os.O_WRONLY, 0o755)
	Must(t, err)
	_, err = io.Copy(binary, self)
	Must(t, err)
	Must(t, binary.Close())

	cmd := exec.Command(binary.Name(), "-test.v", "-test.run=^Test", "-test.skip="+skip)
	cmd.Dir = temp
	cmd.Env = append(os.Environ(), "TMPDIR="+temp, "HOME="+temp)
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: 1000, Gid: 1000}}
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("as uid 1000: %v\n%s", err, out)
	}
	if !strings.Contains(string(out), "--- PASS: "+passing) {
		t.Fatalf("the tests did not run as uid 1000:\n%s", out)
	}
}
