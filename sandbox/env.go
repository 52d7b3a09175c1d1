package sandbox

import (
	"slices"
	"strings"

	"secbox/fault"
)

// HiddenPrefixes begin the names of variables that no command sees, neither from the environment of
// the program that starts it nor from a spec: they tell about the machine (design 5).
var HiddenPrefixes = []string{"KUBERNETES_", "SERVICE_", "SECRET_"}

// ownPrefixes begin the names of variables that core-api and secbox read themselves: tokens, and a
// database's password. Commands do not inherit them either.
var ownPrefixes = []string{"CORE_API_", "SECBOX_", "DATABASE_URL"}

// Inherited returns the part of an environment that a command may inherit.
func Inherited(environ []string) []string {
	kept := make([]string, 0, len(environ))
	for _, kv := range environ {
		name, _, _ := strings.Cut(kv, "=")
		if !hasPrefix(name, HiddenPrefixes) && !hasPrefix(name, ownPrefixes) {
			kept = append(kept, kv)
		}
	}
	return kept
}

// CheckEnv refuses variables that a spec must not have. The case of names does not count, as on
// Windows.
func CheckEnv(env []string) error {
	for _, kv := range env {
		name, _, ok := strings.Cut(kv, "=")
		switch {
		case !ok || name == "" || strings.IndexByte(kv, 0) >= 0:
			return fault.BadField("env", "must be NAME=value, without NUL")
		case hasPrefix(name, HiddenPrefixes):
			return fault.BadField("env", "%s is not allowed: names that begin with %s are hidden from commands", name,
				strings.Join(HiddenPrefixes, ", "))
		}
	}
	return nil
}

func hasPrefix(name string, prefixes []string) bool {
	name = strings.ToUpper(name)
	return slices.ContainsFunc(prefixes, func(prefix string) bool { return strings.HasPrefix(name, prefix) })
}
