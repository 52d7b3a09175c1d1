package main

import (
	"bytes"
	"fmt"
	"io"
	"os"

	"aead.dev/minisign"
)

const sumsFile = "SHA256SUMS"

// signer signs the checksums as minisign does, so that the program minisign verifies them.
type signer struct{ key minisign.PrivateKey }

// readKey reads a secret key, as minisign -G makes it.
func readKey(file, password string) (*signer, error) {
	text, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	var s signer
	if minisign.IsEncrypted(text) {
		if password == "" {
			return nil, fmt.Errorf("the key in %s has a password; put it into the environment variable DIST_KEY_PASSWORD", file)
		}
		s.key, err = minisign.DecryptKey(password, text)
	} else {
		err = s.key.UnmarshalText(text)
	}
	if err != nil {
		return nil, fmt.Errorf("cannot read a key of minisign from %s: %w; minisign -G makes one", file, err)
	}
	return &s, nil
}

func (s *signer) sign(message []byte, comment string) []byte {
	r := minisign.NewReader(bytes.NewReader(message)) // signs a digest, as minisign does by default
	if _, err := io.Copy(io.Discard, r); err != nil {
		panic(err) // a bytes.Reader has no errors
	}
	return r.SignWithComments(s.key, comment, "signature of secbox's "+sumsFile)
}

// public returns the public half of the key, a line for minisign -P.
func (s *signer) public() string { return s.key.Public().(minisign.PublicKey).String() }
