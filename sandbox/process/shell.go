package process

import (
	"os"
	"runtime"
)

// Shell returns the program that runs lines on this machine.
func Shell() string {
	if runtime.GOOS == "windows" {
		return "powershell.exe" // takes a line as one argument; cmd.exe has its own rules for quotes
	}
	for _, shell := range []string{"/bin/bash", "/usr/bin/bash", "/usr/local/bin/bash"} {
		if fi, err := os.Stat(shell); err == nil && fi.Mode().IsRegular() {
			return shell
		}
	}
	return "/bin/sh"
}

// Line returns the arguments that run a line in that shell.
func Line(shell, line string) []string {
	if runtime.GOOS == "windows" {
		return []string{shell, "-NoLogo", "-NoProfile", "-NonInteractive", "-Command", line}
	}
	return []string{shell, "-c", line}
}
