package wire_test

import (
	"cmp"
	"crypto/aes"
	"crypto/cipher"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"math/rand/v2"
	"testing"

	"secbox/sandbox/remote/wire"
)

func noise(n int) []byte {
	b := make([]byte, n)
	_, _ = rand.NewChaCha8([32]byte{2}).Read(b)
	return b
}

// sumAsDocumented computes the digest as the package comment describes it.
func sumAsDocumented(t testing.TB, transfer string, content []byte) []byte {
	t.Helper()
	key, err := hex.DecodeString(transfer)
	if err != nil {
		t.Fatal(err)
	}
	block, err := aes.NewCipher(key)
	if err != nil {
		t.Fatal(err)
	}
	mac, err := cipher.NewGCM(block)
	if err != nil {
		t.Fatal(err)
	}
	tags := sha256.New()
	for i := 0; i*16384 < len(content); i++ {
		nonce := make([]byte, 12)
		binary.BigEndian.PutUint64(nonce, uint64(i))
		tags.Write(mac.Seal(nil, nonce, nil, content[i*16384:min(len(content), (i+1)*16384)]))
	}
	return tags.Sum(nil)
}

// TestGMAC: the digest does not depend on the pieces in which the content comes.
func TestGMAC(t *testing.T) {
	t.Parallel()
	p := &wire.Path{Transfer: transfer, Digest: wire.DigestGMAC}
	for _, size := range []int{0, 1, 16383, 16384, 16385, 100_000, 5 * 16384} {
		content := noise(size)
		want := fmt.Sprintf("%x", sumAsDocumented(t, transfer, content))
		for _, piece := range []int{1 << 20, 16384, 16383, 16385, 40_000, 7} {
			d := p.NewDigest()
			for rest := content; len(rest) > 0; {
				n := min(piece, len(rest))
				d.Write(rest[:n])
				rest = rest[n:]
			}
			if got := fmt.Sprintf("%x", d.Sum(nil)); got != want {
				t.Errorf("%d bytes in pieces of %d: %s, not %s", size, piece, got, want)
			}
			if got := fmt.Sprintf("%x", d.Sum(nil)); got != want {
				t.Errorf("%d bytes in pieces of %d: another sum the second time", size, piece)
			}
		}
	}
}

// TestGMACOfDamage: every changed, missing, added or moved byte makes another digest, and so does
// another transfer.
func TestGMACOfDamage(t *testing.T) {
	t.Parallel()
	sum := func(p wire.Path, content []byte) string {
		d := p.NewDigest()
		d.Write(content)
		return fmt.Sprintf("%x", d.Sum(nil))
	}
	p := wire.Path{Transfer: transfer, Digest: wire.DigestGMAC}
	content := noise(3 * 16384)
	seen := map[string]string{sum(p, content): "the content"}
	add := func(what string, digest string) {
		if seen[digest] != "" {
			t.Errorf("%s has the digest of %s", what, seen[digest])
		}
		seen[digest] = what
	}
	for _, at := range []int{0, 16383, 16384, len(content) - 1} {
		content[at] ^= 1
		add(fmt.Sprint("a changed byte at ", at), sum(p, content))
		content[at] ^= 1
	}
	add("a shorter content", sum(p, content[:len(content)-1]))
	add("whole blocks less", sum(p, content[:16384]))
	add("a longer content", sum(p, append(content[:len(content):len(content)], 0)))
	add("blocks in another order", sum(p, append(content[16384:len(content):len(content)], content[:16384]...)))
	add("nothing", sum(p, nil))
	add("another transfer", sum(wire.Path{Transfer: "0" + transfer[1:], Digest: wire.DigestGMAC}, content))
	add("SHA-256", sum(wire.Path{Transfer: transfer}, content))
	if got, want := sum(wire.Path{Transfer: transfer}, content), fmt.Sprintf("%x", sha256.Sum256(content)); got != want {
		t.Errorf("without a name the digest is %s, not %s", got, want)
	}
}

func BenchmarkDigest(b *testing.B) {
	piece := noise(256 << 10)
	for _, name := range []string{"", wire.DigestGMAC} {
		b.Run(cmp.Or(name, "SHA-256"), func(b *testing.B) {
			d := (&wire.Path{Transfer: transfer, Digest: name}).NewDigest()
			b.SetBytes(int64(len(piece)))
			for b.Loop() {
				d.Write(piece)
			}
		})
	}
}
