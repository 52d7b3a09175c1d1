package settings

import (
	"net/url"
	"reflect"
	"regexp"
	"runtime"
	"strings"
)

// origin is the source of the settings, for another command that must use the same installation.
type origin struct {
	file      string // absolute; empty when there was none
	urlInFile bool   // database_url comes from the file
}

// Command returns a shell command, on Windows one of PowerShell, that runs another command of the
// program, such as "token create --role admin", on the installation of s. It contains no secret: a
// password in a database URL that is not from the settings file is written as PASSWORD.
func (s Settings) Command(program, args string) string {
	line := quote(program) + " " + args
	if s.origin.file != "" {
		line += " --config " + quote(s.origin.file)
	}
	switch {
	case s.DatabaseURL == "":
		line += " --state-dir " + quote(s.StateDir)
	case !s.origin.urlInFile:
		line = withVariable("DATABASE_URL", withPlaceholder(s.DatabaseURL)) + line
	}
	return line
}

// Environ returns the variables that give another process the settings in which s differs from
// Default, secrets included.
func (s Settings) Environ() []string {
	var vars []string
	defaults := Default()
	for _, row := range table() {
		value := show(row.in(&s))
		if value == show(row.in(&defaults)) {
			continue
		}
		if value == "" && row.typ.Kind() == reflect.Slice {
			value = emptyList
		}
		vars = append(vars, row.env[0]+"="+value)
	}
	return vars
}

// withPlaceholder is withoutPassword with the word PASSWORD in the password's place.
func withPlaceholder(databaseURL Secret) string {
	shown := withoutPassword(databaseURL)
	full, err := url.Parse(databaseURL.Reveal())
	if err != nil || full.User == nil {
		return shown
	}
	if _, has := full.User.Password(); !has {
		return shown
	}
	u, err := url.Parse(shown)
	if err != nil || u.User == nil {
		return shown
	}
	u.User = url.UserPassword(u.User.Username(), "PASSWORD")
	return u.String()
}

// withVariable is the beginning of a command that sets a variable: of a shell, or of PowerShell on
// Windows.
func withVariable(name, value string) string {
	if runtime.GOOS == "windows" {
		return "$env:" + name + "='" + strings.ReplaceAll(value, "'", "''") + "'; "
	}
	return name + "=" + quote(value) + " "
}

var plainWord = regexp.MustCompile(`^[A-Za-z0-9_@%+=:,./\\-]+$`)

// quote returns s as one word of a shell.
func quote(s string) string {
	if plainWord.MatchString(s) {
		return s
	}
	return "'" + strings.ReplaceAll(s, "'", `'\''`) + "'"
}
