package output

import (
	"bytes"
	"errors"
	"io"
	"os"
	"path/filepath"
	"slices"
	"testing"
)

func TestCaptureKeepsTheBeginning(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	c := New(filepath.Join(dir, "id"), 10, 0)
	for _, part := range []string{"0123", "4567", "89abc", "def"} {
		if n, err := c.Stdout.Write([]byte(part)); n != len(part) || err != nil {
			t.Fatalf("%d %v", n, err)
		}
	}
	if content, err := io.ReadAll(c.Stdout.Reader()); err != nil || string(content) != "0123456789" {
		t.Fatalf("%q %v", content, err)
	}
	if !c.Stdout.End(16) || c.Stderr.End(0) || !c.Stderr.End(1) {
		t.Error("truncation is told wrongly")
	}
	if files, err := os.ReadDir(dir); err != nil || len(files) > 0 {
		t.Errorf("ten bytes made %v %v", files, err)
	}
	c.Remove()
}

// TestCaptureMovesToAFile writes more than InlineBytes, in chunks of all sizes, with a reader in
// the middle.
func TestCaptureMovesToAFile(t *testing.T) {
	t.Parallel()
	whole := make([]byte, 3*InlineBytes+17)
	for i := range whole {
		whole[i] = byte(i*7 + i>>8)
	}
	for _, chunk := range []int{1 << 20, InlineBytes + 1, InlineBytes, InlineBytes - 1, 4096, 999} {
		for _, limit := range []int{len(whole) + 1, len(whole) - 5, InlineBytes + 1, InlineBytes, 100} {
			dir := t.TempDir()
			c := New(filepath.Join(dir, "id"), int64(limit), 0)
			for part := range slices.Chunk(whole, chunk) {
				if _, err := c.Stdout.Write(part); err != nil {
					t.Fatal(err)
				}
				early, size, err := c.Stdout.open()
				if err != nil {
					t.Fatal(err)
				}
				content, err := io.ReadAll(early)
				if err = errors.Join(err, early.Close()); err != nil || int64(len(content)) != size || !bytes.Equal(content, whole[:size]) {
					t.Fatalf("chunks of %d, limit %d: %d bytes of %d are wrong, %v", chunk, limit, len(content), size, err)
				}
			}
			late, _, err := c.Stdout.open()
			if err != nil {
				t.Fatal(err)
			}
			want := whole[:min(limit, len(whole))]
			if content, err := io.ReadAll(c.Stdout.Reader()); err != nil || !bytes.Equal(content, want) {
				t.Fatalf("chunks of %d, limit %d: kept %d bytes, %v", chunk, limit, len(content), err)
			}
			if !bytes.Equal(c.Stdout.Inline(), want[:min(len(want), InlineBytes)]) {
				t.Fatalf("chunks of %d, limit %d: %d bytes are inline", chunk, limit, len(c.Stdout.Inline()))
			}
			c.Remove()
			content, err := io.ReadAll(late) // a reader that was opened before Remove can read all
			if err = errors.Join(err, late.Close()); err != nil || !bytes.Equal(content, want) {
				t.Fatalf("after the end: %d bytes, %v", len(content), err)
			}
			if files, err := os.ReadDir(dir); err != nil || len(files) > 0 {
				t.Fatalf("left %v %v", files, err)
			}
		}
	}
}

// TestCutOutputEndsWithAWholeCharacter cuts texts, and bytes that only look like one, in memory, at
// its bound and in a file. Output that is kept whole stays as it is.
func TestCutOutputEndsWithAWholeCharacter(t *testing.T) {
	t.Parallel()
	for _, before := range []int{0, 1, InlineBytes - 4, InlineBytes - 1, InlineBytes, 2 * InlineBytes} {
		pad := bytes.Repeat([]byte("x"), before)
		for _, c := range []struct {
			after       string
			limit, kept int
		}{
			{"é天😀", 1, 0},
			{"é天😀", 2, 2},
			{"é天😀", 3, 2},
			{"é天😀", 4, 2},
			{"é天😀", 5, 5},
			{"é天😀", 6, 5},
			{"é天😀", 8, 5},
			{"é天😀", 9, 9},
			{"a\xe5\xa4", 3, 3},
			{"a\x80\x80\x80\x80", 3, 3},
			{"a\xff\xff", 2, 2},
		} {
			s := New(filepath.Join(t.TempDir(), "id"), int64(before+c.limit), 0)
			whole := append(slices.Clone(pad), c.after...)
			_, _ = s.Stdout.Write(whole[:before+1])
			_, _ = s.Stdout.Write(whole[before+1:])
			truncated := s.Stdout.End(0)
			want := whole[:before+c.kept]
			content, err := io.ReadAll(s.Stdout.Reader())
			if err != nil || !bytes.Equal(content, want) || truncated != (len(want) < len(whole)) || s.Stdout.Kept() != int64(len(want)) {
				t.Errorf("%d bytes and %q, limit %d: %q of %d bytes, truncated %v, %v", before, c.after, c.limit, content[max(0, len(content)-9):],
					len(content), truncated, err)
			}
			if inline := s.Stdout.Inline(); !bytes.Equal(inline, want[:min(len(want), InlineBytes)]) {
				t.Errorf("%d bytes and %q, limit %d: %d bytes are inline", before, c.after, c.limit, len(inline))
			}
			s.Remove()
		}
	}
}

// TestCaptureWithoutRoom cannot make its file: the part in memory is kept, and the output counts as
// truncated.
func TestCaptureWithoutRoom(t *testing.T) {
	t.Parallel()
	c := New(filepath.Join(t.TempDir(), "missing", "id"), 1<<20, 0)
	for range 3 {
		if n, err := c.Stdout.Write(make([]byte, InlineBytes-1)); n != InlineBytes-1 || err != nil {
			t.Fatal(n, err)
		}
	}
	if !c.Stdout.End(0) || c.Failed() == nil || c.Stdout.Reader().Size() != InlineBytes {
		t.Errorf("%d bytes kept of %d, %v", c.Stdout.Reader().Size(), c.Stdout.Seen(), c.Failed())
	}
	c.Remove()
}
