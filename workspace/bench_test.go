//go:build unix

package workspace_test

import (
	"bytes"
	"strconv"
	"strings"
	"testing"

	"secbox/workspace"
)

// BenchmarkOneExec is all that the workspace does for an exec that leaves one file: it is a part of
// every answer's time.
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
		m, err := p.Collect(b.Context(), id, plenty, workspace.FullAccess)
		must(b, err)
		data, err := m.JSON()
		must(b, err)
		must(b, p.PublishAll(id,
			workspace.File{Name: workspace.StdoutName, Content: strings.NewReader("hi\n")},
			workspace.File{Name: workspace.StderrName, Content: strings.NewReader("")},
			workspace.File{Name: workspace.ManifestName, Content: bytes.NewReader(data)},
			workspace.File{Name: workspace.MetaName, Content: bytes.NewReader(data)}))
	}
}

func BenchmarkCollectNothing(b *testing.B) {
	f := setUp(b)
	for b.Loop() {
		f.collect(b, plenty)
	}
}
