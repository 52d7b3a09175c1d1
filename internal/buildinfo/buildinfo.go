// Package buildinfo describes the build of a program. It imports no other package of this module.
package buildinfo

import (
	"runtime"
	"runtime/debug"
	"strings"
)

// Describe returns the version with the Go version, the platform, and the commit if it is known.
func Describe(version string) string {
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return version
	}
	facts := []string{info.GoVersion, runtime.GOOS + "/" + runtime.GOARCH}
	for _, s := range info.Settings {
		switch {
		case s.Key == "vcs.revision":
			facts = append(facts, "commit "+s.Value[:min(12, len(s.Value))])
		case s.Key == "vcs.modified" && s.Value == "true":
			facts = append(facts, "with changes")
		}
	}
	return version + " (" + strings.Join(facts, ", ") + ")"
}
