package remote

import (
	"context"
	"encoding/hex"
	"errors"
	"hash"
	"io"
	"net/http"
	"strconv"
	"strings"

	"secbox/fault"
	"secbox/sandbox"
	"secbox/sandbox/remote/wire"
)

// incoming is content that a runner sends. It belongs to whoever has the transfer's turn.
type incoming struct {
	w    io.Writer
	hash hash.Hash
	got  int64 // bytes that w has
	size int64 // as announced; -1: not yet
}

// errWriter is in the chain when the caller's writer has failed.
var errWriter = errors.New("the content could not be passed on")

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

// fileBuffer takes content whose size is known before it comes.
type fileBuffer struct{ data []byte }

// expect makes room. What is announced and never comes costs addresses, not memory.
func (b *fileBuffer) expect(size int64) { b.data = make([]byte, 0, size) }

func (b *fileBuffer) Write(p []byte) (int, error) {
	b.data = append(b.data, p...)
	return len(p), nil
}

// ReadFileTo streams a file from there.
func (h *Hub) ReadFileTo(ctx context.Context, path string, w io.Writer, user sandbox.User) (int64, error) {
	data, n, err := h.read(ctx, path, w, user)
	if err != nil || data == nil {
		return n, err
	}
	written, err := w.Write(data)
	return int64(written), err
}

// read gets a file: as data when it is small, into w when it is not.
func (h *Hub) read(ctx context.Context, path string, w io.Writer, user sandbox.User) (data []byte, n int64, err error) {
	t := h.newTransfer()
	in := &incoming{w: w, size: -1}
	t.incoming = in
	req, err := h.fileWith(ctx, wire.TypeReadFile, path, user, nil, t)
	if err != nil {
		return nil, in.got, err // the transfer is closed: nobody else has it
	}
	content := req.answer.(*wire.FileContent)
	switch {
	case content.SHA256 == "" && in.size < 0:
		if content.Data == nil {
			content.Data = []byte{}
		}
		return content.Data, content.Size, nil
	case content.SHA256 == "":
		err = t.lied("content both in a message and beside it")
	case in.got != content.Size || in.hash == nil:
		err = t.lied("%d bytes came of %d", in.got, content.Size)
	case hex.EncodeToString(in.hash.Sum(nil)) != content.SHA256:
		err = t.lied("the content's SHA-256 is another one")
	}
	if err != nil {
		h.accuse(req.m, err)
	}
	return nil, in.got, err
}

// accuse closes the link of a machine that has lied.
func (h *Hub) accuse(m *machine, err error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if m.link != nil {
		m.link.end(wire.StatusProtocol, fault.From(err).Message)
	}
}

// serveOffset answers how far the content has come.
func (t *transfer) serveOffset(w http.ResponseWriter, _ *http.Request, _ *worker) {
	w.Header().Set(wire.OffsetHeader, strconv.FormatInt(t.incoming.got, 10))
	w.WriteHeader(http.StatusNoContent)
}

// serveIn takes the content from an offset on.
func (t *transfer) serveIn(w http.ResponseWriter, r *http.Request, me *worker) {
	in := t.incoming
	from, size, ok := parseContentRange(r.Header.Get("Content-Range"))
	switch {
	case !ok:
		http.Error(w, "Content-Range must be bytes N-M/SIZE, up to the content's end", http.StatusBadRequest)
		return
	case size > sandbox.MaxFileBytes:
		t.fail(fault.New(fault.FileTooLarge, "the file has %d bytes, more than the %d that are read", size, int64(sandbox.MaxFileBytes)), false)
		http.Error(w, "the file is too large", http.StatusRequestEntityTooLarge)
		return
	case in.size >= 0 && size != in.size:
		t.fail(t.lied("the size was %d and is %d now", in.size, size), true)
		http.Error(w, "the size was another one before", http.StatusBadRequest)
		return
	case from != in.got:
		w.Header().Set(wire.OffsetHeader, strconv.FormatInt(in.got, 10))
		http.Error(w, "the content goes on at another offset", http.StatusRequestedRangeNotSatisfiable)
		return
	case r.ContentLength >= 0 && r.ContentLength != size-from:
		t.fail(t.lied("a body of %d bytes for %d", r.ContentLength, size-from), true)
		http.Error(w, "Content-Length and Content-Range say different things", http.StatusBadRequest)
		return
	}
	if in.size < 0 {
		in.size, in.hash = size, newHash()
		if b, ok := in.w.(*fileBuffer); ok {
			b.expect(size)
		}
	}
	err := t.receive(r.Body, me)
	switch {
	case err == nil:
		w.WriteHeader(http.StatusNoContent)
	case errors.Is(err, errWriter):
		t.fail(err, false)
		http.Error(w, "the content is not wanted any more", http.StatusConflict)
	case fault.Is(err, fault.RunnerProtocol):
		t.fail(err, true)
		http.Error(w, "the body is longer than it said", http.StatusBadRequest)
	default: // it may go on with another request
		http.Error(w, "the content did not come", http.StatusRequestTimeout)
	}
}

// receive passes a body on up to the announced size.
func (t *transfer) receive(body io.Reader, me *worker) error {
	in, stall := t.incoming, t.hub.cfg.Stall
	buf := make([]byte, transferBuffer)
	for {
		if err := me.mayRead(stall); err != nil {
			return err
		}
		n, err := body.Read(buf)
		if int64(n) > in.size-in.got {
			return t.lied("more than the %d bytes that it announced", in.size)
		}
		if n > 0 {
			t.touch()
			hashed := beside(func() { in.hash.Write(buf[:n]) })
			_, err := in.w.Write(buf[:n])
			<-hashed
			in.got += int64(n)
			if err != nil {
				return &passError{err}
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

// passError is the error of a caller's writer.
type passError struct{ err error }

func (e *passError) Error() string        { return e.err.Error() }
func (e *passError) Unwrap() error        { return e.err }
func (e *passError) Is(target error) bool { return target == errWriter }

// parseContentRange reads bytes N-M/SIZE with M = SIZE-1.
func parseContentRange(s string) (from, size int64, ok bool) {
	rest, ok := strings.CutPrefix(s, "bytes ")
	span, total, ok2 := strings.Cut(rest, "/")
	first, last, ok3 := strings.Cut(span, "-")
	if !ok || !ok2 || !ok3 {
		return 0, 0, false
	}
	from, ok = parseOffset(first)
	to, ok2 := parseOffset(last)
	size, ok3 = parseOffset(total)
	return from, size, ok && ok2 && ok3 && from <= to && to == size-1
}

// parseOffset reads a number of bytes: digits and nothing else.
func parseOffset(s string) (int64, bool) {
	if s == "" || len(s) > 18 || strings.Trim(s, "0123456789") != "" {
		return 0, false
	}
	n, err := strconv.ParseInt(s, 10, 64)
	return n, err == nil
}
