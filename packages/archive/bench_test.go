package archive

import (
	"bytes"
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// thousand is a skill of 1,000 files of some KiB in 50 folders, of text that packs as text does.
func thousand() []byte {
	rnd := rand.New(rand.NewPCG(1, 2))
	words := strings.Fields("def return import self for in if else None True class print open read write the a of path name file value key")
	list := []raw{skillMD("demo/SKILL.md")}
	for n := range 999 {
		var text strings.Builder
		for length := 1000 + rnd.IntN(6000); text.Len() < length; {
			fmt.Fprintf(&text, "%s_%d ", words[rnd.IntN(len(words))], rnd.IntN(100))
		}
		list = append(list, raw{name: fmt.Sprintf("demo/lib%02d/f%03d.py", n%50, n), data: text.String(), deflate: true, mode: 0o100644})
	}
	return makeZip(ending{}, list...)
}

// BenchmarkUnpackThousandFiles is what an upload costs beside the network. SKILL_ZIP, when set, is
// where the archive is left, so that other programs can be given the same.
func BenchmarkUnpackThousandFiles(b *testing.B) {
	archive := thousand()
	if file := os.Getenv("SKILL_ZIP"); file != "" {
		if err := os.WriteFile(file, archive, 0o644); err != nil {
			b.Fatal(err)
		}
	}
	dir := b.TempDir()
	b.ReportAllocs()
	for n := 0; b.Loop(); n++ {
		sub := filepath.Join(dir, fmt.Sprint(n))
		if err := os.Mkdir(sub, 0o755); err != nil {
			b.Fatal(err)
		}
		into, err := os.OpenRoot(sub)
		if err != nil {
			b.Fatal(err)
		}
		skill, err := unpackAll(context.Background(), bytes.NewReader(archive), int64(len(archive)), "", into, DefaultLimits())
		into.Close()
		if err != nil || skill.Files != 1000 {
			b.Fatalf("got %+v, %v", skill, err)
		}
		b.SetBytes(skill.Bytes)
	}
}
