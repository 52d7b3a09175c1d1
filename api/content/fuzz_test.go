package content

import (
	"strings"
	"testing"
	"unicode/utf8"
)

// FuzzZipName checks that names stay inside an unpacker's directory and that different names stay different.
func FuzzZipName(f *testing.F) {
	for _, seed := range [][2]string{{"a/b", "a//b"}, {"..", "%2E."}, {"/x", "%/x"}, {"C:\\x", "c"}, {"\xff", "\uFFFD"}, {"a.", "a%2E"}, {"", "%"}} {
		f.Add(seed[0], seed[1])
	}
	f.Fuzz(func(t *testing.T, a, b string) {
		name := ZipName(a)
		if name == "" || !utf8.ValidString(name) || strings.HasPrefix(name, "/") || strings.ContainsAny(name, "\\:*?\"<>|\x00\n\x7f") {
			t.Fatalf("%q became %q", a, name)
		}
		for _, part := range strings.Split(name, "/") {
			if part == "" || strings.HasSuffix(part, ".") || strings.HasSuffix(part, " ") {
				t.Fatalf("%q became %q", a, name)
			}
		}
		if a != b && name == ZipName(b) {
			t.Fatalf("%q and %q both became %q", a, b, name)
		}
		header := Attachment(a)
		if strings.ContainsAny(header, "\r\n\x00\\/") || !strings.HasPrefix(header, `attachment; filename="`) || strings.Count(header, `"`) != 2 {
			t.Fatalf("%q became %q", a, header)
		}
	})
}
