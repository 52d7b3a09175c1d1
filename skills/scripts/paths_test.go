//go:build unix

package scripts

import (
	"strings"
	"testing"
)

// pathsThatLeave lead out of work/, or could be taken for something else than a path below it.
var pathsThatLeave = []string{"/etc/passwd", "..", "../inputs", "a/../..", "a//b", "", "\x00", "a/..", "./../x"}

// TestPathsThatLeave work/ are refused: by their words before anything starts, and through links
// when a program runs.
func TestPathsThatLeave(t *testing.T) {
	t.Parallel()
	r := inRow(t, `mkdir -p real/..ok; echo '{"root": 1}' > real/f; ln -s /etc out; ln -s real in; ln -s /etc/passwd real/link; mkfifo pipe; ln -s loop loop`)
	for skill, base := range map[string]object{
		"text.grep": {"pattern": "root"}, "json.query": {"filter": "."}, "archive.pack": {}, "git.diff": {},
	} {
		t.Run(skill, func(t *testing.T) {
			r := r.with(t)
			with := func(path string) object {
				inputs := object{"path": path}
				for k, v := range base {
					inputs[k] = v
				}
				return inputs
			}
			for _, path := range pathsThatLeave {
				refusesInputs(t, skill, with(path), "inputs.path")
			}
			refusesInputs(t, skill, with(strings.Repeat("x", 4001)), "inputs.path")
			for _, path := range []string{"out", "out/passwd", "in", "in/f", "real/link", "loop", "./in/./f"} {
				r.useFails(skill, with(path), 2, "links are not followed")
			}
			r.useFails(skill, with("nothing/here"), 2, "No such file or directory")
			r.useFails(skill, with("--help"), 2, "No such file or directory")
			r.useFails(skill, with(strings.Repeat("x", 300)), 2, "File name too long")
			r.useFails(skill, with("real/f/x"), 2, "Not a directory")
		})
	}
}
