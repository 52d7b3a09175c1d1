// Package hmackey makes keyed digests (HMAC-SHA-256) of what no record may have: environment
// values, standard input, and requests that contain them. Without the installation's key, a weak
// secret cannot be guessed from its digest. Keys derived from it seal what a database has to keep
// for a while all the same. The package must not know records or databases.
package hmackey

import (
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"hash"
	"io/fs"
	"strings"

	"secbox/fault"
	"secbox/internal/statedir"
)

// KeyFile is the name of the key in the state dir, unless the settings name another file.
const KeyFile = "hmac.key"

const keyBytes = 32

// prefix begins a digest of a request. Versions without a key recorded a plain SHA-256.
const prefix = "hmac-sha256:"

// Key is the key of an installation. The zero value is not a key. It is safe for concurrent use.
type Key struct {
	secret []byte
	id     string
}

// Open reads the key in a file, and makes the file if there is none. It fails with
// fault.InvalidSettings.
func Open(path string) (Key, error) {
	key, err := read(path)
	if !errors.Is(err, fs.ErrNotExist) {
		return key, err
	}
	secret := make([]byte, keyBytes)
	rand.Read(secret) // never fails
	err = statedir.WriteNew(path, hex.EncodeToString(secret)+"\n")
	if err != nil && !errors.Is(err, fs.ErrExist) { // else another node was faster
		return Key{}, fault.Wrap(fault.InvalidSettings, err, "cannot write the key of keyed digests %s: %s", path, fault.Reason(err))
	}
	return read(path)
}

func read(path string) (Key, error) {
	text, err := statedir.ReadSecret(path)
	if err != nil {
		return Key{}, fault.Wrap(fault.InvalidSettings, err, "cannot read the key of keyed digests %s: %s", path, fault.Reason(err))
	}
	secret, err := hex.DecodeString(strings.TrimSpace(string(text)))
	if err != nil || len(secret) != keyBytes { // an error could quote the key
		return Key{}, fault.New(fault.InvalidSettings,
			"the key of keyed digests %s is damaged; restore it from a backup, or remove it to make another", path)
	}
	return New(secret), nil
}

// New returns the key with these secret bytes.
func New(secret []byte) Key {
	k := Key{secret: secret}
	k.id = k.sum("id")[:8]
	return k
}

// Request is the keyed digest of a request, given its SHA-256. It names the key by an id that tells
// nothing about it.
func (k Key) Request(digest string) string {
	return prefix + k.id + ":" + k.sum("request", digest)
}

// Compare reports whether a recorded digest is the digest of the request with this SHA-256. It does
// not know if another key made the digest. It compares plain digests of older versions as they are.
func (k Key) Compare(recorded, digest string) (equal, known bool) {
	if !strings.HasPrefix(recorded, prefix) {
		return recorded == digest, true
	}
	return hmac.Equal([]byte(recorded), []byte(k.Request(digest))), KeyOf(recorded) == k.id
}

// KeyOf is the id of the key that made the digest of a request; empty for a plain digest.
func KeyOf(recorded string) string {
	id, _, _ := strings.Cut(strings.TrimPrefix(recorded, prefix), ":")
	if !strings.HasPrefix(recorded, prefix) {
		return ""
	}
	return id
}

// Check is the same for equal keys, and tells nothing about the key.
func (k Key) Check() string { return k.sum("check")[:32] }

// NewSalt returns a salt for Variable and Stdin. Digests with different salts cannot be compared,
// so that equal values in two records do not show.
func NewSalt() string { return rand.Text() }

// Variable is the keyed digest of a variable's value. Name and salt must not contain a NUL.
func (k Key) Variable(salt, name, value string) string { return k.sum("env", salt, name, value)[:32] }

// Stdin is the keyed digest of standard input. Salt must not contain a NUL.
func (k Key) Stdin(salt string, content []byte) string {
	d := k.StdinDigest(salt)
	d.Write(content)
	return d.Sum()
}

// StdinDigest is the digest of Stdin for content that comes in pieces.
func (k Key) StdinDigest(salt string) Digest {
	mac := hmac.New(sha256.New, k.secret)
	mac.Write([]byte("stdin\x00" + salt + "\x00"))
	return Digest{mac}
}

// Digest is a keyed digest of the content that was written to it.
type Digest struct{ mac hash.Hash }

// Write adds content.
func (d Digest) Write(content []byte) { d.mac.Write(content) }

// Sum returns the digest of the content so far.
func (d Digest) Sum() string { return hex.EncodeToString(d.mac.Sum(nil))[:32] }

// sum separates its parts by NUL bytes, which only the last one may contain.
func (k Key) sum(parts ...string) string {
	mac := hmac.New(sha256.New, k.secret)
	for i, part := range parts {
		if i > 0 {
			mac.Write([]byte{0})
		}
		mac.Write([]byte(part))
	}
	return hex.EncodeToString(mac.Sum(nil))
}
