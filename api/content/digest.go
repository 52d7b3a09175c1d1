package content

import (
	"encoding/base64"
	"encoding/hex"
	"net/http"
	"strings"

	"secbox/fault"
)

// Headers of RFC 9530, which has digests in base64 between colons: sha-256=:…:, and preferences
// such as sha-256=1.
const (
	digestHeader = "Repr-Digest"
	wantHeader   = "Want-Repr-Digest"
)

// ETagOf returns the entity tag of content with this SHA-256, in hexadecimal.
func ETagOf(digest string) string { return `"sha256:` + digest + `"` }

// DigestOf returns the SHA-256, in hexadecimal, of an entity tag that ETagOf made.
func DigestOf(tag string) (digest string, ok bool) {
	digest, opened := strings.CutPrefix(strings.TrimSpace(tag), `"sha256:`)
	digest, closed := strings.CutSuffix(digest, `"`)
	sum, err := hex.DecodeString(digest)
	return hex.EncodeToString(sum), opened && closed && err == nil && len(sum) == 32
}

// setDigest sets the header for content with this SHA-256, in hexadecimal.
func setDigest(h http.Header, digest string) {
	sum, _ := hex.DecodeString(digest)
	h.Set(digestHeader, "sha-256=:"+base64.StdEncoding.EncodeToString(sum)+":")
}

// wantsDigest reports whether a request asks for a SHA-256. A preference of 0 means that it must
// not be sent.
func wantsDigest(h http.Header) bool {
	preference, ok := member(h.Get(wantHeader), "sha-256")
	return ok && preference != "0"
}

// RequestDigest returns the SHA-256, in hexadecimal, that a request names for its content; empty if
// it names none. Other algorithms are ignored.
func RequestDigest(h http.Header) (string, error) {
	value, ok := member(strings.Join(h.Values(digestHeader), ","), "sha-256")
	if !ok {
		return "", nil
	}
	value, opened := strings.CutPrefix(value, ":")
	value, closed := strings.CutSuffix(value, ":")
	sum, err := base64.StdEncoding.DecodeString(value)
	if !opened || !closed || err != nil || len(sum) != 32 {
		return "",
			fault.BadField(digestHeader, "has a malformed SHA-256; write it in base64 between colons: "+
				"sha-256=:47DEQpj8HBSa+/TImW+5JCeuQeRkm5NMpJWZG3hSuFU=:")
	}
	return hex.EncodeToString(sum), nil
}

// member returns the value of a key in a dictionary of RFC 8941 whose values contain no commas and
// semicolons. The last one counts.
func member(dictionary, key string) (value string, ok bool) {
	for entry := range strings.SplitSeq(dictionary, ",") {
		entry, _, _ = strings.Cut(entry, ";") // parameters
		if name, v, found := strings.Cut(strings.TrimSpace(entry), "="); found && name == key {
			value, ok = strings.TrimSpace(v), true
		}
	}
	return value, ok
}
