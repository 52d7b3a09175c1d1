package search

import (
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// repository makes files as a checked-out repository has them.
func repository(tb testing.TB, files int) string {
	tb.Helper()
	dir := tb.TempDir()
	random := rand.New(rand.NewPCG(1, 2))
	words := strings.Fields("func return if err != nil { } the Sandbox path string context request answer := for range len append error // of a to")
	for n := range files {
		in := filepath.Join(dir, fmt.Sprintf("pkg%03d/sub%d", n/100, n%5))
		if n%100 < 5 {
			if err := os.MkdirAll(in, 0o755); err != nil {
				tb.Fatal(err)
			}
		}
		var text strings.Builder
		for range 100 {
			for range 8 {
				text.WriteString(words[random.IntN(len(words))])
				text.WriteByte(' ')
			}
			text.WriteByte('\n')
		}
		if n%1000 == 7 {
			fmt.Fprintf(&text, "func Needle%d() error {\n", n)
		}
		if err := os.WriteFile(filepath.Join(in, fmt.Sprintf("file%d.go", n)), []byte(text.String()), 0o644); err != nil {
			tb.Fatal(err)
		}
	}
	return dir
}

// BenchmarkGrep compares searches of 20,000 files with grep.
func BenchmarkGrep(b *testing.B) {
	dir := repository(b, 20_000)
	for _, pattern := range []string{"Needle", `func Needle\d+\(`, `(?i)nEEdle\d+`, `[A-Z][a-z]+\d+\(`} {
		b.Run("search/"+pattern, func(b *testing.B) {
			for b.Loop() {
				found, _, err := Run(dir, Request{Path: ".", Pattern: pattern, Mode: Content, Limit: 100, TimeoutMS: 60_000})
				if err != nil || len(found) != 20 {
					b.Fatal(len(found), err)
				}
			}
		})
		perl := strings.TrimPrefix(pattern, "(?i)")
		flags := "-rnP"
		if perl != pattern {
			flags += "i"
		}
		b.Run("grep/"+pattern, func(b *testing.B) {
			for b.Loop() {
				if out, err := exec.Command("grep", flags, "--", perl, dir).Output(); err != nil || strings.Count(string(out), "\n") != 20 {
					b.Fatal(len(out), err)
				}
			}
		})
	}
}
