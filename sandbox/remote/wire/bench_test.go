package wire_test

import (
	"bytes"
	"testing"

	"secbox/sandbox/remote/wire"
)

// BenchmarkSmallFile measures the codec's part of reading a file of 4 KiB, on both sides.
func BenchmarkSmallFile(b *testing.B) { benchmarkFile(b, 4<<10) }

// BenchmarkInlineFile is the same for the largest file in a message.
func BenchmarkInlineFile(b *testing.B) { benchmarkFile(b, wire.InlineBytes) }

func benchmarkFile(b *testing.B, size int) {
	content := bytes.Repeat([]byte{0, 1, 2, 255}, size/4)
	b.SetBytes(int64(size))
	b.ReportAllocs()
	for b.Loop() {
		request, err := wire.Encode("0000000000000001", wire.TypeReadFile, &wire.Path{Path: "/workspace/dir/file", UserID: "u"})
		if err != nil {
			b.Fatal(err)
		}
		if _, err := wire.FromServer(request); err != nil {
			b.Fatal(err)
		}
		answer, err := wire.Encode("0000000000000001", wire.TypeFileContent, &wire.FileContent{Data: content, Size: int64(size)})
		if err != nil {
			b.Fatal(err)
		}
		if _, err := wire.FromRunner(answer); err != nil {
			b.Fatal(err)
		}
	}
}
