//go:build unix

package library_test

import (
	"bytes"
	"fmt"
	"testing"
	"time"

	"secbox/packages/library"
)

// large is a skill of a thousand files of 4 KiB.
func large() tree {
	files := tree{"SKILL.md": "# Large\n"}
	for n := range 999 {
		files[fmt.Sprintf("d%d/f%d.txt", n/100, n)] = string(bytes.Repeat(fmt.Appendf(nil, "%d\n", n), 2048)[:4096])
	}
	return files
}

func BenchmarkUpload(b *testing.B) {
	f := setUp(b)
	zip := packed(b, "large", large())
	for n := 0; b.Loop(); n++ {
		o := library.Owner{AgentID: fmt.Sprintf("a%d", n), UserID: "u"}
		if _, err := f.Upload(b.Context(), o, library.Overlay, "x.zip", bytes.NewReader(zip), int64(len(zip))); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkMaterialise(b *testing.B) {
	f := setUp(b)
	f.upload(alice, library.Baseline, "large", large())
	for n := 0; b.Loop(); n++ {
		must(b, f.Materialise(b.Context(), library.Owner{AgentID: alice.AgentID, UserID: fmt.Sprintf("u%d", n)}, "large"))
	}
}

// BenchmarkList lists 500 skills. The user has copies of all of them, of half, or of none.
func BenchmarkList(b *testing.B) {
	for _, copies := range []int{0, 250, 500} {
		b.Run(fmt.Sprintf("copies=%d", copies), func(b *testing.B) {
			f := setUp(b)
			for n := range 500 {
				f.upload(alice, library.Baseline, fmt.Sprintf("skill%d", n), demo)
				if n < copies {
					must(b, f.Materialise(b.Context(), alice, fmt.Sprintf("skill%d", n)))
				}
			}
			f.later(time.Hour)
			f.list(alice)
			for b.Loop() {
				f.list(alice)
			}
		})
	}
}

// BenchmarkFirstAccess lists 200 skills for users who come for the first time.
func BenchmarkFirstAccess(b *testing.B) {
	f := setUp(b)
	for n := range 200 {
		f.upload(alice, library.Baseline, fmt.Sprintf("skill%d", n), demo)
	}
	for n := 0; b.Loop(); n++ {
		f.list(library.Owner{AgentID: alice.AgentID, UserID: fmt.Sprintf("u%d", n)})
	}
}

func BenchmarkRead(b *testing.B) {
	for _, materialised := range []bool{false, true} {
		b.Run(fmt.Sprintf("copy=%v", materialised), func(b *testing.B) {
			f := setUp(b)
			f.upload(alice, library.Baseline, "demo", demo)
			if materialised {
				must(b, f.Materialise(b.Context(), alice, "demo"))
			}
			for b.Loop() {
				f.content(alice, "demo", "main.py")
			}
		})
	}
}

func BenchmarkReadyWorkspace(b *testing.B) {
	f := setUp(b)
	for n := range 10 {
		f.upload(alice, library.Baseline, fmt.Sprintf("skill%d", n), demo)
	}
	must(b, f.MaterialiseAll(b.Context(), bob, toolDir))
	f.later(10 * time.Second)
	for b.Loop() {
		must(b, f.MaterialiseAll(b.Context(), bob, toolDir))
	}
}
