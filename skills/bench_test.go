package skills

import (
	"fmt"
	"path/filepath"
	"testing"
)

// thousand writes 1,000 skills, the number that docs/performance-internals.md gives times for.
func thousand(b *testing.B) string {
	b.Helper()
	dir := b.TempDir()
	for n := range 1000 {
		id := fmt.Sprintf("bench.s%03d", n)
		named(b, id).with("lib/a.py", "print(1)\n").with("lib/b.py", "print(2)\n").write(b, filepath.Join(dir, id))
	}
	return dir
}

// BenchmarkOpen1000 is the cold load: every file read and hashed, every schema compiled.
func BenchmarkOpen1000(b *testing.B) {
	dir := thousand(b)
	for b.Loop() {
		if c := open(b, dir); len(c.Now().Skills()) < 1000 {
			b.Fatal(c.Now().Broken())
		}
	}
}

// BenchmarkReload1000 is a reload of 1,000 unchanged skills.
func BenchmarkReload1000(b *testing.B) {
	c := open(b, thousand(b))
	c.disk.settle = -1 // as if the files were older
	c.Reload()
	for b.Loop() {
		if c.Reload() {
			b.Fatal("changed")
		}
	}
}

// BenchmarkReload1000OneChanged is a reload that finds one of them replaced.
func BenchmarkReload1000OneChanged(b *testing.B) {
	dir := thousand(b)
	c := open(b, dir)
	c.disk.settle = -1
	c.Reload()
	n := 0
	for b.Loop() {
		n++
		files{"run.sh": fmt.Sprintf("echo %d\n", n)}.write(b, filepath.Join(dir, "bench.s500"))
		if !c.Reload() {
			b.Fatal("not changed")
		}
	}
}

// BenchmarkList1000 gets the snapshot that a list of all skills starts from.
func BenchmarkList1000(b *testing.B) {
	c := open(b, thousand(b))
	for b.Loop() {
		if len(c.Now().Skills()) < 1000 {
			b.Fatal("fewer")
		}
	}
}

// BenchmarkCheckInputs is the validation of an invoke.
func BenchmarkCheckInputs(b *testing.B) {
	s := skillWith(b,
		`{"type":"object","properties":{"text":{"type":"string"},"times":{"type":"integer","minimum":1}},"required":["text"],"additionalProperties":false}`)
	inputs := []byte(`{"text":"hello","times":3}`)
	for b.Loop() {
		if err := s.CheckInputs(b.Context(), inputs); err != nil {
			b.Fatal(err)
		}
	}
}
