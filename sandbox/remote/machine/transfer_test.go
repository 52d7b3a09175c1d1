package machine_test

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"os"
	"strconv"
	"strings"
	"sync"
	"testing"

	"secbox/sandbox/remote/wire"
)

const transferID = "0123456789abcdef0123456789abcdef"

// random returns random content.
func random(n int) []byte {
	b := make([]byte, n)
	_, _ = rand.NewChaCha8([32]byte{1}).Read(b)
	return b
}

func digest(b []byte) string {
	sum := sha256.Sum256(b)
	return hex.EncodeToString(sum[:])
}

// upload is core-api's side of a read. It breaks off after each number of bytes in cuts.
type upload struct {
	t *testing.T

	mu      sync.Mutex
	got     []byte
	cuts    []int
	puts    int
	broke   func() // called after a break
	refuses int    // the status of all answers
	says    int64  // added to the reported offset
}

func (u *upload) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	u.mu.Lock()
	defer u.mu.Unlock()
	if r.URL.Path != wire.TransferPath+transferID {
		u.t.Errorf("%s", r.URL.Path)
	}
	if u.refuses != 0 {
		w.WriteHeader(u.refuses)
		return
	}
	if r.Method == http.MethodHead {
		w.Header().Set(wire.OffsetHeader, strconv.FormatInt(int64(len(u.got))+u.says, 10))
		return
	}
	u.puts++
	var begin, end, size int
	if _, err := fmt.Sscanf(r.Header.Get("Content-Range"), "bytes %d-%d/%d", &begin, &end, &size); err != nil || begin != len(u.got) || end != size-1 {
		u.t.Errorf("%s %q: %v, %d bytes are there", r.Method, r.Header.Get("Content-Range"), err, len(u.got))
	}
	var body io.Reader = r.Body
	cut := len(u.cuts) > 0
	if cut {
		body = io.LimitReader(r.Body, int64(u.cuts[0]))
		u.cuts = u.cuts[1:]
	}
	b, _ := io.ReadAll(body)
	u.got = append(u.got, b...)
	if cut {
		if u.broke != nil {
			u.broke()
		}
		panic(http.ErrAbortHandler)
	}
	w.WriteHeader(http.StatusNoContent)
}

func (u *upload) count() int {
	u.mu.Lock()
	defer u.mu.Unlock()
	return u.puts
}

func TestReadLargeFile(t *testing.T) {
	t.Parallel()
	for name, cuts := range map[string][]int{"whole": nil, "broken off": {0, 1 << 20, 0, 3_000_000, 100}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s, r, l := both(t)
			content := random(wire.InlineBytes + 4_000_001)
			r.write("f", string(content))
			u := &upload{t: t, cuts: cuts}
			s.setTransfers(u.ServeHTTP)
			l.send("1", wire.TypeReadFile, &wire.Path{Path: "/workspace/f", Transfer: transferID})
			c, ok := l.result("1").body.(*wire.FileContent)
			if !ok || len(c.Data) != 0 || c.Size != int64(len(content)) || c.SHA256 != digest(content) {
				t.Errorf("%+v", c)
			}
			if !bytes.Equal(u.got, content) || u.count() != len(cuts)+1 {
				t.Errorf("%d bytes in %d requests", len(u.got), u.count())
			}
		})
	}
}

// TestFileAtInlineLimit: a file is in the message as long as it fits.
func TestFileAtInlineLimit(t *testing.T) {
	t.Parallel()
	s, r, l := both(t)
	u := &upload{t: t}
	s.setTransfers(u.ServeHTTP)
	content := random(wire.InlineBytes + 1)
	r.write("fits", string(content[:wire.InlineBytes]))
	r.write("fits not", string(content))
	l.send("1", wire.TypeReadFile, &wire.Path{Path: "/workspace/fits", Transfer: transferID})
	if c, ok := l.result("1").body.(*wire.FileContent); !ok || !bytes.Equal(c.Data, content[:wire.InlineBytes]) || u.count() != 0 {
		t.Error("the largest content of a message is not in it")
	}
	l.send("2", wire.TypeReadFile, &wire.Path{Path: "/workspace/fits not"})
	if o := l.result("2"); o.code() != wire.CodeTooLarge {
		t.Errorf("%+v", o.body)
	}
	l.send("3", wire.TypeReadFile, &wire.Path{Path: "/workspace/fits not", Transfer: transferID})
	if c, ok := l.result("3").body.(*wire.FileContent); !ok || c.SHA256 != digest(content) || !bytes.Equal(u.got, content) {
		t.Errorf("%+v", c)
	}
}

func TestAFileOf600MiB(t *testing.T) {
	t.Parallel()
	_, r, l := both(t)
	r.write("huge", "")
	if err := os.Truncate(r.dir+"/huge", 600<<20); err != nil { // sparse
		t.Fatal(err)
	}
	l.send("1", wire.TypeReadFile, &wire.Path{Path: "/workspace/huge", Transfer: transferID})
	if o := l.result("1"); o.code() != wire.CodeTooLarge {
		t.Errorf("%+v", o.body)
	}
}

// TestReadTransferFails: errors that no retry can repair.
func TestReadTransferFails(t *testing.T) {
	t.Parallel()
	const size = wire.InlineBytes + 3_000_000
	for name, prepare := range map[string]func(r *runner) *upload{
		"not known":                 func(*runner) *upload { return &upload{refuses: http.StatusNotFound} },
		"refused":                   func(*runner) *upload { return &upload{refuses: http.StatusForbidden} },
		"a redirect":                func(*runner) *upload { return &upload{refuses: http.StatusFound} },
		"core-api says it has more": func(*runner) *upload { return &upload{cuts: []int{10}, says: size} },
		"core-api has less than 0":  func(*runner) *upload { return &upload{cuts: []int{10}, says: -20} },
		"the file shrinks": func(r *runner) *upload {
			return &upload{cuts: []int{10}, broke: func() { _ = os.Truncate(r.dir+"/f", 10) }}
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s, r, l := both(t)
			r.write("f", string(random(size)))
			u := prepare(r)
			u.t = t
			s.setTransfers(u.ServeHTTP)
			l.send("1", wire.TypeReadFile, &wire.Path{Path: "/workspace/f", Transfer: transferID})
			if o := l.result("1"); o.code() != wire.CodeTransfer {
				t.Errorf("%+v", o.body)
			}
		})
	}
}

// TestFileChangesDuringRead: the digest does not match the bytes of a file that changed meanwhile,
// so that no mixture is accepted.
func TestFileChangesDuringRead(t *testing.T) {
	t.Parallel()
	s, r, l := both(t)
	content := random(wire.InlineBytes + 3_000_000)
	r.write("f", string(content))
	u := &upload{t: t, cuts: []int{10}}
	u.broke = func() {
		// Both the part that was read and the rest change.
		f, err := os.OpenFile(r.dir+"/f", os.O_WRONLY, 0)
		if err != nil {
			t.Error(err)
			return
		}
		defer f.Close()
		if _, err := f.WriteAt(bytes.Repeat([]byte("x"), len(content)), 0); err != nil {
			t.Error(err)
		}
	}
	s.setTransfers(u.ServeHTTP)
	l.send("1", wire.TypeReadFile, &wire.Path{Path: "/workspace/f", Transfer: transferID})
	c, ok := l.result("1").body.(*wire.FileContent)
	if !ok {
		t.Fatalf("%+v", c)
	}
	if bytes.Equal(u.got, content) || c.SHA256 == digest(u.got) {
		t.Error("a mixture of two contents is said to be one")
	}
}

// download is core-api's side of a write.
type download struct {
	t       *testing.T
	content []byte

	mu      sync.Mutex
	cuts    []int
	size    string // the trailers; empty: the true values
	digest  string
	refuses int
	ignores bool // the Range header
	silent  bool // no trailers, once
}

func (d *download) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.refuses != 0 {
		w.WriteHeader(d.refuses)
		return
	}
	offset := 0
	if asked := r.Header.Get("Range"); asked != "" {
		if _, err := fmt.Sscanf(asked, "bytes=%d-", &offset); err != nil {
			d.t.Error(err)
		}
	}
	w.Header().Set("Trailer", wire.SizeTrailer+", "+wire.DigestTrailer)
	if offset > 0 && !d.ignores {
		w.Header().Set(wire.OffsetHeader, strconv.Itoa(offset))
		w.WriteHeader(http.StatusPartialContent)
	}
	rest := d.content[offset:]
	if len(d.cuts) > 0 {
		_, _ = w.Write(rest[:d.cuts[0]])
		_ = http.NewResponseController(w).Flush()
		d.cuts = d.cuts[1:]
		panic(http.ErrAbortHandler)
	}
	_, _ = w.Write(rest)
	if d.silent {
		d.silent = false
		return
	}
	size, sum := d.size, d.digest
	if size == "" {
		size = strconv.Itoa(len(d.content))
	}
	if sum == "" {
		sum = digest(d.content)
	}
	w.Header().Set(wire.SizeTrailer, size)
	w.Header().Set(wire.DigestTrailer, sum)
}

func TestWriteLargeFile(t *testing.T) {
	t.Parallel()
	for name, d := range map[string]*download{
		"whole":            {},
		"broken off":       {cuts: []int{0, 1 << 20, 1, 3_000_000}},
		"without trailers": {silent: true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s, r, l := both(t)
			r.write("f", "old")
			d.t, d.content = t, random(wire.InlineBytes+4_000_001)
			s.setTransfers(d.ServeHTTP)
			l.send("1", wire.TypeWriteFile, &wire.Path{Path: "/workspace/f", Perm: 0o600, Transfer: transferID})
			if o := l.result("1"); o.typ != wire.TypeOK {
				t.Errorf("%+v", o.body)
			}
			if !bytes.Equal([]byte(r.read("f")), d.content) {
				t.Error("it is another content")
			}
		})
	}
}

func TestWriteTransferFails(t *testing.T) {
	t.Parallel()
	wrong := strings.Repeat("ab", 32)
	for name, c := range map[string]struct {
		download *download
		path     string
		code     string
	}{
		"another digest":       {&download{digest: wrong}, "/workspace/f", wire.CodeTransfer},
		"no digest":            {&download{digest: "x"}, "/workspace/f", wire.CodeTransfer},
		"another size":         {&download{size: "1"}, "/workspace/f", wire.CodeTransfer},
		"no size":              {&download{size: "many"}, "/workspace/f", wire.CodeTransfer},
		"not known":            {&download{refuses: http.StatusNotFound}, "/workspace/f", wire.CodeTransfer},
		"all from the begin":   {&download{cuts: []int{1000}, ignores: true}, "/workspace/f", wire.CodeTransfer},
		"outside":              {&download{}, "/etc/passwd", wire.CodePermission},
		"no directory":         {&download{}, "/workspace/no/f", wire.CodeNotExist},
		"a directory is there": {&download{}, "/workspace", wire.CodeInvalid},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s, r, l := both(t)
			r.write("f", "old")
			d := c.download
			d.t, d.content = t, random(100_000)
			s.setTransfers(d.ServeHTTP)
			l.send("1", wire.TypeWriteFile, &wire.Path{Path: c.path, Transfer: transferID})
			if o := l.result("1"); o.code() != c.code {
				t.Errorf("%+v", o.body)
			}
			if r.read("f") != "old" {
				t.Error("the file was changed")
			}
			if left, err := os.ReadDir(r.dir); err != nil || len(left) != 1 {
				t.Errorf("%v, %v", left, err)
			}
		})
	}
}

// TestCanceledTransfer cancels a transfer that waits for content.
func TestCanceledTransfer(t *testing.T) {
	t.Parallel()
	s, r, l := both(t)
	begun := make(chan struct{}, 1)
	s.setTransfers(func(w http.ResponseWriter, req *http.Request) {
		_, _ = w.Write(make([]byte, 1000))
		_ = http.NewResponseController(w).Flush()
		begun <- struct{}{}
		<-req.Context().Done()
	})
	l.send("1", wire.TypeWriteFile, &wire.Path{Path: "/workspace/f", Transfer: transferID})
	<-begun
	l.send("1", wire.TypeCancel, nil)
	if o := l.result("1"); o.code() != wire.CodeCanceled {
		t.Errorf("%+v", o.body)
	}
	if left, err := os.ReadDir(r.dir); err != nil || len(left) != 0 {
		t.Errorf("%v, %v", left, err)
	}
}

// TestTransferOverDeadConnection: a transfer continues on a new connection if its own hangs as the
// link does.
func TestTransferOverDeadConnection(t *testing.T) {
	t.Parallel()
	s, r, l := both(t)
	content := random(wire.InlineBytes + 1000)
	begun := make(chan struct{}, 1)
	d := &download{t: t, content: content}
	var once sync.Once
	s.setTransfers(func(w http.ResponseWriter, req *http.Request) {
		first := false
		once.Do(func() { first = true })
		if !first {
			d.ServeHTTP(w, req)
			return
		}
		_, _ = w.Write(content[:1000])
		_ = http.NewResponseController(w).Flush()
		begun <- struct{}{}
		<-req.Context().Done()
	})
	l.send("1", wire.TypeWriteFile, &wire.Path{Path: "/workspace/f", Transfer: transferID})
	<-begun
	l.cut()
	l = s.welcome(wire.Expected{ID: "1"})
	if o := l.result("1"); o.typ != wire.TypeOK || !bytes.Equal([]byte(r.read("f")), content) {
		t.Errorf("%+v", o.body)
	}
}
