//go:build linux

package sandboxtest

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"strings"
	"sync"

	"secbox/fault"
	"secbox/sandbox"
)

func digestOf(content string) string {
	sum := sha256.Sum256([]byte(content))
	return hex.EncodeToString(sum[:])
}

// replaced replaces files with the named content, and no others.
func replaced(b *bench) {
	s := b.s.(sandbox.Replacer)
	large := strings.Repeat("0123456789abcdef", 300_000) // more than a message of a link holds
	b.plant("file", "old")
	b.must(s.ReplaceFile(b.ctx, b.at("file"), []byte(large), digestOf("old"), b.user))
	for _, content := range []string{"new", large + "!"} {
		if err := s.ReplaceFile(b.ctx, b.at("file"), []byte(content), digestOf("old"), b.user); !fault.Is(err, fault.FileChanged) {
			b.Errorf("%d bytes over a file that was changed: %v", len(content), err)
		}
	}
	if b.found("file") != large {
		b.Error("a file that was changed meanwhile was replaced")
	}
	b.must(s.ReplaceFile(b.ctx, b.at("file"), nil, digestOf(large), b.user))
	if got := b.found("file"); got != "" {
		b.Errorf("%d bytes are left", len(got))
	}
	b.alone()
	if err := s.ReplaceFile(b.ctx, b.at("none"), nil, digestOf(""), b.user); !fault.Is(err, fault.FileChanged) {
		b.Errorf("a file that is not there: %v", err)
	}
	b.alone()
}

// replacedAtOnce: many goroutines read a file, add a letter, and replace the file: no letter is lost.
func replacedAtOnce(b *bench) {
	const letters = "abcdefghijkl"
	s := b.s.(sandbox.Replacer)
	b.plant("file", "")
	var wait sync.WaitGroup
	for _, letter := range letters {
		wait.Go(func() {
			for err := errors.New("not yet"); err != nil; {
				old, e := b.s.ReadFile(b.ctx, b.at("file"), b.user)
				if e != nil {
					b.Error(e)
					return
				}
				err = s.ReplaceFile(b.ctx, b.at("file"), append(old, byte(letter)), digestOf(string(old)), b.user)
				if err != nil && !fault.Is(err, fault.FileChanged) {
					b.Error(err)
					return
				}
			}
		})
	}
	wait.Wait()
	if got := b.found("file"); len(got) != len(letters) {
		b.Errorf("%q has not each of %d letters", got, len(letters))
	}
}
