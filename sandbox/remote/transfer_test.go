package remote_test

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"strconv"
	"strings"
	"testing"
	"time"

	"secbox/fault"
	"secbox/sandbox/remote"
	"secbox/sandbox/remote/wire"
)

// content returns n random bytes.
func content(n int) []byte {
	b := make([]byte, n)
	_, _ = rand.NewChaCha8([32]byte{}).Read(b)
	return b
}

func sumOf(b []byte) string {
	h := sha256.Sum256(b)
	return hex.EncodeToString(h[:])
}

// transfer makes an HTTP request with the runner's token.
func (r *raw) transfer(method, id string, body io.Reader, header http.Header) (*http.Response, error) {
	r.t.Helper()
	req, err := http.NewRequestWithContext(r.t.Context(), method, r.s.url+wire.TransferPath+id, body)
	if err != nil {
		r.t.Fatal(err)
	}
	req.Header = bearer(r.token)
	for k, v := range header {
		req.Header[k] = v
	}
	return r.s.client.Do(req)
}

// put sends data as the rest of the content from an offset, and returns the status.
func (r *raw) put(id string, data []byte, from, size int64) int {
	r.t.Helper()
	resp, err := r.transfer(http.MethodPut, id, bytes.NewReader(data), contentRange(from, size))
	if err != nil {
		r.t.Fatal(err)
	}
	resp.Body.Close()
	return resp.StatusCode
}

func contentRange(from, size int64) http.Header {
	return http.Header{"Content-Range": {fmt.Sprintf("bytes %d-%d/%d", from, size-1, size)}}
}

func (r *raw) offset(id string) int64 {
	r.t.Helper()
	resp, err := r.transfer(http.MethodHead, id, nil, nil)
	if err != nil || resp.StatusCode != http.StatusNoContent {
		r.t.Fatal(resp, err)
	}
	resp.Body.Close()
	n, err := strconv.ParseInt(resp.Header.Get(wire.OffsetHeader), 10, 64)
	if err != nil {
		r.t.Fatal(err)
	}
	return n
}

// reading starts to read a file, and returns the ids of the request and the transfer.
func (s *server) reading(r *raw) (read <-chan result[[]byte], id, transfer string) {
	s.t.Helper()
	read = begin(func() ([]byte, error) { return s.ReadFile(s.t.Context(), "/workspace/a", user) })
	m := r.expect(wire.TypeReadFile)
	return read, m.ID, m.Body.(*wire.Path).Transfer
}

func TestReadLargeFile(t *testing.T) {
	t.Parallel()
	s := serve(t)
	r := s.laptop()
	data := content(9<<20 + 17)
	read, id, transfer := s.reading(r)
	if status := r.put(transfer, data, 0, int64(len(data))); status != http.StatusNoContent {
		t.Fatal(status)
	}
	r.send(id, wire.TypeFileContent, &wire.FileContent{Size: int64(len(data)), SHA256: sumOf(data)})
	if got := <-read; got.err != nil || !bytes.Equal(got.value, data) {
		t.Fatal(len(got.value), got.err)
	}
	if status := r.put(transfer, data[:9], 0, 9); status != http.StatusNotFound {
		t.Fatal("the transfer is still there:", status)
	}
}

// TestReadLargeFileWithBreaks: after a break the runner asks for the offset and continues.
func TestReadLargeFileWithBreaks(t *testing.T) {
	t.Parallel()
	s := serve(t)
	r := s.laptop()
	data := content(9 << 20)
	read, id, transfer := s.reading(r)
	size := int64(len(data))
	for at := int64(0); at < size; at = r.offset(transfer) {
		rest := data[at:]
		if at+5<<20 < size {
			body := io.MultiReader(bytes.NewReader(rest[:3<<20]), failing{}) // the client closes the connection
			header := contentRange(at, size)
			if resp, err := r.transfer(http.MethodPut, transfer, body, header); err == nil {
				resp.Body.Close()
				t.Fatal(resp.Status)
			}
			continue
		}
		r.put(transfer, rest, at, size)
	}
	r.send(id, wire.TypeFileContent, &wire.FileContent{Size: size, SHA256: sumOf(data)})
	if got := <-read; got.err != nil || !bytes.Equal(got.value, data) {
		t.Fatal(got.err)
	}
	r.expect(wire.TypeAck)

	_, _, transfer = s.reading(r)
	if status := r.put(transfer, data[5:10], 5, 10); status != http.StatusRequestedRangeNotSatisfiable {
		t.Fatal(status)
	}
}

type failing struct{}

func (failing) Read([]byte) (int, error) { return 0, errTest }

// TestTransferReplacesStuckOne: a new HTTP request replaces one whose connection hangs.
func TestTransferReplacesStuckOne(t *testing.T) {
	t.Parallel()
	s := serve(t, func(c *remote.Config) { c.Stall = time.Hour })
	r := s.laptop()
	data := content(5 << 20)
	size := int64(len(data))
	read, id, transfer := s.reading(r)
	body, in := io.Pipe()
	stuck := begin(func() (*http.Response, error) {
		return r.transfer(http.MethodPut, transfer, body, contentRange(0, size))
	})
	if _, err := in.Write(data[:1<<20]); err != nil {
		t.Fatal(err)
	}
	at := r.offset(transfer)
	if at > 1<<20 {
		t.Fatal(at)
	}
	in.CloseWithError(errTest)
	if got := <-stuck; got.err == nil {
		got.value.Body.Close()
	}
	for done := false; !done; at = r.offset(transfer) { // the stuck request may begin only now
		resp, err := r.transfer(http.MethodPut, transfer, bytes.NewReader(data[at:]), contentRange(at, size))
		if err == nil {
			resp.Body.Close()
			done = resp.StatusCode == http.StatusNoContent
		}
	}
	r.send(id, wire.TypeFileContent, &wire.FileContent{Size: size, SHA256: sumOf(data)})
	if got := <-read; got.err != nil || !bytes.Equal(got.value, data) {
		t.Fatal(got.err)
	}
}

func TestTransferStall(t *testing.T) {
	t.Parallel()
	s := serve(t, func(c *remote.Config) { c.Stall = 50 * time.Millisecond })
	r := s.laptop()
	_, _, transfer := s.reading(r)
	body, in := io.Pipe()
	defer in.Close()
	resp, err := r.transfer(http.MethodPut, transfer, body, contentRange(0, 5<<20))
	if err == nil {
		resp.Body.Close()
		if resp.StatusCode != http.StatusRequestTimeout {
			t.Fatal(resp.Status)
		}
	}
}

func TestContentMismatch(t *testing.T) {
	t.Parallel()
	data := content(5 << 20)
	size := int64(len(data))
	for name, c := range map[string]struct {
		lie    func(r *raw, id, transfer string)
		code   fault.Code
		closed bool
	}{
		"another size": {func(r *raw, id, transfer string) {
			r.put(transfer, data, 0, size)
			r.send(id, wire.TypeFileContent, &wire.FileContent{Size: size + 1, SHA256: sumOf(data)})
		}, fault.RunnerProtocol, true},
		"another hash": {func(r *raw, id, transfer string) {
			r.put(transfer, data, 0, size)
			r.send(id, wire.TypeFileContent, &wire.FileContent{Size: size, SHA256: sumOf(data[1:])})
		}, fault.RunnerProtocol, true},
		"nothing at all": {func(r *raw, id, _ string) {
			r.send(id, wire.TypeFileContent, &wire.FileContent{Size: size, SHA256: sumOf(data)})
		}, fault.RunnerProtocol, true},
		"also in a message": {func(r *raw, id, transfer string) {
			r.put(transfer, data, 0, size)
			r.send(id, wire.TypeFileContent, &wire.FileContent{Data: []byte("a"), Size: 1})
		}, fault.RunnerProtocol, true},
		"more than announced": {func(r *raw, _, transfer string) {
			resp, err := r.transfer(http.MethodPut, transfer, io.MultiReader(bytes.NewReader(data)), contentRange(0, size-1))
			if err == nil {
				resp.Body.Close()
			}
		}, fault.RunnerProtocol, true},
		"another length than the range": {func(r *raw, _, transfer string) { r.put(transfer, data[:10], 0, size) }, fault.RunnerProtocol, true},
		"600 MiB":                       {func(r *raw, _, transfer string) { r.put(transfer, data[:1], 600<<20-1, 600<<20) }, fault.FileTooLarge, false},
		"600 MiB in a message": {func(r *raw, id, _ string) {
			r.sendRaw(fmt.Sprintf(`{"id":"%s","type":"file_content","data":"","size":%d,"sha256":"%s"}`, id, 600<<20, sumOf(nil)))
		}, fault.RunnerOffline, true},
		"a runner that cannot": {
			func(r *raw, id, _ string) {
				r.send(id, wire.TypeError, &wire.Error{Code: wire.CodeTooLarge, Message: "600 MiB"})
			},
			fault.FileTooLarge, false,
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := serve(t, func(c *remote.Config) { c.Grace = 50 * time.Millisecond })
			r := s.laptop()
			read, id, transfer := s.reading(r)
			c.lie(r, id, transfer)
			if got := <-read; !fault.Is(got.err, c.code) || got.value != nil {
				t.Fatal(len(got.value), got.err)
			}
			if c.closed {
				r.expectClosed(wire.StatusProtocol)
			} else if len(s.Runners()) != 1 {
				t.Fatal("the link was closed without a violation")
			}
		})
	}
}

// TestTransferAuthorization: a transfer refuses other tokens, users and methods.
func TestTransferAuthorization(t *testing.T) {
	t.Parallel()
	s := serve(t)
	r := s.laptop()
	data := content(5 << 20)
	size := int64(len(data))
	read, id, transfer := s.reading(r)
	thief := s.connectAs("token2/v", helloOf(another, "laptop"))
	for name, as := range map[string]*raw{
		"another user":  thief,
		"another token": {t: t, s: s, token: "stolen/u"},
		"a user's name": {t: t, s: s, token: "token/v"},
	} {
		for _, method := range []string{http.MethodPut, http.MethodHead, http.MethodGet} {
			resp, err := as.transfer(method, transfer, nil, contentRange(0, size))
			if err != nil {
				t.Fatal(err)
			}
			resp.Body.Close()
			if resp.StatusCode != http.StatusNotFound {
				t.Errorf("%s may %s it: %s", name, method, resp.Status)
			}
		}
	}
	for method, header := range map[string]http.Header{
		http.MethodGet:    nil,
		http.MethodDelete: nil,
		http.MethodPut:    {"Content-Range": {"bytes 0-9/5"}},
	} {
		resp, err := r.transfer(method, transfer, nil, header)
		if err != nil {
			t.Fatal(err)
		}
		resp.Body.Close()
		if resp.StatusCode != http.StatusMethodNotAllowed && resp.StatusCode != http.StatusBadRequest {
			t.Errorf("%s: %s", method, resp.Status)
		}
	}
	if resp, err := r.transfer(http.MethodPut, strings.Repeat("0", 32), nil, contentRange(0, size)); err != nil || resp.StatusCode != 404 {
		t.Error(resp, err)
	}
	r.put(transfer, data, 0, size)
	r.send(id, wire.TypeFileContent, &wire.FileContent{Size: size, SHA256: sumOf(data)})
	if got := <-read; got.err != nil || !bytes.Equal(got.value, data) {
		t.Fatal(got.err)
	}
}

// TestFailingWriterEndsTransfer: the error of the caller's writer is returned, and the runner gets
// a cancel.
func TestFailingWriterEndsTransfer(t *testing.T) {
	t.Parallel()
	s := serve(t)
	r := s.laptop()
	read := begin(func() (int64, error) { return s.ReadFileTo(t.Context(), "/workspace/a", failingWriter{}, user) })
	m := r.expect(wire.TypeReadFile)
	transfer := m.Body.(*wire.Path).Transfer
	resp, err := r.transfer(http.MethodPut, transfer, bytes.NewReader(content(5<<20)), contentRange(0, 5<<20))
	if err == nil {
		resp.Body.Close()
	}
	if got := <-read; !errors.Is(got.err, errTest) {
		t.Fatal(got.err)
	}
	if c := r.expect(wire.TypeCancel); c.ID != m.ID {
		t.Fatal(c)
	}
	r.send(m.ID, wire.TypeError, &wire.Error{Code: wire.CodeCanceled})
	r.expect(wire.TypeAck)
}

type failingWriter struct{}

func (failingWriter) Write([]byte) (int, error) { return 0, errTest }

func TestCancelEndsTransfer(t *testing.T) {
	t.Parallel()
	s := serve(t)
	r := s.laptop()
	ctx, cancel := context.WithCancel(t.Context())
	read := begin(func() (int64, error) { return s.ReadFileTo(ctx, "/workspace/a", io.Discard, user) })
	m := r.expect(wire.TypeReadFile)
	body, in := io.Pipe()
	put := begin(func() (*http.Response, error) {
		return r.transfer(http.MethodPut, m.Body.(*wire.Path).Transfer, body, contentRange(0, 5<<20))
	})
	if _, err := in.Write(content(1 << 20)); err != nil {
		t.Fatal(err)
	}
	cancel()
	if got := <-read; !errors.Is(got.err, context.Canceled) {
		t.Fatal(got.err)
	}
	in.CloseWithError(errTest)
	if got := <-put; got.err == nil {
		got.value.Body.Close()
	}
}
