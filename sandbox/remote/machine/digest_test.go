package machine_test

import (
	"bytes"
	"encoding/hex"
	"net/http"
	"strconv"
	"testing"

	"secbox/sandbox/remote/wire"
)

// TestGMAC: the runner computes and compares the digest that the request names, also over breaks.
func TestGMAC(t *testing.T) {
	t.Parallel()
	s, r, l := both(t)
	content := random(wire.InlineBytes + 4_000_001)
	p := &wire.Path{Path: "/workspace/f", Transfer: transferID, Digest: wire.DigestGMAC}
	sum := p.NewDigest()
	sum.Write(content)
	want := hex.EncodeToString(sum.Sum(nil))
	r.write("f", string(content))
	u := &upload{t: t, cuts: []int{1_000_003, 0, 100}}
	s.setTransfers(u.ServeHTTP)
	l.send("1", wire.TypeReadFile, p)
	if c, ok := l.result("1").body.(*wire.FileContent); !ok || c.SHA256 != want || !bytes.Equal(u.got, content) {
		t.Errorf("%+v instead of %s", c, want)
	}
	for id, says := range map[string]string{"2": want, "3": digest(content)} {
		s.setTransfers(func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Trailer", wire.SizeTrailer+", "+wire.DigestTrailer)
			_, _ = w.Write(content)
			w.Header().Set(wire.SizeTrailer, strconv.Itoa(len(content)))
			w.Header().Set(wire.DigestTrailer, says)
		})
		l.send(id, wire.TypeWriteFile, &wire.Path{Path: "/workspace/new" + id, Transfer: transferID, Digest: wire.DigestGMAC})
		if o := l.result(id); id == "2" && o.typ != wire.TypeOK || id == "3" && o.code() != wire.CodeTransfer {
			t.Errorf("%s: %+v", id, o.body)
		}
	}
	if r.read("new2") != string(content) {
		t.Error("other content was written")
	}
}
