//go:build unix

package tree_test

import (
	"os"
	"testing"

	"secbox/workspace/tree"
)

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
				_, err := tree.RemoveTree(b.Context(), root, "x")
				must(b, err)
			}
		})
	}
}
