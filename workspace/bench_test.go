//go:build unix

package workspace_test

import (
	"os"
	"strconv"
	"strings"
	"testing"

	"secbox/workspace"
)

// BenchmarkOneExec is all that the workspace does for an exec that leaves one file: it is a part of every answer's time.
func BenchmarkOneExec(b *testing.B) {
	f := setUp(b)
	for i := 0; b.Loop(); i++ {
		id := "exec-" + strconv.Itoa(i)
		p, err := f.Project("demo")
		must(b, err)
		must(b, p.NewArtifacts(id))
		_, err = p.Mounts(id, workspace.FullAccess)
		must(b, err)
		b.StopTimer()
		write(b, f.dir+"/artifacts/"+id+"/hi.txt", "hi\n")
		b.StartTimer()
		m, err := p.Collect(b.Context(), id, plenty)
		must(b, err)
		data, err := m.JSON()
		must(b, err)
		must(b, p.Publish(id, workspace.StdoutName, strings.NewReader("hi\n")))
		must(b, p.Publish(id, workspace.StderrName, strings.NewReader("")))
		must(b, p.Publish(id, workspace.ManifestName, strings.NewReader(string(data))))
		must(b, p.Publish(id, workspace.MetaName, strings.NewReader(string(data))))
	}
}

func BenchmarkCollectNothing(b *testing.B) {
	f := setUp(b)
	for b.Loop() {
		f.collect(b, plenty)
	}
}

func BenchmarkRemoveTree(b *testing.B) {
	for name, grow := range map[string]func(dir string){
		"60,000 deep":  func(dir string) { nest(b, dir, 60_000) },
		"100,000 wide": func(dir string) { fill(b, dir, 100_000) },
	} {
		b.Run(name, func(b *testing.B) {
			dir := inMemory(b)
			root, err := os.OpenRoot(dir)
			must(b, err)
			defer root.Close()
			for b.Loop() {
				b.StopTimer()
				must(b, os.Mkdir(dir+"/x", 0o755))
				grow(dir + "/x")
				b.StartTimer()
				_, err := workspace.RemoveTree(b.Context(), root, "x")
				must(b, err)
			}
		})
	}
}
