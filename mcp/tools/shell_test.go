package tools

import (
	"strings"
	"testing"
	"unicode/utf8"
)

// TestOutputIsCutBetweenCharacters wherever head and tail end.
func TestOutputIsCutBetweenCharacters(t *testing.T) {
	t.Parallel()
	text := strings.Repeat("é天😀", 20)
	for head := range 10 {
		for tail := 1; tail < 10; tail++ {
			for kept := len(text) - 4; kept <= len(text); kept++ {
				o := &output{head: head, tail: tail, written: func([]byte) {}}
				for i := range kept { // a pipe may be read byte by byte
					_, _ = o.Write([]byte(text[i : i+1]))
				}
				got := o.text(int64(len(text)))
				if strings.Contains(got, `\x`) || !strings.Contains(got, "bytes left out") {
					t.Fatalf("head %d, tail %d, %d bytes: %q", head, tail, kept, got)
				}
				begin, _, _ := strings.Cut(got, "\n")
				if !strings.HasPrefix(text, begin) || head-len(begin) >= utf8.UTFMax {
					t.Fatalf("head %d: %q", head, begin)
				}
			}
		}
	}
}

// TestReportsHaveWholeCharacters: half a character waits for the next report.
func TestReportsHaveWholeCharacters(t *testing.T) {
	t.Parallel()
	reports := make(chan string)
	r := newReporter(func(text string) { reports <- text })
	r.output([]byte("a\xe5\xa4"))
	if got := <-reports; got != "a" {
		t.Errorf("%q", got)
	}
	r.output([]byte("\xa9" + strings.Repeat("é", maxProgressBytes) + "\n"))
	if got := <-reports; !strings.HasSuffix(got, "éé\n") || strings.Contains(got, "\uFFFD") {
		t.Errorf("%.9q … of %d bytes", got, len(got))
	}
	r.stop()
}
