package content

import (
	"encoding/hex"
	"net/http"
	"strings"
	"testing"
	"unicode/utf8"
)

// FuzzZipName checks that names stay inside an unpacker's directory and that different names stay
// different.
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

// FuzzDigests checks that every digest that is accepted from a header is a SHA-256, and reads the
// same after it was written again.
func FuzzDigests(f *testing.F) {
	const empty = "47DEQpj8HBSa+/TImW+5JCeuQeRkm5NMpJWZG3hSuFU="
	for _, seed := range []string{
		"sha-256=:" + empty + ":", "sha-512=:AA==:, sha-256=:" + empty + ":;x=1", "sha-256=1", "sha-256=::", "sha-256=:AA==:", ",;=",
		`"sha256:` + strings.Repeat("aB", 32) + `"`, `W/"sha256:"`,
	} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, value string) {
		whole := func(digest string) {
			if sum, err := hex.DecodeString(digest); err != nil || len(sum) != 32 || digest != strings.ToLower(digest) {
				t.Fatalf("%q became %q", value, digest)
			}
		}
		h := http.Header{}
		h.Set(digestHeader, value)
		if digest, err := RequestDigest(h); err == nil && digest != "" {
			whole(digest)
			setDigest(h, digest)
			if again, err := RequestDigest(h); err != nil || again != digest {
				t.Fatalf("%q became %q, then %q, %v", value, digest, again, err)
			}
		}
		if digest, ok := DigestOf(value); ok {
			whole(digest)
			if again, ok := DigestOf(ETagOf(digest)); !ok || again != digest {
				t.Fatalf("%q became %q, then %q", value, digest, again)
			}
		}
		h.Set(wantHeader, value)
		wantsDigest(h)
	})
}
