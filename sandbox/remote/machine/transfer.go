package machine

import (
	"bytes"
	"context"
	"crypto/sha256"
	"crypto/tls"
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
	transferBuffer   = 256 << 10        // bytes, of each stage
	transferPatience = 60 * time.Second // in which not a byte moves, until the connection is given up and another one is tried
)

// transferClient speaks HTTP/1.1 with large buffers. One for all transfers, so that connections are used again.
func transferClient() *http.Client {
	return &http.Client{
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }, // the token is for this server only
		Transport: &http.Transport{
			Proxy: http.ProxyFromEnvironment,
			DialContext: func(ctx context.Context, network, addr string) (net.Conn, error) {
				c, err := (&net.Dialer{Timeout: dialTimeout, KeepAlive: 15 * time.Second}).DialContext(ctx, network, addr)
				if err != nil {
					return nil, err
				}
				return &patientConn{c}, nil
			},
			TLSHandshakeTimeout:   dialTimeout,
			TLSClientConfig:       &tls.Config{MinVersion: tls.VersionTLS12},
			ExpectContinueTimeout: time.Second,
			MaxIdleConnsPerHost:   transfersAtOnce,
			IdleConnTimeout:       transferPatience / 2,
			DisableCompression:    true,
			WriteBufferSize:       transferBuffer,
			ReadBufferSize:        transferBuffer,
		},
	}
}

// patientConn gives up when nothing moves for too long.
type patientConn struct{ net.Conn }

func (c *patientConn) Read(b []byte) (int, error) {
	if err := c.SetReadDeadline(time.Now().Add(transferPatience)); err != nil {
		return 0, err
	}
	return c.Conn.Read(b)
}

func (c *patientConn) Write(b []byte) (int, error) {
	if err := c.SetWriteDeadline(time.Now().Add(transferPatience)); err != nil {
		return 0, err
	}
	return c.Conn.Write(b)
}

// ReadFrom is how the transport sends a body when there is no TLS: while one piece goes out, the next one is read and hashed.
func (c *patientConn) ReadFrom(r io.Reader) (sent int64, err error) {
	err = inTurns(r, func() {}, func(piece []byte) error {
		n, err := c.Write(piece)
		sent += int64(n)
		return err
	})
	return sent, err
}

// buffers are those of inTurns.
var buffers = sync.Pool{New: func() any { return new([transferBuffer]byte) }}

// inTurns reads to the end and gives each piece to use, while the next one is read. Nothing is read any more when it returns; stop makes a
// read that is under way end, when what was read before was of no use.
func inTurns(r io.Reader, stop func(), use func(piece []byte) error) error {
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
		case p.err != nil: // the reader has ended
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

// persist tries until a transfer is complete, cannot be, or is not wanted any more. Each attempt ends with the link: a new one is
// tried when there is a new link, so that nobody waits for a connection that is dead.
func (m *Machine) persist(ctx context.Context, attempt func(ctx context.Context) error) error {
	leave, err := place(ctx, m.transfers)
	if err != nil {
		return err
	}
	defer leave()
	for n := 0; ; n++ {
		link, err := m.present.wait(ctx)
		if err != nil {
			return errors.Join(context.Canceled, err)
		}
		try, end := context.WithCancel(ctx)
		unlink := context.AfterFunc(link, end)
		err = attempt(try)
		unlink()
		end()
		var own *failure
		var known *fault.Error
		switch {
		case err == nil:
			return nil
		case ctx.Err() != nil:
			return errors.Join(context.Canceled, context.Cause(ctx))
		case errors.As(err, &own), errors.As(err, &known):
			return err
		}
		m.log.Warn("a transfer broke off and is resumed", "why", inner(err))
		select {
		case <-time.After(m.backoff(n)):
		case <-ctx.Done():
		}
	}
}

// request makes the HTTP request of a transfer.
func (m *Machine) request(ctx context.Context, method, transfer string, body io.Reader) (*http.Request, error) {
	req, err := http.NewRequestWithContext(ctx, method, m.server.String()+wire.TransferPath+transfer, body)
	if err != nil {
		return nil, broken(err, "the transfer's address is none")
	}
	req.Header.Set("Authorization", "Bearer "+m.token)
	req.Header.Set("User-Agent", "secbox/"+m.version)
	return req, nil
}

// refusedTransfer is what an answer means that is not the one that was hoped for: whether it makes sense to ask again.
func refusedTransfer(resp *http.Response) error {
	status := resp.StatusCode
	switch {
	case status >= 500, status == http.StatusTooManyRequests, status == http.StatusRequestTimeout:
		return fmt.Errorf("core-api answered %d", status)
	case status == http.StatusRequestedRangeNotSatisfiable && resp.Request.Method == http.MethodPut:
		return errors.New("core-api has another part of the content by now") // it is asked which
	case status == http.StatusNotFound, status == http.StatusConflict:
		return broken(nil, "core-api does not know the transfer any more")
	}
	return broken(nil, "core-api refused the transfer with the status %d", status)
}

func discardBody(resp *http.Response) {
	_, _ = io.CopyN(io.Discard, resp.Body, 64<<10) // so that the connection can be used again
	resp.Body.Close()
}

// send puts a file's content into a transfer, and returns its SHA-256 in hexadecimal.
func (m *Machine) send(ctx context.Context, transfer string, file io.ReaderAt, size int64) (digest string, err error) {
	src := &source{file: file, size: size, hash: sha256.New()}
	first := true
	err = m.persist(ctx, func(ctx context.Context) error {
		var offset int64
		if !first {
			var err error
			if offset, err = m.arrived(ctx, transfer); err != nil {
				return err
			}
			if offset > src.hashed || offset < 0 {
				return broken(nil, "core-api says that it has more than was sent")
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

// arrived asks how many bytes of the content core-api has.
func (m *Machine) arrived(ctx context.Context, transfer string) (int64, error) {
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
		return 0, broken(err, "core-api does not say how much it has")
	}
	return offset, nil
}

func (m *Machine) put(ctx context.Context, transfer string, src *source, offset int64) error {
	body := &sending{source: src, offset: offset}
	// The transport may go on reading for a moment after the answer is there.
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
		return broken(cause, "the file was changed while it was read, or cannot be read to its end")
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

// source is a file's content, which is sent from any offset on and hashed once: what is sent again was hashed before, so that a file that is
// changed meanwhile has not the digest of what has arrived.
type source struct {
	file   io.ReaderAt
	size   int64
	hash   hash.Hash
	hashed int64 // bytes from the beginning; read by nobody while an attempt is under way
}

// sending is one attempt to send a source.
type sending struct {
	mu     sync.Mutex
	source *source
	offset int64
	err    error
	over   bool
}

func (s *sending) Read(p []byte) (int, error) {
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

func (s *sending) stop() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.over = true
}

func (s *sending) failed() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.err
}

func (s *sending) complete() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.offset == s.source.size
}

// receive gets the content of a transfer, and compares it with what core-api says of it.
func (m *Machine) receive(ctx context.Context, transfer string, into *files.Pending) error {
	sum := sha256.New()
	return m.persist(ctx, func(ctx context.Context) error {
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
			return broken(nil, "core-api sent another part of the content than was asked for")
		default:
			return refusedTransfer(resp)
		}
		if err := drain(resp.Body, into, sum); err != nil {
			return err
		}
		return compare(resp.Trailer, into.Size(), sum)
	})
}

// drain moves a body into a file and its hash. What goes wrong with the body may be tried again, what goes wrong here not.
func drain(body io.ReadCloser, into *files.Pending, sum hash.Hash) error {
	return inTurns(body, func() { body.Close() }, func(piece []byte) error {
		if _, err := into.Write(piece); err != nil {
			return &failure{wire.ErrorOf(err), err}
		}
		sum.Write(piece)
		return nil
	})
}

// compare holds what has arrived against what was said of it behind the content.
func compare(trailer http.Header, size int64, sum hash.Hash) error {
	says, digest := trailer.Get(wire.SizeTrailer), trailer.Get(wire.DigestTrailer)
	if says == "" && digest == "" {
		return errors.New("core-api ended the content without its size and digest")
	}
	if want, err := strconv.ParseInt(says, 10, 64); err != nil || want != size || size > sandbox.MaxFileBytes {
		return broken(err, "%d bytes have arrived, and core-api has sent %.20q", size, says)
	}
	if want, err := hex.DecodeString(digest); err != nil || !bytes.Equal(want, sum.Sum(nil)) {
		return broken(err, "what has arrived is not what core-api has sent: the digests differ")
	}
	return nil
}
