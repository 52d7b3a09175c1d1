package hmackey_test

import (
	"bytes"
	"errors"
	"testing"

	"secbox/audit/hmackey"
)

func TestSeal(t *testing.T) {
	t.Parallel()
	key, other := hmackey.New(bytes.Repeat([]byte{1}, 32)), hmackey.New(bytes.Repeat([]byte{2}, 32))
	for _, content := range []string{"", "secret", string(bytes.Repeat([]byte("long"), 1<<20))} {
		sealed := key.Seal("jobs", "exec-1", []byte(content))
		if len(sealed) != len(content)+hmackey.SealOverhead || content != "" && bytes.Contains(sealed, []byte(content)) {
			t.Fatalf("%d bytes became %d", len(content), len(sealed))
		}
		if bytes.Equal(sealed, key.Seal("jobs", "exec-1", []byte(content))) {
			t.Error("sealed twice, it is the same")
		}
		for name, c := range map[string]struct {
			key           hmackey.Key
			purpose, name string
			change        int // a byte; -1: none
			want          error
		}{
			"another key":     {other, "jobs", "exec-1", -1, hmackey.ErrOtherKey},
			"another purpose": {key, "job", "exec-1", -1, hmackey.ErrAltered},
			"another name":    {key, "jobs", "exec-2", -1, hmackey.ErrAltered},
			"another version": {key, "jobs", "exec-1", 0, hmackey.ErrAltered},
			"another nonce":   {key, "jobs", "exec-1", 9, hmackey.ErrAltered},
			"another tag":     {key, "jobs", "exec-1", len(sealed) - 1, hmackey.ErrAltered},
		} {
			copied := bytes.Clone(sealed)
			if c.change >= 0 {
				copied[c.change] ^= 1
			}
			if got, err := c.key.Unseal(c.purpose, c.name, copied); !errors.Is(err, c.want) {
				t.Errorf("%s: %.20q, %v; want %v", name, got, err, c.want)
			}
		}
		for n := range min(len(sealed), 64) {
			if _, err := key.Unseal("jobs", "exec-1", bytes.Clone(sealed[:n])); err == nil {
				t.Errorf("%d bytes of it are opened", n)
			}
		}
		if got, err := key.Unseal("jobs", "exec-1", sealed); err != nil || string(got) != content {
			t.Errorf("%.20q, %v", got, err)
		}
	}
}

// TestSign checks that the same key, purpose and text make the same signature, and that another
// key, purpose or text makes another one.
func TestSign(t *testing.T) {
	t.Parallel()
	k := hmackey.New(bytes.Repeat([]byte{1}, 32))
	first := k.Sign("p", "text")
	if again := hmackey.New(bytes.Repeat([]byte{1}, 32)).Sign("p", "text"); again != first || len(first) != 64 {
		t.Errorf("%s, then %s", first, again)
	}
	for _, other := range []string{k.Sign("q", "text"), k.Sign("p", "texts"), hmackey.New(bytes.Repeat([]byte{2}, 32)).Sign("p", "text")} {
		if other == first {
			t.Errorf("%s twice", first)
		}
	}
}
