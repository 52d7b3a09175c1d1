package machine

import (
	"bytes"
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"hash"
	"io"
	"net"
	"net/http"
	"strconv"
	"sync"
	"time"

	"secbox/fault"
	"secbox/sandbox"
	"secbox/sandbox/files"
	"secbox/sandbox/remote/wire"
)

const (
	transferBuffer  = 256 << 10        // bytes, of each stage
	transferTimeout = 60 * time.Second // without a byte, before the connection is replaced
)

// transferClient returns the HTTP/1.1 client for all transfers, with large buffers.
func transferClient() *http.Client {
	return newClient(func(c net.Conn) net.Conn { return &timeoutConn{c} }, &http.Transport{
		ExpectContinueTimeout: time.Second,
		MaxIdleConnsPerHost:   transfersAtOnce,
		IdleConnTimeout:       transferTimeout / 2,
		DisableCompression:    true,
		WriteBufferSize:       transferBuffer, // reads pass a smaller buffer without a copy
	})
}

// timeoutConn is a connection whose reads and writes time out.
type timeoutConn struct{ net.Conn }

func (c *timeoutConn) Read(b []byte) (int, error) {
	if err := c.SetReadDeadline(time.Now().Add(transferTimeout)); err != nil {
		return 0, err
	}
	return c.Conn.Read(b)
}

func (c *timeoutConn) Write(b []byte) (int, error) {
	if err := c.SetWriteDeadline(time.Now().Add(transferTimeout)); err != nil {
		return 0, err
	}
	return c.Conn.Write(b)
}

// ReadFrom is what the transport calls to send a body without TLS: it reads and hashes the next
// piece while one goes out.
func (c *timeoutConn) ReadFrom(r io.Reader) (sent int64, err error) {
	err = pipeline(r, func() {}, func(piece []byte) error {
		n, err := c.Write(piece)
		sent += int64(n)
		return err
	})
	return sent, err
}

// buffers are the buffers of pipeline.
var buffers = sync.Pool{New: func() any { return new([transferBuffer]byte) }}

// pipeline reads r to its end and passes each piece to use while it reads the next one. It has
// stopped reading when it returns; after an error of use, stop must make a pending read return.
func pipeline(r io.Reader, stop func(), use func(piece []byte) error) error {
	type piece struct {
		buf *[transferBuffer]byte
		n   int
		err error
	}
	full, free := make(chan piece), make(chan *[transferBuffer]byte, 2)
	for range cap(free) {
		buf := buffers.Get().(*[transferBuffer]byte)
		defer buffers.Put(buf)
		free <- buf
	}
	go func() {
		defer close(full)
		for buf := range free {
			n, err := r.Read(buf[:])
			full <- piece{buf, n, err}
			if err != nil {
				return
			}
		}
	}()
	var failed error
	for p := range full {
		if failed == nil && p.n > 0 {
			failed = use(p.buf[:p.n])
		}
		switch {
		case p.err != nil: // the reader goroutine has ended
			if failed == nil && p.err != io.EOF { //nolint:errorlint // an io.EOF that is wrapped is not the end
				failed = p.err
			}
		case failed != nil:
			if free != nil {
				stop()
				close(free)
				free = nil
			}
		default:
			free <- p.buf
		}
	}
	return failed
}

// retryTransfer repeats attempt until the transfer is complete, impossible, or canceled. Each
// attempt ends with its link, and the next one waits for a new link, so that none hangs on a dead
// connection.
func (m *Machine) retryTransfer(ctx context.Context, attempt func(ctx context.Context) error) error {
	leave, err := admit(ctx, m.transfers)
	if err != nil {
		return err
	}
	defer leave()
	for n := 0; ; n++ {
		link, err := m.status.wait(ctx)
		if err != nil {
			return errors.Join(context.Canceled, err)
		}
		try, end := context.WithCancel(ctx)
		unlink := context.AfterFunc(link, end)
		err = attempt(try)
		unlink()
		end()
		var own *finalError
		var known *fault.Error
		switch {
		case err == nil:
			return nil
		case ctx.Err() != nil:
			return errors.Join(context.Canceled, context.Cause(ctx))
		case errors.As(err, &own), errors.As(err, &known):
			return err
		}
		m.log.Warn("resuming a transfer", "why", rootCause(err))
		select {
		case <-time.After(m.backoff(n)):
		case <-ctx.Done():
		}
	}
}

// request makes an HTTP request for a transfer.
func (m *Machine) request(ctx context.Context, method, transfer string, body io.Reader) (*http.Request, error) {
	req, err := http.NewRequestWithContext(ctx, method, m.server.String()+wire.TransferPath+transfer, body)
	if err != nil {
		return nil, transferError(err, "the transfer's address is invalid")
	}
	req.Header.Set("Authorization", "Bearer "+m.token)
	req.Header.Set("User-Agent", "secbox/"+m.version)
	return req, nil
}

// refusedTransfer returns the error for an unexpected response; a transferError if a retry makes no
// sense.
func refusedTransfer(resp *http.Response) error {
	status := resp.StatusCode
	switch {
	case status >= 500, status == http.StatusTooManyRequests, status == http.StatusRequestTimeout:
		return fmt.Errorf("core-api answered %d", status)
	case status == http.StatusRequestedRangeNotSatisfiable && resp.Request.Method == http.MethodPut:
		return errors.New("core-api expects another offset") // the next attempt asks which
	case status == http.StatusNotFound, status == http.StatusConflict:
		return transferError(nil, "core-api no longer knows the transfer")
	}
	return transferError(nil, "core-api refused the transfer with the status %d", status)
}

func discardBody(resp *http.Response) {
	_, _ = io.CopyN(io.Discard, resp.Body, 64<<10) // so that the connection can be used again
	resp.Body.Close()
}

// upload sends a file's content, and returns its digest in hexadecimal.
func (m *Machine) upload(ctx context.Context, p *wire.Path, file io.ReaderAt, size int64) (digest string, err error) {
	transfer, src := p.Transfer, &fileSource{file: file, size: size, hash: p.NewDigest()}
	first := true
	err = m.retryTransfer(ctx, func(ctx context.Context) error {
		var offset int64
		if !first {
			var err error
			if offset, err = m.uploadedBytes(ctx, transfer); err != nil {
				return err
			}
			if offset > src.hashed || offset < 0 {
				return transferError(nil, "core-api reports more bytes than were sent")
			}
			if offset == size {
				return nil
			}
		}
		first = false
		return m.put(ctx, transfer, src, offset)
	})
	if err != nil {
		return "", err
	}
	return hex.EncodeToString(src.hash.Sum(nil)), nil
}

// uploadedBytes asks how many bytes core-api has.
func (m *Machine) uploadedBytes(ctx context.Context, transfer string) (int64, error) {
	req, err := m.request(ctx, http.MethodHead, transfer, nil)
	if err != nil {
		return 0, err
	}
	resp, err := m.client.Do(req)
	if err != nil {
		return 0, err
	}
	defer discardBody(resp)
	if resp.StatusCode >= 300 {
		return 0, refusedTransfer(resp)
	}
	offset, err := strconv.ParseInt(resp.Header.Get(wire.OffsetHeader), 10, 64)
	if err != nil {
		return 0, transferError(err, "core-api does not report how many bytes it has")
	}
	return offset, nil
}

func (m *Machine) put(ctx context.Context, transfer string, src *fileSource, offset int64) error {
	body := &uploadBody{source: src, offset: offset}
	// The transport may still read for a moment after the response.
	defer body.stop()
	req, err := m.request(ctx, http.MethodPut, transfer, body)
	if err != nil {
		return err
	}
	req.ContentLength = src.size - offset
	req.Header.Set("Content-Type", "application/octet-stream")
	req.Header.Set("Content-Range", fmt.Sprintf("bytes %d-%d/%d", offset, src.size-1, src.size))
	resp, err := m.client.Do(req)
	if err == nil {
		defer discardBody(resp)
	}
	if cause := body.failed(); cause != nil {
		return transferError(cause, "the file was changed while it was read, or cannot be read to its end")
	}
	if err != nil {
		return err
	}
	if resp.StatusCode >= 300 {
		return refusedTransfer(resp)
	}
	if !body.complete() {
		return errors.New("core-api answered before it had everything")
	}
	return nil
}

// fileSource is a file's content, sent from any offset and hashed once: bytes that are sent again
// were hashed before, so that the digest of a file that changes meanwhile does not match.
type fileSource struct {
	file   io.ReaderAt
	size   int64
	hash   hash.Hash
	hashed int64 // bytes from the beginning; valid between attempts
}

// uploadBody is the request body of one attempt.
type uploadBody struct {
	mu     sync.Mutex
	source *fileSource
	offset int64
	err    error
	over   bool
}

func (s *uploadBody) Read(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	src := s.source
	if s.over {
		return 0, net.ErrClosed
	}
	if s.err != nil {
		return 0, s.err
	}
	left := src.size - s.offset
	if left == 0 {
		return 0, io.EOF
	}
	p = p[:min(int64(len(p)), left)]
	n, err := src.file.ReadAt(p, s.offset)
	if n < len(p) {
		if err == nil || errors.Is(err, io.EOF) {
			err = io.ErrUnexpectedEOF
		}
		s.err = err
	}
	if fresh := s.offset + int64(n) - src.hashed; fresh > 0 {
		src.hash.Write(p[int64(n)-fresh : n])
		src.hashed += fresh
	}
	s.offset += int64(n)
	return n, s.err
}

func (s *uploadBody) stop() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.over = true
}

func (s *uploadBody) failed() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.err
}

func (s *uploadBody) complete() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.offset == s.source.size
}

// download receives the content of a transfer, and verifies it.
func (m *Machine) download(ctx context.Context, p *wire.Path, into *files.Pending) error {
	transfer, sum := p.Transfer, p.NewDigest()
	return m.retryTransfer(ctx, func(ctx context.Context) error {
		req, err := m.request(ctx, http.MethodGet, transfer, nil)
		if err != nil {
			return err
		}
		offset := into.Size()
		if offset > 0 {
			req.Header.Set("Range", fmt.Sprintf("bytes=%d-", offset))
		}
		resp, err := m.client.Do(req)
		if err != nil {
			return err
		}
		defer resp.Body.Close()
		switch {
		case resp.StatusCode == http.StatusOK && offset == 0:
		case resp.StatusCode == http.StatusPartialContent && resp.Header.Get(wire.OffsetHeader) == strconv.FormatInt(offset, 10):
		case resp.StatusCode < 300:
			return transferError(nil, "core-api sent another part of the content than was asked for")
		default:
			return refusedTransfer(resp)
		}
		if err := copyBody(resp.Body, into, sum); err != nil {
			return err
		}
		return verifyTrailer(resp.Trailer, into.Size(), sum)
	})
}

// copyBody copies a body into a file and its hash. Errors of the body may be retried, errors of the
// file not.
func copyBody(body io.ReadCloser, into *files.Pending, sum hash.Hash) error {
	return pipeline(io.TeeReader(body, sum), func() { body.Close() }, func(piece []byte) error {
		if _, err := into.Write(piece); err != nil {
			return &finalError{wire.ErrorOf(err), err}
		}
		return nil
	})
}

// verifyTrailer compares the content with the size and digest in the trailer.
func verifyTrailer(trailer http.Header, size int64, sum hash.Hash) error {
	says, digest := trailer.Get(wire.SizeTrailer), trailer.Get(wire.DigestTrailer)
	if says == "" && digest == "" {
		return errors.New("core-api ended the content without its size and digest")
	}
	if want, err := strconv.ParseInt(says, 10, 64); err != nil || want != size || size > sandbox.MaxFileBytes {
		return transferError(err, "%d bytes arrived, and core-api sent %.20q", size, says)
	}
	if want, err := hex.DecodeString(digest); err != nil || !bytes.Equal(want, sum.Sum(nil)) {
		return transferError(err, "the content that arrived has another digest than the content that was sent")
	}
	return nil
}
