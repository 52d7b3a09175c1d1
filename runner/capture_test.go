package runner

import (
	"bytes"
	"errors"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"
)

func TestCaptureKeepsTheBeginning(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	c := newCapture(dir, "id", 10, 0)
	for _, part := range []string{"0123", "4567", "89abc", "def"} {
		if n, err := c.stdout.Write([]byte(part)); n != len(part) || err != nil {
			t.Fatalf("%d %v", n, err)
		}
	}
	if content, err := io.ReadAll(c.stdout.reader()); err != nil || string(content) != "0123456789" {
		t.Fatalf("%q %v", content, err)
	}
	if !c.stdout.truncated(16) || c.stderr.truncated(0) || !c.stderr.truncated(1) {
		t.Error("truncation is told wrongly")
	}
	if files, err := os.ReadDir(dir); err != nil || len(files) > 0 {
		t.Errorf("ten bytes made %v %v", files, err)
	}
	c.remove()
}

// TestCaptureMovesToAFile writes more than InlineBytes, in chunks of all sizes, with a reader in the middle.
func TestCaptureMovesToAFile(t *testing.T) {
	t.Parallel()
	whole := make([]byte, 3*InlineBytes+17)
	for i := range whole {
		whole[i] = byte(i*7 + i>>8)
	}
	for _, chunk := range []int{1 << 20, InlineBytes + 1, InlineBytes, InlineBytes - 1, 4096, 999} {
		for _, limit := range []int{len(whole) + 1, len(whole) - 5, InlineBytes + 1, InlineBytes, 100} {
			dir := t.TempDir()
			c := newCapture(dir, "id", int64(limit), 0)
			for part := range slices.Chunk(whole, chunk) {
				if _, err := c.stdout.Write(part); err != nil {
					t.Fatal(err)
				}
				early, size, err := c.stdout.open()
				if err != nil {
					t.Fatal(err)
				}
				content, err := io.ReadAll(early)
				if err = errors.Join(err, early.Close()); err != nil || int64(len(content)) != size || !bytes.Equal(content, whole[:size]) {
					t.Fatalf("chunks of %d, limit %d: %d bytes of %d are wrong, %v", chunk, limit, len(content), size, err)
				}
			}
			late, _, err := c.stdout.open()
			if err != nil {
				t.Fatal(err)
			}
			want := whole[:min(limit, len(whole))]
			if content, err := io.ReadAll(c.stdout.reader()); err != nil || !bytes.Equal(content, want) {
				t.Fatalf("chunks of %d, limit %d: kept %d bytes, %v", chunk, limit, len(content), err)
			}
			if !bytes.Equal(c.stdout.inline, want[:min(len(want), InlineBytes)]) {
				t.Fatalf("chunks of %d, limit %d: %d bytes are inline", chunk, limit, len(c.stdout.inline))
			}
			c.remove()
			if files, err := os.ReadDir(dir); err != nil || len(files) > 0 {
				t.Fatalf("left %v %v", files, err)
			}
			content, err := io.ReadAll(late) // a reader that was opened before remove can read all
			if err = errors.Join(err, late.Close()); err != nil || !bytes.Equal(content, want) {
				t.Fatalf("after the end: %d bytes, %v", len(content), err)
			}
		}
	}
}

// TestCaptureWithoutRoom cannot make its file: the part in memory is kept, and the output counts as truncated.
func TestCaptureWithoutRoom(t *testing.T) {
	t.Parallel()
	c := newCapture(filepath.Join(t.TempDir(), "missing"), "id", 1<<20, 0)
	for range 3 {
		if n, err := c.stdout.Write(make([]byte, InlineBytes-1)); n != InlineBytes-1 || err != nil {
			t.Fatal(n, err)
		}
	}
	if !c.stdout.truncated(0) || c.stdout.failed == nil || c.stdout.reader().Size() != InlineBytes {
		t.Errorf("%d bytes kept of %d, %v", c.stdout.reader().Size(), c.stdout.seen, c.stdout.failed)
	}
	c.remove()
}

func TestTextIsValidUTF8(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct{ in, want string }{
		"plain":                  {"abc", "abc"},
		"broken":                 {"a\xffb", "a\uFFFDb"},
		"empty":                  {"", ""},
		"NUL":                    {"a\x00b", "a\x00b"},
		"cut within a character": {strings.Repeat("x", InlineBytes-1) + "é", strings.Repeat("x", InlineBytes-1)},
		"not cut":                {strings.Repeat("x", InlineBytes-2) + "é", strings.Repeat("x", InlineBytes-2) + "é"},
		"broken at the end":      {"abc\xc3", "abc\uFFFD"},
	} {
		if got := string(text([]byte(c.in))); got != c.want {
			t.Errorf("%s: %q", name, got[max(0, len(got)-20):])
		}
	}
}

func FuzzText(f *testing.F) {
	f.Add([]byte("abc"), 3)
	f.Add([]byte("é\xff"), InlineBytes)
	f.Fuzz(func(t *testing.T, tail []byte, pad int) {
		in := append(bytes.Repeat([]byte("x"), min(max(pad, 0), 2*InlineBytes)), tail...)
		got := text(in)
		if !utf8.Valid(got) || len(got) > 3*InlineBytes {
			t.Fatalf("%d bytes, valid %v", len(got), utf8.Valid(got))
		}
		if utf8.Valid(in) && len(in) <= InlineBytes && len(in) < InlineBytes && !bytes.Equal(got, in) {
			t.Fatal("valid text was changed")
		}
	})
}
