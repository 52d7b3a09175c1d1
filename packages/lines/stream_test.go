package lines_test

import (
	"bytes"
	"errors"
	"io"
	"slices"
	"strings"
	"testing"
	"testing/iotest"

	"secbox/fault"
	"secbox/packages/lines"
)

// TestFindInPieces: it does not matter where a buffer ends, be it between CR and LF or in a
// character.
func TestFindInPieces(t *testing.T) {
	t.Parallel()
	for n := range 6 {
		long := strings.Repeat("x", 64<<10-3+n) // the buffer's end moves over what follows
		content := "\uFEFF" + long + "\r\n天气" + long + "\r\nb\n" + long
		for start, want := range map[int]string{1: long, 2: "天气" + long, 3: "b"} {
			for _, r := range []io.Reader{
				strings.NewReader(content), iotest.HalfReader(strings.NewReader(content)),
				iotest.DataErrReader(strings.NewReader(content)),
			} {
				c, err := lines.Find(r, start, start, "new")
				if err != nil || strings.TrimRight(content[c.From:c.To], "\r\n") != want || c.Text != "new\r\n" {
					t.Fatalf("line %d of a file with %d bytes: %d to %d, %q, %v", start, len(content), c.From, c.To, c.Text, err)
				}
				replaced, err := lines.Replace([]byte(content), start, start, "new")
				if streamed := content[:c.From] + c.Text + content[c.To:]; err != nil || streamed != string(replaced) {
					t.Fatalf("line %d: Replace differs, %v", start, err)
				}
			}
		}
		broken := long + "天气"
		broken = broken[:len(broken)-1]
		if _, err := lines.Find(strings.NewReader(broken), 1, 1, ""); !fault.Is(err, fault.InvalidRequest) {
			t.Errorf("half a character: %v", err)
		}
		if _, err := lines.Find(strings.NewReader(broken+"\n"), 1, 1, ""); !fault.Is(err, fault.InvalidRequest) {
			t.Errorf("half a character before a line break: %v", err)
		}
	}
	failed := errors.New("the disk is gone")
	if _, err := lines.Find(iotest.ErrReader(failed), 1, 1, ""); !errors.Is(err, failed) {
		t.Errorf("got %v", err)
	}
}

func TestUnix(t *testing.T) {
	t.Parallel()
	for in, want := range map[string]string{
		"": "", "a": "a", "\ufeffa": "a", "\ufeff\ufeffa": "\ufeffa", "a\ufeff": "a\ufeff", "a\n\n": "a\n\n", "a\r\n\r\nb\r\n": "a\n\nb\n", "a\r\nb": "a\nb",
		"a\r\nb\n": "a\r\nb\n", "a\rb": "a\rb", "a\rb\r\n": "a\rb\n", "a\r\r\n": "a\r\n",
	} {
		if got := lines.Unix(in); got != want {
			t.Errorf("%q became %q, want %q", in, got, want)
		}
	}
}

func TestBreak(t *testing.T) {
	t.Parallel()
	for in, want := range map[string]string{"": "\n", "a": "\n", "a\n": "\n", "a\r\n": "\r\n", "a\r\nb\n": "\n", "a\r\nb\r\nc\n": "\r\n", "a\rb\r": "\n"} {
		if got := lines.Break([]byte(in)); got != want {
			t.Errorf("%q: %q", in, got)
		}
	}
}

func TestReadStopsBehindTheRange(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("天", 100_000)
	content := "a\n" + long + "\r\nc\n"
	in := strings.NewReader(content + strings.Repeat("\xff\n", 1<<20))
	got, err := lines.Read(in, 2, 3, 1<<20)
	if err != nil || !slices.Equal(got, []string{long, "c"}) {
		t.Fatalf("%d lines, %v", len(got), err)
	}
	if read := in.Size() - int64(in.Len()); read > int64(len(content))+128<<10 {
		t.Errorf("%d bytes were read", read)
	}
	if _, err := lines.Read(strings.NewReader(content), 1, 3, int64(len(long))); !fault.Is(err, fault.FileTooLarge) {
		t.Errorf("more than it may give: %v", err)
	}
	if got, err := lines.Read(strings.NewReader(content), 3, 3, 10); err != nil || !slices.Equal(got, []string{"c"}) {
		t.Errorf("behind a long line: %q, %v", got, err)
	}
	if _, err := lines.Read(bytes.NewReader([]byte("a\n\xff\n")), 1, 2, 100); !fault.Is(err, fault.InvalidRequest) {
		t.Errorf("no text: %v", err)
	}
	failed := errors.New("the disk is gone")
	if _, err := lines.Read(iotest.ErrReader(failed), 1, 1, 1); !errors.Is(err, failed) {
		t.Errorf("got %v", err)
	}
}
