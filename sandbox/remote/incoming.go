package remote

import (
	"context"
	"encoding/hex"
	"errors"
	"io"
	"net/http"
	"regexp"
	"strconv"

	"secbox/fault"
	"secbox/sandbox"
	"secbox/sandbox/remote/wire"
)

// incoming is content that a runner sends. Only the transfer's current request may use it.
type incoming struct {
	w    io.Writer
	got  int64 // bytes written to w
	size int64 // announced by the runner; -1: not yet
}

// errWriter is in the chain when the caller's writer failed.
var errWriter = errors.New("write the content")

// ReadFile reads a file on the user's machine.
func (h *Hub) ReadFile(ctx context.Context, path string, user sandbox.User) ([]byte, error) {
	b := &fileBuffer{}
	data, _, err := h.read(ctx, path, b, user)
	if err != nil {
		return nil, err
	}
	if b.data != nil {
		return b.data, nil
	}
	return data, nil
}

// fileBuffer receives content whose size is announced before it arrives.
type fileBuffer struct{ data []byte }

// expect allocates the buffer. Pages that are never written cost address space, not memory.
func (b *fileBuffer) expect(size int64) { b.data = make([]byte, 0, size) }

func (b *fileBuffer) Write(p []byte) (int, error) {
	b.data = append(b.data, p...)
	return len(p), nil
}

// ReadFileTo streams a file from the user's machine.
func (h *Hub) ReadFileTo(ctx context.Context, path string, w io.Writer, user sandbox.User) (int64, error) {
	data, n, err := h.read(ctx, path, w, user)
	if err != nil || data == nil {
		return n, err
	}
	written, err := w.Write(data)
	return int64(written), err
}

// read returns a small file as data, and writes a large one to w.
func (h *Hub) read(ctx context.Context, path string, w io.Writer, user sandbox.User) (data []byte, n int64, err error) {
	t := h.newTransfer()
	in := &incoming{w: w, size: -1}
	t.incoming = in
	req, err := h.file(ctx, wire.TypeReadFile, user, &wire.Path{Path: path}, t)
	if err != nil {
		return nil, in.got, err // the transfer is closed: in has no other user
	}
	content := req.answer.(*wire.FileContent)
	switch {
	case content.SHA256 == "" && in.size < 0:
		if content.Data == nil {
			content.Data = []byte{}
		}
		return content.Data, content.Size, nil
	case content.SHA256 == "":
		err = t.violation("content both in a message and in a transfer")
	case in.got != content.Size || in.size < 0:
		err = t.violation("%d of %d bytes arrived", in.got, content.Size)
	case hex.EncodeToString(t.hash.Sum(nil)) != content.SHA256:
		err = t.violation("the digest of the content differs")
	}
	if err != nil {
		h.closeForViolation(req.m, err)
	}
	return nil, in.got, err
}

// closeForViolation closes the link of a machine that broke the protocol.
func (h *Hub) closeForViolation(m *machine, err error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if m.link != nil {
		m.link.end(wire.StatusProtocol, fault.From(err).Message)
	}
}

// serveHead answers how many bytes have arrived.
func (t *transfer) serveHead(w http.ResponseWriter, _ *http.Request, _ *transferRequest) {
	w.Header().Set(wire.OffsetHeader, strconv.FormatInt(t.incoming.got, 10))
	w.WriteHeader(http.StatusNoContent)
}

// servePut receives the content from an offset on.
func (t *transfer) servePut(w http.ResponseWriter, r *http.Request, tr *transferRequest) {
	in := t.incoming
	from, size, ok := parseContentRange(r.Header.Get("Content-Range"))
	switch {
	case !ok:
		http.Error(w, "Content-Range must be bytes N-M/SIZE, up to the end of the content", http.StatusBadRequest)
		return
	case size > sandbox.MaxFileBytes:
		t.fail(fault.New(fault.FileTooLarge, "the file has %d bytes; at most %d can be read", size, int64(sandbox.MaxFileBytes)), false)
		http.Error(w, "the file is too large", http.StatusRequestEntityTooLarge)
		return
	case in.size >= 0 && size != in.size:
		t.fail(t.violation("the size was %d and is now %d", in.size, size), true)
		http.Error(w, "the size has changed", http.StatusBadRequest)
		return
	case from != in.got:
		w.Header().Set(wire.OffsetHeader, strconv.FormatInt(in.got, 10))
		http.Error(w, "the content continues at another offset", http.StatusRequestedRangeNotSatisfiable)
		return
	case r.ContentLength >= 0 && r.ContentLength != size-from:
		t.fail(t.violation("a body of %d bytes for %d", r.ContentLength, size-from), true)
		http.Error(w, "Content-Length and Content-Range disagree", http.StatusBadRequest)
		return
	}
	if in.size < 0 {
		in.size = size
		if b, ok := in.w.(*fileBuffer); ok {
			b.expect(size)
		}
	}
	err := t.receive(r.Body, tr)
	switch {
	case err == nil:
		w.WriteHeader(http.StatusNoContent)
	case errors.Is(err, errWriter):
		t.fail(err, false)
		http.Error(w, "the content is no longer wanted", http.StatusConflict)
	case fault.Is(err, fault.RunnerProtocol):
		t.fail(err, true)
		http.Error(w, "the body is longer than announced", http.StatusBadRequest)
	default: // another request may continue
		http.Error(w, "the content did not arrive", http.StatusRequestTimeout)
	}
}

// receive copies a body to the writer, up to the announced size.
func (t *transfer) receive(body io.Reader, tr *transferRequest) error {
	in, stall := t.incoming, t.hub.cfg.Stall
	buf := make([]byte, transferBuffer)
	for {
		if err := tr.extend(tr.rc.SetReadDeadline, stall); err != nil {
			return err
		}
		n, err := body.Read(buf)
		if int64(n) > in.size-in.got {
			return t.violation("more than the announced %d bytes", in.size)
		}
		if n > 0 {
			t.touch()
			t.hash.Write(buf[:n])
			_, err := in.w.Write(buf[:n])
			in.got += int64(n)
			if err != nil {
				return &markedError{err, errWriter}
			}
		}
		switch {
		case errors.Is(err, io.EOF) && in.got == in.size:
			return nil
		case errors.Is(err, io.EOF):
			return io.ErrUnexpectedEOF
		case err != nil:
			return err
		}
	}
}

var contentRange = regexp.MustCompile(`^bytes (\d{1,18})-(\d{1,18})/(\d{1,18})$`)

// parseContentRange parses "bytes N-M/SIZE" with M = SIZE-1.
func parseContentRange(s string) (from, size int64, ok bool) {
	m := contentRange.FindStringSubmatch(s)
	if m == nil {
		return 0, 0, false
	}
	var n [3]int64
	for i := range n {
		n[i], _ = strconv.ParseInt(m[i+1], 10, 64) // 18 digits fit
	}
	return n[0], n[2], n[0] <= n[1] && n[1] == n[2]-1
}
