package bench

import (
	"bufio"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
)

func TestDockerRunsAreCounted(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	for _, name := range []string{"run", "events"} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte("echo ready; read -r line"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	parent := exec.Command("sh", "-c", "exec 3<&0; for word in run events run; do sh $word <&3 & done; wait")
	parent.Dir = dir
	in, err := parent.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := parent.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := parent.Start(); err != nil {
		t.Fatal(err)
	}
	for lines, n := bufio.NewReader(out), 0; n < 3; n++ {
		if _, err := lines.ReadString('\n'); err != nil {
			t.Fatal(err)
		}
	}
	n, err := dockerRuns(parent.Process.Pid)
	if err != nil || n != 2 {
		t.Errorf("%d of two counted: %v", n, err)
	}
	if err := in.Close(); err != nil {
		t.Error(err)
	}
	if err := parent.Wait(); err != nil {
		t.Error(err)
	}
	if n, err := dockerRuns(os.Getppid() + 1<<30); err != nil || n != 0 {
		t.Errorf("of a process that is not there: %d %v", n, err)
	}
}
