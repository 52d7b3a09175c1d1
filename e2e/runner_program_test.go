//go:build unix

package e2e

import (
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"secbox/access/tokens"
)

// TestRunnerProgram serves a directory with the program secbox: files, a command, one that is
// canceled with its children, and Ctrl-C. Under Wine it is secbox.exe, and bash is a shell of
// Windows.
func TestRunnerProgram(t *testing.T) {
	t.Parallel()
	s := start(t, noPool)
	_, secret := s.newToken(tokens.Spec{Role: tokens.Runner, UserID: "dan"})
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "note.txt"), []byte("from my machine\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	say, sleep := "cat made.txt; echo $SECBOX_WORKSPACE >&2; exit 3", "echo begun; sleep 8761 & wait"
	if os.Getenv("SECBOX_E2E_WINDOWS") != "" {
		say, sleep = "type made.txt & echo %SECBOX_WORKSPACE% 1>&2 & exit 3", "echo begun & ping -n 8761 127.0.0.1 >nul"
	}
	var log words
	cmd := exec.Command(secboxBinary(t), "runner", "--server", "ws"+strings.TrimPrefix(s.url, "http"), "--workspace", dir, "--name", "laptop", "--allow",
		"exec,write")
	cmd.Env = append(os.Environ(), "SECBOX_TOKEN="+secret)
	cmd.Stderr = &log
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		_ = cmd.Wait()
	}()
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		<-ended
		if t.Failed() {
			t.Logf("secbox said:\n%s", log.String())
		}
	})
	isThere := func() bool { return slices.Contains(s.connected(), "dan/laptop") }
	eventually(t, "it is connected", isThere)
	s.worksIn("dan", object{"backend": "remote", "runner": "laptop"})

	const u = "/v1/sandbox/dan/ag"
	s.send(http.MethodPut, u+"/edit?path=made.txt", "from afar\n").done(t)
	if files, note := s.files(u), s.content(u, "note.txt"); !slices.Equal(files, []string{"made.txt", "note.txt"}) || note != "from my machine\n" {
		t.Errorf("%q, %q", files, note)
	}
	ran := s.runs(u+"/execute?command=bash", "-c", say)
	if ran.str("stdout") != "from afar\n" || !strings.Contains(ran.str("stderror"), filepath.Base(filepath.Dir(dir))) || ran.num("exit_code") != 3 {
		t.Errorf("%v", ran)
	}

	answered := make(chan answer, 1)
	go func() { answered <- s.send(http.MethodPost, u+"/execute?command=bash", []string{"-c", sleep}) }()
	var id string
	eventually(t, "the command runs", func() bool {
		for _, e := range s.get("/sandbox/execs?status=running").list("items") {
			id = e.str("exec_id")
		}
		return id != "" && strings.HasPrefix(string(s.send(http.MethodGet, "/sandbox/execs/"+id+"/stdout", nil).Body), "begun") &&
			len(processesWith("8761")) > 0
	})
	s.send(http.MethodPost, "/sandbox/execs/"+id+"/cancel", nil)
	if result := (<-answered).json(t); !strings.HasPrefix(result.str("data.stdout"), "begun") ||
		!strings.Contains(result.str("data.stderror"), "canceled by request") {
		t.Errorf("canceled: %v", result)
	}
	eventually(t, "its processes are gone", func() bool { return len(processesWith("8761")) == 0 })

	_ = cmd.Process.Signal(os.Interrupt)
	<-ended
	eventually(t, "it is not connected", func() bool { return !isThere() })
}
