package whole

import (
	"strings"
	"testing"
)

func TestCutsBetweenCharacters(t *testing.T) {
	t.Parallel()
	const text = "aé天😀"
	bounds := map[int]bool{0: true, 1: true, 3: true, 6: true, 10: true}
	for at := range len(text) + 1 {
		wantEnd, wantBegin := at, at
		for !bounds[wantEnd] {
			wantEnd--
		}
		for !bounds[wantBegin] {
			wantBegin++
		}
		if got := string(End([]byte(text[:at]))); got != text[:wantEnd] {
			t.Errorf("the end of %q: %q", text[:at], got)
		}
		if got := string(Begin([]byte(text[at:]))); got != text[wantBegin:] {
			t.Errorf("the beginning of %q: %q", text[at:], got)
		}
	}
	for _, binary := range []string{"", "\xff\xff", "\x80\x80\x80\x80\x80", "a\x80", "a\xff"} {
		if end, begin := string(End([]byte(binary))), string(Begin([]byte(binary))); end != binary || begin != binary {
			t.Errorf("%q became %q and %q", binary, end, begin)
		}
	}
}

func TestShortTextEndsBetweenCharacters(t *testing.T) {
	t.Parallel()
	if s := strings.Repeat("a", 80); Shorten(s) != s {
		t.Errorf("80 bytes became %q", Shorten(s))
	}
	if got, want := Shorten(strings.Repeat("a", 79)+"天"), strings.Repeat("a", 79)+"…"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}
