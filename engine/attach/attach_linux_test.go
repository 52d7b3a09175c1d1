package attach

import (
	"os"
	"path/filepath"
	"testing"
)

func BenchmarkAttach(b *testing.B) {
	base, err := Open(filepath.Join(b.TempDir(), "private"), "base")
	if err != nil {
		b.Fatal(err)
	}
	p, err := base.NewPoint("p")
	if err != nil {
		b.Fatal(err)
	}
	var dirs []Dir
	for _, name := range []string{"inputs", "work", "artifacts"} {
		f, err := os.Open(b.TempDir())
		if err != nil {
			b.Fatal(err)
		}
		defer f.Close()
		dirs = append(dirs, Dir{name, f, name == "inputs"})
	}
	for b.Loop() {
		if err := p.Attach(dirs...); err != nil {
			b.Fatal(err)
		}
		if err := p.Detach(); err != nil {
			b.Fatal(err)
		}
	}
	if err := p.Remove(); err != nil {
		b.Fatal(err)
	}
	if err := base.Close(); err != nil {
		b.Fatal(err)
	}
}
