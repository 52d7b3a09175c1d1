package tools_test

import (
	"encoding/json"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/fstest"

	"secbox/fault"
	"secbox/mcp/tools"
	"secbox/sandbox"
)

// TestTools runs all cases in every kind of sandbox (004 l597–602).
func TestTools(t *testing.T) {
	t.Parallel()
	for name, open := range places {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := open(t)
			t.Run("Case", func(t *testing.T) {
				for _, c := range cases {
					t.Run(c.name, func(t *testing.T) {
						t.Parallel()
						c.run(newBench(t, p))
					})
				}
			})
		})
	}
}

// bench is one case: a session in its own directory of the shared workspace.
type bench struct {
	*testing.T
	p       place
	session *tools.Session
	dir     string // in the sandbox
	host    string // on this machine
}

var benches atomic.Int64

func newBench(t *testing.T, p place) *bench {
	t.Helper()
	name := fmt.Sprintf("case-%d", benches.Add(1))
	b := &bench{T: t, p: p, dir: sandbox.Root + "/" + name, host: filepath.Join(p.dir, name), session: tools.NewSession(p.sandbox, p.user, installed)}
	b.must(os.Mkdir(b.host, 0o755))
	b.give(b.host)
	b.do("files.cd", object{"path": name})
	return b
}

type object map[string]any

// installed are the skills of the installation.
var installed = folders{
	"both":   {"SKILL.md": {Data: []byte("of the installation\n")}, "run.py": {}},
	"server": {"SKILL.md": {Data: []byte("of the server\n")}, "a/b.txt": {Data: []byte("b\n")}},
}

type folders map[string]fstest.MapFS

func (f folders) Names() []string { return slices.Sorted(maps.Keys(f)) }

func (f folders) Open(name string) fs.FS {
	if folder, ok := f[name]; ok {
		return folder
	}
	return nil
}

func (b *bench) must(err error) {
	b.Helper()
	if err != nil {
		b.Fatal(err)
	}
}

// give makes a planted file the sandbox's.
func (b *bench) give(path string) {
	b.Helper()
	if b.p.owner > 0 && os.Geteuid() == 0 {
		b.must(os.Lchown(path, b.p.owner, b.p.owner))
	}
}

// plant writes a file from outside of the sandbox, and makes its directories.
func (b *bench) plant(name, content string) {
	b.Helper()
	at := b.host
	steps := strings.Split(name, "/")
	for _, step := range steps[:len(steps)-1] {
		at = filepath.Join(at, step)
		if err := os.Mkdir(at, 0o755); err == nil {
			b.give(at)
		}
	}
	path := filepath.Join(b.host, name)
	b.must(os.WriteFile(path, []byte(content), 0o644))
	b.give(path)
}

func (b *bench) found(name string) string {
	b.Helper()
	content, err := os.ReadFile(filepath.Join(b.host, name))
	b.must(err)
	return string(content)
}

func (b *bench) call(tool string, arguments object) (*tools.Result, error) {
	b.Helper()
	raw, err := json.Marshal(arguments)
	b.must(err)
	for _, t := range b.session.Tools() {
		if t.Name == tool {
			return t.Call(b.Context(), b.session, raw)
		}
	}
	b.Fatalf("there is no tool %s", tool)
	return nil, nil
}

// do calls a tool, which must succeed.
func (b *bench) do(tool string, arguments object) *tools.Result {
	b.Helper()
	r, err := b.call(tool, arguments)
	if err != nil {
		b.Fatalf("%s %v: %v", tool, arguments, err)
	}
	return r
}

func (b *bench) prints(tool string, arguments object, want string) {
	b.Helper()
	if r := b.do(tool, arguments); r.Text != want {
		b.Errorf("%s %v: %q, want %q", tool, arguments, r.Text, want)
	}
}

// refuses calls a tool, which must fail with a code and all of some words.
func (b *bench) refuses(tool string, arguments object, code fault.Code, words ...string) {
	b.Helper()
	r, err := b.call(tool, arguments)
	if err == nil {
		b.Errorf("%s %v: %q", tool, arguments, r.Text)
		return
	}
	e := fault.From(err)
	text := e.Message
	for _, f := range e.Fields {
		text += "\n" + f.Field + ": " + f.Reason
	}
	if e.Code != code {
		b.Errorf("%s %v: %v, want %s", tool, arguments, err, code)
	}
	for _, word := range words {
		if !strings.Contains(text, word) {
			b.Errorf("%s %v: %q does not say %q", tool, arguments, text, word)
		}
	}
}

type testCase struct {
	name string
	run  func(*bench)
}

var cases = []testCase{
	{"Read numbers lines", readNumbersLines},
	{"Read tells the digest through the sandbox", readTellsDigest},
	{"Read shows images and names other files", readKinds},
	{"Read opens no FIFO, device or link out", readHostile},
	{"Read is bounded", readBounded},
	{"Read while a file grows", readGrowing},
	{"Download gives files to the caller", downloadGivesFiles},
	{"Upload writes bytes of the caller", uploadWritesBytes},
	{"No tool opens a FIFO, a device or a socket", opensNothingSpecial},
	{"Write makes parents", writeMakesParents},
	{"Write refuses what has changed", writeRefusesChanged},
	{"Write stays inside", writeStaysInside},
	{"Edit replaces exactly", editReplaces},
	{"Edit changes all or nothing", editAllOrNothing},
	{"Edit shows the nearest lines", editNearest},
	{"Edit makes a new file", editCreates},
	{"Cd validates and resolves", cdResolves},
	{"Cd shows a bounded tree", cdBounded},
	{"Cd shows names before what is below", cdNamesFirst},
	{"Glob through Exec", globFinds},
	{"Grep through Exec", grepFinds},
	{"Grep shows hostile names and lines", grepHostile},
	{"Searches stay inside", searchesStayInside},
	{"Searches take a single file", searchesTakeFiles},
	{"Shell runs a line", shellRuns},
	{"Shell times out", shellTimesOut},
	{"Shell shows head and tail", shellBounded},
	{"Shell reports progress", shellReports},
	{"Skill reads global ones first", skillReads},
	{"Skill lists files recursively", skillLists},
	{"Every tool while links are swapped", swapsLinks},
	{"Every tool shows hostile names", namesForgeNothing},
}
