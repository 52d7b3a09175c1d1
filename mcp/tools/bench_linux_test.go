package tools_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"secbox/mcp/tools"
	"secbox/sandbox"
)

// BenchmarkRead reads a file of 4 KiB in every kind of sandbox.
func BenchmarkRead(b *testing.B) {
	for name, open := range places {
		b.Run(name, func(b *testing.B) {
			p := open(b)
			if err := os.WriteFile(filepath.Join(p.dir, "a.txt"), []byte(strings.Repeat("0123456789abcde\n", 256)), 0o644); err != nil {
				b.Fatal(err)
			}
			s := tools.NewSession(p.sandbox, p.user, nil)
			for b.Loop() {
				if _, err := s.Read(b.Context(), tools.ReadParams{Path: "a.txt"}); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

// BenchmarkGrep searches 20,000 files in every kind of sandbox, beside grep as a command there.
func BenchmarkGrep(b *testing.B) {
	for name, open := range places {
		p := open(b)
		for n := range 20_000 {
			dir := filepath.Join(p.dir, fmt.Sprintf("d%03d", n/100))
			if n%100 == 0 {
				if err := os.Mkdir(dir, 0o755); err != nil {
					b.Fatal(err)
				}
			}
			text := strings.Repeat("func (s *Server) answer(ctx context.Context) error {\n", 80)
			if n%1000 == 0 {
				text += "needle in a haystack\n"
			}
			if err := os.WriteFile(filepath.Join(dir, fmt.Sprint("f", n)), []byte(text), 0o644); err != nil {
				b.Fatal(err)
			}
		}
		s := tools.NewSession(p.sandbox, p.user, nil)
		b.Run(name+"/tool", func(b *testing.B) {
			for b.Loop() {
				if r, err := s.Grep(b.Context(), tools.GrepParams{Pattern: `needle in \w+`, OutputMode: "content"}); err != nil ||
					strings.Count(r.Text, "needle") != 20 {
					b.Fatal(r, err)
				}
			}
		})
		b.Run(name+"/grep", func(b *testing.B) {
			for b.Loop() {
				r, err := p.sandbox.Exec(b.Context(), sandbox.ExecSpec{Command: "grep", Args: []string{"-rnE", `needle in \w+`, "."}, User: p.user})
				if err != nil || strings.Count(r.Stdout, "needle") != 20 {
					b.Fatal(r, err)
				}
			}
		})
	}
}
