package files_test

import (
	"os"
	"testing"

	"secbox/sandbox"
	"secbox/sandbox/files"
)

// BenchmarkSmallFiles reads and writes 4 KiB, a typical size for agents.
func BenchmarkSmallFiles(b *testing.B) {
	root, err := os.OpenRoot(b.TempDir())
	if err != nil {
		b.Fatal(err)
	}
	defer root.Close()
	f := files.New(files.Config{Root: root, UID: -1, GID: -1})
	content := make([]byte, 4<<10)
	if err := f.WriteFile(b.Context(), sandbox.Root+"/file", content, 0o644); err != nil {
		b.Fatal(err)
	}
	b.Run("Read", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			if _, err := f.ReadFile(b.Context(), sandbox.Root+"/file"); err != nil {
				b.Fatal(err)
			}
		}
	})
	b.Run("Stat", func(b *testing.B) {
		for b.Loop() {
			if _, err := f.Stat(b.Context(), sandbox.Root+"/file"); err != nil {
				b.Fatal(err)
			}
		}
	})
	b.Run("Replace", func(b *testing.B) {
		for b.Loop() {
			if err := f.WriteFile(b.Context(), sandbox.Root+"/file", content, 0o644); err != nil {
				b.Fatal(err)
			}
		}
	})
}
