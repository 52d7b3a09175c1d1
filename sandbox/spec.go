package sandbox

import (
	"slices"
	"strings"
	"unicode/utf8"

	"secbox/fault"
)

// CheckSpec refuses a command that no system can start, or that could not be handed on as it is: it goes to a container, a worker or a
// machine as JSON, which holds UTF-8 only. Stdin may be binary.
func CheckSpec(spec ExecSpec) error {
	if spec.Command == "" {
		return fault.BadField("command", "is empty")
	}
	if reason := badText(spec.Command); reason != "" {
		return fault.BadField("command", "%s", reason)
	}
	if !spec.Shell {
		for _, arg := range spec.Args {
			if reason := badText(arg); reason != "" {
				return fault.BadField("args", "%s", reason)
			}
		}
	}
	if slices.ContainsFunc(spec.Env, func(kv string) bool { return !utf8.ValidString(kv) }) {
		return fault.BadField("env", "must be UTF-8")
	}
	if !utf8.ValidString(spec.Dir) {
		return Invalid("exec", spec.Dir)
	}
	return CheckEnv(spec.Env)
}

func badText(s string) string {
	switch {
	case strings.IndexByte(s, 0) >= 0:
		return "must not hold a NUL"
	case !utf8.ValidString(s):
		return "must be UTF-8; give other bytes on stdin, or in a file"
	}
	return ""
}

// OutputBound is how many bytes of a stream a command gives back that was asked for so many.
func OutputBound(asked int64) int64 {
	if asked <= 0 || asked > MaxOutputBytes {
		return MaxOutputBytes
	}
	return asked
}
