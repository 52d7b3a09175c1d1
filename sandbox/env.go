package sandbox

import (
	"strings"

	"secbox/fault"
)

// HiddenPrefixes begin the names of variables that no command sees, neither from the environment of the program that starts it nor from a
// spec: they tell of the machine (design 5).
var HiddenPrefixes = []string{"KUBERNETES_", "SERVICE_", "SECRET_"}

// ownNames are the variables that core-api and secbox read themselves: tokens, and a database's password. No command sees them either.
var ownNames = []string{"CORE_API_", "SECBOX_", "DATABASE_URL"}

// Inherited is what a command may see of an environment.
func Inherited(environ []string) []string {
	kept := make([]string, 0, len(environ))
	for _, kv := range environ {
		name, _, _ := strings.Cut(kv, "=")
		if !hidden(name) && !ours(name) {
			kept = append(kept, kv)
		}
	}
	return kept
}

// CheckEnv refuses variables that a spec must not have. Names are compared without regard to case, as Windows does.
func CheckEnv(env []string) error {
	for _, kv := range env {
		name, _, ok := strings.Cut(kv, "=")
		switch {
		case !ok || name == "" || strings.IndexByte(kv, 0) >= 0:
			return fault.BadField("env", "must be NAME=value, without NUL")
		case hidden(name):
			return fault.BadField("env", "%s is not allowed: names that begin with %s are hidden from commands", name, strings.Join(HiddenPrefixes, ", "))
		}
	}
	return nil
}

func hidden(name string) bool { return hasPrefix(name, HiddenPrefixes) }

func ours(name string) bool { return hasPrefix(name, ownNames) }

func hasPrefix(name string, prefixes []string) bool {
	name = strings.ToUpper(name)
	for _, prefix := range prefixes {
		if strings.HasPrefix(name, prefix) {
			return true
		}
	}
	return false
}
