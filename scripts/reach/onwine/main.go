//go:build linux

// Command onwine runs a Windows program by Wine as if it were one of Linux: under the name core-api
// it runs core-api.exe beside it. Paths on the prefix's drive C, in arguments and in the program's
// variables, become Windows paths; SIGTERM and SIGINT become Ctrl-C; and the program is killed when
// onwine is.
package main

import (
	"fmt"
	"io"
	"net"
	"net/url"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"
)

func main() {
	code, err := run()
	if err != nil {
		fmt.Fprintln(os.Stderr, "onwine:", err)
		code = 125
	}
	os.Exit(code)
}

func run() (code int, err error) {
	runtime.LockOSThread() // Pdeathsig is about the thread
	self, err := os.Executable()
	if err != nil {
		return 0, err
	}
	drive := filepath.Join(os.Getenv("WINEPREFIX"), "drive_c")
	cmd := exec.Command("wine64", filepath.Join(filepath.Dir(self), filepath.Base(os.Args[0])+".exe"))
	for _, word := range os.Args[1:] {
		cmd.Args = append(cmd.Args, onDrive(drive, word))
	}
	for _, entry := range os.Environ() {
		key, value, _ := strings.Cut(entry, "=")
		if key == "TMPDIR" { // Wine 10 crashes where it is on drive C
			continue
		}
		if strings.HasPrefix(key, "CORE_API_") || strings.HasPrefix(key, "SECBOX_") {
			if value, err = onTCP(onDrive(drive, value)); err != nil {
				return 0, err
			}
			entry = key + "=" + value
		}
		cmd.Env = append(cmd.Env, entry)
	}
	cmd.Stdout, cmd.Stderr = os.Stdout, os.Stderr
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}

	// Ctrl-C is a key of a terminal: what stays in the foreground has one, other commands read what
	// they are given.
	cmd.Stdin = os.Stdin
	signals := make(chan os.Signal, 1)
	signal.Notify(signals, os.Interrupt, syscall.SIGTERM)
	if len(os.Args) > 1 && (os.Args[1] == "serve" || os.Args[1] == "runner") {
		keyboard, terminal, err := openTerminal()
		if err != nil {
			return 0, err
		}
		defer keyboard.Close()
		cmd.Stdin = terminal
		cmd.SysProcAttr.Setsid, cmd.SysProcAttr.Setctty = true, true
		go func() {
			for range signals {
				_, _ = keyboard.WriteString("\x03")
			}
		}()
		go func() { _, _ = io.Copy(io.Discard, keyboard) }() // the program writes elsewhere
	}
	if err := cmd.Run(); cmd.ProcessState == nil {
		return 0, err
	}
	return cmd.ProcessState.ExitCode(), nil
}

// onTCP turns the URL of a PostgreSQL with a Unix socket into one of this process, which passes
// connections on: Wine has no such sockets. Other values stay.
func onTCP(value string) (string, error) {
	u, err := url.Parse(value)
	if err != nil || u.Scheme != "postgres" || u.Query().Get("host") == "" {
		return value, nil
	}
	socket := filepath.Join(u.Query().Get("host"), ".s.PGSQL.5432")
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return "", err
	}
	go func() {
		for {
			client, err := listener.Accept()
			if err != nil {
				return
			}
			go func() {
				defer client.Close()
				server, err := net.Dial("unix", socket)
				if err != nil {
					return
				}
				defer server.Close()
				go func() { _, _ = io.Copy(server, client); server.Close() }()
				_, _ = io.Copy(client, server)
			}()
		}
	}()
	u.Host, u.RawQuery = listener.Addr().String(), ""
	return u.String(), nil
}

func openTerminal() (keyboard, terminal *os.File, err error) {
	keyboard, err = os.OpenFile("/dev/ptmx", os.O_RDWR|unix.O_NOCTTY, 0)
	if err != nil {
		return nil, nil, err
	}
	if err := unix.IoctlSetPointerInt(int(keyboard.Fd()), unix.TIOCSPTLCK, 0); err != nil {
		return nil, nil, err
	}
	n, err := unix.IoctlGetInt(int(keyboard.Fd()), unix.TIOCGPTN)
	if err != nil {
		return nil, nil, err
	}
	terminal, err = os.OpenFile(fmt.Sprintf("/dev/pts/%d", n), os.O_RDWR|unix.O_NOCTTY, 0)
	return keyboard, terminal, err
}

// onDrive turns /…/drive_c/a/b into C:\a\b, also behind a flag's =, and leaves other words as they
// are.
func onDrive(drive, word string) string {
	before, path, found := strings.Cut(word, drive)
	if !found || before != "" && !strings.HasSuffix(before, "=") || path != "" && path[0] != '/' {
		return word
	}
	return before + `C:` + strings.ReplaceAll(path, "/", `\`)
}
