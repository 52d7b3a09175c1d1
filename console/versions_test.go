package console_test

import (
	"fmt"
	"strings"
	"testing"

	"secbox/audit"
)

// TestVersionsOfFile: the page of a change leads to the changes that made the versions before and
// after it, and says when something else was between.
func TestVersionsOfFile(t *testing.T) {
	t.Parallel()
	sum := func(n int) string { return strings.Repeat(fmt.Sprintf("%02x", n), 32) }
	for name, c := range map[string]struct {
		change    func(records []audit.Record) // the newest first; the page is of the third one
		want, not []string
	}{
		"in a row": {func([]audit.Record) {}, []string{link(2), link(4)}, []string{"was between"}},
		"others between": {
			func(r []audit.Record) {
				r[1].Args, r[3].Status = []string{"/workspace/b.txt"}, audit.Rejected
				r[0].SHA256Before, r[4].SHA256After = sum(2), sum(1)
			},
			[]string{link(1), link(5)},
			[]string{link(2), link(4), "was between"},
		},
		"a command between": {
			func(r []audit.Record) { r[1].SHA256Before, r[3].SHA256After = sum(7), sum(8) },
			[]string{link(2), link(4), "left another content", "found another content"},
			nil,
		},
		"on another machine": {func(r []audit.Record) { r[1].Runner, r[3].Runner = "desk", "desk" }, []string{link(1), link(5)}, []string{link(2), link(4)}},
		"written in another way": {
			func(r []audit.Record) { r[1].Args = []string{"/workspace/./a.txt"} },
			[]string{link(2)},
			nil,
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := newFake().fill(5)
			for i := range f.records {
				r := &f.records[i]
				n := len(f.records) - i - 1
				r.Kind, r.Cmd, r.Args, r.Status, r.PolicySnapshot = audit.KindChange, "files.edit", []string{"/workspace/a.txt"}, audit.Succeeded, nil
				r.SHA256Before, r.SHA256After = sum(n-1), sum(n)
			}
			id := f.records[2].ExecID
			c.change(f.records)
			page := get(t, f.serve(t)+"/console/execs/"+id)
			for i := range f.records {
				page = strings.ReplaceAll(page, `href="/console/execs/`+f.records[i].ExecID+`">files.edit`, link(i+1))
			}
			for _, want := range c.want {
				if !strings.Contains(page, want) {
					t.Errorf("lacks %q", want)
				}
			}
			for _, not := range c.not {
				if strings.Contains(page, not) {
					t.Errorf("has %q", not)
				}
			}
		})
	}
}

// link is the beginning of a link to the n-th newest change.
func link(n int) string { return fmt.Sprintf("<change %d>", n) }
