package archive

import (
	"fmt"
	"strings"
	"testing"

	"secbox/fault"
)

// small limits, so that tests need little to pass them.
func small() Limits {
	return Limits{ArchiveBytes: 4 << 20, Files: 10, Bytes: 3 << 20, FileBytes: 2 << 20, Ratio: 100, Depth: 16, PathBytes: 1024}
}

func TestLimits(t *testing.T) {
	t.Parallel()
	zeros := func(n int) string { return strings.Repeat("\x00", n) }
	numbered := func(format string, n int, r raw) (list []raw) {
		for i := range n {
			r.name = fmt.Sprintf(format, i)
			list = append(list, r)
		}
		return list
	}
	for name, c := range map[string]struct {
		entries []raw
		says    string // "" is good
	}{
		"as many files as may be":   {numbered("demo/%d", 9, raw{}), ""},
		"one file more":             {numbered("demo/%d", 10, raw{}), "more than the 10 files"},
		"as many folders as may be": {numbered("demo/%d/", 10, raw{}), ""},
		"one folder more":           {numbered("demo/%d/", 11, raw{}), "more than the 10 folders"},
		"folders of one long path":  {[]raw{{name: "demo/a/b/c/d/e/f/g/h/i/j/k/l"}}, "more than the 10 folders"},
		"junk for every file":       {numbered("__MACOSX/._%d", 30, raw{data: "x"}), ""},
		"more junk than that":       {numbered("__MACOSX/._%d", 40, raw{data: "x"}), "has 41 entries"},
		"junk that would be large":  {[]raw{{name: "__MACOSX/x", data: zeros(3 << 20), deflate: true}}, ""},
		"a large file":              {[]raw{{name: "demo/a", data: zeros(2 << 20)}}, ""},
		"too large a file":          {[]raw{{name: "demo/a", data: zeros(2<<20 + 1)}}, `"demo/a" unpacks to 2097153 bytes, more than the 2 MiB`},
		"too much together":         {numbered("demo/%d", 3, raw{data: zeros(1 << 20)}), "more than the 3 MiB that a skill may have"},
		"a megabyte of zeros":       {[]raw{{name: "demo/a", data: zeros(ratioFloor - len("# Demo\n")), deflate: true}}, ""},
		"a bomb in one entry":       {[]raw{{name: "demo/a", data: zeros(2 << 20), deflate: true}}, `"demo/a" unpacks to more than 100 times its size`},
		"a bomb in many entries": {
			numbered("demo/%d", 4, raw{data: zeros(500 << 10), deflate: true}),
			"the archive unpacks to more than 100 times its size",
		},
		"a bomb in a bomb": {[]raw{{name: "demo/a.zip", data: string(makeZip(ending{}, raw{name: "b", data: zeros(2 << 20), deflate: true}))}}, ""},
		"a bomb that hides in flate": {
			[]raw{{name: "demo/a", data: zeros(1 << 20), deflate: true, central: put32(24, 10), local: put32(22, 10)}},
			"unpacks to more than the 10 bytes it promises, as a bomb does",
		},
		"less than promised": {
			[]raw{{name: "demo/a", data: zeros(1000), deflate: true, central: put32(24, 1001), local: put32(22, 1001)}},
			"is damaged",
		},
		"empty, and something comes": {[]raw{{name: "demo/a", data: "xxx", deflate: true, central: put32(24, 0), local: put32(22, 0)}}, "promises"},
		"stored, two sizes":          {[]raw{{name: "demo/a", data: "xxx", central: put32(24, 1<<20)}}, "gives two different sizes"},
		"sizes near the end of all": {[]raw{{
			name: "demo/a", extra: field(extraZip64, strings.Repeat("\xff", 7)+"\x7f"+strings.Repeat("\xff", 7)+"\x7f"),
			central: func(b []byte) { put32(20, 1<<32-1)(b); put32(24, 1<<32-1)(b) },
		}}, "damaged"},
		"a terabyte, so it says": {[]raw{{
			name: "demo/a", deflate: true, data: "x", extra: field(extraZip64, "\x00\x00\x00\x00\x00\x01\x00\x00"),
			central: put32(24, 1<<32-1),
		}}, "more than the 2 MiB"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			_, tree, err := unpack(t, demo(c.entries...), "uploaded.zip", small())
			if c.says == "" {
				if err != nil {
					t.Fatal(err)
				}
				return
			}
			code := fault.CodeOf(err)
			if code != fault.ArchiveTooLarge && code != fault.InvalidArchive {
				t.Errorf("got %v", err)
			}
			wantFault(t, err, code, c.says)
			size := 0
			for _, content := range tree {
				size += len(content)
			}
			if size > bufferBytes {
				t.Errorf("%d bytes were written", size)
			}
		})
	}
}

func TestLimitsOfTheArchiveItself(t *testing.T) {
	t.Parallel()
	lim := small()
	b := demo(raw{name: "demo/a", data: strings.Repeat("x", 1000)})
	lim.ArchiveBytes = int64(len(b))
	if _, _, err := unpack(t, b, "", lim); err != nil {
		t.Error(err)
	}
	lim.ArchiveBytes--
	_, _, err := unpack(t, b, "", lim)
	wantFault(t, err, fault.ArchiveTooLarge, "more than the")

	lim = DefaultLimits()
	comment := strings.Repeat("c", 60_000)
	var many []raw
	for i := range 150 {
		many = append(many, raw{name: fmt.Sprintf("demo/%d", i), extra: field(0xcafe, comment)})
	}
	_, _, err = unpack(t, demo(many...), "", lim)
	wantFault(t, err, fault.ArchiveTooLarge, "table of contents has")
}

// TestOverlappingEntries are the bombs that no ratio of one entry shows: many names for one block
// of data.
func TestOverlappingEntries(t *testing.T) {
	t.Parallel()
	kernel := strings.Repeat("\x00", 1<<20)
	var first uint32
	remember := func(b []byte) { first = le.Uint32(b[42:]) }
	again := func(b []byte) { le.PutUint32(b[42:], first) }
	for name, entries := range map[string][]raw{
		"one offset":         {{name: "demo/a", data: kernel, deflate: true, central: remember}, {name: "demo/b", data: kernel, deflate: true, central: again}},
		"one offset and one": {{name: "demo/a", data: kernel, deflate: true, central: remember}, {name: "demo/a", data: kernel, deflate: true, central: again}},
		"a header in the data before it": {
			{name: "demo/a", data: kernel, deflate: true, central: func(b []byte) { put32(20, le.Uint32(b[20:])+40)(b) }},
			{name: "demo/b", data: kernel, deflate: true},
		},
		"the table in the data": {{name: "demo/a", data: kernel, deflate: true, central: func(b []byte) { put32(20, le.Uint32(b[20:])+40)(b) }}},
		"a header in an extra field": {
			{name: "demo/a", data: "", packed: "xx", deflate: true, local: put16(28, 60), central: put32(20, 2)},
			{name: "demo/b", data: kernel[:1<<16], deflate: true},
		},
	} {
		zip := demo(entries...) // not at once: they share what they remember
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			_, _, err := unpack(t, zip, "uploaded.zip", DefaultLimits())
			wantFault(t, err, fault.InvalidArchive, "overlaps another entry or the table of contents")
		})
	}
}
