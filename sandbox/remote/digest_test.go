package remote_test

import (
	"bytes"
	"cmp"
	"encoding/hex"
	"testing"

	"secbox/fault"
	"secbox/sandbox/remote/wire"
)

// TestDigests: a runner that can is asked for a GMAC in both directions. An older runner gets no
// name of a digest, because an unknown field would end its link. The digest is compared.
func TestDigests(t *testing.T) {
	t.Parallel()
	data := content(5 << 20)
	size := int64(len(data))
	for name, can := range map[string][]string{"": nil, wire.DigestGMAC: {"something newer", wire.CanGMAC}} {
		t.Run(cmp.Or(name, "SHA-256"), func(t *testing.T) {
			t.Parallel()
			s := serve(t)
			hello := helloOf(session, "laptop")
			hello.Can = can
			r := s.connect(hello)
			sum := func(p *wire.Path, content []byte) string {
				d := p.NewDigest()
				d.Write(content)
				return hex.EncodeToString(d.Sum(nil))
			}

			write := begin(func() (int64, error) {
				return s.WriteFileFrom(t.Context(), "/workspace/a", onlyReader{bytes.NewReader(data)}, 0o644, user)
			})
			m := r.expect(wire.TypeWriteFile)
			p := m.Body.(*wire.Path)
			part, err := r.get(p.Transfer, 0, 3<<20+5)
			if err != nil || p.Digest != name {
				t.Fatalf("%+v, %v", p, err)
			}
			rest, err := r.get(p.Transfer, int64(len(part.data)), 0)
			if err != nil || rest.digest != sum(p, data) || !bytes.Equal(append(part.data, rest.data...), data) {
				t.Fatalf("%s, not %s: %v", rest.digest, sum(p, data), err)
			}
			r.send(m.ID, wire.TypeOK, nil)
			if got := <-write; got.err != nil {
				t.Fatal(got.err)
			}
			r.expect(wire.TypeAck)

			for _, lie := range []bool{false, true} {
				read := begin(func() ([]byte, error) { return s.ReadFile(t.Context(), "/workspace/a", user) })
				m = r.expect(wire.TypeReadFile)
				p = m.Body.(*wire.Path)
				r.put(p.Transfer, data, 0, size)
				content := &wire.FileContent{Size: size, SHA256: sum(p, data)}
				if lie {
					content.SHA256 = sum(p, data[1:])
				}
				r.send(m.ID, wire.TypeFileContent, content)
				if got := <-read; p.Digest != name || lie != fault.Is(got.err, fault.RunnerProtocol) || !lie && !bytes.Equal(got.value, data) {
					t.Fatalf("%+v: %d bytes, %v", p, len(got.value), got.err)
				}
				if !lie {
					r.expect(wire.TypeAck)
				}
			}
			r.expectClosed(wire.StatusProtocol)
		})
	}
}
