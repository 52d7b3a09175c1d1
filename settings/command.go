package settings

import (
	"net/url"
	"regexp"
	"strings"
)

// origin is where the settings came from, as far as another command needs it to reach the same installation.
type origin struct {
	file      string // absolute; empty when there was none
	urlInFile bool   // database_url is set there and by nothing later
}

// Command is the line that runs another command of the program, such as "token create --role admin", on the installation of s. It holds no
// secret: a password in a database URL that is not in the settings file is shown as PASSWORD.
func (s Settings) Command(program, args string) string {
	line := quote(program) + " " + args
	if s.origin.file != "" {
		line += " --config " + quote(s.origin.file)
	}
	switch {
	case s.DatabaseURL == "":
		line += " --state-dir " + quote(s.StateDir)
	case !s.origin.urlInFile:
		line = "DATABASE_URL=" + quote(withPlaceholder(s.DatabaseURL)) + " " + line
	}
	return line
}

// withPlaceholder is withoutPassword with the word PASSWORD where one has to be filled in.
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

var plainWord = regexp.MustCompile(`^[A-Za-z0-9_@%+=:,./\\-]+$`)

// quote makes one word of s for a shell.
func quote(s string) string {
	if plainWord.MatchString(s) {
		return s
	}
	return "'" + strings.ReplaceAll(s, "'", `'\''`) + "'"
}
