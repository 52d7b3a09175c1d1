package main

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"
)

// TestInterruptedLogin presses Ctrl-C at the question for the token. The program ends, and the
// terminal shows again what is typed.
func TestInterruptedLogin(t *testing.T) {
	t.Parallel()
	keyboard, err := os.OpenFile("/dev/ptmx", os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer keyboard.Close()
	if err := unix.IoctlSetPointerInt(int(keyboard.Fd()), unix.TIOCSPTLCK, 0); err != nil {
		t.Fatal(err)
	}
	n, err := unix.IoctlGetInt(int(keyboard.Fd()), unix.TIOCGPTN)
	if err != nil {
		t.Fatal(err)
	}
	terminal, err := os.OpenFile("/dev/pts/"+strconv.Itoa(n), os.O_RDWR|unix.O_NOCTTY, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer terminal.Close()
	echoes := func() bool {
		state, err := unix.IoctlGetTermios(int(terminal.Fd()), unix.TCGETS)
		if err != nil {
			t.Error(err)
			return false
		}
		return state.Lflag&unix.ECHO != 0
	}
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	var words bytes.Buffer
	cmd := exec.CommandContext(t.Context(), self, "login", unanswered)
	cmd.Env = []string{asSecbox + "=1", envConfig + "=" + filepath.Join(t.TempDir(), "login.json")}
	cmd.Stdin, cmd.Stderr = terminal, &words
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Setctty: true}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the token is not shown", func() bool { return !echoes() })
	if _, err := keyboard.WriteString("\x03"); err != nil {
		t.Fatal(err)
	}
	_ = cmd.Wait()
	if code := cmd.ProcessState.ExitCode(); code != exitCanceled || !strings.Contains(words.String(), "canceled") || !echoes() {
		t.Errorf("code %d, echo %t: %s", code, echoes(), &words)
	}
}
