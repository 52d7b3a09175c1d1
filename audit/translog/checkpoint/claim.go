package checkpoint

import (
	"encoding/base64"
	"fmt"
	"strings"

	"golang.org/x/mod/sumdb/note"
)

// Claim is a checkpoint that says which key has signed it. Nothing verifies the signature, since
// the key is not known.
type Claim struct {
	Checkpoint        // with the one signature
	KeyID      string // as KeyID
}

// KeyID returns the name and the hash of a public key in the format of note.NewVerifier: all that a
// signature tells of its key.
func KeyID(key string) string {
	name, rest, _ := strings.Cut(key, "+")
	hash, _, _ := strings.Cut(rest, "+")
	return name + "+" + hash
}

// IDOf is KeyID of a verifier; empty for nil.
func IDOf(key note.Verifier) string {
	if key == nil {
		return ""
	}
	return fmt.Sprintf("%s+%08x", key.Name(), key.KeyHash())
}

// signatureBytes is the size of an Ed25519 signature in a note, with the hash of its key.
const signatureBytes = 4 + 64

// OfOther reads a checkpoint of the log with this origin, or of any log if it is empty, that a key
// of the log's name, and not the one with this id, is said to have signed. An id that is empty is
// of no key.
func OfOther(signed []byte, origin, keyID string) (Claim, bool) {
	c, n, err := parse(signed)
	if origin == "" {
		origin = c.Origin
	}
	if err != nil || c.Origin != origin {
		return Claim{}, false
	}
	claim := Claim{Checkpoint: c}
	for _, s := range n.UnverifiedSigs {
		data, err := base64.StdEncoding.DecodeString(s.Base64)
		id := fmt.Sprintf("%s+%08x", s.Name, s.Hash)
		switch {
		case s.Name != origin || err != nil || len(data) != signatureBytes:
		case id == keyID:
			return Claim{}, false
		case claim.KeyID == "":
			claim.KeyID, claim.Signed = id, fmt.Sprintf("%s\n— %s %s\n", n.Text, s.Name, s.Base64)
		}
	}
	return claim, claim.KeyID != ""
}
