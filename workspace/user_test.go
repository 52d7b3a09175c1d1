//go:build unix

package workspace_test

import (
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

// asUser marks the run of this test binary as an ordinary user.
const asUser = "WORKSPACE_TEST_AS_USER"

// TestAsAnOrdinaryUser runs the other tests, but for the largest trees, once more as uid 1000, since root is let through where a mode of
// 0000 stops others. Who is not root to begin with has run them as an ordinary user already.
func TestAsAnOrdinaryUser(t *testing.T) {
	if os.Geteuid() != 0 {
		return
	}
	base, err := os.MkdirTemp("", "workspace-user")
	must(t, err)
	t.Cleanup(func() { must(t, os.RemoveAll(base)) })
	must(t, os.Chmod(base, 0o755))
	temp := filepath.Join(base, "tmp")
	must(t, os.Mkdir(temp, 0o755))
	must(t, os.Chown(temp, 1000, 1000))
	// The go tool's own copy lies in a directory that only root enters.
	self, err := os.Open(os.Args[0])
	must(t, err)
	defer self.Close()
	binary, err := os.OpenFile(filepath.Join(base, "test"), os.O_CREATE|os.O_WRONLY, 0o755)
	must(t, err)
	_, err = io.Copy(binary, self)
	must(t, err)
	must(t, binary.Close())

	cmd := exec.Command(binary.Name(), "-test.v", "-test.run=^Test", "-test.skip=^(TestAHundred|TestSixty)")
	cmd.Dir = temp
	cmd.Env = append(os.Environ(), asUser+"=1", "TMPDIR="+temp, "HOME="+temp)
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: 1000, Gid: 1000}}
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("as uid 1000: %v\n%s", err, out)
	}
	if !strings.Contains(string(out), "--- PASS: TestModeZeroEntriesAreCollected") {
		t.Fatalf("the tests did not run as uid 1000:\n%s", out)
	}
}

func TestTheUserRunIsNotRoot(t *testing.T) {
	t.Parallel()
	if os.Getenv(asUser) != "" && os.Geteuid() == 0 {
		t.Fatal("still root")
	}
}
