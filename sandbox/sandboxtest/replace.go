//go:build linux

package sandboxtest

import (
	"bytes"
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
	replace := func(name, content, was string) error {
		n, err := s.ReplaceFile(b.ctx, b.at(name), strings.NewReader(content), was, b.user)
		if err == nil && n != int64(len(content)) {
			b.Errorf("%d of %d bytes written", n, len(content))
		}
		return err
	}
	b.must(replace("file", large, digestOf("old")))
	for _, content := range []string{"new", large + "!"} {
		for _, was := range []string{digestOf("old"), sandbox.Absent} {
			if err := replace("file", content, was); !fault.Is(err, fault.FileChanged) {
				b.Errorf("%d bytes over a file that was changed: %v", len(content), err)
			}
		}
	}
	if b.found("file") != large {
		b.Error("a file that was changed meanwhile was replaced")
	}
	b.must(replace("file", "", digestOf(large)))
	if got := b.found("file"); got != "" {
		b.Errorf("%d bytes are left", len(got))
	}
	b.alone()
	if err := replace("none", "", digestOf("")); !fault.Is(err, fault.FileChanged) {
		b.Errorf("a file that is not there: %v", err)
	}
	b.alone()
	for name, content := range map[string]string{"small": "new", "large": large} {
		b.must(replace(name, content, sandbox.Absent))
		b.mode(name, 0o644)
		if b.found(name) != content {
			b.Errorf("%s was not made", name)
		}
	}
}

// replacedAtOnce: many goroutines read a file, add a letter, and replace the file: no letter is
// lost.
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
				_, err = s.ReplaceFile(b.ctx, b.at("file"), bytes.NewReader(append(old, byte(letter))), digestOf(string(old)), b.user)
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
