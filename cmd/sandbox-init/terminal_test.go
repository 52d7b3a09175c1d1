//go:build linux

package main

import (
	"bufio"
	"bytes"
	"cmp"
	"io"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"secbox/engine/initproto"
)

// shownTerminal is a command in a terminal, and what it has shown.
type shownTerminal struct {
	t    *testing.T
	cmd  *exec.Cmd
	in   io.WriteCloser
	out  *bufio.Reader
	seen strings.Builder
}

func startTerminal(t *testing.T, argv ...string) *shownTerminal {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), build(t), append([]string{initproto.TerminalVerb, "80x24"}, argv...)...)
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	return &shownTerminal{t: t, cmd: cmd, in: in, out: bufio.NewReader(out)}
}

func (s *shownTerminal) send(frame []byte) {
	s.t.Helper()
	if _, err := s.in.Write(frame); err != nil {
		s.t.Fatal(err)
	}
}

func (s *shownTerminal) enter(text string) {
	s.t.Helper()
	s.send(initproto.Append(nil, initproto.TypeStdin, []byte(text)))
}

// awaits reads until a text is shown.
func (s *shownTerminal) awaits(text string) {
	s.t.Helper()
	for !strings.Contains(s.seen.String(), text) {
		b, err := s.out.ReadByte()
		if err != nil {
			s.t.Fatalf("%v before %q; it shows %q", err, text, s.seen.String())
		}
		s.seen.WriteByte(b)
	}
	s.seen.Reset()
}

// end returns how the terminal has ended, and the rest of what it shows.
func (s *shownTerminal) end() (syscall.WaitStatus, string) {
	s.t.Helper()
	rest, _ := io.ReadAll(s.out)
	_ = s.cmd.Wait()
	return s.cmd.ProcessState.Sys().(syscall.WaitStatus), s.seen.String() + string(rest)
}

// TestTerminal: a command has a terminal that it controls, which has the size that was asked for,
// echoes, and turns ^C into a signal.
func TestTerminal(t *testing.T) {
	t.Parallel()
	s := startTerminal(t, "bash", "-c",
		`trap : INT; tty; stty size; echo $TERM; for n in ^C signal ^D; do cat; echo $n $?; done; read -r x; stty size; exit 7`)
	s.awaits("/dev/pts/")
	s.awaits("24 80\r\n")
	s.awaits(cmp.Or(os.Getenv("TERM"), "xterm-256color") + "\r\n")
	for _, c := range []struct {
		frame []byte
		want  string
	}{
		{initproto.Append(nil, initproto.TypeStdin, []byte("\x03")), "^C 130\r\n"},
		{initproto.Append(nil, initproto.TypeSignal, []byte{byte(unix.SIGINT)}), "signal 130\r\n"},
		{initproto.Append(nil, initproto.TypeStdin, []byte("\x04")), "^D 0\r\n"},
	} {
		s.enter("a line\r")
		s.awaits("a line\r\na line\r\n") // echoed, and by cat
		s.send(c.frame)
		s.awaits(c.want)
	}
	s.send(initproto.AppendResize(nil, initproto.TerminalSize{Cols: 132, Rows: 43}))
	s.enter("\r")
	s.awaits("43 132\r\n")
	if status, rest := s.end(); status.ExitStatus() != 7 || rest != "" {
		t.Errorf("%v, %q", status, rest)
	}
}

// TestTerminalShowsEverything: output right before the end is shown, although another process
// keeps the terminal open, and the command's signal is the terminal's.
func TestTerminalShowsEverything(t *testing.T) {
	t.Parallel()
	s := startTerminal(t, "bash", "-c", `(trap '' HUP; exec sleep 1000) & head -c 100000 /dev/zero | tr '\0' x; echo end $!; kill -SEGV $$`)
	status, shown := s.end()
	at := strings.LastIndex(shown, "end ")
	if !status.Signaled() || status.Signal() != unix.SIGSEGV || at != 100000 || strings.Count(shown, "x") != 100000 {
		t.Errorf("%v, %d bytes, %q", status, len(shown), shown[max(0, at):])
	}
	var pid int
	for _, digit := range strings.TrimSpace(shown[at+4:]) {
		pid = 10*pid + int(digit-'0')
	}
	_ = unix.Kill(pid, unix.SIGKILL) // a worker does that
}

// TestTerminalHangsUp: a shell that ignores SIGTERM ends when the worker warns it.
func TestTerminalHangsUp(t *testing.T) {
	t.Parallel()
	s := startTerminal(t, "bash", "--norc", "-i")
	s.enter("echo r'ea'dy\n")
	s.awaits("ready\r\n")
	_ = s.cmd.Process.Signal(unix.SIGTERM)
	if status, _ := s.end(); !status.Signaled() || status.Signal() != unix.SIGHUP {
		t.Error(status)
	}
}

// TestTerminalRefuses: what is wrong is shown in the terminal.
func TestTerminalRefuses(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		args []string
		code int
		want string
	}{
		{[]string{"80x24", "no-such-program"}, 127, "no-such-program"},
		{[]string{"80x24 ", "true"}, exitProtocol, "no size"},
		{[]string{"0x24", "true"}, exitProtocol, "no size"},
		{[]string{"501x24", "true"}, exitProtocol, "no size"},
	} {
		cmd := exec.CommandContext(t.Context(), build(t), append([]string{initproto.TerminalVerb}, c.args...)...)
		out, _ := cmd.Output()
		if cmd.ProcessState.ExitCode() != c.code || !bytes.Contains(out, []byte(c.want)) {
			t.Errorf("%q: %v, %q", c.args, cmd.ProcessState, out)
		}
	}
}
