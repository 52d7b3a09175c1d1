// Package buildinfo describes the build of a program. It imports no other package of this module.
package buildinfo

import (
	"runtime"
	"runtime/debug"
	"strings"
)

// Version is the version of all programs of this module. It is also the first version in
// CHANGELOG.md; a test in scripts/dist compares the two.
const Version = "0.2.0"

// commit is set when a release is linked, so that the programs are the same bytes in any clone.
var commit string

// Describe returns Version with the Go version, the platform, and the commit if it is known.
func Describe() string {
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return Version
	}
	facts := []string{info.GoVersion, runtime.GOOS + "/" + runtime.GOARCH}
	if commit != "" {
		facts = append(facts, "commit "+commit)
	}
	for _, s := range info.Settings {
		switch {
		case s.Key == "vcs.revision" && commit == "":
			facts = append(facts, "commit "+s.Value[:min(12, len(s.Value))])
		case s.Key == "vcs.modified" && s.Value == "true":
			facts = append(facts, "with changes")
		}
	}
	return Version + " (" + strings.Join(facts, ", ") + ")"
}
