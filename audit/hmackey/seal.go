package hmackey

import (
	"crypto/aes"
	"crypto/cipher"
	"crypto/hkdf"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"errors"
)

// sealVersion begins sealed content: AES-256-GCM with a random nonce, under a key derived from the
// installation's.
const sealVersion = 1

// sealHeader is the version and the id of the key.
const sealHeader = 1 + 8

// Errors of Unseal.
var (
	ErrOtherKey = errors.New("another key sealed it")
	ErrAltered  = errors.New("it was altered, or belongs to another name")
)

// SealOverhead is how many bytes Seal adds.
const SealOverhead = sealHeader + 12 + 16 // header, nonce, tag

// Seal encrypts content for a purpose and a name, which Unseal must repeat. A purpose has a key of
// its own.
func (k Key) Seal(purpose, name string, content []byte) []byte {
	sealed := make([]byte, 0, len(content)+SealOverhead)
	sealed = append(append(sealed, sealVersion), k.id...)
	return k.cipher(purpose).Seal(sealed, nil, content, []byte(name))
}

// Unseal decrypts what Seal made, in place. It fails with ErrOtherKey or ErrAltered.
func (k Key) Unseal(purpose, name string, sealed []byte) ([]byte, error) {
	switch {
	case len(sealed) < SealOverhead || sealed[0] != sealVersion:
		return nil, ErrAltered
	case string(sealed[1:sealHeader]) != k.id:
		return nil, ErrOtherKey
	}
	content, err := k.cipher(purpose).Open(sealed[sealHeader:sealHeader], nil, sealed[sealHeader:], []byte(name))
	if err != nil {
		return nil, ErrAltered
	}
	return content, nil
}

// Sign returns an HMAC-SHA-256 of a text for a purpose, in hexadecimal. A purpose has a key of its
// own.
func (k Key) Sign(purpose, text string) string {
	mac := hmac.New(sha256.New, k.subkey(purpose))
	mac.Write([]byte(text))
	return hex.EncodeToString(mac.Sum(nil))
}

func (k Key) subkey(purpose string) []byte {
	secret, err := hkdf.Key(sha256.New, k.secret, nil, "secbox "+purpose, 32)
	if err != nil {
		panic(err) // only for too many bytes
	}
	return secret
}

func (k Key) cipher(purpose string) cipher.AEAD {
	block, err := aes.NewCipher(k.subkey(purpose))
	if err != nil {
		panic(err) // only for another length of the key
	}
	sealer, err := cipher.NewGCMWithRandomNonce(block)
	if err != nil {
		panic(err) // only for a block of another size
	}
	return sealer
}
