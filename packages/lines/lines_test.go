package lines_test

import (
	"bytes"
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"

	"pgregory.net/rapid"

	"secbox/fault"
	"secbox/packages/lines"
)

func TestReplace(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		content    string
		start, end int
		with, want string
	}{
		"one line":                             {"a\nb\nc\n", 2, 2, "x", "a\nx\nc\n"},
		"one line by one with a break":         {"a\nb\nc\n", 2, 2, "x\n", "a\nx\nc\n"},
		"one line by three":                    {"a\nb\nc\n", 2, 2, "x\ny\nz", "a\nx\ny\nz\nc\n"},
		"all lines":                            {"a\nb\nc\n", 1, 3, "x", "x\n"},
		"the first":                            {"a\nb\n", 1, 1, "x", "x\nb\n"},
		"the last":                             {"a\nb\n", 2, 2, "x", "a\nx\n"},
		"by an empty line":                     {"a\nb\nc\n", 2, 2, "\n", "a\n\nc\n"},
		"by nothing":                           {"a\nb\nc\n", 2, 2, "", "a\nc\n"},
		"everything by nothing":                {"a\nb\nc", 1, 3, "", ""},
		"the last without a break":             {"a\nb", 2, 2, "x", "a\nx"},
		"the last without a break by two":      {"a\nb", 2, 2, "x\ny\n", "a\nx\ny"},
		"the last without a break by an empty": {"a\nb", 2, 2, "\n", "a\n\n"},
		"… by one and an empty":                {"a\nb", 2, 2, "x\n\n", "a\nx\n\n"},
		"the last without a break by nothing":  {"a\nb", 2, 2, "", "a\n"},
		"not the last, which has no break":     {"a\nb", 1, 1, "x", "x\nb"},
		"append":                               {"a\nb\n", 3, 3, "c", "a\nb\nc\n"},
		"append two":                           {"a\n", 2, 2, "b\nc\n", "a\nb\nc\n"},
		"append without a break":               {"a\nb", 3, 3, "c\n", "a\nb\nc"},
		"append an empty line":                 {"a", 2, 2, "\n", "a\n\n"},
		"append nothing":                       {"a", 2, 2, "", "a"},
		"append to nothing":                    {"", 1, 1, "a\r\nb", "a\r\nb"},
		"append nothing to nothing":            {"", 1, 1, "", ""},
		"CRLF stays":                           {"a\r\nb\r\nc\r\n", 2, 2, "x\ny", "a\r\nx\r\ny\r\nc\r\n"},
		"CRLF into LF":                         {"a\nb\nc\n", 2, 2, "x\r\ny\r\n", "a\nx\ny\nc\n"},
		"CRLF, last without a break":           {"a\r\nb", 2, 2, "x\ny\n", "a\r\nx\r\ny"},
		"CRLF, append without a break":         {"a\r\nb", 3, 3, "c", "a\r\nb\r\nc"},
		"mixed, more CRLF":                     {"a\r\nb\nc\r\n", 2, 2, "x\ny\n", "a\r\nx\r\ny\r\nc\r\n"},
		"mixed, more LF":                       {"a\r\nb\nc\n", 1, 1, "x\r\n", "x\nb\nc\n"},
		"no line break in the file":            {"a", 1, 1, "x\r\ny\r\n", "x\r\ny"},
		"mangled breaks":                       {"a\nb\n", 1, 1, "x\r\r\ny\r", "x\ny\nb\n"},
		"nothing but a carriage return":        {"a\nb\n", 1, 1, "\r", "\nb\n"},
		"a lone carriage return is a character": {
			"a\rb\nc\n", 2, 2, "x\ry", "a\rb\nx\ry\n",
		},
		"a byte order mark stays":           {"\uFEFFa\nb\n", 1, 1, "x", "\uFEFFx\nb\n"},
		"one in the new text goes":          {"\uFEFFa\nb\n", 2, 2, "\uFEFFx", "\uFEFFa\nx\n"},
		"a file of nothing but the mark":    {"\uFEFF", 1, 1, "x\n", "\uFEFFx\n"},
		"beyond ASCII":                      {"天气\nпогода\n😀\n", 2, 2, "weather – Wetter", "天气\nweather – Wetter\n😀\n"},
		"other separators are no breaks":    {"a\u2028b\u0085c\fd\ve\n", 1, 1, "x", "x\n"},
		"NUL is a character":                {"a\x00b\nc\n", 2, 2, "x\x00", "a\x00b\nx\x00\n"},
		"empty lines count":                 {"\n\n\n", 2, 2, "x", "\nx\n\n"},
		"the range of a break at the end":   {"a\n\n", 2, 2, "x", "a\nx\n"},
		"an empty line is appended past it": {"a\n\n", 3, 3, "x", "a\n\nx\n"},
	} {
		got, err := lines.Replace([]byte(c.content), c.start, c.end, c.with)
		if err != nil || string(got) != c.want {
			t.Errorf("%s: %q, %v; want %q", name, got, err, c.want)
		}
	}
}

func TestReplaceDoesNotChangeItsArguments(t *testing.T) {
	t.Parallel()
	content := append(make([]byte, 0, 100), "a\nb\nc\n"...) // room behind it
	if _, err := lines.Replace(content, 1, 1, "something longer"); err != nil || string(content) != "a\nb\nc\n" {
		t.Errorf("%q, %v", content, err)
	}
}

func TestRefused(t *testing.T) {
	t.Parallel()
	utf16 := "\xff\xfea\x00\n\x00"
	for name, c := range map[string]struct {
		content     string
		start, end  int
		with, field string
		says        string
		sliced      bool // reading refuses it too
	}{
		"start 0":                  {"a\n", 0, 1, "x", "start", "counted from 1", true},
		"start negative":           {"a\n", -1, 1, "x", "start", "counted from 1", true},
		"start least":              {"a\n", math.MinInt, math.MaxInt, "x", "start", "counted from 1", true},
		"both 0":                   {"a\n", 0, 0, "x", "start", "counted from 1", true},
		"end 0":                    {"a\n", 1, 0, "x", "end", "before start", true},
		"start > end":              {"a\nb\nc\n", 3, 2, "x", "end", "is 2, before start, which is 3", true},
		"end beyond":               {"a\nb\n", 2, 3, "x", "end", "has 2 lines", false},
		"end beyond one":           {"a", 1, 2, "x", "end", "has 1 line", false},
		"start beyond":             {"a\nb\n", 4, 4, "x", "start", "to append, give 3 as start and end", false},
		"both beyond":              {"a\nb\n", 5, 7, "x", "start", "has 2 lines", false},
		"append with a longer end": {"a\nb\n", 3, 4, "x", "start", "give 3 as start and end", false},
		"an empty file":            {"", 2, 2, "x", "start", "has 0 lines; to append, give 1", false},
		"greatest":                 {"a\n", math.MaxInt, math.MaxInt, "x", "start", "has 1 line", false},
		"to the greatest":          {"a\n", 1, math.MaxInt, "x", "end", "has 1 line", false},
		"content is Latin-1":       {"caf\xe9\n", 1, 1, "x", "path", "not UTF-8", true},
		"content is UTF-16":        {utf16, 1, 1, "x", "path", "not UTF-8", true},
		"content is GBK":           {"\xcc\xec\xc6\xf8\n", 1, 1, "x", "path", "not UTF-8", true},
		"content is cut in a rune": {"a\n\xe5\xa4", 1, 1, "x", "path", "not UTF-8", true},
		"the new text is Latin-1":  {"a\n", 1, 1, "caf\xe9", "body", "not UTF-8", false},
		"a surrogate":              {"a\n", 1, 1, "\xed\xa0\x80", "body", "not UTF-8", false},
		"content too large":        {strings.Repeat("a", lines.MaxBytes+1), 1, 1, "x", "path", "download it", true},
		"result too large":         {strings.Repeat("a\n", lines.MaxBytes/2), 1, 1, "xyz", "body", "makes the file", false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			judge := func(call string, err error) {
				t.Helper()
				f := fault.From(err)
				if !fault.Is(err, fault.InvalidRequest) || len(f.Fields) != 1 || f.Fields[0].Field != c.field || !strings.Contains(f.Message, c.says) {
					t.Errorf("%s: %v; want %s: …%s…", call, err, c.field, c.says)
				}
			}
			got, err := lines.Replace([]byte(c.content), c.start, c.end, c.with)
			if got != nil {
				t.Errorf("%d bytes beside an error", len(got))
			}
			judge("Replace", err)
			list, err := lines.Slice([]byte(c.content), c.start, c.end)
			if c.sliced {
				judge("Slice", err)
			} else if err != nil || list == nil {
				t.Errorf("Slice = %#v, %v", list, err)
			}
		})
	}
}

func TestSlice(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		content    string
		start, end int
		want       []string
	}{
		"the first two, as in the contract": {"import sys\nimport os\n\ndef main():\n    print('Hello Sandbox')", 1, 2, []string{"import sys", "import os"}},
		"an empty line":                     {"import sys\n\ndef", 2, 2, []string{""}},
		"the last without a break":          {"a\nb", 2, 2, []string{"b"}},
		"the end is cut":                    {"a\nb\n", 2, 1000, []string{"b"}},
		"the end is cut at the greatest":    {"a\nb\n", 1, math.MaxInt, []string{"a", "b"}},
		"start beyond the end":              {"a\nb\n", 3, 3, []string{}},
		"start at the greatest":             {"a\nb\n", math.MaxInt, math.MaxInt, []string{}},
		"of nothing":                        {"", 1, 10, []string{}},
		"of an empty line":                  {"\n", 1, 10, []string{""}},
		"CRLF":                              {"a\r\nb\r\n", 1, 2, []string{"a", "b"}},
		"a lone carriage return":            {"a\rb\nc\r", 1, 2, []string{"a\rb", "c\r"}},
		"a byte order mark":                 {"\uFEFFa\nb\n", 1, 1, []string{"a"}},
		"beyond ASCII":                      {"天气\nпогода\n", 1, 2, []string{"天气", "погода"}},
	} {
		got, err := lines.Slice([]byte(c.content), c.start, c.end)
		if err != nil || got == nil || !slices.Equal(got, c.want) {
			t.Errorf("%s: %#v, %v; want %q", name, got, err, c.want)
		}
	}
}

// all are the lines of a content as the package's comment defines them, found in another way.
func all(content string) []string {
	content = strings.TrimPrefix(content, "\uFEFF")
	parts := strings.SplitAfter(content, "\n")
	if parts[len(parts)-1] == "" {
		parts = parts[:len(parts)-1]
	}
	for i, p := range parts {
		if body, broken := strings.CutSuffix(p, "\n"); broken {
			parts[i] = strings.TrimSuffix(body, "\r")
		}
	}
	return parts
}

// checkEdit checks the invariants of every edit.
func checkEdit(content string, start, end int, with string) error {
	before := all(content)
	got, err := lines.Replace([]byte(content), start, end, with)
	valid := utf8.ValidString(content) && utf8.ValidString(with)
	possible := start >= 1 && end >= start && (end <= len(before) || start == len(before)+1 && end == start)
	if (err == nil) != (valid && possible) {
		return fmt.Errorf("valid %v, possible %v, but %w", valid, possible, err)
	}
	if err != nil {
		if !fault.Is(err, fault.InvalidRequest) || len(fault.From(err).Fields) != 1 {
			return fmt.Errorf("not a refusal that names its field: %w", err)
		}
		return nil
	}
	result := string(got)
	if !utf8.Valid(got) {
		return fmt.Errorf("the result is not UTF-8: %q", got)
	}
	if strings.HasPrefix(content, "\uFEFF") != strings.HasPrefix(result, "\uFEFF") && len(content) > 0 && !strings.HasPrefix(content+result, "\uFEFF\uFEFF") {
		// A line that begins with a second mark may come to stand first.
		if first := all(content); end >= len(first) || !strings.HasPrefix(first[end], "\uFEFF") {
			return fmt.Errorf("the byte order mark came or went: %q", result)
		}
		return nil
	}

	// The bytes before and after the range are the bytes of the file.
	rawBefore := strings.SplitAfter(content, "\n")
	keptHead := strings.Join(rawBefore[:min(start-1, len(rawBefore))], "")
	keptTail := ""
	if end < len(rawBefore) {
		keptTail = strings.Join(rawBefore[end:], "")
	}
	if strings.HasPrefix(content, "\uFEFF") && start == 1 {
		keptHead = "\uFEFF"
	}
	if !strings.HasPrefix(result, keptHead) || !strings.HasSuffix(result, keptTail) || len(result) < len(keptHead)+len(keptTail) {
		return fmt.Errorf("lines outside the range changed: %q is not %q … %q", result, keptHead, keptTail)
	}

	// The lines are those before, the new ones, those after. A carriage return that was the file's
	// last character may become a part of the line break that an append puts there.
	want := append([]string{}, before[:start-1]...)
	for _, line := range all(strings.TrimLeft(with, "\uFEFF")) {
		want = append(want, strings.TrimRight(line, "\r"))
	}
	if end < len(before) {
		want = append(want, before[end:]...)
	}
	after := all(result)
	if last := start - 2; last >= 0 && start == len(before)+1 && last < len(after) {
		want[last], after[last] = strings.TrimRight(want[last], "\r"), strings.TrimRight(after[last], "\r")
	}
	if content == "" || content == "\uFEFF" {
		for i := range after {
			after[i] = strings.TrimRight(after[i], "\r") // taken as it is
		}
	}
	if !slices.Equal(after, want) {
		return fmt.Errorf("the lines are %q, want %q", after, want)
	}
	read, err := lines.Slice(got, 1, math.MaxInt)
	if err != nil || !slices.Equal(read, all(result)) {
		return fmt.Errorf("Slice reads %q, %w", read, err)
	}

	// One kind of line break stays one kind.
	crlf, lf := strings.Count(content, "\r\n"), strings.Count(content, "\n")
	nowCRLF, nowLF := strings.Count(result, "\r\n"), strings.Count(result, "\n")
	strayCR := strings.HasSuffix(content, "\r") // an append may end it
	if lf > 0 && !strayCR && (crlf == 0 && nowCRLF > 0 || crlf == lf && nowCRLF != nowLF) {
		return fmt.Errorf("the line breaks changed: %q", result)
	}
	return nil
}

func TestEveryEditKeepsTheRest(t *testing.T) {
	t.Parallel()
	line := rapid.SampledFrom([]string{"", "a", "bb", "天气", "\t", "x\ry", "  indented", "\uFEFF", "\x00", "😀"})
	lineBreak := rapid.SampledFrom([]string{"\n", "\r\n"})
	text := func(t *rapid.T, name string) string {
		var b strings.Builder
		b.WriteString(rapid.SampledFrom([]string{"", "\uFEFF"}).Draw(t, name+" mark"))
		for _, l := range rapid.SliceOfN(line, 0, 8).Draw(t, name) {
			b.WriteString(l + lineBreak.Draw(t, name+" break"))
		}
		if rapid.Bool().Draw(t, name+" open") {
			b.WriteString(line.Draw(t, name+" last"))
		}
		return b.String()
	}
	rapid.Check(t, func(t *rapid.T) {
		content, with := text(t, "content"), text(t, "with")
		start := rapid.IntRange(-1, 11).Draw(t, "start")
		if err := checkEdit(content, start, start+rapid.IntRange(-2, 4).Draw(t, "more"), with); err != nil {
			t.Fatal(err)
		}
	})
}

// TestReadingAndWritingBack: a range that is replaced by itself is the same file.
func TestReadingAndWritingBack(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		lineBreak := rapid.SampledFrom([]string{"\n", "\r\n"}).Draw(t, "break")
		list := rapid.SliceOfN(rapid.SampledFrom([]string{"", "a", "天气", " b "}), 1, 9).Draw(t, "lines")
		content := strings.Join(list, lineBreak)
		if rapid.Bool().Draw(t, "ended") || list[len(list)-1] == "" {
			content += lineBreak
		}
		start := rapid.IntRange(1, len(list)).Draw(t, "start")
		end := rapid.IntRange(start, len(list)).Draw(t, "end")
		read, err := lines.Slice([]byte(content), start, end)
		if err != nil {
			t.Fatal(err)
		}
		got, err := lines.Replace([]byte(content), start, end, strings.Join(read, "\n")+"\n")
		if err != nil || !bytes.Equal(got, []byte(content)) {
			t.Fatalf("%q became %q, %v", content, got, err)
		}
	})
}

func FuzzReplace(f *testing.F) {
	f.Add("a\nb\nc\n", 2, 2, "x\ny")
	f.Add("a\r\nb", 3, 3, "c")
	f.Add("\uFEFFa\n", 1, 1, "\uFEFFb\r")
	f.Add("", 1, 1, "")
	f.Add("caf\xe9", 1, 1, "x")
	f.Fuzz(func(t *testing.T, content string, start, end int, with string) {
		if err := checkEdit(content, start, end, with); err != nil {
			t.Fatal(err)
		}
	})
}
