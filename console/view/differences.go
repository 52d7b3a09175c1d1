package view

import (
	"strings"

	"secbox/console/ui"
	"secbox/replay"
	"secbox/runner"
)

// ArtifactPoint begins the names of artifacts in a comparison; the streams of output have theirs.
const ArtifactPoint = "artifacts/"

// FilePair is a file of an exec and of its replay; nil for the one that has none.
type FilePair struct {
	Name  string // as a point of a comparison has it
	Sides [2]*runner.Artifact
}

// Same reports whether both execs left the same file.
func (p FilePair) Same() bool {
	return p.Sides[0] != nil && p.Sides[1] != nil && p.Sides[0].SHA256 == p.Sides[1].SHA256
}

func (p FilePair) equal() replay.Equal {
	if p.Same() {
		return replay.Yes
	}
	return replay.No
}

// DifferencesPage compares what a replay and its first exec left.
type DifferencesPage struct {
	ExecID, First string
	Pairs         []FilePair
	More          int // pairs that are not listed

	Shown FilePair // compared by lines
	Lines []DiffLine
	Cut   bool   // there are more lines
	Why   string // it is not compared by lines
}

// link is the address of the comparison of a file, or with an empty name of the list.
func (p DifferencesPage) link(name string) ui.Address { return differenceLink(p.ExecID, name) }

func differenceLink(execID, name string) ui.Address {
	return ui.Link("execs", execID, "differences").With("of", name)
}

// comparedByLines reports whether a point of a comparison is a file with lines to compare.
func comparedByLines(p replay.Point) bool {
	return p.Equal == replay.No && (p.What == "stdout" || p.What == "stderr" || strings.HasPrefix(p.What, ArtifactPoint))
}
