//go:build unix

package userservers

import (
	"fmt"
	"math/rand/v2"
	"os/exec"
	"testing"
	"time"
)

// TestForksDoNotOutliveTheServer: processes that a server leaves behind, and that hold its pipes,
// are killed with it.
func TestForksDoNotOutliveTheServer(t *testing.T) {
	t.Parallel()
	mark := fmt.Sprintf("1%09d", rand.IntN(1e9))
	one := server("daemon", mark)
	one.Idle = time.Minute
	f := start(t, nil, one)
	f.list()
	if err := exec.Command("pgrep", "-f", "sleep "+mark).Run(); err != nil {
		t.Fatal("there is no fork", err)
	}
	f.text("srv.t", "")
	f.advance(time.Minute) // it is idle
	f.nothingLeft()
	if out, err := exec.Command("pgrep", "-af", "sleep "+mark).CombinedOutput(); err == nil {
		t.Errorf("%s", out)
	}
}
